"""Pooling kernels over the last dimensions: maximum with indices, average, and their gradients, which are each other's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray
from tocha.backends.pooling import code_places, window_counts
from tocha.dispatch.prim import prim
from tocha.prims.windows import Pairs, Shape, crop_spatial, pad_spatial, scatter_windows, windows


def _pads(size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape) -> Pairs:
    """Padding with which every window fits."""
    return tuple(
        (p, max((o - 1) * s + d * (k - 1) + 1 - n - p, 0))
        for n, k, s, p, d, o in zip(size, kernel, stride, padding, dilation, sizes, strict=True)
    )


def _padded(
    xp: Any, x: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape, value: Any
) -> tuple[Any, Pairs]:
    """x padded so that every window fits, and the pads used."""
    pads = _pads(x.shape[x.ndim - len(kernel) :], kernel, stride, padding, dilation, sizes)
    return pad_spatial(xp, x, pads, value), pads


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind not in "biu" else np.iinfo(dtype).min


def _pool_infer(input: Any, *, sizes: Shape, **params: Any) -> list[MetaArray]:
    shape = (*input.shape[: len(input.shape) - len(sizes)], *sizes)
    return [MetaArray(shape, input.dtype), MetaArray(shape, np.int64)]


def _max_vjp(g: Any, indices: Any, input_shape: Shape, *, kernel: Shape, stride: Shape, dilation: Shape) -> Any:
    if g[0] is None:
        return None
    apart = all(s > d * (k - 1) for s, k, d in zip(stride, kernel, dilation, strict=True))
    return place(g[0], indices, size=input_shape[len(input_shape) - len(kernel) :], apart=apart)


@prim("max_pool", "pool", outputs=("out", "indices"), vjp=_max_vjp, infer=_pool_infer)
def max_pool(xp: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape) -> Any:
    """The largest element of each window (the last NaN if any), and its place in the flattened spatial dimensions."""
    params = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "sizes": sizes}
    best, codes = _maxima(xp, input, xp.int64, **params)
    return best, code_places(xp, codes, input.shape[input.ndim - len(kernel) :], **params)


def _maxima(
    xp: Any, input: Any, code_type: Any, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape
) -> tuple[Any, Any]:
    """Maxima, and the numbers of the taps they were found at: the first of equal ones that isn't padding, the last NaN."""
    n = len(kernel)
    x, _ = _padded(xp, input, kernel, stride, padding, dilation, sizes, _lowest(input.dtype))
    view = windows(xp, x, kernel, stride, dilation, sizes)
    lead = (slice(None),) * (input.ndim - n)
    best = xp.full((*input.shape[: input.ndim - n], *sizes), _lowest(input.dtype), input.dtype)
    codes = xp.zeros(best.shape, code_type)
    codes += _first_codes(xp, kernel, stride, padding, dilation, sizes).astype(code_type)
    for code, position in enumerate(itertools.product(*map(range, kernel))):
        value = view[(*lead, *position)]
        better = value > best
        if input.dtype.kind == "f":
            better |= value != value
        xp.copyto(best, value, where=better)
        xp.copyto(codes, codes.dtype.type(code), where=better)
    return best, codes


def _first_codes(xp: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape) -> Any:
    """For every window, the number of its first tap that isn't padding."""
    code = xp.zeros((), xp.int64)
    for k, s, p, d, o in zip(kernel, stride, padding, dilation, sizes, strict=True):
        start = xp.arange(o) * s - p
        code = code[..., None] * k + xp.where(start < 0, (-start + d - 1) // d, 0)
    return code


def _values_vjp(g: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape) -> Any:
    indices = max_pool(input.detach(), kernel=kernel, stride=stride, padding=padding, dilation=dilation, sizes=sizes)[1]
    return place(g, indices, size=tuple(input.shape)[input.ndim - len(kernel) :], apart=False)


@prim("max_pool_values", "pool", vjp=_values_vjp, infer=lambda input, **params: _pool_infer(input, **params)[0])
def max_pool_values(xp: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape) -> Any:
    """max_pool without places, for calls that want no gradient."""
    n = len(kernel)
    x, _ = _padded(xp, input, kernel, stride, padding, dilation, sizes, _lowest(input.dtype))
    view = windows(xp, x, kernel, stride, dilation, sizes)
    lead = (slice(None),) * (input.ndim - n)
    best = view[(*lead, *(0,) * n)].copy()
    for position in itertools.islice(itertools.product(*map(range, kernel)), 1, None):
        xp.maximum(best, view[(*lead, *position)], out=best)
    return best


def _coded_infer(input: Any, *, sizes: Shape, **params: Any) -> list[MetaArray]:
    out, _ = _pool_infer(input, sizes=sizes)
    return [out, MetaArray(out.shape, np.uint8)]


def _coded_vjp(
    g: Any, codes: Any, input_shape: Shape, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape
) -> Any:
    if g[0] is None:
        return None
    params = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "sizes": sizes}
    return max_pool_backward(g[0], codes.detach(), size=input_shape[len(input_shape) - len(kernel) :], **params)


@prim("max_pool_coded", "pool", outputs=("out", "codes"), vjp=_coded_vjp, infer=_coded_infer)
def max_pool_coded(xp: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape) -> Any:
    """max_pool of up to 256 taps for a gradient: instead of places, a byte for each window, the number of its maximum's tap."""
    return _maxima(xp, input, xp.uint8, kernel=kernel, stride=stride, padding=padding, dilation=dilation, sizes=sizes)


def _backward_vjp(
    h: Any, codes: Any, *, size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape
) -> Any:
    lead = h.ndim - len(size)
    indices = _coded_places(codes, size=size, kernel=kernel, stride=stride, padding=padding, dilation=dilation, sizes=sizes)
    return h.flatten(lead).gather(lead, indices.flatten(lead)).reshape(codes.shape), None


@prim("coded_places", "pool", infer=lambda codes, **params: MetaArray(codes.shape, np.int64))
def _coded_places(
    xp: Any, codes: Any, *, size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape
) -> Any:
    """The places that codes stand for."""
    return code_places(xp, codes, size, kernel=kernel, stride=stride, padding=padding, dilation=dilation, sizes=sizes)


@prim(
    "max_pool_backward", "pool", vjp=_backward_vjp,
    infer=lambda g, codes, *, size, **params: MetaArray((*g.shape[: len(g.shape) - len(size)], *size), g.dtype),
)  # fmt: skip
def max_pool_backward(
    xp: Any, g: Any, codes: Any, *, size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape
) -> Any:
    """Zeros of spatial `size` with g added where `max_pool_coded` found each window's maximum."""
    n = len(kernel)
    pads = _pads(size, kernel, stride, padding, dilation, sizes)
    shape = tuple(m + low + high for m, (low, high) in zip(size, pads, strict=True))
    whole = xp.zeros((*g.shape[: g.ndim - n], *shape), g.dtype)
    target = windows(xp, whole, kernel, stride, dilation, sizes)
    lead = (slice(None),) * (g.ndim - n)
    for code, position in enumerate(itertools.product(*map(range, kernel))):
        here = target[(*lead, *position)]
        here += xp.where(codes == code, g, g.dtype.type(0))
    return crop_spatial(whole, pads)


def _place_vjp(h: Any, indices: Any, g_shape: Shape, *, size: Shape) -> Any:
    lead = len(g_shape) - len(size)
    flat, places = h.flatten(lead), indices.flatten(lead)
    return flat.gather(lead, places).reshape(g_shape), None


@prim(
    "place",
    "pool",
    vjp=_place_vjp,
    infer=lambda g, indices, *, size, apart: MetaArray((*g.shape[: len(g.shape) - len(size)], *size), g.dtype),
)
def place(xp: Any, g: Any, indices: Any, *, size: Shape, apart: bool) -> Any:
    """Zeros of spatial `size` with g added at flattened places `indices`; `apart` says that places don't repeat."""
    n = len(size)
    lead = g.shape[: g.ndim - n]
    length, rows = 1, 1
    for m in size:
        length *= m
    for m in lead:
        rows *= m
    windows_each = math.prod(g.shape[g.ndim - n :])
    values, at = g.reshape(rows, windows_each), indices.reshape(rows, windows_each)
    if apart or not g.size:
        out = xp.zeros((rows, length), g.dtype)
        xp.put_along_axis(out, at, values, axis=1)
        return out.reshape(*lead, *size)
    flat = (at + xp.arange(rows)[:, None] * length).ravel()
    return xp.bincount(flat, weights=values.ravel(), minlength=rows * length).astype(g.dtype).reshape(*lead, *size)


# ---- average


def _divided(xp: Any, total: Any, counts: Any) -> Any:
    if isinstance(counts, np.ndarray):
        counts = xp.asarray(counts, total.dtype)
    if total.dtype.kind in "iu":
        return xp.trunc(total / counts).astype(total.dtype)
    total /= counts
    return total


def _avg_backward(
    g: Any, input_shape: Shape, *, kernel: Shape, stride: Shape, padding: Shape, sizes: Shape, include_pad: bool, divisor: Any
) -> Any:
    return avg_pool_backward(
        g, size=input_shape[len(input_shape) - len(kernel) :], kernel=kernel, stride=stride, padding=padding, include_pad=include_pad,
        divisor=divisor,
    )  # fmt: skip


@prim("avg_pool", "pool", vjp=_avg_backward, infer=lambda input, **params: _pool_infer(input, sizes=params["sizes"])[0])
def avg_pool(
    xp: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Shape, sizes: Shape, include_pad: bool, divisor: int | None
) -> Any:
    """The mean of each window, padding counted or not, or its sum over `divisor`."""
    n = len(kernel)
    ones = (1,) * n
    x, _ = _padded(xp, input, kernel, stride, padding, ones, sizes, 0)
    view = windows(xp, x, kernel, stride, ones, sizes)
    lead = (slice(None),) * (input.ndim - n)
    total = view[(*lead, *(0,) * n)].copy()
    for position in itertools.islice(itertools.product(*map(range, kernel)), 1, None):
        total += view[(*lead, *position)]
    return _divided(xp, total, window_counts(input.shape[input.ndim - n :], kernel, stride, padding, sizes, include_pad, divisor))


def _avg_forward(h: Any, g_shape: Shape, *, kernel: Shape, stride: Shape, padding: Shape, include_pad: bool, divisor: Any) -> Any:
    sizes = g_shape[len(g_shape) - len(kernel) :]
    return avg_pool(h, kernel=kernel, stride=stride, padding=padding, sizes=sizes, include_pad=include_pad, divisor=divisor)


@prim(
    "avg_pool_backward", "pool", vjp=_avg_forward,
    infer=lambda g, *, size, **params: MetaArray((*g.shape[: len(g.shape) - len(size)], *size), g.dtype),
)  # fmt: skip
def avg_pool_backward(
    xp: Any, g: Any, *, size: Shape, kernel: Shape, stride: Shape, padding: Shape, include_pad: bool, divisor: int | None
) -> Any:
    n = len(kernel)
    lead, sizes, ones = g.shape[: g.ndim - n], g.shape[g.ndim - n :], (1,) * len(kernel)
    share = _divided(xp, g.copy(), window_counts(size, kernel, stride, padding, sizes, include_pad, divisor))
    pads = _pads(size, kernel, stride, padding, ones, sizes)
    out = xp.zeros((*lead, *(m + low + high for m, (low, high) in zip(size, pads, strict=True))), g.dtype)
    scatter_windows(xp, out, xp.broadcast_to(share.reshape(*lead, *ones, *sizes), (*lead, *kernel, *sizes)), kernel, stride, ones)
    return crop_spatial(out, pads)


# ---- windows of uneven size or place


def _uneven_max(xp: Any, input: Any, starts: list[Any], ends: list[Any]) -> Any:
    """Maxima and places over windows [start, end) along each of the last dimensions; bounds are (rows, size) or (1, size), one row for
    each leading index."""
    n = len(starts)
    lead, spatial = input.shape[: input.ndim - n], input.shape[input.ndim - n :]
    rows = math.prod(lead)
    x = input.reshape(rows, *spatial)
    sizes = tuple(s.shape[1] for s in starts)
    row = xp.arange(rows).reshape(-1, *(1,) * n)
    best = xp.full((rows, *sizes), _lowest(input.dtype), input.dtype)
    at = None
    for shift in itertools.product(*(range(int((e - s).max(initial=0))) for s, e in zip(starts, ends, strict=True))):
        index, valid, flat = [], True, xp.zeros((1,) * (n + 1), xp.int64)
        for i, (k, s, e, m) in enumerate(zip(shift, starts, ends, spatial, strict=True)):
            form = (-1, *(sizes[i] if j == i else 1 for j in range(n)))
            place_ = xp.asarray(np.minimum(s + k, m - 1)).reshape(form)
            valid = valid & xp.asarray(s + k < e).reshape(form)
            index.append(place_)
            flat = flat * m + place_
        value = x[(row, *index)]
        flat = xp.broadcast_to(flat, best.shape)
        if at is None:
            at = flat.copy()
        better = (value > best) | (value != value)
        better &= valid
        xp.copyto(best, value, where=better)
        xp.copyto(at, flat, where=better)
    if at is None:
        at = xp.zeros(best.shape, xp.int64)
    return best.reshape(*lead, *sizes), at.reshape(*lead, *sizes)


def _uneven_vjp(g: Any, indices: Any, input_shape: Shape, *, sizes: Shape) -> Any:
    if g[0] is None:
        return None, None
    return place(g[0], indices, size=input_shape[len(input_shape) - len(sizes) :], apart=False), None


@prim("adaptive_max_pool", "pool", outputs=("out", "indices"), vjp=_uneven_vjp, infer=_pool_infer)
def adaptive_max_pool(xp: Any, input: Any, *, sizes: Shape) -> Any:
    """Maxima and places over windows floor(i n / size) … ceil((i + 1) n / size)."""
    starts, ends = [], []
    for m, o in zip(input.shape[input.ndim - len(sizes) :], sizes, strict=True):
        i = np.arange(o)
        starts.append((i * m // max(o, 1))[None])
        ends.append((-(-(i + 1) * m // max(o, 1)))[None])
    return _uneven_max(xp, input, starts, ends)


@prim(
    "fractional_max_pool", "pool", outputs=("out", "indices"), vjp=_uneven_vjp,
    infer=lambda input, samples, *, kernel, sizes: _pool_infer(input, sizes=sizes),
)  # fmt: skip
def fractional_max_pool(xp: Any, input: Any, samples: Any, *, kernel: Shape, sizes: Shape) -> Any:
    """Maxima over windows of one size whose starts advance by a fractional step from a random phase, samples (N, C, n) in [0, 1)."""
    n = len(kernel)
    phases = xp.to_host(samples).reshape(-1, n).astype(samples.dtype)
    starts, ends = [], []
    for j, (m, k, o) in enumerate(zip(input.shape[input.ndim - n :], kernel, sizes, strict=True)):
        u = phases[:, n - 1 - j if n == 2 else j][:, None]
        i = np.arange(o)
        if o > 1:
            step = samples.dtype.type((m - k) / (o - 1))
            start = ((i + u).astype(samples.dtype) * step).astype(np.int64) - (u * step).astype(np.int64)
        else:
            start = np.zeros((len(u), o), np.int64)
        start[:, -1] = m - k
        starts.append(start)
        ends.append(start + k)
    return _uneven_max(xp, input, starts, ends)


for _pool in (max_pool, max_pool_values, max_pool_coded, avg_pool, adaptive_max_pool, fractional_max_pool):
    _pool.tied()
