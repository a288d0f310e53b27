"""Copies between memory orders on kernels, against NumPy on random shapes, orders, strides and types."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha.backends import _native_moves as kernels


@st.composite
def _arrays(draw: Any) -> Any:
    rank = draw(st.integers(2, 4))
    shape = [draw(st.sampled_from([1, 2, 3, 5])) for _ in range(rank)]
    for d in draw(st.permutations(range(rank)))[:2]:
        shape[d] = draw(st.sampled_from([8, 9, 15, 16, 17, 31, 32, 33, 40, 64, 65]))
    dtype = draw(st.sampled_from([np.int8, np.bool_, np.float16, np.float32, np.int64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    order = draw(st.permutations(range(rank)))
    x = (rng.integers(-99, 99, [shape[d] * 2 for d in order]) % 120).astype(dtype)
    x = x[tuple([slice(None, None, draw(st.sampled_from([1, 2, -2]))) for _ in order[:-1]])]
    x = x[tuple([slice(0, shape[d]) for d in order])]
    return x.transpose(np.argsort(order))


@settings(max_examples=200)
@given(_arrays())
def test_copies_between_orders(x: Any) -> None:
    out = np.full(x.shape, 77, x.dtype)
    fastest = [d for d in range(x.ndim) if x.shape[d] > 1 and x.strides[d] == x.itemsize]
    done = kernels.copy_transposed(out, x)
    if not done:
        assert (out == out.dtype.type(77)).all()
        last = max(d for d in range(x.ndim) if x.shape[d] > 1)
        assert fastest == [] or fastest == [last] or min(x.shape[fastest[0]], x.shape[last]) < 8
    else:
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_one_value_everywhere(dtype: str) -> None:
    x = torch.zeros(5, 9, dtype=getattr(torch, dtype))
    assert kernels.fill(x._a, x._a.dtype.type(1))
    assert x.tolist() == [[1] * 9] * 5
    assert not kernels.fill(x._a[:, 1:], x._a.dtype.type(0))
    assert x.fill_(0).tolist() == [[0] * 9] * 5
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    assert not kernels.fill(read_only, 1)


def test_the_kernel_serves_transposed_tensors() -> None:
    x = torch.arange(70 * 300).reshape(70, 300)
    assert kernels.contiguous(x.t()._a) is not None
    assert torch.equal(x.t().contiguous().t(), x)
    y = torch.zeros(300, 70, dtype=torch.int64)
    y.copy_(x.t())
    assert torch.equal(y, x.t())


def test_overlapping_memory_is_left_to_numpy() -> None:
    x = np.arange(64 * 64).reshape(64, 64)
    assert not kernels.copy_transposed(x, x.T)
