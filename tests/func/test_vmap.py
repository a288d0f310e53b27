"""vmap against a Python loop over examples."""

import pytest

import tocha as torch
from tocha.func import vmap

F = torch.nn.functional


def grid(*shape):
    return torch.linspace(-1, 2, int(torch.Size(shape).numel())).reshape(shape)


X, Y, V, M = grid(3, 4, 5), grid(3, 4, 5).flip(0) + 0.1, grid(3, 5), grid(3, 5, 6)
INDEX = torch.tensor([[0, 1], [2, 3], [1, 1]])
IMAGE = grid(3, 2, 6, 6)


def check(function, *inputs):
    rows = [function(*[x[i] for x in inputs]) for i in range(inputs[0].shape[0])]
    expected = torch.stack(rows) if isinstance(rows[0], torch.Tensor) else tuple(torch.stack(list(c)) for c in zip(*rows))
    torch.testing.assert_close(vmap(function)(*inputs), expected, equal_nan=True)


UNARY = {
    "arithmetic": lambda a: (a * 2 + 1) / 3 - a**2, "relu": F.relu, "gelu": F.gelu, "sum": lambda a: a.sum(),
    "sum over one": lambda a: a.sum(-1, keepdim=True), "mean over all": lambda a: a.mean((0, 1)), "var": lambda a: a.var(1),
    "prod": lambda a: a.prod(), "max": lambda a: tuple(a.max(1)), "argmax": lambda a: a.argmax(), "any": lambda a: (a > 1).any(),
    "cumsum": lambda a: a.cumsum(0), "softmax": lambda a: a.softmax(0), "log_softmax": lambda a: a.log_softmax(-1),
    "norm": lambda a: a.norm(dim=1), "sort": lambda a: tuple(a.sort(1)), "topk": lambda a: tuple(a.topk(2)),
    "view": lambda a: a.view(2, -1), "transposed": lambda a: a.t().reshape(-1), "permute": lambda a: a.permute(1, 0),
    "unsqueeze": lambda a: a.unsqueeze(-1), "squeeze": lambda a: a.unsqueeze(0).squeeze(), "expand": lambda a: a[None].expand(2, 4, 5),
    "index": lambda a: a[0], "slices": lambda a: a[::2, 1:3], "split": lambda a: a.split(2)[1], "unbind": lambda a: a.unbind(1)[2],
    "diagonal": lambda a: a.diagonal(), "unfold": lambda a: a.unfold(1, 2, 1), "flip": lambda a: a.flip(0), "roll": lambda a: a.roll(1),
    "tril": lambda a: a.tril(), "cat": lambda a: torch.cat([a, torch.ones(4, 1)], 1), "stack": lambda a: torch.stack([a, torch.ones(4, 5)]),
    "pad": lambda a: F.pad(a, (1, 2)), "where": lambda a: torch.where(a > 0, a, -a), "masked_fill": lambda a: a.masked_fill(a > 0, 0.0),
    "layer_norm": lambda a: F.layer_norm(a, (5,), grid(5), grid(5)), "linear": lambda a: F.linear(a, grid(7, 5), grid(7)),
    "cross_entropy": lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2, 3])), "outer": lambda a: torch.outer(a[0], a[1]),
    "attention": lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]), "det": lambda a: torch.linalg.det(a[:, :4]),
    "inverse": lambda a: torch.linalg.inv(a[:, :4] + 3 * torch.eye(4)), "one_hot": lambda a: F.one_hot((a > 0).long(), 2),
    "like": lambda a: torch.zeros_like(a) + a.new_ones(5), "to": lambda a: a.to(torch.float64), "rows": lambda a: a[torch.tensor([0, 2])],
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_one_mapped_input(name):
    check(UNARY[name], X)


@pytest.mark.parametrize(
    "function, inputs",
    [
        (lambda a, b: a + b, (X, Y)), (lambda a, b: a * b, (X, V)), (lambda a, b: a @ b, (X, M)), (lambda a, b: a @ b, (X, V)),
        (lambda a, b: a @ b, (V, M)), (torch.dot, (V, V)), (lambda a, w: F.linear(a, w), (X, grid(3, 7, 5))),
        (lambda a, w, b: F.linear(a, w, b), (X, grid(3, 7, 5), grid(3, 7))), (lambda a, i: a[i], (X, INDEX)),
        (lambda a, i: a[:, i], (X, INDEX)), (lambda a, i: a[i, i], (X, INDEX)), (lambda i: X[0][i], (INDEX,)),
        (lambda a, i: a.index_select(0, i), (X, INDEX)), (lambda a, i: a.index_put((i,), torch.tensor(9.0)), (X, INDEX)),
        (lambda a, i: a.gather(1, i), (X, INDEX[:, None, :].expand(3, 4, 2))),
        (lambda a, i: torch.zeros(4, 5).scatter(1, i, 1.0) + a, (X, INDEX[:, None, :].expand(3, 4, 2))),
        (lambda i: F.embedding(i, grid(6, 3)), (INDEX,)), (lambda w, i: F.embedding(i, w), (grid(3, 6, 3), INDEX)),
        (lambda a, t: F.cross_entropy(a, t), (X, torch.tensor([[0, 1, 2, 3]] * 3))),
        (lambda a: F.conv2d(a[None], grid(4, 2, 3, 3), grid(4), padding=1), (IMAGE,)),
        (lambda a, w: F.conv2d(a[None], w), (IMAGE, grid(3, 4, 2, 3, 3))), (lambda a: F.max_pool2d(a[None], 2), (IMAGE,)),
        (lambda a: F.group_norm(a[None], 2), (IMAGE,)), (lambda a: F.batch_norm(a[None], torch.zeros(2), torch.ones(2)), (IMAGE,)),
        (lambda a, s: a + s, (X, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))),  # a 0-d operand doesn't widen
        (lambda s: torch.ones(2) * s + s.view(1).expand(2), (torch.tensor([1.0, 2.0]),)), (lambda s: s / 2, (torch.tensor([1, 2]),)),
    ],
)  # fmt: skip
def test_several_inputs(function, inputs):
    check(function, *inputs)


def changes():
    def whole(a):
        a.add_(1)
        return a * 2

    def item(a):
        a[0] = 5.0
        a[1:3].mul_(2)
        return a

    def fill(a):
        b = a.clone()
        b.fill_(3.0)
        return b.masked_fill_(a > 0, 7.0) + a.zero_()

    def at_index(a):
        b = a * 1
        i = (a > 0).long().sum() % 4
        b[i] = 7.0
        b.index_put_((i[None],), b[i][None] * 3)
        return b.scatter_(0, i[None], 9.0)

    def made_alike(a):
        b, c = torch.zeros_like(a), a.new_zeros(4)
        b += a
        c[:2] = a[2:]
        return b * c

    def several(a):
        b = a * 1
        b.clamp_(0, 1).sub_(a, alpha=2).exp_()
        b /= 2
        b.index_add_(0, torch.tensor([0, 0]), a[:2])
        return b.copy_(b + 1)

    return [whole, item, fill, at_index, made_alike, several]


@pytest.mark.parametrize("function", changes(), ids=lambda f: f.__name__)
def test_changes_in_place(function):
    x, y = grid(3, 4), grid(3, 4)
    expected = torch.stack([function(y[i]) for i in range(3)])
    torch.testing.assert_close(vmap(function)(x), expected)
    assert torch.equal(x, y)  # the mapped input was changed the same way


def test_dimensions_and_structures():
    x, y = grid(2, 3), grid(3, 2)
    assert torch.equal(vmap(lambda a, b: a * b, in_dims=(0, 1))(x, y), x * y.T)
    assert vmap(lambda a: a, in_dims=1)(x).shape == (3, 2) and vmap(lambda a: a, in_dims=1, out_dims=-1)(x).shape == (2, 3)
    assert torch.equal(vmap(lambda a, k: a * k, in_dims=(0, None))(x, 3.0), x * 3)
    nested = vmap(lambda d: d["a"] + d["b"][0], in_dims=({"a": 0, "b": [None]},))({"a": x, "b": [torch.ones(3)]})
    assert torch.equal(nested, x + 1)
    out = vmap(lambda a: {"s": a.sum(), "t": (a, a * 2)})(x)
    assert out["s"].shape == (2,) and torch.equal(out["t"][1], x * 2)
    first, second = vmap(lambda a, b: (a, b), in_dims=(0, None), out_dims=(1, None))(x, torch.ones(1))
    assert first.shape == (3, 2) and second.shape == (1,)
    outer = vmap(vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(torch.arange(3.0), torch.arange(2.0))
    assert outer.tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0]]
    assert torch.equal(vmap(lambda a: a * 2, chunk_size=2)(grid(5, 2)), grid(5, 2) * 2)
    assert vmap(lambda a, *, k: a + k)(x, k=x).shape == (2, 2, 3)  # keywords are not mapped
    assert vmap(lambda a: a.sum())(torch.ones(0, 3)).shape == (0,)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda x: vmap(lambda a: a, in_dims=5)(x), ValueError), (lambda x: vmap(lambda a: 3)(x), ValueError),
        (lambda x: vmap(lambda a: a)(), ValueError), (lambda x: vmap(lambda a, b: a)(x, torch.ones(5)), ValueError),
        (lambda x: vmap(lambda a: a, in_dims=None)(x), ValueError), (lambda x: vmap(lambda a: a.sum().item())(x), RuntimeError),
        (lambda x: vmap(lambda a: a if a.sum() > 0 else -a)(x), RuntimeError), (lambda x: vmap(lambda a: a.nonzero())(x), RuntimeError),
        (lambda x: vmap(lambda a: a[a > 0])(x), RuntimeError), (lambda x: vmap(lambda a: torch.zeros(3).add_(a))(x), RuntimeError),
        (lambda x: vmap(lambda a: a.numpy())(x), RuntimeError), (lambda x: vmap(lambda a: a, out_dims=None)(x), ValueError),
        (lambda x: vmap(lambda a: a, randomness="some")(x), RuntimeError), (lambda x: vmap(lambda a: a, chunk_size=0)(x), ValueError),
        (lambda x: vmap(lambda a: torch.add(a, 1, out=torch.ones(3)))(x), RuntimeError),
    ],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call(grid(2, 3))


@pytest.mark.parametrize(
    "draw",
    [
        lambda a: a + torch.randn(3), lambda a: a + torch.rand_like(a), lambda a: F.dropout(a + 1, 0.5),
        lambda a: torch.bernoulli(a + 0.5), lambda a: a.clone().uniform_(), lambda a: a + torch.randint(0, 10**6, (3,)),
    ],
)  # fmt: skip
def test_random_numbers(draw):
    x = torch.zeros(8, 3)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(draw)(x)
    apart = vmap(draw, randomness="different")(x)
    assert apart.shape == (8, 3) and not bool((apart == apart[0]).all())
    alike = vmap(draw, randomness="same")(x)
    assert bool((alike == alike[0]).all())


def test_gradients_flow_through_vmap():
    x, w = grid(2, 4).requires_grad_(), grid(4).requires_grad_()
    vmap(lambda a: (a * w).sum() ** 2)(x).sum().backward()
    expected = torch.autograd.grad((x @ w).square().sum(), (x, w))
    torch.testing.assert_close((x.grad, w.grad), expected)


def test_masked_scatter():
    mask = torch.tensor([[True, False, True], [False, True, True]])
    x, source = torch.zeros(2, 3), torch.arange(6.0).reshape(2, 3)
    assert torch.vmap(torch.Tensor.masked_scatter)(x, mask, source).tolist() == [[0, 0, 1], [0, 3, 4]]
    assert torch.vmap(lambda x, m: x.masked_scatter(m, torch.arange(3.0)))(x, mask).tolist() == [[0, 0, 1], [0, 0, 1]]
    with pytest.raises(RuntimeError, match="the mask selects 2, source has 1"):
        torch.vmap(lambda x, m: x.masked_scatter(m, torch.ones(1)))(x, mask)
