"""Native kernels for search in sorted rows (tocha.inductor.search)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends import native

_TYPES = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8))
_MOST_FIRST, _LEAST_AMONG = 64, 8  # elements wanted, and of a row for each of them: otherwise many change places
_PIECE = 16384  # elements worth a thread's while


def searchsorted(arrays: list[Any], params: dict[str, Any]) -> Any:
    edges, values = arrays
    modules = native.inductor() if values.size >= native.LEAST["row"] else None
    if modules is None or edges.dtype not in _TYPES or edges.dtype is not values.dtype or not edges.size:
        return None
    if edges.shape[-1] >= 1 << 31 or not values.size:
        return None
    right, n = bool(params["right"]), edges.shape[-1]
    search = modules.search
    name = modules.lower.NP_TYPES[edges.dtype]
    builtin = native.kernel(("search", edges.dtype, right), lambda: search.make(name, right))
    if builtin is None:
        return None
    rows = 1 if edges.ndim == 1 else math.prod(edges.shape[:-1])
    each = values.size // rows
    blocks = -(-each // search.BLOCK)
    steps = np.array(search.steps(n), np.int32)
    out = np.empty(values.shape, np.int64)
    work = np.array([rows * blocks, max(1, search.BLOCK // each), each, blocks, n, len(steps)], np.int64)
    builtin(out, np.ascontiguousarray(edges), np.ascontiguousarray(values), steps, work)
    return out


def topk(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Few of many, along the last dimension."""
    (x,), k, modules = arrays, params["k"], native.inductor()
    if modules is None or x.dtype not in _TYPES or params["dim"] != x.ndim - 1 or not x.size or not x.flags.c_contiguous:
        return None
    n = x.shape[-1]
    if not 0 < k <= _MOST_FIRST or n < _LEAST_AMONG * k:
        return None
    largest, search, name = bool(params["largest"]), modules.search, modules.lower.NP_TYPES[x.dtype]
    builtin = native.kernel(("first", x.dtype, largest), lambda: search.first(name, largest))
    if builtin is None:
        return None
    values, places = np.empty((*x.shape[:-1], k), x.dtype), np.empty((*x.shape[:-1], k), np.int64)
    builtin(values, places, x, np.array([x.size // n, max(1, _PIECE // n), n, k], np.int64))
    return values, places


RUNS = {"searchsorted": searchsorted, "topk": topk}
