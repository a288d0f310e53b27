"""What the CPU and CUDA namespaces have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends.strides import result_strides
from tocha.dtypes import HALF_NP

_ndarray = np.ndarray
_FLOAT32 = np.dtype(np.float32)
NUMBERS = (np.generic, bool, int, float, complex)  # what NumPy hands back for 0-d results


def cut(count: int, bytes_each: int, limit: int) -> list[slice]:
    """`range(count)` in pieces of at most `limit` bytes."""
    step = max(1, min(count, limit // max(bytes_each, 1)))
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def no_kernel(*arrays: Any, **params: Any) -> Any:
    """The answer of a backend without a kernel of its own: None, the primitive's plain way is taken."""
    return None


def number(value: Any, np_dtype: Any) -> Any:
    """A Python number as a scalar of the type computed in (integers wrap around)."""
    if np_dtype.kind in "iu":
        bits = 8 * np_dtype.itemsize
        value = int(value) & ((1 << bits) - 1)
        if np_dtype.kind == "i" and value >> (bits - 1):
            value -= 1 << bits
    return np_dtype.type(np.float32(value) if np_dtype in HALF_NP else value)


def half_type(prim: Any, arrays: list[Any]) -> Any:
    """The half type of a call that is to be computed in float32; None of any other."""
    if prim.half == "float32":
        for a in arrays:
            if a is not None and a.dtype in HALF_NP:
                return a.dtype
    return None


def widened(cast: Callable[[Any, Any], Any], arrays: list[Any]) -> list[Any]:
    """Arrays of half types as float32."""
    return [cast(a, _FLOAT32) if a is not None and a.dtype in HALF_NP else a for a in arrays]


def narrowed(cast: Callable[[Any, Any], Any], got: Any, half: Any) -> Any:
    """A kernel's results with those of type float32 rounded to `half`."""
    if got.__class__ is tuple:
        return tuple([narrowed(cast, g, half) for g in got])
    if got.__class__ is not _ndarray and isinstance(got, NUMBERS):
        got = np.asarray(got)
    return cast(got, half) if got.dtype is _FLOAT32 else got


def values_for(target: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The array with dimensions in the order of memory, and NumPy values for it from `function(count, dtype, dense, *args)`."""
    dense = target.flags.c_contiguous
    values = function(target.size, target.dtype, dense, *args)
    if not dense:
        target = target.transpose(sorted(range(target.ndim), key=lambda i: -target.strides[i]))
    return target, values.reshape(target.shape)


def in_memory_order(input: Any, function: Callable[[Any, list[int]], Any]) -> Any:
    """`function(x, order)` of the input with its dimensions in the `order` in which a new array like it has them in memory, and its result,
    of x's shape, with the dimensions back in their places."""
    if input.flags.c_contiguous:
        return function(input, list(range(input.ndim)))
    want = result_strides(input.shape, 1, (input,))
    order = sorted(range(input.ndim), key=lambda d: -want[d])
    got = function(input.transpose(order), order)
    return None if got is None else got.transpose([order.index(d) for d in range(input.ndim)])
