"""Native kernels that copy whole rows to other places, with something around them: padding in all modes, roll, flips of outer dimensions,
cat (tocha.inductor.windows). A row is what follows the last dimension that changes, which is in memory as one piece."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tocha import threads
from tocha.backends import native, native_out
from tocha.backends._native_moves import bits_of
from tocha.backends._native_prims import COPY
from tocha.backends.meta import contiguous_strides
from tocha.backends.shared import number

Shape = tuple[int, ...]
_LEAST_ROW = 8  # elements; NumPy copies shorter ones as fast
_MOST_JOINED = 8
_LONG_ROW, _IN_CACHE = 512, 1 << 20  # bytes of a row to join from which NumPy is as fast while all of the result is in cache
_MOST_KEPT = 1 << 16  # rows
_PIECE = 16384  # elements worth a thread's while
_NOWHERE = -(1 << 58)


def _reflect(i: Any, size: int) -> Any:
    return size - 1 - np.abs(size - 1 - np.abs(i))


#: What stands at place i of a dimension of `size` elements, before its first or behind its last one.
BORDERS: dict[str, Callable[[Any, int], Any]] = {
    "reflect": _reflect,
    "replicate": lambda i, size: np.clip(i, 0, size - 1),
    "circular": lambda i, size: i % size,
}
#: As the kernel has it: before, after, and where the elements there come from, by the dimension's size and the number before.
_KINDS: dict[str, tuple[str, Callable[[int, int], tuple[int, int]]]] = {
    "reflect": ("--", lambda size, low: (low, size - 2)),
    "replicate": ("00", lambda size, low: (0, size - 1)),
    "circular": ("++", lambda size, low: (size - low, 0)),
    "constant": ("cc", lambda size, low: (0, 0)),
}


class _Along(NamedTuple):
    """What happens along a dimension: a mode (of `_KINDS`, or "flip"), its size before and after, and the number of elements put before
    the first (negative: cut off)."""

    mode: str
    size: int
    out: int
    low: int = 0


def _places(outer: tuple[_Along, ...], steps: Shape) -> Any:
    """Where the source of each row begins, in elements; negative where it has none."""
    at = np.zeros((), np.int64)
    for (mode, size, out, low), step in zip(outer, steps, strict=True):
        i = np.arange(-low, out - low)
        if mode == "flip":
            i = size - 1 - i
        elif mode in BORDERS:
            i = BORDERS[mode](i, size)
        at = at[..., None] + np.where((i < 0) | (i >= size), _NOWHERE, i * step)
    return np.ascontiguousarray(at).reshape(-1)


class _Plan(NamedTuple):
    """A call's result and what its kernel is told; `places` are made for each call where there are many."""

    shape: Shape
    kinds: str
    rows: tuple[tuple[_Along, ...], Shape]
    places: Any
    work: Any


@functools.lru_cache(64)
def _plan(along: Callable[..., list[_Along]], shape: Shape, strides: Shape, item: int, *given: Any) -> _Plan | None:
    """`along(shape, *given)` says what happens along the first dimensions, the last of which isn't flipped."""
    dims = along(shape, *given)
    if not dims:
        return None
    *outer, (mode, size, out, low) = dims
    last = len(outer)
    inner = math.prod(shape[last + 1 :])
    m, before, cut = out * inner, max(low, 0), max(-low, 0)
    n = out - before - max(out - low - size, 0)
    result = (*[d.out for d in outer], out, *shape[last + 1 :])
    rows = math.prod(result[:last])
    if m < _LEAST_ROW or n <= 0 or rows * m < native.LEAST["index"]:
        return None
    if any(s % item for s in strides) or strides[last:] != contiguous_strides(shape[last:], item):
        return None
    kinds, origins = _KINDS[mode]
    first, end = origins(size, before)
    where = tuple(outer), tuple([s // item for s in strides[:last]])
    sizes = [m, before * inner, n * inner, cut * inner, first * inner, end * inner]
    places = _places(*where) if rows <= _MOST_KEPT else None
    return _Plan(result, kinds, where, places, np.array([rows, max(1, _PIECE // m), *sizes], np.int64))


def _moved(x: Any, value: Any, along: Callable[..., list[_Along]], *given: Any) -> Any:
    """A new array with rows of x and what stands around them; None where NumPy is as fast."""
    bits, modules = bits_of(x), native.inductor()
    plan = None if bits is None or modules is None else _plan(along, x.shape, x.strides, x.dtype.itemsize, *given)
    if plan is None:
        return None
    assert modules is not None
    windows, name, kinds = modules.windows, modules.lower.NP_TYPES[bits], plan.kinds
    builtin = native.kernel(("bordered", bits, kinds), lambda: windows.bordered(name, *kinds))
    if builtin is None:
        return None
    out = np.empty(plan.shape, x.dtype)
    number_given = () if kinds != "cc" else (np.array(number(value, x.dtype), x.dtype).view(bits).item(),)
    places = _places(*plan.rows) if plan.places is None else plan.places
    builtin(out.view(bits), x.view(bits), places, *number_given, plan.work)
    return out


def _padded(shape: Shape, pad: tuple[tuple[int, int], ...]) -> list[_Along]:
    last = max((d for d, pair in enumerate(pad) if pair != (0, 0)), default=-1)
    return [_Along("constant", n, n + a + b, a) for n, (a, b) in zip(shape[: last + 1], pad, strict=False)]


def _constant_pad(arrays: list[Any], params: dict[str, Any]) -> Any:
    return _moved(arrays[0], params["value"], _padded, params["pad"])


def _surrounded(shape: Shape, specs: tuple[Any, ...]) -> list[_Along]:
    if any(spec[0] not in BORDERS for spec in specs):
        return []
    kept = [_Along("constant", n, n) for n in shape[: len(shape) - len(specs)]]
    return kept + [_Along(mode, size, out, int(low)) for mode, size, out, _, low in specs]


def _resample(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Padding with input's own values."""
    return _moved(arrays[0], None, _surrounded, params["specs"])


def _rolled(shape: Shape, shifts: Shape, dims: Shape) -> list[_Along]:
    steps = [0] * len(shape)
    for d, s in zip(dims, shifts, strict=True):
        steps[d] += s
    last = max((d for d, s in enumerate(steps) if s), default=-1)
    return [_Along("circular", n, n, s % n) for n, s in zip(shape[: last + 1], steps, strict=False)] if 0 not in shape else []


def _roll(arrays: list[Any], params: dict[str, Any]) -> Any:
    return _moved(arrays[0], None, _rolled, params["shifts"], params["dims"]) if arrays[0].flags.c_contiguous else None


def _flipped(shape: Shape, dims: Shape) -> list[_Along]:
    last = max(dims) + 1
    along = [_Along("flip" if d in dims else "constant", n, n) for d, n in enumerate(shape[:last])]
    return [*along, _Along("circular", shape[last], shape[last])]


def flip_outer(x: Any, dims: Shape) -> Any:
    """Turned around along other dimensions than the last."""
    return _moved(x, None, _flipped, dims)


@functools.lru_cache(256)
def _join(dim: int, item: int, *shapes: Shape) -> tuple[Shape, Any] | None:
    """The result's shape and the kernel's sizes."""
    first, rank = shapes[0], len(shapes[0])
    rows = math.prod(first[:dim])
    lengths = [math.prod(shape[dim:]) for shape in shapes]
    if not 2 <= len(shapes) <= _MOST_JOINED or rows < 2 or min(lengths) < _LEAST_ROW or any(len(s) != rank for s in shapes):
        return None
    if min(lengths) * item >= _LONG_ROW and rows * sum(lengths) * item < _IN_CACHE:
        return None
    out = (*first[:dim], sum([s[dim] for s in shapes]), *first[dim + 1 :])
    return out, np.array([rows, max(1, _PIECE // sum(lengths)), *lengths], np.int64)


def _cat(arrays: list[Any], params: dict[str, Any]) -> Any:
    bits, modules, dim = bits_of(arrays[0]), native.inductor(), params["dim"]
    plan = _join(dim, arrays[0].dtype.itemsize, *[a.shape for a in arrays])
    if plan is None or bits is None or modules is None or not all(a.flags.c_contiguous for a in arrays):
        return _put_together(arrays, dim)
    windows, name, count = modules.windows, modules.lower.NP_TYPES[bits], len(arrays)
    builtin = native.kernel(("joined", bits, count), lambda: windows.joined(name, count))
    if builtin is None:
        return None
    out = native_out.room(plan[0], arrays[0].dtype)
    builtin(out.view(bits), *[a.view(bits) for a in arrays], plan[1])
    return out


def _put_together(arrays: list[Any], dim: int) -> Any:
    """Arrays copied one after the other, where their result is wanted or by several threads; else None."""
    first = arrays[0]
    if any(a.ndim != first.ndim for a in arrays):  # empty ones of one dimension, which count for nothing
        return None
    ends = [0, *itertools.accumulate([a.shape[dim] for a in arrays])]
    shape = (*first.shape[:dim], ends[-1], *first.shape[dim + 1 :])
    whole = math.prod(shape[:dim]) == 1 and math.prod(shape) >= native.LEAST["ufunc"] and threads.get_num_threads() > 1
    if not whole and not native_out.expects(shape, first.dtype):
        return None
    out = native_out.room(shape, first.dtype)
    if not whole:
        return np.concatenate(arrays, dim, out)
    lead = (0,) * dim
    for a, start, end in zip(arrays, ends, ends[1:], strict=False):
        _copy(out[(*lead, slice(start, end))], a[lead])
    return out


def _copy(target: Any, source: Any) -> None:
    """Copy between arrays of one shape and type, dense ones by all threads."""
    bits, done = bits_of(target), None
    if bits is not None and source.flags.c_contiguous:
        done = native.pointwise(COPY, [source.view(bits)], bits, bits, {}, lambda shapes: shapes[0], "ufunc", target.view(bits))
    if done is None:
        target[...] = source


def _stack(arrays: list[Any], params: dict[str, Any]) -> Any:
    at = (slice(None),) * params["dim"]
    return _cat([a[(*at, None)] for a in arrays], params)


RUNS = {"cat": _cat, "stack": _stack, "constant_pad": _constant_pad, "resample": _resample, "roll": _roll}
