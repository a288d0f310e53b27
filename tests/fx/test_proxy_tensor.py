"""make_fx: graphs of aten calls, and what can't be one."""

import pytest

import tocha as torch
from tocha.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

aten = torch.ops.aten
X = torch.arange(9.0).view(3, 3) / 9


def _targets(gm):
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


def test_forward():
    gm = make_fx(lambda x: torch.nn.functional.linear(x, x).softmax(-1))(X)
    assert _targets(gm) == [aten.t.default, aten.mm.default, aten._softmax.default]
    assert [n.name for n in gm.graph.nodes] == [
        "x_1",
        "t",
        "mm",
        "_softmax",
        "output",
    ] and "torch.ops.aten.mm.default(x_1, t)" in gm.code
    assert torch.equal(gm(X + 1), torch.nn.functional.linear(X + 1, X + 1).softmax(-1))
    assert get_proxy_mode() is None


def test_modules_backward_and_writes():
    model = torch.nn.Linear(3, 2)
    assert torch.equal(make_fx(model)(X)(X + 1), model(X + 1))

    def gradient(x, w):
        w = w.detach().requires_grad_()
        return torch.autograd.grad((x @ w).pow(2).sum(), w)

    gm = make_fx(gradient)(X, X)
    assert torch.allclose(gm(X, X + 1)[0], gradient(X, X + 1)[0]) and aten.mm.default in _targets(gm)

    def write(x):
        y = x.clone()
        y[0].add_(1)
        return {"y": y, "n": 3}

    got = make_fx(write)(X)(X)
    assert got["n"] == 3 and torch.equal(got["y"], write(X)["y"])


def test_decompositions_and_random_operators():
    table = {
        aten._softmax.default: lambda x, dim, half: (x - x.amax(dim, True)).exp() / (x - x.amax(dim, True)).exp().sum(dim, True)
    }
    gm = make_fx(lambda x: x.softmax(-1), table)(X)
    assert aten._softmax.default not in _targets(gm) and torch.allclose(gm(X), X.softmax(-1))
    gm = make_fx(lambda x: x + torch.rand(3))(X)
    torch.manual_seed(0)
    first = gm(X)
    assert not torch.equal(first, gm(X))
    torch.manual_seed(0)
    assert torch.equal(first, X + torch.rand(3))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x if x.sum() > 0 else -x, "data-dependent control flow"),
        (lambda x: x * x.sum().item(), "data-dependent control flow"),
        (lambda x: torch.nn.functional.dropout(x, 0.5), "no operator of its own"),
    ],
)
def test_refusals(function, text):
    with pytest.raises(RuntimeError, match=text):
        make_fx(function)(X)
    assert get_proxy_mode() is None


def test_sizes_are_numbers():
    with pytest.raises(RuntimeError, match="symbolic"):
        make_fx(lambda x: x, tracing_mode="symbolic")
