"""Native kernels that resample along a dimension by a table of taps (tocha.inductor.taps)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tocha.backends import native

_FLOATS = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_LEAST_INNER, _MANY = 8, 4096  # of elements that lie together; fewer NumPy moves as fast where there are many in all
_PIECE = 16384  # elements worth a thread's while


class _Table(NamedTuple):
    """A table as kernels read it, a row for each tap, and the key's part that it decides. `source` lives as long as what is known by its id."""

    source: Any
    arrays: list[Any]
    weighted: bool
    partial: bool


def _packed(index: Any, weight: Any, used: Any, size: int, dtype: Any) -> _Table | tuple[()]:
    if not index.size or not 0 <= int(index.min()) <= int(index.max()) < min(size, 1 << 31):
        return ()
    weighted, partial = not bool((weight[used] == 1).all()), not bool(used.all())
    arrays = [index.T.astype(np.int32, order="C")]
    arrays += [weight.T.astype(dtype, order="C")] if weighted else []
    arrays += [np.ascontiguousarray(used.T)] if partial else []
    return _Table(index, arrays, weighted, partial)


def resample(x: Any, axis: int, index: Any, weight: Any, used: Any) -> Any:
    """x with each place along `axis` replaced by Σ x[index] * weight over the taps that are used, tables being (places, taps); None for NumPy
    to do it."""
    shape = x.shape
    places, taps = index.shape
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    total = outer * places * inner
    modules = native.inductor() if max(total, x.size) >= native.LEAST["model"] else None
    if modules is None or taps > modules.taps.MOST or not total or (1 < inner < _LEAST_INNER and total >= _MANY):
        return None
    dtype = x.dtype
    table = native.remember(("taps", id(index), n, dtype), lambda: _packed(index, weight, used, n, dtype))
    if not table:
        return None
    given: Any = np.ascontiguousarray(x)
    if not table.weighted and taps == 1:
        bits: Any = _BITS.get(dtype.itemsize)
        if bits is None or dtype.kind not in "biufV":
            return None
        given, dtype = given.view(bits), bits
    elif dtype not in _FLOATS:
        return None
    key = modules.taps.Key(modules.lower.NP_TYPES[dtype], taps, table.weighted, table.partial, inner == 1)
    builtin = native.kernel(key, lambda: modules.taps.make(key))
    if builtin is None:
        return None
    units = outer if inner == 1 else outer * places
    grain = max(1, _PIECE * units // total)
    if units <= grain and total > _PIECE:
        units, grain = units, units - 1 or 1
    out = np.empty((*shape[:axis], places, *shape[axis + 1 :]), dtype)
    builtin(out, given, *table.arrays, np.array([units, grain, n, places, inner], np.int64))
    return out.view(x.dtype)
