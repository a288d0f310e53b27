"""Kernels that resample along a dimension, against the sums in NumPy, bit for bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import _native_taps as kernels


@st.composite
def _cases(draw: Any) -> Any:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 7, 8, 17, 33]), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    places, taps = draw(st.sampled_from([1, 2, 9, 40])), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.standard_normal(shape).astype(draw(st.sampled_from([np.float32, np.float64])))
    if draw(st.booleans()):
        x[rng.random(shape) < 0.2] = np.inf
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.1] = -0.0
    x = x[..., ::-1] if draw(st.booleans()) else x
    index = rng.integers(0, shape[axis], (places, taps))
    weight = rng.standard_normal((places, taps)) if draw(st.booleans()) else np.ones((places, taps))
    used = rng.random((places, taps)) < 0.7 if draw(st.booleans()) else np.ones((places, taps), bool)
    return x, axis, index, weight, used


def _summed(x: Any, axis: int, index: Any, weight: Any, used: Any) -> Any:
    x = np.moveaxis(x, axis, -1)
    total = None
    for t in range(index.shape[1]):
        part = np.where(used[:, t], x[..., index[:, t]] * weight[:, t].astype(x.dtype), x.dtype.type(0))
        total = part if total is None else total + part
    return np.moveaxis(total, -1, axis)


@settings(max_examples=200)
@given(_cases())
@pytest.mark.filterwarnings("ignore")
def test_sums_have_numpys_bits(case: Any) -> None:
    got = kernels.resample(*case)
    inner = int(np.prod(case[0].shape[case[1] + 1 :]))
    want = _summed(*case)
    if 1 < inner < 8 and want.size >= kernels._MANY:  # rows too short for vectors
        assert got is None
        return
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float64, np.bool_])
def test_single_unweighted_taps_move_every_type(dtype: Any) -> None:
    x = (np.arange(5 * 33).reshape(5, 33) % 7).astype(dtype)
    index = np.array([[4], [0], [0], [32]])
    got = kernels.resample(x, 1, index, np.ones((4, 1)), np.ones((4, 1), bool))
    np.testing.assert_array_equal(got, x[:, [4, 0, 0, 32]])
    assert got.dtype == dtype


def test_tables_that_reach_out_of_bounds_are_left_to_numpy() -> None:
    ones = np.ones((2, 1)), np.ones((2, 1), bool)
    for outside in (-1, 33):
        assert kernels.resample(np.zeros((5, 33), np.float32), 1, np.array([[0], [outside]]), *ones) is None
    assert kernels.resample(np.zeros((0, 33), np.float32), 1, np.array([[0], [1]]), *ones) is None
