"""Reductions at their edges: nothing to reduce, NaN, ties, 0-d, bool and integer types. Values from torch 2.13."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha
from tests.ops.values import check, empty, inf, nan
from tocha import tensor

VALUES: list[Any] = [
    (lambda: tocha.sum(tensor([])), "float32", 0.0),
    (lambda: tocha.sum(tensor([True, True])), "int64", 2),
    (lambda: tocha.sum(tensor([1, 2], dtype=tocha.uint8)), "int64", 3),
    (lambda: tocha.sum(tensor([1.5, 2]), dtype=tocha.int32), "int32", 3),
    (lambda: tocha.sum(tocha.ones(2, 3), ()), "float32", 6.0),
    (lambda: tocha.sum(tocha.ones(2, 3), [0, 1], True), "float32", [[6.0]]),
    (lambda: tocha.sum(tensor(3.0), 0), "float32", 3.0),
    (lambda: tocha.mean(tensor([1, 2]), dtype=tocha.float32), "float32", 1.5),
    (lambda: tocha.mean(tocha.ones(0)), "float32", nan),
    (lambda: tocha.mean(tocha.ones(2, 0), 1), "float32", [nan, nan]),
    (lambda: tocha.prod(tocha.ones(0)), "float32", 1.0),
    (lambda: tocha.prod(tensor([2, 3], dtype=tocha.int8)), "int64", 6),
    (lambda: tocha.max(tocha.ones(0, 3), 1), "float32 int64", (empty([0]), empty([0]),)),
    (lambda: tocha.max(tensor([1.0, nan, 3])), "float32", nan),
    (lambda: tocha.max(tensor([1.0, nan, 3]), 0), "float32 int64", (nan, 1,)),
    (lambda: tocha.max(tensor([True, False])), "bool", True),
    (lambda: tocha.max(tensor(3.0), 0), "float32 int64", (3.0, 0,)),
    (lambda: tocha.min(tensor([[1, 2], [0, 5]]), 1, True), "int64 int64", ([[1], [0]], [[0], [0]],)),
    (lambda: tocha.argmax(tensor([[1, 5], [7, 2]])), "int64", 2),
    (lambda: tocha.argmax(tensor([[1, 5], [7, 2]]), 1, keepdim=True), "int64", [[1], [0]]),
    (lambda: tocha.argmax(tensor(1.0)), "int64", 0),
    (lambda: tocha.amax(tensor([[1.0, 2], [3, 4]]), (0, 1)), "float32", 4.0),
    (lambda: tocha.any(tensor([0.0, nan])), "bool", True),
    (lambda: tocha.any(tensor([0, 2], dtype=tocha.uint8)), "uint8", 1),
    (lambda: tocha.all(tocha.ones(0)), "bool", True),
    (lambda: tocha.all(tocha.ones(2, 0), 1), "bool", [True, True]),
    (lambda: tocha.any(tensor([[0, 1]]), (0, 1)), "bool", True),
    (lambda: tocha.all(tensor([[0, 1]]), dim=()), "bool", [[False, True]]),
    (lambda: tocha.var(tensor([1.0])), "float32", nan),
    (lambda: tocha.var(tensor([1.0, 2, 4]), correction=0), "float32", 1.555556),
    (lambda: tocha.var(tensor([1.0, 2, 4]), 0, False), "float32", 1.555556),
    (lambda: tocha.std(tensor([[1.0, 2], [4, 8]]), 1, keepdim=True), "float32", [[0.7071068], [2.828427]]),
    (lambda: tocha.var_mean(tensor([1.0, 2, 4])), "float32 float32", (2.333333, 2.333333,)),
    (lambda: tocha.std_mean(tensor([1.0, 2, 4]), 0, correction=2), "float32 float32", (2.160247, 2.333333,)),
    (lambda: tocha.var(tensor([1 + 1j, 2])), "float32", 1.0),
    (lambda: tocha.norm(tensor([3.0, 4])), "float32", 5.0),
    (lambda: tocha.norm(tensor([[3.0, 4], [1, 2]]), 1, 1), "float32", [7.0, 3.0]),
    (lambda: tocha.norm(tensor([3.0, 4]), inf), "float32", 4.0),
    (lambda: tocha.norm(tensor([3.0, 4]), 0), "float32", 2.0),
    (lambda: tocha.norm(tensor([[3.0, 4], [1, 2]]), "nuc"), "float32", 5.830952),
    (lambda: tocha.norm(tensor([3.0, 4]), p=-1), "float32", 1.714286),
    (lambda: tocha.logsumexp(tensor([-inf, -inf]), 0), "float32", -inf),
    (lambda: tocha.logsumexp(tensor([inf, 1.0]), 0), "float32", inf),
    (lambda: tocha.logsumexp(tensor([1, 2]), 0), "float32", 2.313262),
    (lambda: tocha.logsumexp(tocha.ones(2, 0), 1), "float32", [-inf, -inf]),
    (lambda: tocha.count_nonzero(tensor([[0, 1], [2, 0]]), 0), "int64", [1, 1]),
    (lambda: tocha.renorm(tocha.ones(2, 3), 2, 0, 1.0), "float32", [[0.5773503, 0.5773503, 0.5773503], [0.5773503, 0.5773503, 0.5773503]]),
    (lambda: tocha.dist(tensor([1.0, 2]), tensor([1.0, 5]), 0), "float32", 1.0),
    (lambda: tocha.aminmax(tensor([[1, 2], [3, 0]]), dim=1), "int64 int64", ([1, 0], [2, 3],)),
    (lambda: tocha.nansum(tensor([1.0, nan])), "float32", 1.0),
    (lambda: tocha.nanmean(tensor([1.0, nan, 3])), "float32", 2.0),
    (lambda: tocha.sum(tensor([1.0, 2]), axis=0), "float32", 3.0),
    (lambda: tocha.max(tensor([1.0, 2]), axis=0), "float32 int64", (2.0, 1,)),
    (lambda: tocha.std(tensor([1.0, 2]), unbiased=False), "float32", 0.5),
    (lambda: tensor([1.0, 2]).std(False), "float32", 0.5),
    (lambda: tensor([[1.0, 2]]).var(1, False), "float32", [0.25]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "dtypes", "expected"), VALUES)
def test_values(call: Any, dtypes: str, expected: Any) -> None:
    check(call(), dtypes, expected)


ERRORS: list[Any] = [
    (lambda: tocha.sum(tocha.ones(2, 3), (0, 0)), RuntimeError),
    (lambda: tocha.sum(tocha.ones(2, 3), 3), IndexError),
    (lambda: tocha.mean(tensor([1, 2])), RuntimeError),
    (lambda: tocha.max(tensor([])), RuntimeError),
    (lambda: tocha.max(tocha.ones(0, 3), 0), IndexError),
    (lambda: tocha.max(tensor([1j])), (RuntimeError, NotImplementedError)),
    (lambda: tocha.argmax(tensor([])), IndexError),
    (lambda: tocha.argmax(tensor([True])), RuntimeError),
    (lambda: tocha.var(tensor([1, 2])), RuntimeError),
    (lambda: tocha.norm(tensor([3, 4])), RuntimeError),
    (lambda: tocha.norm(tensor([]), inf), RuntimeError),
    (lambda: tensor([1, 2]).mean(0), RuntimeError),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error"), ERRORS)
def test_errors(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call()


def _grad(f: Any, values: Any) -> list[Any]:
    x = tensor(values, requires_grad=True)
    f(x).sum().backward()
    return x.grad.tolist()  # type: ignore[no-any-return, union-attr]


@pytest.mark.parametrize(
    ("f", "values", "expected"),
    [
        (lambda x: x.prod(), [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
        (lambda x: x.prod(), [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
        (lambda x: x.prod(1), [[2.0, 0.0], [3.0, 4.0]], [[0.0, 2.0], [4.0, 3.0]]),
        (lambda x: x.max(), [1.0, 2.0, 2.0], [0.0, 0.5, 0.5]),
        (lambda x: x.max(0).values, [1.0, 2.0, 2.0], [0.0, 1.0, 0.0]),
        (lambda x: x.amin((0, 1)), [[1.0, 1.0], [2.0, 3.0]], [[0.5, 0.5], [0.0, 0.0]]),
        (lambda x: x.norm(), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: x.norm(inf), [3.0, -3.0, 1.0], [0.5, -0.5, 0.0]),
        (lambda x: x.std(), [1.0, 1.0], [0.0, 0.0]),
        (lambda x: x.var(correction=0), [1.0, 3.0], [-1.0, 1.0]),
        (lambda x: x.logsumexp(0), [inf, 1.0], [nan, 0.0]),
        (lambda x: x.mean(0, keepdim=True), [1.0, 3.0], [0.5, 0.5]),
    ],
)
def test_gradients(f: Any, values: Any, expected: Any) -> None:
    np.testing.assert_allclose(_grad(f, values), expected)


def test_prod_differentiates_twice_through_two_zeros() -> None:
    x = tensor([2.0, 3.0, 0.0, 0.0], requires_grad=True)
    (first,) = tocha.autograd.grad(x.prod(), x, create_graph=True)
    (second,) = tocha.autograd.grad(first[2], x)
    assert second.tolist() == [0.0, 0.0, 0.0, 6.0]


@pytest.mark.parametrize("shape", [(1000000,), (1000, 1000), (250000, 4), (4, 250000), (100, 100, 100)])
def test_sums_of_float32_stay_near_the_exact_ones(shape: tuple[int, ...]) -> None:
    x = tocha.arange(1000000).remainder(997).float().mul_(0.1).reshape(shape)
    exact = x.double()
    for dim in (None, *range(len(shape))):
        for y, z in ((x, exact), (x.transpose(0, -1), exact.transpose(0, -1))):
            error = ((y.sum(dim).double() - z.sum(dim)) / z.sum(dim)).abs().max()
            assert error < 4e-7


def test_sums_over_any_dimensions_of_any_layout() -> None:
    x = tocha.arange(7 * 600 * 3).reshape(7, 600, 3)
    for dims in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
        for sums in ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1)):
            exact = x.permute(dims).sum(sums)
            assert tocha.allclose(x.float().permute(dims).sum(sums), exact.float())


def test_half_precision_sums_round_once() -> None:
    x = tocha.full((4096,), 0.1, dtype=tocha.bfloat16)
    assert x.sum().item() == 410.0
    assert x.sum().dtype is tocha.bfloat16


def test_ties_of_many_halves_do_not_overflow_the_count() -> None:
    x = tocha.zeros(70000, dtype=tocha.float16, requires_grad=True)
    x.amax().backward()
    assert x.grad.float().max().item() == pytest.approx(1 / 70000, rel=5e-3)  # type: ignore[union-attr]


def test_empty_reductions_name_the_dimension() -> None:
    with pytest.raises(IndexError, match="dim 1 to have non-zero size"):
        tocha.zeros(2, 0).max(1)


@pytest.mark.parametrize("dim", [np.int64(0), tensor(0)])
def test_dimensions_that_are_integers_of_other_kinds(dim: Any) -> None:
    assert tocha.tensor([[1.0, 5.0], [2.0, 3.0]]).amax(dim).tolist() == [2, 5]
    assert tocha.tensor([1, 2, 3]).roll(1, dim).tolist() == [3, 1, 2]


def test_std_of_numbers_whose_squares_leave_the_range() -> None:
    check(tocha.tensor([1e30, 1e30, -1e30]).std(), "float32", 1.1547005e30)
    assert tocha.tensor([1e-30, 2e-30, 3e-30]).std().item() == pytest.approx(1e-30, rel=1e-5)
    assert tocha.tensor([2.0, 2.0]).std().item() == 0
