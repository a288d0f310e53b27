"""Gradient rules of pointwise primitives that run as one kernel give what they give operator by operator."""

import numpy as np
import pytest

import tocha as torch
from tocha.backends import native
from tocha.dispatch.fused import Fused
from tocha.prims.pointwise import ALL

LARGE = 3 * native.LEAST["rule"] + 5


def _fused(prim):
    return [rule for rule in prim.plan((True,) * len(prim.arguments)).rules if isinstance(rule[1], Fused)] if prim.vjp else []


UNARY = [name for name, p in ALL.items() if len(p.arguments) == 1 and not p.parameters and _fused(p)]


def _gradient(name, x, g):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(ALL[name](x), x, g)[0]


def test_rules_of_several_operations_are_fused():
    assert {"tanh", "sigmoid", "sin", "sqrt", "erf"} <= set(UNARY)
    assert "exp" not in UNARY  # one product
    assert [rule[0] for rule in _fused(ALL["true_divide"])] == [1]
    assert not _fused(ALL["pow"])  # chooses with `keep`, which is no scalar rule


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_gradients_agree_with_small_ones(name, dtype):
    low, high = ALL[name].domain
    x = torch.linspace(low, high, LARGE, dtype=dtype)
    g = torch.randn(LARGE, dtype=dtype)
    x[0], g[1] = 0.5, float("nan")
    expected = torch.cat([_gradient(name, a, b) for a, b in zip(x.split(1000), g.split(1000), strict=True)])
    torch.testing.assert_close(_gradient(name, x, g), expected, equal_nan=True)


def test_broadcast_and_strided_operands():
    x, y = torch.randn(300, 200, requires_grad=True), (torch.rand(200) + 1).requires_grad_()
    g = torch.randn(200, 300).t()
    of_x, of_y = torch.autograd.grad(x / y, (x, y), g)
    np.testing.assert_allclose(of_y.numpy(), (-g * x / y / y).sum(0).detach().numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(of_x.numpy(), (g / y).detach().numpy(), rtol=1e-6)


def test_half_types_round_once():
    x = torch.linspace(-2, 2, LARGE).bfloat16().requires_grad_()
    out = torch.tanh(x)
    got = torch.autograd.grad(out, x, torch.ones_like(x))[0]
    assert torch.equal(got, (1 - out.detach().float() ** 2).bfloat16())


def test_create_graph_records_the_rule():
    x = torch.linspace(-1, 1, LARGE, dtype=torch.float64, requires_grad=True)
    first = torch.autograd.grad(torch.tanh(x).sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x)[0]
    t = np.tanh(x.detach().numpy())
    np.testing.assert_allclose(second.numpy(), -2 * t * (1 - t * t), rtol=1e-12, atol=1e-15)


def test_parameters_are_arguments_of_the_kernel():
    x = (torch.rand(LARGE) + 0.5).requires_grad_()
    for exponent in (2, 3, 2.5, -1.5):
        got = torch.autograd.grad(x**exponent, x, torch.ones(LARGE))[0]
        np.testing.assert_allclose(got.numpy(), exponent * x.detach().numpy() ** (exponent - 1), rtol=3e-6)


SMALL_SHAPES = [(), (1,), (600,), (1, 600), (300, 1), (300, 600), (1, 1)]


@pytest.mark.parametrize("shape", SMALL_SHAPES)
@pytest.mark.parametrize("operator", [torch.mul, torch.sub, torch.true_divide, torch.atan2])
def test_gradients_of_broadcast_operands_are_sums_of_products(shape, operator):
    rng = np.random.default_rng(3)
    x, y, g = rng.uniform(1, 2, (2, 300, 600)), rng.uniform(1, 2, shape), rng.standard_normal((2, 300, 600))
    slope = {"mul": x, "sub": -1, "true_divide": -x / y**2, "atan2": -x / (x**2 + y**2)}[operator.__name__] * g
    lead = slope.ndim - y.ndim
    axes = (*range(lead), *[lead + i for i, n in enumerate(y.shape) if n == 1])
    expected = slope.sum(axes, keepdims=True).reshape(shape)
    given = [torch.tensor(a, dtype=torch.float32).requires_grad_() for a in (x, y)]
    of_x, of_y = torch.autograd.grad(operator(*given), given, torch.tensor(g, dtype=torch.float32))
    assert of_x.shape == x.shape and of_y.shape == shape and of_y.dtype is torch.float32
    np.testing.assert_allclose(of_y.numpy(), expected, rtol=1e-4, atol=2e-6 * np.abs(slope).sum(axes).max())


def test_a_broadcast_operand_has_its_gradient_summed_as_it_is_computed(monkeypatch):
    asked, total = [], native.total
    monkeypatch.setattr(native, "total", lambda name, *rest: asked.append(name) or total(name, *rest))
    x, y = torch.randn(200, 300, requires_grad=True), torch.randn(300, requires_grad=True)
    (x * y).sum().backward()
    assert asked == ["mul_1_gradient"]
    torch.testing.assert_close(y.grad, x.detach().double().sum(0).float(), rtol=1e-4, atol=1e-4)
    again = torch.autograd.grad((x * y).sum(), y, create_graph=True)[0]  # what is recorded is made of operators
    assert asked == ["mul_1_gradient"] and again.requires_grad
    torch.testing.assert_close(again.detach(), y.grad, rtol=1e-4, atol=1e-4)


def test_a_broadcast_operand_of_another_type_has_its_gradient_cast():
    x, y = torch.randn(200, 300, requires_grad=True), torch.randn(300, dtype=torch.float64).requires_grad_()
    of_x, of_y = torch.autograd.grad(x * y, (x, y), torch.ones(200, 300, dtype=torch.float64))
    assert of_x.dtype is torch.float32 and of_y.dtype is torch.float64
    torch.testing.assert_close(of_y, x.detach().double().sum(0))


@pytest.mark.parametrize("call", [
    lambda x, y: torch.nn.functional.smooth_l1_loss(x, y, beta=0.3, reduction="none"),
    lambda x, y: torch.nn.functional.huber_loss(x, y, delta=0.3, reduction="none"),
    lambda x, y: torch.nn.functional.binary_cross_entropy(x, y, reduction="none"),
])  # fmt: skip
def test_rules_with_bounds_are_one_kernel(call, monkeypatch):
    x, y = (torch.rand(LARGE) * 0.9 + 0.05 for _ in range(2))
    x.requires_grad_()
    expected = torch.cat([torch.autograd.grad(call(x[i : i + 900], y[i : i + 900]).sum(), x)[0][i : i + 900] for i in range(0, LARGE, 900)])
    out, served = call(x, y).sum(), []
    monkeypatch.setattr(Fused, "_by_kernel", lambda self, *given, by=Fused._by_kernel: served.append(by(self, *given)) or served[-1])
    torch.testing.assert_close(torch.autograd.grad(out, x)[0], expected)
    assert served and served[0] is not None
