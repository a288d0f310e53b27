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
