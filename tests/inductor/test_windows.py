"""Kernels of triangles and flips against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import _native_moves as kernels

_SIDES = st.sampled_from([1, 2, 7, 8, 9, 31, 64])
_TYPES = st.sampled_from([np.float32, np.float64, np.int16, np.uint8, np.bool_, np.dtype(ml_dtypes.bfloat16)])


def _array(shape: list[int], dtype: Any) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 251 + 1).astype(dtype)


@settings(max_examples=100)
@given(st.lists(_SIDES, min_size=2, max_size=3), _TYPES, st.integers(-70, 70))
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles(name: str, shape: list[int], dtype: Any, diagonal: int) -> None:
    x = _array(shape, dtype)
    got = kernels.RUNS[name]([x], {"diagonal": diagonal})
    lower = np.tri(*shape[-2:], diagonal - (name == "triu"), dtype=bool)
    np.testing.assert_array_equal(got, np.where(lower == (name == "tril"), x, x.dtype.type(0)))
    assert got.dtype == x.dtype


@settings(max_examples=150)
@given(st.lists(_SIDES, min_size=1, max_size=4), _TYPES, st.data())
def test_flips(shape: list[int], dtype: Any, data: Any) -> None:
    x = _array([*shape[:-1], 2 * shape[-1]], dtype)[..., shape[-1] :]
    if len(shape) > 2 and data.draw(st.booleans()):
        x = x.swapaxes(0, 1)
    last = x.ndim - 1
    dims = tuple(sorted({last, *data.draw(st.lists(st.integers(0, last), max_size=3))}))
    got = kernels.RUNS["flip"]([x], {"dims": dims})
    if shape[-1] < 8:
        assert got is None
        return
    np.testing.assert_array_equal(got, np.flip(x, dims))


def test_what_numpy_does() -> None:
    x = np.zeros((4, 16), np.float32)
    assert kernels.RUNS["flip"]([x], {"dims": ()}) is None
    assert kernels.RUNS["flip"]([x[:, ::2]], {"dims": (1,)}) is None
    assert kernels.RUNS["flip"]([x[:0]], {"dims": (1,)}) is None
    assert kernels.RUNS["flip"]([x.astype(complex)], {"dims": (1,)}) is None
    assert kernels.RUNS["tril"]([x.T], {"diagonal": 0}) is None
    assert kernels.RUNS["tril"]([x[:0]], {"diagonal": 0}) is None
