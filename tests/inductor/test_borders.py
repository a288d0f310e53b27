"""Padding, roll, flips and cat on kernels against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import _native_borders as kernels

_TYPES = st.sampled_from([np.float32, np.int64, np.int16, np.bool_, np.dtype(ml_dtypes.bfloat16)])
_SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(lambda s: [*s[:-1], 7 + s[-1]])
_NP_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.fixture(autouse=True)
def _anew() -> Any:
    """Plans say whether an array is large enough, which in these tests all are."""
    kernels._plan.cache_clear()
    yield
    kernels._plan.cache_clear()


def _array(shape: list[int], dtype: Any) -> Any:
    x = (np.arange(np.prod(shape) * 2).reshape(2, *shape) % 251 + 1).astype(dtype)
    return x[1] if len(shape) == 1 else x.reshape(shape[0], 2, *shape[1:])[:, 1]


def _agree(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, want)


@settings(max_examples=150)
@given(_SHAPES, _TYPES, st.data())
def test_a_constant_around(shape: list[int], dtype: Any, data: Any) -> None:
    x = _array(shape, dtype)
    pads = st.integers(-2, 4)
    pad = tuple((data.draw(pads), data.draw(pads)) if n > 4 else (abs(data.draw(pads)), 0) for n in shape)
    got = kernels.RUNS["constant_pad"]([x], {"pad": pad, "value": 1})
    if got is None:
        return
    cut = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(shape, pad, strict=True))]
    _agree(got, np.pad(cut, [(max(a, 0), max(b, 0)) for a, b in pad], constant_values=x.dtype.type(1)))


@settings(max_examples=150)
@given(_SHAPES, _TYPES, st.sampled_from(sorted(_NP_MODES)), st.data())
def test_own_values_around(shape: list[int], dtype: Any, mode: str, data: Any) -> None:
    x = _array(shape, dtype)
    pads = [tuple(data.draw(st.integers(0, n - 1)) for _ in range(2)) for n in shape[-2:]]
    specs = tuple((mode, n, n + a + b, False, float(a)) for n, (a, b) in zip(shape[-2:], pads, strict=True))
    got = kernels.RUNS["resample"]([x], {"specs": specs})
    _agree(got, np.pad(x, [(0, 0)] * (len(shape) - len(pads)) + pads, _NP_MODES[mode]))


def test_own_values_around_what_is_left() -> None:
    x = np.arange(40.0).reshape(2, 20)
    got = kernels.RUNS["resample"]([x], {"specs": (("reflect", 20, 20, False, -3.0),)})
    _agree(got, np.concatenate([x[:, 3:], x[:, [18, 17, 16]]], 1))
    got = kernels.RUNS["resample"]([x], {"specs": (("replicate", 20, 19, False, 2.0),)})
    _agree(got, np.concatenate([x[:, [0, 0]], x[:, :17]], 1))


@settings(max_examples=150)
@given(_SHAPES, _TYPES, st.data())
def test_rolls_and_flips(shape: list[int], dtype: Any, data: Any) -> None:
    x = _array(shape, dtype)
    dims = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3))
    shifts = tuple(data.draw(st.integers(-20, 20)) for _ in dims)
    got = kernels.RUNS["roll"]([np.ascontiguousarray(x)], {"shifts": shifts, "dims": tuple(dims)})
    if got is not None:
        _agree(got, np.roll(x, shifts, tuple(dims)))
    outer = tuple({d for d in dims if d < len(shape) - 1})
    if outer:
        got = kernels.flip_outer(x, outer)
        assert got is not None
        _agree(got, np.flip(x, outer))


@settings(max_examples=100)
@given(_SHAPES, _TYPES, st.integers(2, 8), st.integers(0, 2))
def test_joined_rows(shape: list[int], dtype: Any, count: int, dim: int) -> None:
    dim = min(dim, len(shape) - 1)
    xs = [np.ascontiguousarray(_array([*shape[:dim], shape[dim] + k, *shape[dim + 1 :]], dtype)) for k in range(count)]
    got = kernels.RUNS["cat"](xs, {"dim": dim})
    assert got is not None or dim == 0 or np.prod(shape[:dim]) < 2  # one row: NumPy's, unless there are threads to share it
    if got is not None:
        _agree(got, np.concatenate(xs, dim))


def test_many_rows_are_found_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MOST_KEPT", 3)
    x = np.arange(80).reshape(8, 10)
    for _ in range(2):
        _agree(kernels.RUNS["constant_pad"]([x], {"pad": ((1, 1), (1, 1)), "value": 0}), np.pad(x, 1))
