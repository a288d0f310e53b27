"""Batching rules: vmap of a primitive is one call of it, with the values and gradients of a loop over examples."""

from __future__ import annotations

import itertools

import pytest

import tocha as torch
from tocha.dispatch import vmap as machinery
from tocha.func import grad, vmap

F = torch.nn.functional
L = torch.linalg
SIZE = 3


def reals(*shape):
    return lambda: torch.randn(*shape, dtype=torch.float64)


def places(n, *shape):
    return lambda: torch.randint(0, n, shape)


def some(n, k):
    return lambda: torch.randperm(n)[:k]


@pytest.fixture(autouse=True)
def no_loops(monkeypatch):
    torch.manual_seed(0)

    def refuse(prim, *rest):
        raise AssertionError(f"{prim.name} went example by example")

    monkeypatch.setattr(machinery, "_one_by_one", refuse)


def written(a, v, i, j):
    out = a.clone()
    out[i, :, j] = v
    return out


A = reals(4, 5)
ONE = {
    "prod": lambda a: a.prod(1), "max": lambda a: a.max(1)[0], "argmax": lambda a: a.argmax(),
    "argmin": lambda a: a.argmin(1, keepdim=True),
    "any": lambda a: (a > 1).any(0), "count_nonzero": lambda a: (a > 0).count_nonzero(), "var": lambda a: a.var(0),
    "std": lambda a: a.std(),
    "norm": lambda a: L.vector_norm(a, 3, dim=1), "logsumexp": lambda a: a.logsumexp((0, 1)), "cumsum": lambda a: a.cumsum(1),
    "cumprod": lambda a: a.cumprod(0), "cummax": lambda a: a.cummax(1)[0], "logcumsumexp": lambda a: a.logcumsumexp(0),
    "sort": lambda a: a.sort(0, descending=True)[0], "argsort": lambda a: a.argsort(1), "topk": lambda a: a.topk(2, 0)[0],
    "kthvalue": lambda a: a.kthvalue(2, 1)[0], "median": lambda a: a.median(), "median of rows": lambda a: a.median(1)[0],
    "mode": lambda a: a.round().mode(1)[0], "flip": lambda a: a.flip(0, 1), "roll": lambda a: a.roll((1, 2), (0, 1)),
    "repeat": lambda a: a.repeat(2, 1, 3), "tril": lambda a: a.tril(1), "pad": lambda a: F.pad(a, (1, 2, 0, -1)),
    "fft": lambda a: torch.fft.fft2(a).abs(), "rfft": lambda a: torch.fft.rfft(a, dim=0).abs(), "det": lambda a: L.det(a[:, :4]),
    "inverse": lambda a: L.inv(a[:, :4]), "cholesky": lambda a: L.cholesky(a @ a.mT + torch.eye(4)),
    "eigvalsh": lambda a: L.eigvalsh(a @ a.mT),
    "svdvals": lambda a: L.svdvals(a), "max_pool": lambda a: F.max_pool1d(a[None], 2),
    "avg_pool": lambda a: F.avg_pool1d(a[None], 2, 1, 1),
    "adaptive_max_pool": lambda a: F.adaptive_max_pool1d(a[None], 2),
    "interpolate": lambda a: F.interpolate(a[None], 7, mode="linear"),
    "unfold": lambda a: F.fold(F.unfold(a[None, None], 2), (4, 5), 2), "median of one": lambda a: a.sum().median(),
    "0-d": lambda a: a.sum().sort(0)[0],
    "0-d scan": lambda a: a.sum().cumsum(0), "0-d stack": lambda a: torch.stack([a.sum(), a.mean()]),
    "weighted": lambda a: F.layer_norm(a, (5,), a[0]),
    "attention": lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None], is_causal=True),
    "linear": lambda a: F.linear(a, a, a[:, 0]),
    "ignored": lambda a: F.cross_entropy(a, torch.tensor([0, -100, 2, 3])),
    "weights": lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2, 3]), torch.arange(1.0, 6.0).double(), label_smoothing=0.1),
}  # fmt: skip
SEVERAL = {
    "index": (lambda a, i: a[i], A, places(4, 2, 3)), "index behind": (lambda a, i: a[:, i], A, places(4, 2)),
    "index two": (lambda a, i, j: a[i, j], A, places(4, 3), places(5, 2, 3)),
    "index apart": (lambda a, i, j: a[i, :, j], reals(4, 3, 5), places(4, 2), places(5, 1)),
    "index inside": (lambda a, i, j: a[:, i, j], reals(2, 4, 3, 2), places(4, 2), places(3, 2, 1)),
    "index_put": (lambda a, v, i: a.index_put((i,), v), A, reals(2, 5), some(4, 2)),
    "accumulate": (lambda a, v, i, j: a.index_put((i, j), v, accumulate=True), A, reals(3), places(4, 3), places(5, 2, 3)),
    "gather": (lambda a, i: a.gather(1, i), A, places(5, 4, 2)),
    "scatter_add": (lambda a, i, s: a.scatter_add(0, i, s), A, places(4, 3, 5), reals(3, 5)),
    "scatter": (lambda a, i, s: a.scatter(0, i[None], s), A, some(4, 4), reals(1, 5)),
    "embedding": (lambda w, i: F.embedding(i, w), A, places(4, 2, 3)),
    "conv1d": (lambda x, w: F.conv1d(x, w, stride=2, padding=1, groups=2), reals(2, 4, 9), reals(6, 2, 3)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=(1, 0), dilation=(1, 2)), reals(2, 4, 6, 7), reals(6, 4, 3, 2), reals(6)),
    "grouped": (lambda x, w, b: F.conv2d(x, w, b, groups=2), reals(4, 6, 7), reals(6, 2, 3, 2), reals(6)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4), reals(2, 4, 5, 5), reals(4, 1, 3, 3)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2), reals(2, 4, 4, 3), reals(4, 3, 3, 3), reals(6)),
    "linear": (F.linear, reals(2, 4, 5), reals(3, 5), reals(3)),
    "linear of a vector": (F.linear, reals(5), reals(3, 5), reals(3)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4, 5), w, b), reals(2, 4, 5), reals(4, 5), reals(4, 5)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), A, reals(5)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), reals(2, 4, 3), reals(4), reals(4)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), reals(3, 4, 2), reals(4), reals(4)),
    "given statistics": (lambda x, m, v, w: F.batch_norm(x, m, v.abs() + 1, w), reals(3, 4, 2), reals(4), reals(4), reals(4)),
    "cross_entropy": (F.cross_entropy, A, places(5, 4)), "images": (F.cross_entropy, reals(2, 5, 3), places(5, 2, 3)),
    "nll": (lambda x, t: F.nll_loss(x, t, reduction="sum"), A, places(5, 4)), "mse": (F.mse_loss, A, A),
    "attention": (F.scaled_dot_product_attention, reals(2, 3, 4), reals(2, 5, 4), reals(2, 5, 3), reals(3, 5)),
    "solve": (L.solve, reals(4, 4), reals(4, 2)), "mv": (torch.mv, A, reals(5)),
    "stack": (lambda a, b: torch.stack([a, b], -1), A, A),
    "searchsorted": (lambda a, b: torch.searchsorted(a.sort(-1)[0], b), reals(5), reals(3, 2)),
    "equal": (lambda a, b: (a == b).all(), A, A),
}  # fmt: skip
CASES = {**{name: (f, A) for name, f in ONE.items()}, **SEVERAL}


def weighted(f):
    def scalar(*args):
        out = f(*args)
        return (out * torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)).sum()

    return scalar


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_a_loop(name):
    f, *makers = CASES[name]
    for mapped in itertools.product((True, False), repeat=len(makers)):
        if not any(mapped):
            continue
        inputs = [torch.stack([make() for _ in range(SIZE)]) if m else make() for make, m in zip(makers, mapped)]
        dims = tuple(0 if m else None for m in mapped)
        rows = [[x[i] if m else x for x, m in zip(inputs, mapped)] for i in range(SIZE)]
        expected = torch.stack([f(*row) for row in rows])
        torch.testing.assert_close(vmap(f, dims)(*inputs), expected)
        if not expected.is_floating_point():
            continue
        numbers = tuple(i for i, x in enumerate(inputs) if x.is_floating_point())
        found = vmap(grad(weighted(f), numbers), dims)(*inputs)
        for column, g in zip(zip(*[grad(weighted(f), numbers)(*row) for row in rows]), found):
            torch.testing.assert_close(g, torch.stack(column))


def test_no_examples():
    assert vmap(lambda a: a.sort(0)[0])(torch.zeros(0, 4, 5)).shape == (0, 4, 5)
    assert vmap(lambda a, i: a[i])(torch.zeros(0, 4), torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2)


def test_per_sample_gradients_of_a_convolutional_network():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(4, 6, 3, groups=2), torch.nn.GroupNorm(2, 6),
        torch.nn.Flatten(), torch.nn.Linear(24, 5),
    ).double()  # fmt: skip
    parameters = {k: v.detach() for k, v in net.named_parameters()}
    images, targets = torch.randn(4, 1, 10, 10).double(), torch.randint(0, 5, (4,))

    def loss(p, x, y):
        return F.cross_entropy(torch.func.functional_call(net, p, (x[None],)), y[None])

    found = vmap(grad(loss), (None, 0, 0))(parameters, images, targets)
    for i in range(4):
        net.zero_grad()
        F.cross_entropy(net(images[i : i + 1]), targets[i : i + 1]).backward()
        for name, p in net.named_parameters():
            torch.testing.assert_close(found[name][i], p.grad)
