"""The kernel of bags' maxima against the primitive in NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import _native_index as kernels
from tocha.backends import cpu
from tocha.prims.embedding import bag_maximum_place


@settings(max_examples=100)
@given(
    st.sampled_from([1, 2, 9, 40]),
    st.sampled_from([1, 3, 255, 256, 257, 600]),
    st.integers(1, 5),
    st.sampled_from([np.float32, np.float64, np.int64]),
    st.integers(0, 2**32),
)
def test_places_are_numpys(n: int, m: int, count: int, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-3, 4, (n, m)).astype(dtype)
    if dtype is not np.int64:
        rows[rng.random((n, m)) < 0.1] = np.nan
        rows[rng.random((n, m)) < 0.1] = -np.inf
    bags = rng.integers(-1, count, n)
    want = bag_maximum_place.impl(cpu, rows, bags, count=count)
    np.testing.assert_array_equal(kernels.bag_maximum_place([rows, bags], {"count": count}), want)


@pytest.mark.parametrize("outside", [2, 1 << 40])
def test_bags_out_of_bounds_are_left_to_numpy(outside: int) -> None:
    rows = np.zeros((2, 8), np.float32)
    assert kernels.bag_maximum_place([rows, np.array([0, outside])], {"count": 2}) is None
