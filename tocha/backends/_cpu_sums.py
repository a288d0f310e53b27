"""Sums on the CPU. Those of floats are made in blocks (pairwise summation), so that the error grows with log n along every axis:
NumPy does so by itself only along a contiguous innermost axis."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

Shape = tuple[int, ...]
_BLOCK = 16
_ROW = 512
_BLAS = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_add: Any = np.add.reduce


@functools.lru_cache(maxsize=256)
def _ones(count: int, dtype: Any) -> Any:
    return np.ones(count, dtype)


def total(x: Any, dim: Shape, keepdim: bool) -> Any:
    """The sum over `dim` (non-negative), floats in blocks."""
    dim = tuple(sorted(dim)) if len(dim) > 1 else dim
    if 0 < x.size < 512 and x.ndim <= 2 and len(dim) == 1 and x.dtype in _BLAS:
        # A product with ones takes a third of a reduction's time to start. BLAS starts no threads for so little.
        out = x.dot(_ones(x.shape[1], x.dtype)) if dim[0] else _ones(len(x), x.dtype).dot(x)
        return out[:, None] if keepdim and dim[0] else out[None] if keepdim else out
    few = x.size < 512 or not dim or (dim[-1] != x.ndim - 1 and math.prod([x.shape[d] for d in dim]) <= _BLOCK)
    if few or x.dtype.kind not in "fc":
        return _add(x, axis=dim, keepdims=keepdim, dtype=x.dtype)
    out = _in_memory_order(x, dim)
    return np.expand_dims(out, dim) if keepdim else out


def _in_memory_order(x: Any, dim: Shape) -> Any:
    """The sum with axes taken in the order of memory, so that a transposed array costs no more than the array itself."""
    if x.flags.c_contiguous:
        return _total(x, dim)
    order = sorted(range(x.ndim), key=lambda i: -x.strides[i])
    left = [i for i in order if i not in dim]
    out = _total(x.transpose(order), tuple(sorted(order.index(i) for i in dim)))
    return out if left == sorted(left) else out.transpose(sorted(range(len(left)), key=left.__getitem__))


def _total(x: Any, dim: Shape) -> Any:
    """Innermost dimensions first, while the array is large, then one by one."""
    if not dim:
        return x
    inner = 0
    while inner < len(dim) and dim[-1 - inner] == x.ndim - 1 - inner:
        inner += 1
    if not inner:
        return _total(_sum_axis(x, dim[-1]), dim[:-1])
    shape = x.shape[: x.ndim - inner]
    return _total(_sum_rows(x.reshape(*shape, -1)), dim[:-inner])


def _sum_rows(x: Any) -> Any:
    """The sum along the last axis. Rows of moderate length by einsum, which adds in several lanes at once: that is
    fast, and as exact as blocks. (A product with ones would be faster on an idle machine, but BLAS starts its threads.)"""
    n = x.shape[-1]
    if x.dtype.kind != "f":
        return _add(x, axis=-1, dtype=x.dtype)
    if n <= _ROW:
        return x.reshape(x.shape[:-1]).copy() if n == 1 else np.einsum("ij->i", x.reshape(-1, n)).reshape(x.shape[:-1])
    least = -(-n // _ROW)
    parts = next((k for k in range(least, least + 64) if n % k == 0), None)
    if parts is not None:
        return _sum_rows(_sum_rows(x.reshape(*x.shape[:-1], parts, n // parts)))
    if x.ndim > 1:
        return _add(x, axis=-1, dtype=x.dtype)
    whole = n // _ROW * _ROW
    return np.add(_sum_rows(x[:whole]), _add(x[whole:], axis=0, dtype=x.dtype))


def _sum_axis(x: Any, axis: int) -> Any:
    """The sum along an axis that isn't the last."""
    n = x.shape[axis]
    width = math.prod(x.shape[axis + 1 :])
    if width > 64 or n < 16 * _BLOCK:
        return _sum_blocks(x, axis)
    fold = 256 // width  # rows of few elements: several side by side are wide enough for vector instructions
    outer, inner = x.shape[:axis], x.shape[axis + 1 :]
    whole = n // fold * fold
    rows = x.reshape(*outer, n, width)
    sums = _sum_blocks(rows[..., :whole, :].reshape(*outer, n // fold, fold * width), axis)
    out = _sum_blocks(sums.reshape(*outer, fold, width), axis)
    if whole < n:
        out = np.add(out, _add(rows[..., whole:, :], axis=axis, dtype=x.dtype))
    return out.reshape(*outer, *inner)


def _sum_blocks(x: Any, axis: int) -> Any:
    lead = (slice(None),) * axis
    n = x.shape[axis]
    while n > _BLOCK:
        whole = n // _BLOCK * _BLOCK
        blocks = x[(*lead, slice(0, whole))].reshape(*x.shape[:axis], n // _BLOCK, _BLOCK, *x.shape[axis + 1 :])
        sums = _add(blocks, axis=axis + 1, dtype=x.dtype)
        if whole < n:
            rest = _add(x[(*lead, slice(whole, n))], axis=axis, keepdims=True, dtype=x.dtype)
            sums = np.concatenate([sums, rest], axis)
        x, n = sums, sums.shape[axis]
    return _add(x, axis=axis, dtype=x.dtype)
