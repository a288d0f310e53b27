"""Native kernels along one dimension, any one: softmax and its relatives, the largest element and its place.

The last dimension's are kernels over rows (tocha.inductor.rows), the others' over blocks of columns (tocha.inductor.columns).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tocha.backends import native, native_out
from tocha.backends._native_prims import FLOAT_NP, ORDERED_NP, Run, widened

_INT64 = np.dtype(np.int64)
_FEWEST = 8  # columns side by side that are worth a kernel
_PIECE = 8192  # elements worth a thread's while


class Along(NamedTuple):
    """How a kernel walks an array: over rows or over columns, and its work array."""

    columns: bool
    work: Any
    n: int


def along(x: Any, dim: int) -> Along | None:
    """The walk along dimension `dim` of x; None where NumPy is as good, or memory isn't contiguous."""
    if x.ndim == 0 or not x.size or not x.flags.c_contiguous:
        return None
    return native.remember(("along", x.shape, dim), lambda: _along(x.shape, dim % x.ndim)) or None


def _along(shape: tuple[int, ...], dim: int) -> Along | tuple[()]:
    from tocha.inductor.columns import COLUMNS

    n, inner = shape[dim], math.prod(shape[dim + 1 :])
    if inner == 1:
        rows = math.prod(shape) // n
        return Along(False, np.array([rows, max(1, _PIECE // n), n], np.int64), n)
    if inner < _FEWEST:
        return ()
    blocks = -(-inner // COLUMNS)
    units = math.prod(shape[:dim]) * blocks
    return Along(True, np.array([units, max(1, _PIECE // (n * min(inner, COLUMNS))), n, inner, blocks], np.int64), n)


def _kernel(name: str, dtype: Any, columns: bool) -> Any:
    """The builtin of one of tocha.inductor.rows' kernels."""
    modules = native.inductor()
    if modules is None:
        return None

    def make() -> Any:
        from tocha.inductor.columns import Columns

        names = modules.lower.NP_TYPES
        return getattr(modules.rows, name)(names[dtype], names[widened(dtype)], Columns if columns else modules.rows.Row)

    return native.kernel((name, dtype, columns), make)


def elementwise(name: str) -> Run:
    """A kernel whose result has the shape of its operands, which share one."""

    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x = arrays[0]
        walk = along(x, params["dim"])
        if walk is None or x.dtype not in FLOAT_NP:
            return None
        if any(a.dtype is not x.dtype or a.shape != x.shape or not a.flags.c_contiguous for a in arrays):
            return None
        builtin = _kernel(name, x.dtype, walk.columns)
        if builtin is None:
            return None
        out = native_out.room(x.shape, x.dtype)
        builtin(out, *arrays, walk.work)
        return out

    return run


def logsumexp(arrays: list[Any], params: dict[str, Any]) -> Any:
    """The kernel for one dimension."""
    x, dim = arrays[0], params["dim"]
    walk = along(x, dim[0]) if len(dim) == 1 else None
    builtin = None if walk is None or x.dtype not in FLOAT_NP else _kernel("logsumexp", x.dtype, walk.columns)
    if walk is None or builtin is None:
        return None
    out = native_out.room(_kept(x.shape, dim[0], params["keepdim"]), x.dtype)
    builtin(out, x, walk.work)
    return out


def _kept(shape: tuple[int, ...], dim: int, keepdim: bool) -> tuple[int, ...]:
    dim %= len(shape)
    return (*shape[:dim], *((1,) if keepdim else ()), *shape[dim + 1 :])


def _extreme(x: Any, dim: int, keepdim: bool, sign: int) -> tuple[Any, Any] | None:
    """The largest (sign -1: smallest) elements along a dimension and the first index of each."""
    walk = along(x, dim)
    modules = native.inductor()
    if walk is None or modules is None or walk.n >= 1 << 30:
        return None

    def make() -> Any:
        from tocha.inductor import columns

        return (columns if walk.columns else modules.rows).argmax(modules.lower.NP_TYPES[x.dtype], sign)

    builtin = native.kernel(("argmax", sign, x.dtype, walk.columns), make)
    if builtin is None:
        return None
    shape = _kept(x.shape, dim, keepdim)
    values, indices = np.empty(shape, x.dtype), np.empty(shape, _INT64)
    builtin(values, indices, x, walk.work)
    return values, indices


def _place_in_all(x: Any, keepdim: bool, sign: int) -> Any:
    """The place of the extreme of a whole array: of each piece of it, then of the pieces' extremes."""
    pieces = next(k for k in (64, 48, 40, 32, 24, 16, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1) if x.size % k == 0)
    found = _extreme(x.reshape(pieces, -1), 1, False, sign)
    if found is None:
        return None
    values, indices = found
    piece = int(values.argmax() if sign > 0 else values.argmin())
    place = np.asarray(indices[piece] + piece * (x.size // pieces))
    return place.reshape((1,) * x.ndim) if keepdim else place


def extreme(sign: int, both: bool) -> Run:
    """The largest (sign -1: smallest) elements and their first indices, or the indices alone."""

    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x, dim = arrays[0], params["dim"]
        if x.dtype not in ORDERED_NP or not x.flags.c_contiguous or not x.size or not x.shape:
            return None
        if dim is None:
            return _place_in_all(x, params["keepdim"], sign)
        found = _extreme(x, dim, params["keepdim"], sign)
        return found if both or found is None else found[1]

    return run


def place_one(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Values at indices along a dimension, 0 elsewhere; both kept that dimension, of size 1."""
    g, indices = arrays
    shape, dim = params["shape"], params["dim"]
    if math.prod(shape) < native.LEAST["row"]:
        return None
    walk = native.remember(("along", shape, dim), lambda: _along(shape, dim))
    if not walk or g.dtype not in FLOAT_NP or not (g.flags.c_contiguous and indices.flags.c_contiguous) or walk.n >= 1 << 31:
        return None
    builtin = _kernel("place", g.dtype, walk.columns)
    if builtin is None:
        return None
    out = np.empty(shape, g.dtype)
    builtin(out, g, indices, walk.work)
    return out


RUNS: dict[str, Run] = {
    **{name: elementwise(name) for name in ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")},
    "logsumexp": logsumexp, "place_one": place_one,
    "max_dim": extreme(1, True), "min_dim": extreme(-1, True), "argmax": extreme(1, False), "argmin": extreme(-1, False),
}  # fmt: skip
