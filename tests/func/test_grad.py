"""Gradient transforms: values, nesting, and their meeting with vmap, modules and custom functions."""

import pytest

import tocha as torch
from tocha.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)  # fmt: skip

F, nn = torch.nn.functional, torch.nn
close = torch.testing.assert_close


def grid(*shape):
    return torch.linspace(-1, 2, int(torch.Size(shape).numel())).reshape(shape)


def cubes(a):
    return (a**3).sum()


X = grid(3)


def test_values():
    close(grad(cubes)(X), 3 * X**2)
    close(grad_and_value(cubes)(X), (3 * X**2, cubes(X)))
    close(grad(lambda a, b: (a * b**2).sum(), argnums=(0, 1))(X, X), (X**2, 2 * X**2))
    close(grad(lambda a: (cubes(a), a * 2), has_aux=True)(X), (3 * X**2, X * 2))
    close(grad(lambda d: (d["a"] * d["b"]).sum())({"a": X, "b": X * 2}), {"a": X * 2, "b": X})
    _, pull = vjp(lambda a: (a**2, a.sum()), X)
    close(pull((X, torch.tensor(1.0))), (2 * X * X + 1,))
    close(jvp(lambda a, b: (a * b, a.sin()), (X, X), (torch.ones(3), torch.zeros(3))), ((X**2, X.sin()), (X, X.cos())))
    close(linearize(lambda a: a**2, X)[1](X), 2 * X * X)
    for jacobian in (jacrev, jacfwd):
        close(jacobian(lambda a: a**2)(X), torch.diag(2 * X))
        close(jacobian(lambda a, b: (a * b).sum(), argnums=(0, 1))(X, X * 2), (X * 2, X))
    close(jacrev(lambda a: a**2, chunk_size=2)(X), torch.diag(2 * X))
    close(hessian(cubes)(X), torch.diag(6 * X))


def test_transforms_nest():
    assert grad(grad(grad(lambda s: s**4)))(torch.tensor(2.0)).item() == 48.0
    close(jacrev(jacrev(jacrev(cubes)))(X).sum((0, 1)), torch.full((3,), 6.0))
    close(grad(lambda a: hessian(cubes)(a).sum())(X), torch.full((3,), 6.0))
    w = torch.tensor([1.0, 2.0, 3.0])
    inner = lambda w: grad(lambda a: (a * w).sum() ** 2)(X).sum()  # noqa: E731  2 (x·w) Σw
    close(grad(inner)(w), 2 * X * w.sum() + 2 * (X @ w))


def test_under_vmap():
    x = grid(2, 3)
    close(vmap(grad(cubes))(x), 3 * x**2)
    close(vmap(vmap(grad(lambda s: s**3)))(x), 3 * x**2)
    close(vmap(hessian(cubes))(x), torch.stack([torch.diag(6 * r) for r in x]))
    close(vmap(lambda a, b: jvp(lambda z: z**2, (a,), (b,))[1])(x, x), 2 * x * x)
    close(vmap(lambda a: vjp(torch.sin, a)[1](a)[0])(x), x.cos() * x)
    close(vmap(vjp(lambda a: a**2, X)[1])(torch.eye(3))[0], torch.diag(2 * X))
    close(grad(lambda a: vmap(lambda b: (b * a).sum())(x).sum())(X), x.sum(0))
    close(jacrev(lambda a: vmap(lambda b: (b * a).sum() ** 2)(x))(X), 2 * (x @ X)[:, None] * x)


def loops(function, *inputs):
    rows = [function(*[x[i] for x in inputs]) for i in range(inputs[0].shape[0])]
    return torch.stack(rows)


@pytest.mark.parametrize(
    "loss",
    [
        lambda a: (a.sort().values * torch.arange(4.0)).sum() + a.cumsum(0).prod() + a.std() + a.norm(),
        lambda a: a[torch.tensor([0, 0, 1])].sum() ** 2 + torch.cat([a, a * 2]).max() + a.gather(0, torch.tensor([1])).sum() ** 2,
        lambda a: F.layer_norm(F.gelu(F.linear(a, grid(3, 4))), (3,))[0] + F.cross_entropy(a[None], torch.tensor([1])),
        lambda a: F.max_pool2d(F.relu(F.conv2d(a.view(1, 1, 2, 2), grid(2, 1, 2, 2), padding=1)), 2).sum() ** 2,
        lambda a: F.scaled_dot_product_attention(a.view(1, 1, 2, 2), a.view(1, 1, 2, 2) * 2, a.view(1, 1, 2, 2)).sum() ** 2,
    ],
)
def test_gradients_of_each_example_are_those_of_a_loop(loss):
    x = grid(5, 4) * 0.7 + 0.01
    close(vmap(grad(loss))(x), loops(grad(loss), x))
    close(vmap(hessian(loss))(x), loops(hessian(loss), x), rtol=1e-4, atol=1e-4)


def test_changes_in_place():
    def clone_and_write(a):
        b = a.clone()
        b[0] = b[1] * 2
        b.mul_(a)
        return b.sum()

    def write_into_new(a):
        b = torch.zeros_like(a)
        b[1:] = a[:-1] ** 2
        b += a
        return (b**2).sum()

    x = grid(5, 4)
    for f in (clone_and_write, write_into_new):
        leaf = x[0].clone().requires_grad_()
        close(grad(f)(x[0]), torch.autograd.grad(f(leaf), leaf)[0])
        close(vmap(grad(f))(x), loops(grad(f), x))


def test_what_is_on_the_outer_tape():
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    g = grad(lambda a: (a * w).sum() ** 2)(X)
    close(torch.autograd.grad(g.sum(), w)[0], (2 * X * w.sum() + 2 * (X @ w)).detach())
    assert not grad(cubes)(X).requires_grad and grad(cubes)(w).requires_grad and X.grad is None
    assert not grad(lambda w: grad(lambda a: (a * w).sum() ** 2)(X).sum())(w.detach()).requires_grad
    with torch.no_grad():
        close(grad(cubes)(X), 3 * X**2)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: grad(lambda a: a)(X), RuntimeError), (lambda: grad(lambda a: 3)(X), RuntimeError), (lambda: grad(cubes)(3), ValueError),
        (lambda: grad(cubes, argnums=2)(X), RuntimeError), (lambda: grad(cubes)(torch.tensor([1])), RuntimeError),
        (lambda: jvp(cubes, X, X), RuntimeError),
    ],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call()


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


def test_custom_functions():
    x = grid(2, 3)
    close(vmap(Square.apply)(x), x**2)
    close(vmap(grad(lambda a: Square.apply(a).sum()))(x), 2 * x)
    assert grad(grad(lambda s: Square.apply(s) ** 2))(torch.tensor(2.0)).item() == 48.0

    class NoRule(Square):
        generate_vmap_rule = False

    class OwnRule(NoRule):
        @staticmethod
        def vmap(info, in_dims, x):
            assert info.batch_size == 2 and in_dims == (0,)
            return x * x, 0

    with pytest.raises(RuntimeError, match="does not have vmap support"):
        vmap(NoRule.apply)(x)
    close(vmap(OwnRule.apply)(x), x**2)


def test_per_sample_gradients_of_a_network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    x, t = grid(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    params = {k: v.detach() for k, v in net.named_parameters()}
    loss = lambda p, x, t: F.cross_entropy(functional_call(net, p, (x[None],)), t[None])  # noqa: E731
    per = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, t)
    for i in range(4):
        net.zero_grad()
        F.cross_entropy(net(x[i : i + 1]), t[i : i + 1]).backward()
        for name, p in net.named_parameters():
            close(per[name][i], p.grad, rtol=1e-4, atol=1e-5)


def test_ensembles():
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = stack_module_state(models)
    x = grid(5, 3)
    out = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(params, buffers, x)
    close(out, torch.stack([m(x) for m in models]))


def test_forward_mode_passes_through_gradients_of_what_is_linear_in_pieces():
    def f(a):
        return (F.max_pool1d(F.leaky_relu(a * a - 2)[None, None], 2) ** 2).sum()

    x = torch.tensor([1.0, -2.0, 3.0, 0.5])
    # 4 (x² - 2)² and so on: only -2 and 3 are a window's maximum.
    assert torch.equal(torch.func.hessian(f)(x), torch.diag(torch.tensor([0.0, 12 * 4.0 - 8, 12 * 9.0 - 8, 0.0])))
    pushed = torch.func.jvp(torch.func.grad(f), (x,), (torch.ones(4),))[1]
    assert pushed.tolist() == [0.0, 40.0, 100.0, 0.0]
