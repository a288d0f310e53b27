"""Cumulative operators, differences and covariance at their edges. Values from torch 2.13."""

from __future__ import annotations

from typing import Any

import pytest

import tocha
from tests.ops.values import check, empty, inf, nan
from tocha import tensor

VALUES: list[Any] = [
    (lambda: tocha.cumsum(tensor([1, 2], dtype=tocha.uint8), 0), "int64", [1, 3]),
    (lambda: tocha.cumsum(tensor(3.0), 0), "float32", 3.0),
    (lambda: tocha.cumprod(tocha.ones(2, 0), 1), "float32", empty([2, 0])),
    (lambda: tocha.cummax(tensor([1.0, 3.0, 3.0, nan, 2.0, nan]), 0), "float32 int64", ([1.0, 3.0, 3.0, nan, nan, nan], [0, 1, 2, 3, 3, 5],)),
    (lambda: tocha.cummin(tensor([3, 1, 1, 2]), 0), "int64 int64", ([3, 1, 1, 1], [0, 1, 2, 2],)),
    (lambda: tocha.logcumsumexp(tensor([-inf, 1.0, 2.0]), 0), "float32", [-inf, 1.0, 2.313262]),
    (lambda: tocha.diff(tensor([1, 4, 9])), "int64", [3, 5]),
    (lambda: tocha.diff(tensor([True, False])), "bool", [True]),
    (lambda: tocha.diff(tensor([1, 4, 9]), n=5), "int64", empty([0])),
    (lambda: tocha.trapezoid(tensor([1.0, 2, 3]), tensor([0.0, 1, 3])), "float32", 6.5),
    (lambda: tocha.cumulative_trapezoid(tensor([1.0, 2, 3]), dx=2), "float32", [3.0, 8.0]),
    (lambda: tocha.trapezoid(tensor([1.0])), "float32", 0.0),
    (lambda: tocha.trapezoid(tensor([])), "float32", 0.0),
    (lambda: tocha.cov(tensor([[1.0, 2, 3], [3, 1, 1]])), "float32", [[1.0, -1.0], [-1.0, 1.333333]]),
    (lambda: tocha.corrcoef(tensor([[1.0, 2, 3], [3, 1, 1]])), "float32", [[1.0, -0.8660254], [-0.8660254, 1.0]]),
    (lambda: tocha.gradient(tensor([1.0, 4, 9, 16])), "float32", ([3.0, 4.0, 6.0, 7.0],)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "dtypes", "expected"), VALUES)
def test_values(call: Any, dtypes: str, expected: Any) -> None:
    check(call(), dtypes, expected)


ERRORS: list[Any] = [
    (lambda: tocha.logcumsumexp(tensor([1, 2]), 0), (RuntimeError, NotImplementedError)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error"), ERRORS)
def test_errors(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_empty_dimension_goes_backward(name: str) -> None:
    x = tocha.zeros(2, 0, requires_grad=True)
    getattr(tocha, name)(x, -1).sum().backward()
    assert x.grad.shape == (2, 0)  # type: ignore[union-attr]


@pytest.mark.parametrize("values", [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0]])
def test_cumprod_gradient_does_not_divide_by_zero(values: list[float]) -> None:
    a, b, c = values
    x = tensor(values, requires_grad=True)
    x.cumprod(0).sum().backward()
    assert x.grad.tolist() == [1 + b + b * c, a + a * c, a * b]  # type: ignore[union-attr]


def test_cumprod_differentiates_twice_at_zero() -> None:
    x = tensor([2.0, 0.0, 4.0], requires_grad=True)
    (first,) = tocha.autograd.grad(x.cumprod(0).sum(), x, create_graph=True)
    (second,) = tocha.autograd.grad(first[0], x)
    assert second.tolist() == [0.0, 5.0, 0.0]


def test_cumsum_to_bool_casts_first() -> None:
    assert tocha.cumsum(tensor([-1, 0, 1]), 0, dtype=tocha.bool).tolist() == [True, True, True]


def test_running_extremes_pass_gradients_to_the_last_of_equals() -> None:
    x = tensor([1.0, 3.0, 3.0, 2.0], requires_grad=True)
    x.cummax(0).values.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 2.0, 0.0]  # type: ignore[union-attr]


def test_long_cumulative_sums_keep_their_digits() -> None:
    assert tocha.full((1000000,), 0.1).cumsum(0)[-1].item() == pytest.approx(100000.0, rel=1e-6)
