"""Medians and distinct elements with their numbers, against what a stable sort gives."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocha.backends import cpu
from tocha.prims import sort


@st.composite
def _arrays(draw: Any) -> Any:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.int64]))
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    x = rng.integers(-3, 4, shape).astype(dtype)
    if dtype is not np.int64:
        x[rng.random(shape) < 0.1] *= -1  # zeros of both signs
        if draw(st.booleans()):
            x[rng.random(shape) < 0.2] = np.nan
    return x


@settings(max_examples=200)
@given(_arrays(), st.integers(0, 2))
@pytest.mark.parametrize("ignore_nan", [False, True])
def test_medians(ignore_nan: bool, x: Any, dim: int) -> None:
    dim %= x.ndim
    n = x.shape[dim]
    known = n - np.isnan(x).sum(axis=dim, keepdims=True)
    place = (known - 1).clip(0) // 2 if ignore_nan else np.where(known < n, known, (n - 1) // 2)
    want = np.take_along_axis(x.argsort(axis=dim, kind="stable"), place, dim)
    np.testing.assert_array_equal(sort._middle(cpu, x, dim, ignore_nan), want)


@settings(max_examples=200)
@given(_arrays())
def test_distinct_elements(x: Any) -> None:
    values, inverse, counts = sort.unique.impl(cpu, x, dim=None, consecutive=False, inverse=True)
    want, number, times = sort.unique_rows(cpu, x.reshape(-1, 1), False)
    np.testing.assert_array_equal(values, want[:, 0])
    np.testing.assert_array_equal(np.signbit(values), np.signbit(want[:, 0]))
    np.testing.assert_array_equal(inverse.reshape(-1), number)
    np.testing.assert_array_equal(counts, times)
    assert inverse.shape == x.shape
    assert inverse.dtype == np.int64
