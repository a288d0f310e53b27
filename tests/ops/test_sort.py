"""Order, distinct values and histograms at their edges: NaN, ties, nothing, 0-d. Values from torch 2.13."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha
from tests.ops.values import check, empty, nan
from tocha import tensor

VALUES: list[Any] = [
    (lambda: tocha.sort(tensor([3.0, nan, 1.0])), "float32 int64", ([1.0, 3.0, nan], [2, 0, 1],)),
    (lambda: tocha.sort(tensor([3.0, nan, 1.0, 3.0]), descending=True, stable=True), "float32 int64", ([nan, 3.0, 3.0, 1.0], [1, 0, 3, 2],)),
    (lambda: tocha.sort(tensor([[3, 1], [1, 2]]), 0), "int64 int64", ([[1, 1], [3, 2]], [[1, 0], [0, 1]],)),
    (lambda: tocha.sort(tensor(3.0)), "float32 int64", (3.0, 0,)),
    (lambda: tocha.argsort(tensor([3, 1, 2]), descending=True), "int64", [0, 2, 1]),
    (lambda: tocha.topk(tensor([3.0, nan, 1.0]), 2), "float32 int64", ([nan, 3.0], [1, 0],)),
    (lambda: tocha.topk(tensor([3.0, nan, 1.0]), 2, largest=False), "float32 int64", ([1.0, 3.0], [2, 0],)),
    (lambda: tocha.topk(tocha.arange(100.0), 3), "float32 int64", ([99.0, 98.0, 97.0], [99, 98, 97],)),
    (lambda: tocha.topk(tocha.arange(100.0), 3, largest=False), "float32 int64", ([0.0, 1.0, 2.0], [0, 1, 2],)),
    (lambda: tocha.kthvalue(tensor([3, 1, 2]), 2), "int64 int64", (2, 2,)),
    (lambda: tocha.median(tensor([3.0, 1.0, nan])), "float32", nan),
    (lambda: tocha.median(tensor([[3.0, 1.0, nan, 2]]), 1), "float32 int64", ([nan], [2],)),
    (lambda: tocha.nanmedian(tensor([[3.0, 1.0, nan, 2]]), 1), "float32 int64", ([2.0], [3],)),
    (lambda: tocha.median(tensor([])), "float32", nan),
    (lambda: tocha.median(tensor([4, 2, 3, 1])), "int64", 2),
    (lambda: tocha.mode(tensor([1, 2, 2, 3, 3])), "int64 int64", (2, 2,)),
    (lambda: tocha.mode(tensor([[3, 3, 1, 1]]), 1), "int64 int64", ([1], [3],)),
    (lambda: tocha.quantile(tensor([1.0, 2, 3, 4]), 0.3), "float32", 1.9),
    (lambda: tocha.quantile(tensor([[1.0, 2], [3, 4]]), tensor([0.3, 0.5]), dim=0), "float32", [[1.6, 2.6], [2.0, 3.0]]),
    (lambda: tocha.quantile(tensor([1.0, nan]), 0.5), "float32", nan),
    (lambda: tocha.nanquantile(tensor([[1.0, nan], [nan, nan]]), 0.5, dim=1), "float32", [1.0, nan]),
    (lambda: tocha.quantile(tensor([1.0, 2, 3, 4]), 0.5, interpolation="midpoint"), "float32", 2.5),
    (lambda: tocha.unique(tensor([3, 1, 2, 1]), return_inverse=True, return_counts=True), "int64 int64 int64", ([1, 2, 3], [2, 0, 1, 0], [2, 1, 1],)),
    (lambda: tocha.unique(tensor([nan, nan, 1.0]), return_counts=True), "float32 int64", ([1.0, nan, nan], [1, 1, 1],)),
    (lambda: tocha.unique(tensor([[1, 2], [1, 2], [0, 1]]), dim=0, return_inverse=True, return_counts=True),
     "int64 int64 int64", ([[0, 1], [1, 2]], [1, 1, 0], [1, 2],)),
    (lambda: tocha.unique(tensor([])), "float32", empty([0])),
    (lambda: tocha.unique(tocha.ones(0, 2), dim=0), "float32", empty([0, 2])),
    (lambda: tocha.unique_consecutive(tensor([1, 1, 2, 2, 1]), return_inverse=True, return_counts=True),
     "int64 int64 int64", ([1, 2, 1], [0, 0, 1, 1, 2], [2, 2, 1],)),
    (lambda: tocha.unique_consecutive(tensor([])), "float32", empty([0])),
    (lambda: tocha.bincount(tensor([]).long()), "int64", empty([0])),
    (lambda: tocha.bincount(tensor([1, 1, 3]), minlength=6), "int64", [0, 2, 0, 1, 0, 0]),
    (lambda: tocha.bincount(tensor([1, 1]), weights=tensor([1.0, 2])), "float32", [0.0, 3.0]),
    (lambda: tocha.histc(tensor([1.0, 2, 1]), bins=4, min=0, max=3), "float32", [0.0, 2.0, 1.0, 0.0]),
    (lambda: tocha.histc(tensor([]), bins=4, min=0, max=3), "float32", [0.0, 0.0, 0.0, 0.0]),
    (lambda: tocha.histogram(tensor([1.0, 2, 1]), bins=4, range=(0.0, 3.0)), "float32 float32", ([0.0, 2.0, 1.0, 0.0], [0.0, 0.75, 1.5, 2.25, 3.0],)),
    (lambda: tocha.histogram(tensor([1.0, 2, 1]), tensor([0.0, 1, 2.0]), weight=tensor([1.0, 2.0, 4.0]), density=True),
     "float32 float32", ([0.0, 1.0], [0.0, 1.0, 2.0],)),
    (lambda: tocha.searchsorted(tensor([1.0, 2, 3]), tensor([2.0, nan])), "int64", [1, 3]),
    (lambda: tocha.searchsorted(tensor([[1, 3], [2, 4]]), tensor([[2], [2]]), right=True), "int64", [[1], [1]]),
    (lambda: tocha.bucketize(tensor([[2.0, 5]]), tensor([1.0, 2, 3]), out_int32=True), "int32", [[1, 3]]),
    (lambda: tocha.isin(tensor([1, 2]), tensor([2])), "bool", [False, True]),
    (lambda: tocha.isin(1, tensor([1, 2])), "bool", True),
    (lambda: tensor([3.0, 1]).sort(stable=True), "float32 int64", ([1.0, 3.0], [1, 0],)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "dtypes", "expected"), VALUES)
def test_values(call: Any, dtypes: str, expected: Any) -> None:
    check(call(), dtypes, expected)


ERRORS: list[Any] = [
    (lambda: tocha.topk(tensor([3.0]), 2), RuntimeError),
    (lambda: tocha.quantile(tensor([]), 0.5), RuntimeError),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error"), ERRORS)
def test_errors(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call()


def test_equal_elements_keep_their_order_both_ways() -> None:
    x = tensor([1.0, 2.0, 1.0, 2.0])
    assert x.sort(stable=True).indices.tolist() == [0, 2, 1, 3]
    assert x.sort(stable=True, descending=True).indices.tolist() == [1, 3, 0, 2]


def test_few_of_many_are_chosen_right() -> None:
    x = tocha.arange(1000).mul(7).remainder(1000).float()
    assert x.topk(3).values.tolist() == [999.0, 998.0, 997.0]
    assert x[x.topk(3, largest=False).indices].tolist() == [0.0, 1.0, 2.0]


def test_gradients_go_where_values_came_from() -> None:
    x = tensor([[3.0, 1.0, 2.0]], requires_grad=True)
    (x.sort(1).values * tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [[100.0, 1.0, 10.0]]  # type: ignore[union-attr]


def test_results_are_named() -> None:
    found = tensor([3, 1, 2]).sort()
    assert type(found).__name__ == "sort"
    assert type(found).__module__ == "torch.return_types"
    assert found._fields == ("values", "indices")


@pytest.mark.parametrize(
    "name", ["topk", "kthvalue", "chunk", "tensor_split", "tril", "triu", "diag", "diagonal", "rot90", "repeat_interleave"]
)
def test_integer_arguments_take_no_floats(name):
    with pytest.raises(TypeError):
        getattr(tocha.ones(3, 3), name)(2.0)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_many_with_ties_and_nan(largest: bool) -> None:
    rng = np.random.default_rng(8)
    for values in (rng.standard_normal((4, 200)), rng.integers(-9, 9, (4, 200)).astype(np.float64)):
        values[1, 7] = np.nan
        found, places = tocha.topk(tocha.from_numpy(values), 9, -1, largest)
        ranked = np.sort(np.where(np.isnan(values), np.inf, values), -1)
        np.testing.assert_array_equal(
            np.where(np.isnan(found), np.inf, found), ranked[:, ::-1][:, :9] if largest else ranked[:, :9]
        )
        np.testing.assert_array_equal(np.take_along_axis(values, places.numpy(), -1), found)
