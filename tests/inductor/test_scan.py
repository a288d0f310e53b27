"""Kernels of scans, against NumPy's accumulate on random shapes, strides and types."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha.backends import _native_scan as kernels

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@st.composite
def _arrays(draw: Any) -> Any:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 7, 8, 9, 17]), min_size=1, max_size=3))
    if draw(st.booleans()):
        shape[-1] = draw(st.sampled_from([255, 256, 257, 600]))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.int64, BFLOAT16, np.float16]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = (rng.integers(-4, 5, shape) / (1 if dtype is np.int64 else 4)).astype(dtype)
    if dtype is not np.int64 and draw(st.booleans()):
        x[rng.random(shape) < 0.05] = np.nan
        x[rng.random(shape) < 0.05] = np.inf
        x[rng.random(shape) < 0.05] = -0.0
    if draw(st.booleans()):
        x = x[..., ::-1]
    return x.T if draw(st.booleans()) else x


def _wide(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype != np.int64 else x


@settings(max_examples=150)
@given(_arrays(), st.integers(0, 2))
@pytest.mark.filterwarnings("ignore")
def test_sums_and_products_have_numpys_bits(x: Any, dim: int) -> None:
    dim %= x.ndim
    with np.errstate(all="ignore"):
        for name, ufunc in (("cumsum", np.add), ("cumprod", np.multiply)):
            got = kernels.RUNS[name]([x], {"dim": dim})
            want = ufunc.accumulate(_wide(x), axis=dim)
            if x.dtype.itemsize == 2:
                want = want.astype(np.float32)
            np.testing.assert_array_equal(_wide(got), _wide(want.astype(x.dtype)))
        got = kernels.RUNS["reversed_cumsum"]([x], {"dim": dim})
        want = np.flip(kernels.RUNS["cumsum"]([np.flip(x, dim)], {"dim": dim}), dim)
        np.testing.assert_array_equal(_wide(got), _wide(want))


@settings(max_examples=150)
@given(_arrays(), st.integers(0, 2))
def test_extremes_keep_nan_and_take_the_last_of_equals(x: Any, dim: int) -> None:
    dim %= x.ndim
    for name, sign in (("cummax", 1), ("cummin", -1)):
        values, places = kernels.RUNS[name]([x], {"dim": dim})
        wide = np.moveaxis(_wide(x), dim, -1)
        flat = wide.reshape(-1, wide.shape[-1])
        for row, got, at in zip(
            flat, *(np.moveaxis(a, dim, -1).reshape(flat.shape) for a in (_wide(values), places)), strict=True
        ):
            best = 0
            for k in range(len(row)):
                if row[k] != row[k] or (row[k] >= row[best] if sign > 0 else row[k] <= row[best]):
                    best = k
                assert at[k] == best
                np.testing.assert_array_equal(got[k], row[best])


def test_other_types_and_empty_arrays_are_left_to_numpy() -> None:
    assert kernels.RUNS["cumsum"]([np.zeros((3, 4), np.complex64)], {"dim": 0}) is None
    assert kernels.RUNS["cumsum"]([np.zeros((0, 4), np.float32)], {"dim": 1}) is None
    assert kernels.RUNS["cummax"]([np.zeros(4, np.bool_)], {"dim": 0}) is None


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 11])
def test_any_number_of_rows(rows: int, dtype: Any) -> None:
    x = np.random.default_rng(rows).integers(-9, 9, (rows, 700)).astype(dtype)
    np.testing.assert_array_equal(torch.from_numpy(x).cumsum(1).numpy(), np.cumsum(x, 1))
    signs = np.where(x > 0, 1, -1).astype(dtype)
    np.testing.assert_array_equal(torch.from_numpy(signs).cumprod(1).numpy(), np.cumprod(signs, 1))
