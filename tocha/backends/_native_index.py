"""Native kernels that read and write at indices (tocha.inductor.index): gather, scatter, indexing, embeddings.

Reading functions return the result, writing ones True; None is for NumPy to do it, which also raises for indices that are out of bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tocha import threads
from tocha.backends import native, native_out
from tocha.backends._native_prims import FLOAT_NP

Shape = tuple[int, ...]
_OPS = {"put": "put", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}
_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_COMPUTED = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8))
_UNSIGNED = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
_PIECE = 16384  # elements worth a thread's while
_LINE, _SHARED = 64, 1 << 17  # bytes of rows that NumPy copies as fast as a kernel, on one thread or up to so many in all
_INDEX = frozenset((np.dtype(np.int64), np.dtype(np.int32)))


class _Pick(NamedTuple):
    """An index array, its strides over the index space, and the dimension of the array it picks from."""

    array: Any
    strides: Shape
    dim: int


class _Side(NamedTuple):
    """The target or the source: its strides (in bytes) over the index space, 0 along a dimension that picks replace."""

    array: Any
    strides: Shape
    picks: tuple[_Pick, ...] = ()


def _grid(a: Any, index: Any, dim: int) -> _Side:
    """`a` at index[i][j][k] along `dim`, at i, j, k along the others."""
    return _Side(a, tuple([0 if d == dim else s for d, s in enumerate(a.strides)]), (_Pick(index, index.strides, dim),))


def _fancy(a: Any, indices: Sequence[Any], dims: Shape) -> tuple[_Side, Shape, Shape]:
    """`a` at index arrays of `dims` that broadcast among themselves, other dimensions in full; the result's shape; the other dimensions
    of it."""
    picked = indices[0].shape if len(indices) == 1 else np.broadcast_shapes(*[i.shape for i in indices])
    rest = [d for d in range(a.ndim) if d not in dims]
    place = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    before, after = rest[:place], rest[place:]
    shape = (*[a.shape[d] for d in before], *picked, *[a.shape[d] for d in after])
    strides = (*[a.strides[d] for d in before], *[0] * len(picked), *[a.strides[d] for d in after])
    free = (*range(len(before)), *range(len(before) + len(picked), len(shape)))
    picks = []
    for d, i in zip(dims, indices, strict=True):
        own = (0,) * (len(picked) - i.ndim) + tuple([0 if n == 1 else s for n, s in zip(i.shape, i.strides, strict=True)])
        picks.append(_Pick(i, ((0,) * len(before) + own + (0,) * len(after)), d))
    return _Side(a, strides, tuple(picks)), shape, free


def _plain(a: Any, shape: Shape) -> _Side:
    """`a`, which broadcasts to the index space."""
    lead = len(shape) - a.ndim
    return _Side(a, (0,) * lead + tuple([0 if n == 1 else s for n, s in zip(a.shape, a.strides, strict=True)]))


def _move(name: str, shape: Shape, target: _Side, source: _Side, free: Shape, factor: Any = None) -> Any:
    """Run the kernel; True, or None where there is none for these arrays."""
    total = math.prod(shape)
    modules = native.inductor()
    dtype = target.array.dtype
    if modules is None or total < native.LEAST["index"] or not total or source.array.dtype is not dtype:
        return None
    if name == "put":
        bits = _BITS.get(dtype.itemsize)
        if bits is None or dtype.kind not in "biufV":
            return None
        target, source = (s._replace(array=s.array.view(bits)) for s in (target, source))
        dtype = bits
    elif dtype not in _COMPUTED or target.array.dtype.kind == "b":
        return None
    sides = [target, source] if factor is None else [target, source, factor]
    picks = [*target.picks, *source.picks]
    strides = []
    for array, own in (*[(s.array, s.strides) for s in sides], *[(p.array, p.strides) for p in picks]):
        item = array.dtype.itemsize
        if any(s % item for s in own):
            return None
        strides.append(tuple([s // item for s in own]))
    steps = [s.array.strides[p.dim] // dtype.itemsize for s in (target, source) for p in s.picks]
    index = modules.index
    reads = not target.picks
    plan = native.remember(
        ("index", reads, shape, *strides, free, *steps), lambda: index.plan(shape, strides, free, steps, reads)
    )
    types = tuple([modules.lower.NP_TYPES[p.array.dtype] for p in picks])
    letters = "t" * len(target.picks) + "s" * len(source.picks)
    key = index.Key(_OPS[name], modules.lower.NP_TYPES[dtype], factor is not None, letters, types, *plan[:4])
    builtin = native.kernel(key, lambda: index.make(key))
    if builtin is None:
        return None
    builtin(*[s.array for s in sides], *[p.array for p in picks], plan.work)
    return True


def _from_front(indices: Sequence[Any], sizes: Sequence[int]) -> list[Any] | None:
    """Index arrays counted from the front, None if one is out of bounds or of another type than an index."""
    found = []
    for index, size in zip(indices, sizes, strict=True):
        if index.dtype not in _INDEX:
            return None
        once = index[tuple([slice(0, 1) if s == 0 else slice(None) for s in index.strides])]
        if (
            once.size and int(np.maximum.reduce(once.view(_UNSIGNED[index.dtype.itemsize]), None)) >= size
        ):  # negative ones look huge
            if not -size <= int(once.min()) <= int(once.max()) < size:
                return None
            index = np.where(index < 0, index + index.dtype.type(size), index)
        found.append(index)
    return found


# ---- reading


def gather(arrays: list[Any], params: dict[str, Any]) -> Any:
    input, index = arrays
    dim = params["dim"]
    if not input.ndim or index.size < native.LEAST["index"]:
        return None
    known = _from_front((index,), (input.shape[dim],))
    if known is None:
        return None
    out = native_out.room(index.shape, input.dtype)
    return out if _move("put", index.shape, _plain(out, index.shape), _grid(input, known[0], dim), ()) else None


def index(arrays: list[Any], params: dict[str, Any]) -> Any:
    return _taken(arrays[0], arrays[1:], params["dims"])


def embedding(arrays: list[Any], params: dict[str, Any]) -> Any:
    return _taken(arrays[0], arrays[1:], (0,))


def _few(a: Any, indices: Sequence[Any], dims: Shape) -> bool:
    """Whether indexing `a` moves so little that NumPy's call is cheaper than to look at the indices."""
    each = a.size // max(1, math.prod([a.shape[d] for d in dims]))
    return max([i.size for i in indices]) * each < native.LEAST["index"]


def _taken(input: Any, indices: Sequence[Any], dims: Shape) -> Any:
    if _few(input, indices, dims):
        return None
    if dims == (0,) and input.flags.c_contiguous and input.strides[0] >= _LINE and indices[0].dtype in _INDEX:
        alone = indices[0].size * input.strides[0] <= _SHARED or threads.get_num_threads() == 1
        if alone and not native_out.expects((*indices[0].shape, *input.shape[1:]), input.dtype):
            return input.take(indices[0], 0)  # which copies row by row, and looks at the indices meanwhile
    known = _from_front(indices, [input.shape[d] for d in dims])
    if known is None:
        return None
    known = [i.astype(np.int64) if i.itemsize == 4 and i.size * _LINE < input.size else i for i in known]  # read many times
    source, shape, free = _fancy(input, known, dims)
    out = native_out.room(shape, input.dtype)
    return out if _move("put", shape, _plain(out, shape), source, free) else None


# ---- writing


def combine_along(name: str, target: Any, index: Any, dim: int, values: Any, checked: bool = False) -> Any:
    """`target` combined by the ufunc `name` (or "put") with `values` where gather would read; `checked` as below."""
    if index.size < native.LEAST["index"]:
        return None
    known = (index,) if checked else _from_front((index,), (target.shape[dim],))
    if known is None:
        return None
    free = tuple([d for d in range(index.ndim) if d != dim])
    return _move(name, index.shape, _grid(target, known[0], dim), _plain(values, index.shape), free)


def combine_indexed(name: str, target: Any, indices: Sequence[Any], dims: Shape, values: Any, checked: bool = False) -> Any:
    """`target` combined by the ufunc `name` (or "put") with `values` (broadcast) at index arrays of `dims`; `checked`: all of them are in
    bounds and none negative."""
    if _few(target, indices, dims):
        return None
    known = indices if checked else _from_front(indices, [target.shape[d] for d in dims])
    if known is None or any(np.may_share_memory(target, a) for a in (values, *known)):
        return None
    side, shape, free = _fancy(target, known, dims)
    return _move(name, shape, side, _plain(values, shape), free)


def add_rows(out: Any, places: Any, rows: Any) -> Any:
    """out[places[i]] += rows[i], one after the other."""
    return combine_indexed("add", out, (places,), (0,), rows)


def bag_sum(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Sums or means of rows of a table over bags (tocha.inductor.bags)."""
    table, indices, starts, factors = arrays
    modules, (n,), m = native.inductor(), indices.shape, table.shape[1]
    if modules is None or table.dtype not in FLOAT_NP or n * m < native.LEAST["index"] or indices.dtype not in _INDEX:
        return None
    if factors is not None and (factors.dtype is not table.dtype or not factors.flags.c_contiguous):
        return None
    if not all(a.flags.c_contiguous for a in (table, indices, starts)) or starts.dtype is not _BITS[8]:
        return None
    if int(np.maximum.reduce(indices.view(_UNSIGNED[indices.dtype.itemsize]))) >= table.shape[0]:
        return None
    if starts[0] < 0 or starts[-1] > n or (starts[1:] < starts[:-1]).any():
        return None
    key = ("bag_sum", table.dtype, indices.dtype, factors is not None, params["mean"])
    names = modules.lower.NP_TYPES
    builtin = native.kernel(
        key, lambda: modules.bags.sums(names[table.dtype], names[indices.dtype], factors is not None, params["mean"])
    )
    if builtin is None:
        return None
    count = len(starts) - 1
    out = np.empty((count, m), table.dtype)
    work = np.array([count, max(1, _PIECE * count // (n * m)), m, params["padding_idx"], n - 1], np.int64)
    builtin(out, table, indices, starts, *(() if factors is None else (factors,)), work)
    return out


def bag_maximum_place(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Where each bag's largest element is (tocha.inductor.bags)."""
    rows, bags = arrays
    count, modules = params["count"], native.inductor()
    if modules is None or rows.dtype not in _COMPUTED or rows.ndim != 2 or not rows.size or bags.dtype is not _BITS[8]:
        return None
    if not bags.flags.c_contiguous or int(bags.max()) >= count:
        return None
    n, m = rows.shape
    builtin = native.kernel(("bags", rows.dtype), lambda: modules.bags.maximum_place(modules.lower.NP_TYPES[rows.dtype]))
    if builtin is None:
        return None
    out, best = np.full((count, m), -1, np.int64), np.zeros((count, m), rows.dtype)
    units = -(-m // modules.bags.BLOCK)
    builtin(out, best, np.ascontiguousarray(rows), bags, np.array([units, max(1, _PIECE // rows.size), n, m], np.int64))
    return out


RUNS = {"bag_maximum_place": bag_maximum_place, "bag_sum": bag_sum, "gather": gather, "index": index, "embedding": embedding}
