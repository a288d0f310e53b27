"""Kernels of binary search against NumPy's."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import _native_search as kernels


@settings(max_examples=150)
@given(
    st.sampled_from([1, 2, 3, 7, 8, 9, 100, 255, 256, 257]),
    st.sampled_from([1, 5, 255, 256, 257, 1000]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
    st.booleans(),
    st.integers(0, 2**32),
)
@pytest.mark.filterwarnings("ignore")
def test_places_are_numpys(n: int, m: int, rows: int, dtype: Any, right: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges, values = (rng.integers(0, 60, (max(rows, 1), size)).astype(dtype) for size in (n, m))
    if dtype in (np.float32, np.float64):
        for a in (edges, values):
            for special in (np.nan, np.inf, -np.inf, -0.0):
                a[rng.random(a.shape) < 0.1] = special
    edges.sort(-1)
    got = kernels.searchsorted([edges if rows else edges[0], values], {"right": right})
    for e, v, g in zip(edges, values, got, strict=True):
        np.testing.assert_array_equal(g, np.searchsorted(e, v, "right" if right else "left"))
    assert got.dtype == np.int64


def test_what_numpy_does() -> None:
    edges, values = np.arange(4.0), np.zeros((2, 3))
    for arrays in ([edges, values.astype(np.float32)], [edges[:0], values], [edges, values[:0]]):
        assert kernels.searchsorted(arrays, {"right": False}) is None


@settings(max_examples=150)
@given(
    st.sampled_from([1, 2, 5, 64]), st.sampled_from([512, 513, 2000]), st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
    st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_the_first_of_rows_in_order(k: int, n: int, dtype: Any, largest: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 90, (3, n)).astype(dtype)
    if x.dtype.kind == "f":
        for special in (np.nan, np.inf, -np.inf, -0.0):
            x[rng.random(x.shape) < rng.choice([0.001, 0.5])] = special
        x[2] = np.sort(x[2])
    values, places = kernels.topk([x], {"k": k, "dim": 1, "largest": largest})
    key = np.where(np.isnan(x), np.inf, x.astype(float)), np.isnan(x)  # NaN is the largest number
    order = [np.lexsort((s * a, s * b.astype(int))) for s in [-1 if largest else 1] for a, b in zip(*key, strict=True)]
    np.testing.assert_array_equal(places, np.array(order)[:, :k])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))
    assert values.dtype == x.dtype


def test_first_of_rows_that_numpy_does() -> None:
    x = np.arange(1024.0).reshape(2, 512)
    for a, k, dim in ((x, 65, 1), (x, 0, 1), (x[:, ::2], 2, 1), (x.T, 2, 0), (x[:, :100], 2, 1), (x.astype(complex), 2, 1)):
        assert kernels.topk([a], {"k": k, "dim": dim, "largest": True}) is None
