"""Special functions at poles, zeros and infinities. Values from torch 2.13."""

from __future__ import annotations

from typing import Any

import pytest

import tocha
from tests.ops.values import check, inf, nan
from tocha import tensor

VALUES: list[Any] = [
    (lambda: tocha.xlogy(tensor([0.0, 0.0, 1.0]), tensor([nan, 0.0, 0.0])), "float32", [nan, 0.0, -inf]),
    (lambda: tocha.xlogy(tensor([0]), tensor([0])), "float32", [0.0]),
    (lambda: tocha.special.entr(tensor([0.0, -1, 0.5])), "float32", [0.0, -inf, 0.3465736]),
    (lambda: tocha.special.zeta(tensor([2.0, 1]), tensor([1.0, 1])), "float32", [1.644934, inf]),
    (lambda: tocha.lgamma(tensor([0.0, -1, -0.5, inf])), "float32", [inf, inf, 1.265512, inf]),
    (lambda: tocha.digamma(tensor([0.0, -0.0, -1, 0.5])), "float32", [-inf, inf, nan, -1.963511]),
    (lambda: tocha.polygamma(1, tensor([0.5, -1.5])), "float32", [4.934802, 9.379248]),
    (lambda: tocha.erfinv(tensor([1.0, -1, 2, 0])), "float32", [inf, -inf, nan, 0.0]),
    (lambda: tocha.logit(tensor([0.0, 1, 0.5, 2])), "float32", [-inf, inf, 0.0, nan]),
    (lambda: tocha.logit(tensor([0.0, 1, 0.5]), eps=0.1), "float32", [-2.197225, 2.197224, 0.0]),
    (lambda: tocha.sinc(tensor([0.0, 0.5])), "float32", [1.0, 0.6366197]),
    (lambda: tocha.special.xlog1py(tensor([0.0, 0]), tensor([-1.0, nan])), "float32", [0.0, nan]),
    (lambda: tocha.mvlgamma(tensor([3.0, 4]), 2), "float32", [1.550195, 3.565098]),
    (lambda: tocha.igamma(tensor([1.0]), tensor([2.0])), "float32", [0.8646647]),
    (lambda: tocha.igamma(tensor([nan, nan, inf, inf, 0.0]), tensor([0.0, inf, nan, inf, nan])), "float32", [0.0, 1.0, 0.0, nan, nan]),
    (lambda: tocha.igammac(tensor([nan, nan, inf, inf, -1.0]), tensor([0.0, inf, nan, -1.0, nan])), "float32", [1.0, 0.0, 1.0, nan, nan]),
    (lambda: tocha.special.airy_ai(tensor([1e30, 150.0, inf, 1.0, nan])), "float32", [0.0, 0.0, nan, 0.1352924, nan]),
    # where torch isn't right: it gives NaN for the limits at infinity, and large numbers at poles
    (lambda: tocha.polygamma(2, tensor([inf, -1.0, nan])), "float32", [0.0, -inf, nan]),
    (lambda: tocha.polygamma(1, tensor([-1.0, -2.0])), "float32", [inf, inf]),
    (lambda: tocha.special.zeta(tensor([2.0, inf]), tensor([inf, inf])), "float32", [0.0, 0.0]),
    (lambda: tocha.special.airy_ai(tensor([-1113, -10701])), "float32", [-0.05651425, 0.007703224]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "dtypes", "expected"), VALUES)
def test_values(call: Any, dtypes: str, expected: Any) -> None:
    check(call(), dtypes, expected)


def test_degrees_of_polynomials() -> None:
    x = tensor([0.5, -1.0, 2.0])
    for n, expected in ((0, [1.0, 1.0, 1.0]), (3, [-1.0, -1.0, 26.0]), (-1, [0.0, 0.0, 0.0]), (2.9, [-0.5, 1.0, 7.0])):
        assert tocha.special.chebyshev_polynomial_t(x, n).tolist() == pytest.approx(expected)
    assert tocha.special.legendre_polynomial_p(x, 2).tolist() == pytest.approx([-0.125, 1.0, 5.5])
    assert tocha.special.hermite_polynomial_h(x, 3).tolist() == pytest.approx([-5.0, 4.0, 40.0])
    assert tocha.special.laguerre_polynomial_l(x, 2).tolist() == pytest.approx([0.125, 3.5, -1.0])


@pytest.mark.parametrize("kind", "tuvw")
def test_high_degrees_agree_with_the_recurrence(kind: str) -> None:
    x = tensor([0.3, -0.7, 1.0, -1.0, 1.1, -1.2], dtype=tocha.float64)
    polynomial = getattr(tocha.special, f"chebyshev_polynomial_{kind}")
    p = [polynomial(x, n) for n in (5, 6, 7, 8, 9)]
    for before, now, after in zip(p, p[1:], p[2:], strict=False):
        assert after.tolist() == pytest.approx((2 * x * now - before).tolist())


@pytest.mark.parametrize("name", ["erf", "erfinv", "lgamma", "digamma", "i0", "sinc", "logit"])
def test_derivatives_agree_with_differences(name: str) -> None:
    x = tensor([0.3, 0.6], dtype=tocha.float64, requires_grad=True)
    f = getattr(tocha, name)
    f(x).sum().backward()
    h = 1e-6
    slope = (f(x.detach() + h) - f(x.detach() - h)) / (2 * h)
    assert x.grad.tolist() == pytest.approx(slope.tolist(), rel=1e-6)  # type: ignore[union-attr]


def test_derivatives_at_the_ends_where_torch_gives_one_half_or_nan() -> None:
    x = tensor([nan, 0.0], requires_grad=True)
    for f in (tocha.special.i1, tocha.special.i1e):
        (grad,) = tocha.autograd.grad(f(x).sum(), x)
        assert grad.isnan().tolist() == [True, False]
        assert grad[1] == 0.5
    x = tensor([-inf, -1e30], requires_grad=True)
    (grad,) = tocha.autograd.grad(tocha.special.log_ndtr(x).sum(), x)
    assert grad.tolist() == pytest.approx([inf, 1e30])
