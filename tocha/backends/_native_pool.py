"""Pooling on native kernels: maxima with their places (tocha.inductor.templates.maxima); sums of windows as convolutions by ones.

Half types are computed in float32. Integers, and windows in which nothing exceeds -Inf, are left to NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha import threads
from tocha.backends import _native_conv as convolutions
from tocha.backends import _native_pool_small as small
from tocha.backends import native
from tocha.backends._native_prims import Run, _cast, reduce
from tocha.backends.pooling import CODES, code_places, window_counts
from tocha.dtypes import HALF_NP

Shape = tuple[int, ...]
_FLOAT32, _FLOAT64, _INT64, _BYTE = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.uint8))
_FLOATS = frozenset((_FLOAT32, _FLOAT64, *(d for d in HALF_NP if d.itemsize == 2)))


def _wide(a: Any) -> Any:
    return _as(a, _FLOAT32) if a.dtype in HALF_NP else a


def _as(a: Any, dtype: Any) -> Any:
    if a.dtype is dtype:
        return a
    found = _cast([a], {"dtype": dtype})
    return a.astype(dtype) if found is None else found


def _builtin(name: str, dtype: Any) -> Any:
    """The builtin of a kernel; None until it is compiled."""
    modules = native.inductor()
    if modules is None:
        return None

    def build() -> Any:
        from tocha.inductor.templates import maxima, windows

        g, make = convolutions.tile(dtype), modules.entry.build_template
        if name == "maxima":
            return make(name, windows.BUFFERS, windows.SIZES, maxima.code(g), hole=True)
        if name == "spread":
            return make(name, maxima.SPREAD_BUFFERS, maxima.SPREAD_SIZES, maxima.spread_code(g))
        return make(name, maxima.PLACE_BUFFERS, maxima.PLACE_SIZES, maxima.place_code(g))

    return native.built((name, dtype), build)


def _planes(x: Any, dims: int) -> Any:
    """x as (groups, samples, *spatial) with at most one leading dimension where memory allows, rows of adjacent elements."""
    if x.strides[-1] != x.itemsize or any(s % x.itemsize for s in x.strides):
        x = np.ascontiguousarray(x)
    lead, spatial = x.shape[: x.ndim - dims], x.shape[x.ndim - dims :]
    if x.flags.c_contiguous or len(lead) != 2:
        return x.reshape(1, math.prod(lead), *spatial)
    return x


def _maxima(x: Any, params: dict[str, Any]) -> Any:
    """(maxima, codes) of the windows of a float32 or float64 array; None for NumPy to compute them."""
    kernel, sizes = params["kernel"], params["sizes"]
    dims, taps = len(kernel), math.prod(kernel)
    shape = (*x.shape[: x.ndim - dims], *sizes)
    if taps > CODES or not x.size or not math.prod(shape):
        return None
    builtin = _builtin("maxima", x.dtype)
    if builtin is None:
        return None
    planes = _planes(x, dims)
    groups, samples = planes.shape[:2]

    def make() -> Any:
        from tocha.inductor.templates import conv, depthwise

        pairs = tuple([(p, 0) for p in params["padding"]])
        lines = convolutions._lines(
            conv.forward_line, planes.shape[2:], kernel, params["stride"], pairs, params["dilation"], sizes
        )
        of_group, of_sample, *steps = convolutions._steps(planes)
        places = _steps_of((1, 1, *convolutions._three(sizes, 1)))
        return conv.plan(
            depthwise.single(convolutions.tile(x.dtype)), lines, samples, groups, 1, 1, (of_sample, of_group, *steps),
            (places[1], samples * places[1], *places[2:]), 0, (0, 0), threads.get_num_threads(), x_group=of_group, together=1,
        )  # fmt: skip

    key = (
        "maxima",
        x.dtype,
        planes.shape,
        planes.strides,
        *[params[n] for n in ("kernel", "stride", "padding", "dilation", "sizes")],
    )
    plan = native.remember((*key, threads.get_num_threads()), make)
    out, codes, seen = np.empty(shape, x.dtype), np.empty(shape, _BYTE), np.zeros(1, _INT64)
    convolutions.call(builtin, plan, out, planes, codes, seen)
    return None if seen[0] else (out, codes)


def _steps_of(shape: Shape) -> Shape:
    """Strides of a dense array, in elements."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))


def _with_codes(arrays: list[Any], params: dict[str, Any]) -> Any:
    x = arrays[0]
    if x.size < native.LEAST["pool"]:
        return small.maxima(x, params)
    found = _maxima(_wide(x), params) if x.dtype in _FLOATS else None
    return None if found is None else (_as(found[0], x.dtype), found[1])


def _values(arrays: list[Any], params: dict[str, Any]) -> Any:
    found = _with_codes(arrays, params)
    return None if found is None else found[0]


def _with_indices(arrays: list[Any], params: dict[str, Any]) -> Any:
    found = _with_codes(arrays, params)
    if found is None:
        return None
    out, codes = found
    spatial = arrays[0].shape[arrays[0].ndim - len(params["kernel"]) :]
    given = {n: params[n] for n in ("kernel", "stride", "padding", "dilation", "sizes")}

    def tables() -> Any:  # places of taps from a window's first, and of windows' first ones
        first = code_places(np, np.zeros(params["sizes"], _BYTE), spatial, **given)
        steps = _steps_of(spatial)
        taps: Any = sum(np.ix_(*[np.arange(k) * d * s for k, d, s in zip(params["kernel"], params["dilation"], steps, strict=True)]))
        return taps.ravel(), first

    taps, first = native.remember(("places", spatial, *given.values()), tables)
    places = taps.take(codes)
    places += first
    return out, places


def _adaptive(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Every window with as many elements as the longest, the last of the shorter ones repeated: windows side by side."""
    x, sizes = arrays[0], params["sizes"]
    dims = len(sizes)
    spatial = x.shape[x.ndim - dims :]
    if x.dtype not in _FLOATS or not x.size or 0 in sizes:
        return None
    places, kernel, spread = [], [], _wide(x)
    for axis, (m, o) in enumerate(zip(spatial, sizes, strict=True), x.ndim - dims):
        i = np.arange(o)
        start, end = i * m // o, -(-(i + 1) * m // o)
        longest = int((end - start).max())
        place = np.minimum(start[:, None] + np.arange(longest), end[:, None] - 1)
        places.append(place)
        kernel.append(longest)
        spread = spread.take(place.ravel(), axis=axis)
    found = _maxima(
        spread,
        {"kernel": tuple(kernel), "stride": tuple(kernel), "padding": (0,) * dims, "dilation": (1,) * dims, "sizes": sizes},
    )
    if found is None:
        return None
    out, code = found
    at: Any = 0
    steps = _steps_of(spatial)
    code = code.astype(np.intp)
    for axis in reversed(range(dims)):
        code, tap = np.divmod(code, kernel[axis]) if axis else (None, code)
        first = np.arange(sizes[axis]).reshape(-1, *(1,) * (dims - 1 - axis)) * kernel[axis]
        at = at + (places[axis] * steps[axis]).ravel()[tap + first]
    return _as(out, x.dtype), at


def _spread(arrays: list[Any], params: dict[str, Any]) -> Any:
    """`max_pool_backward` (tocha.prims.pool)."""
    g, codes = arrays
    size, kernel, stride, sizes = params["size"], params["kernel"], params["stride"], params["sizes"]
    if g.size < native.LEAST["pool"]:
        return small.spread_maxima(g, codes, params)
    if g.dtype not in _FLOATS or codes.dtype is not _BYTE or not g.size or g.shape != codes.shape:
        return None
    wide = np.ascontiguousarray(_wide(g))
    builtin = _builtin("spread", wide.dtype)
    if builtin is None:
        return None
    lead = g.shape[: g.ndim - len(size)]

    def make() -> Any:
        steps = _steps_of(size)
        offsets = np.full(CODES, 1 << 60, _INT64)
        taps: Any = 0
        for k, d, step in zip(kernel, params["dilation"], steps, strict=True):
            taps = np.add.outer(taps, np.arange(k) * (d * step))
        offsets[: taps.size] = taps.ravel()
        length, number, rows = math.prod(size), math.prod(sizes), math.prod(lead)
        first = -sum(p * s for p, s in zip(params["padding"], steps, strict=True))
        moves = convolutions._three([s * t for s, t in zip(stride, steps, strict=True)], 0)
        work = [rows, max(1, 8192 // (length + number)), length, number, *convolutions._three(sizes, 1), first, *moves]
        return offsets, np.array(work, _INT64)

    key = ("spread", g.shape, size, kernel, stride, params["padding"], params["dilation"])
    offsets, work = native.remember(key, make)
    out = np.empty((*lead, *size), wide.dtype)
    builtin(out, wide, np.ascontiguousarray(codes), offsets, work)
    return _as(out, g.dtype)


def _place(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, indices = arrays
    size = params["size"]
    if g.dtype not in _FLOATS or indices.dtype is not _INT64 or not g.size or g.shape != indices.shape:
        return None
    wide = np.ascontiguousarray(_wide(g))
    builtin = _builtin("place", wide.dtype)
    if builtin is None:
        return None
    lead = g.shape[: g.ndim - len(size)]
    length, rows = math.prod(size), math.prod(lead)
    number = g.size // rows
    work = native.remember(
        ("place", length, number, rows), lambda: np.array([rows, max(1, 8192 // (length + number)), length, number], _INT64)
    )
    out = np.empty((*lead, *size), wide.dtype)
    builtin(out, wide, np.ascontiguousarray(indices), work)
    return _as(out, g.dtype)


def _means(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, kernel, padding, sizes = arrays[0], params["kernel"], params["padding"], params["sizes"]
    if x.size < native.LEAST["pool"]:
        return small.means(x, params)
    if x.dtype not in _FLOATS or not x.size:
        return None
    dims, wide = len(kernel), _wide(x)
    lead, spatial = x.shape[: x.ndim - dims], x.shape[x.ndim - dims :]
    total = None
    if math.prod(sizes) == 1 and kernel == spatial and not any(padding):
        total = reduce("sum", [wide], tuple(range(x.ndim - dims, x.ndim)), True, wide.dtype)
    if total is None:
        single = wide.reshape(math.prod(lead), 1, *spatial)
        pairs = tuple([(p, 0) for p in padding])
        total = convolutions.forward(
            single,
            np.ones((1, 1, *kernel), wide.dtype),
            None,
            stride=params["stride"],
            padding=pairs,
            dilation=(1,) * dims,
            groups=1,
            sizes=sizes,
        )
    if total is None:
        return None
    total = total.reshape(*lead, *sizes)
    total /= _divisor(
        window_counts(spatial, kernel, params["stride"], padding, sizes, params["include_pad"], params["divisor"]), wide.dtype
    )
    return _as(total, x.dtype)


def _means_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, size, kernel, padding, stride = arrays[0], params["size"], params["kernel"], params["padding"], params["stride"]
    if g.size < native.LEAST["pool"]:
        return small.spread_means(g, params)
    if g.dtype not in _FLOATS or not g.size:
        return None
    dims, wide = len(kernel), _wide(g)
    lead, sizes = g.shape[: g.ndim - dims], g.shape[g.ndim - dims :]
    share = wide / _divisor(
        window_counts(size, kernel, stride, padding, sizes, params["include_pad"], params["divisor"]), wide.dtype
    )
    if math.prod(sizes) == 1 and kernel == size and not any(padding):
        out = np.empty((*lead, *size), wide.dtype)
        out[...] = share
        return _as(out, g.dtype)
    pairs = tuple([(p, 0) for p in padding])
    found = convolutions.input_gradient(
        share.reshape(math.prod(lead), 1, *sizes), np.ones((1, 1, *kernel), wide.dtype), None, size=size, stride=stride, padding=pairs,
        dilation=(1,) * dims, groups=1,
    )  # fmt: skip
    return None if found is None else _as(found.reshape(*lead, *size), g.dtype)


def _divisor(counts: Any, dtype: Any) -> Any:
    return counts.astype(dtype) if isinstance(counts, np.ndarray) else dtype.type(counts)


RUNS: dict[str, Run] = {
    "max_pool": _with_indices, "max_pool_values": _values, "max_pool_coded": _with_codes, "max_pool_backward": _spread, "place": _place,
    "adaptive_max_pool": _adaptive, "avg_pool": _means, "avg_pool_backward": _means_backward,
}  # fmt: skip
