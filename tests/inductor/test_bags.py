"""The kernels of bags' sums and maxima against the primitives in NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import _native_index as kernels
from tocha.backends import cpu
from tocha.prims.embedding import bag_maximum_place, bag_sum


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


@settings(max_examples=100)
@given(
    st.sampled_from([0, 1, 9, 400]),
    st.sampled_from([1, 3, 255, 256, 257, 600]),
    st.integers(1, 5),
    st.sampled_from([np.float32, np.float64, np.float16, ml_dtypes.bfloat16]),
    st.sampled_from([np.int64, np.int32]),
    st.booleans(),
    st.integers(-1, 6),
    st.integers(0, 2**32),
)
def test_sums_are_numpys(n: int, m: int, count: int, dtype: Any, index: Any, weighted: bool, padding: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((7, m)).astype(dtype)
    indices, starts = rng.integers(0, 7, n).astype(index), np.sort(rng.integers(0, n + 1, count + 1))
    factors = rng.standard_normal(n).astype(dtype) if weighted else None
    for mean in (False, True) if factors is None else (False,):
        params = {"padding_idx": padding, "mean": mean, "by_frequency": False}
        got = kernels.bag_sum([table, indices, starts, factors], params)
        if got is None:
            assert n * m < 4096
            continue
        inside = slice(starts[0], starts[-1])
        want = bag_sum.impl(
            cpu, table, indices[inside], starts - starts[0], None if factors is None else factors[inside], **params
        )
        assert got.dtype == want.dtype
        tolerance = 1e-2 if got.dtype.itemsize == 2 else 1e-4
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_sums_of_indices_or_bags_out_of_bounds_are_left_to_numpy() -> None:
    table, params = np.zeros((4, 600), np.float32), {"padding_idx": -1, "mean": False, "by_frequency": False}
    indices, starts = np.arange(12) % 4, np.array([0, 5, 12])
    assert kernels.bag_sum([table, indices, starts, None], params) is not None
    for wrong in (np.where(indices == 3, 4, indices), np.where(indices == 3, -1, indices)):
        assert kernels.bag_sum([table, wrong, starts, None], params) is None
    for edges in ([0, 5, 13], [-1, 5, 12], [0, 7, 5]):
        assert kernels.bag_sum([table, indices, np.array(edges), None], params) is None
