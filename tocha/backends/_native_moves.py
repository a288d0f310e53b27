"""Native kernels that move elements without computing: copies between arrays of different memory orders (tocha.inductor.transpose),
triangles and flips (tocha.inductor.windows)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.backends import native, native_out
from tocha.backends.shared import in_memory_order, number

_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_LEAST_SIDE = 8  # of the tiles' dimensions; thinner arrays NumPy copies as fast
_PIECE = 16384  # elements worth a thread's while


def copy_transposed(target: Any, source: Any) -> bool:
    """Copy `source` into `target`, arrays of one shape and type whose fastest dimensions differ; False for NumPy to do it."""
    dtype = target.dtype
    bits = _BITS.get(dtype.itemsize)
    if bits is None or dtype.kind not in "biufV" or source.dtype is not dtype or source.size < native.LEAST["copy"]:
        return False
    item, shape = dtype.itemsize, target.shape
    turned = tuple(
        [slice(None, None, -1 if n > 1 and s == -item else 1) for n, s in zip(source.shape, source.strides, strict=True)]
    )
    target, source = target[turned], source[turned]  # so that the source's fastest dimension rises
    if shape != source.shape or any(s % item for s in (*target.strides, *source.strides)):
        return False
    plan = native.remember(
        ("transpose", shape, target.strides, source.strides, bits), lambda: _plan(shape, target.strides, source.strides, bits)
    )
    if not plan or not target.flags.writeable or np.may_share_memory(target, source):
        return False
    outer, work = plan
    modules = native.inductor()
    assert modules is not None
    name = modules.lower.NP_TYPES[bits]
    builtin = native.kernel(("transpose", bits, outer), lambda: modules.transpose.make(name, outer))
    if builtin is None:
        return False
    builtin(target.view(bits), source.view(bits), work)
    return True


def _plan(shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...], bits: Any) -> Any:
    """Number of outer dimensions and the kernel's sizes; () where the same dimension is the fastest of both, or there is none."""
    modules = native.inductor()
    if modules is None:
        return ()
    item = bits.itemsize
    steps = [tuple([s // item for s in strides]) for strides in (target, source)]
    found = modules.layout.merge(shape, steps, modules.layout.memory_order(shape, steps))
    to, of = found.strides
    p = next((d for d, s in enumerate(of) if s == 1), None)
    q = next((d for d, s in enumerate(to) if s == 1), None)
    if p is None or q is None or p == q or min(found.shape[p], found.shape[q]) < _LEAST_SIDE:
        return ()
    rest = [d for d in range(len(found.shape)) if d not in (p, q)]
    tile = modules.transpose.tile_of(modules.lower.NP_TYPES[bits])
    units = math.prod([found.shape[d] for d in rest]) * -(-found.shape[p] // tile)
    sizes = [*[found.shape[d] for d in (*rest, p, q)], *[to[d] for d in rest], *[of[d] for d in rest], to[p], of[q]]
    grain = max(1, _PIECE // (tile * found.shape[q]))
    return len(rest), np.array([units, grain, *sizes], np.int64)


def contiguous(x: Any) -> Any:
    """A copy of x in C order; None for NumPy to make it."""
    if x.flags.c_contiguous:
        return None
    out = np.empty(x.shape, x.dtype)
    return out if copy_transposed(out, x) else None


def fill(target: Any, value: Any) -> bool:
    """Set all elements of an array to a number; False for NumPy to do it."""
    bits, modules = bits_of(target), native.inductor()
    if bits is None or modules is None or not target.flags.carray:
        return False
    make = lambda: modules.entry.build(modules.windows.filled(modules.lower.NP_TYPES[bits]), _PIECE)  # noqa: E731
    builtin = native.built(("fill", bits), make)
    if builtin is None:
        return False
    builtin(target.view(bits), number(value, target.dtype).view(bits).item(), target.size)
    return True


# ---- parts of rows, and rows backwards


def bits_of(x: Any) -> Any:
    """The integer type to move elements as; None for what has none."""
    return _BITS.get(x.dtype.itemsize) if x.dtype.kind in "biufV" else None


def _rows(key: Any, make: Callable[[], Any], x: Any, rows: int, sizes: list[int]) -> Any:
    """A new array like x, written by a kernel (of tocha.inductor.windows) whose units are `rows`."""
    builtin = native.kernel(key, make)
    if builtin is None:
        return None
    out = native_out.room(x.shape, x.dtype)
    bits = bits_of(x)
    builtin(out.view(bits), x.view(bits), np.array([rows, max(1, _PIECE * rows // x.size), *sizes], np.int64))
    return out


def _triangle(upper: bool) -> Callable[[list[Any], dict[str, Any]], Any]:
    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x, diagonal = arrays[0], params["diagonal"]
        bits, modules = bits_of(x), native.inductor()
        if bits is None or modules is None or not x.size or not x.flags.c_contiguous:
            return None
        rows, n = x.shape[-2:]
        sizes = [rows, n, max(-rows - 1, min(diagonal, n + 1))]
        name = modules.lower.NP_TYPES[bits]
        return _rows(("triangle", bits, upper), lambda: modules.windows.triangle(name, upper), x, x.size // n, sizes)

    return run


def _flip(arrays: list[Any], params: dict[str, Any]) -> Any:
    return in_memory_order(arrays[0], lambda x, order: _flipped(x, [order.index(d) for d in params["dims"]]))


def _flipped(x: Any, dims: Sequence[int]) -> Any:
    from tocha.backends._native_borders import flip_outer

    if not dims or not x.size:
        return None
    return _flip_rows(x, dims) if x.ndim - 1 in dims else flip_outer(x, tuple(dims))


def _flip_rows(x: Any, dims: Sequence[int]) -> Any:
    """Where the last dimension is turned around."""
    bits, modules, item = bits_of(x), native.inductor(), x.dtype.itemsize
    last = x.ndim - 1
    if bits is None or modules is None or x.shape[last] < _LEAST_SIDE:
        return None
    if x.strides[last] != item or any(s % item for s in x.strides):
        return None
    steps = [s // item for s in x.strides[:last]]
    start = sum((n - 1) * s for d, (n, s) in enumerate(zip(x.shape[:last], steps, strict=True)) if d in dims)
    steps = [-s if d in dims else s for d, s in enumerate(steps)]
    found = modules.layout.merge(x.shape[:last], [tuple(steps)], tuple(range(last)))
    outer = len(found.shape) if last else 0
    name, rows = modules.lower.NP_TYPES[bits], x.size // x.shape[last]
    sizes = [x.shape[last], start, *found.shape[:outer], *found.strides[0][:outer]]
    return _rows(("flip", bits, outer), lambda: modules.windows.flip(name, outer), x, rows, sizes)


RUNS = {"tril": _triangle(False), "triu": _triangle(True), "flip": _flip}
