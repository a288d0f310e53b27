"""Pooling of few elements: plain loops over windows and taps in one native call, with the bits of the NumPy forms (tocha.prims.pool).

Therefore either may serve a call, and the compiler isn't loaded for a few such calls (`native.at_hand`). From `LEAST["pool"]` on the kernels of
tocha.backends._native_pool take over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends import native
from tocha.backends.pooling import CODES, window_counts

Shape = tuple[int, ...]
_BYTE = np.dtype(np.uint8)
_known: dict[Any, Any] = {}


def maxima(x: Any, params: dict[str, Any]) -> Any:
    """(maxima, codes) as `max_pool_coded` gives them; None for NumPy to compute them."""
    builtin = _builtin("maxima", x)
    if builtin is None or math.prod(params["kernel"]) > CODES:
        return None
    shape, work = _plan(x.shape[x.ndim - len(params["sizes"]) :], x.shape, params, params["dilation"])
    out, codes = np.empty(shape, x.dtype), np.empty(shape, _BYTE)
    builtin(out, x if x.flags.c_contiguous else np.ascontiguousarray(x), codes, work)
    return out, codes


def means(x: Any, params: dict[str, Any]) -> Any:
    """`avg_pool`, or None."""
    builtin = _builtin("means", x)
    if builtin is None:
        return None
    spatial = x.shape[x.ndim - len(params["sizes"]) :]
    shape, work = _plan(spatial, x.shape, params, None)
    out = np.empty(shape, x.dtype)
    builtin(out, x if x.flags.c_contiguous else np.ascontiguousarray(x), _counts(spatial, params["sizes"], params, x.dtype), work)
    return out


def spread_maxima(g: Any, codes: Any, params: dict[str, Any]) -> Any:
    """`max_pool_backward`, or None."""
    builtin = _builtin("spread_maxima", g) if codes.dtype is _BYTE and codes.shape == g.shape else None
    return None if builtin is None else _spread(builtin, g, np.ascontiguousarray(codes), params, params["dilation"])


def spread_means(g: Any, params: dict[str, Any]) -> Any:
    """`avg_pool_backward`, or None."""
    builtin = _builtin("spread_means", g)
    if builtin is None:
        return None
    sizes = g.shape[g.ndim - len(params["size"]) :]
    return _spread(builtin, g, _counts(params["size"], sizes, params, g.dtype), {**params, "sizes": sizes}, None)


def _spread(builtin: Any, g: Any, beside: Any, params: dict[str, Any], dilation: Any) -> Any:
    size = params["size"]
    shape, work = _plan(size, (*g.shape[: g.ndim - len(size)], *size), params, dilation)
    out = np.zeros((*shape[: g.ndim - len(size)], *size), g.dtype)
    builtin(out, g if g.flags.c_contiguous else np.ascontiguousarray(g), beside, work)
    return out


def _plan(spatial: Shape, whole: Shape, params: dict[str, Any], dilation: Shape | None) -> Any:
    """The shape of the windows, and the numbers that the template's `SIZES` name."""
    kernel, stride, padding, sizes = params["kernel"], params["stride"], params["padding"], params["sizes"]

    def make() -> Any:
        lead = whole[: len(whole) - len(spatial)]
        ones = (1,) * len(spatial)
        fields = ((sizes, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation or ones, 1), (spatial, 1))
        numbers = [n for values, fill in fields for n in (*(fill,) * (3 - len(values)), *values)]
        return (*lead, *sizes), np.array([1, 1, math.prod(lead), *numbers], np.int64)

    return native.remember(("small windows", spatial, whole, kernel, stride, padding, sizes, dilation), make)


def _counts(spatial: Shape, sizes: Shape, params: dict[str, Any], dtype: Any) -> Any:
    """What each window's sum is divided by."""
    given = params["kernel"], params["stride"], params["padding"], sizes, params["include_pad"], params["divisor"]

    def make() -> Any:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(window_counts(spatial, *given), dtype), sizes))

    return native.remember(("window counts", dtype, spatial, *given), make)


def _builtin(kind: str, x: Any) -> Any:
    """The builtin(out, values, codes or counts, work) of a type; None where there is none, or it had better not be made yet."""
    found = _known.get((kind, x.dtype))
    if found is None and x.dtype in native.SCALARS and native.at_hand():
        found = native.built(("small pool", kind, x.dtype), lambda: _build(kind, native.SCALARS[x.dtype], x.itemsize))
        if found is not None:
            _known[kind, x.dtype] = found
    return found if x.size else None


def _build(kind: str, type: str, bytes: int) -> Any:
    from tocha.inductor.templates import few_windows as pools

    modules = native.inductor()
    assert modules is not None
    return modules.entry.build_template(kind, pools.BUFFERS, pools.SIZES, pools.code(kind, type, bytes), short_loops=True)
