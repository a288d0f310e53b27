"""Resampling along the last dimensions, each by a table of taps: output i is the weighted sum of inputs index[i, t]. One primitive
and its transpose serve interpolate (all modes), adaptive average pooling and their gradients.

A dimension is described by a hashable spec; tables are built once for each.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tocha.backends._native_borders import BORDERS
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim

Shape = tuple[int, ...]
# (mode, input size, output size, align_corners, scale of coordinates or 0.0 for input/output); for padding modes the last is the
# number of elements put before the first.
Spec = tuple[str, int, int, bool, float]
_NEAR, _FAR = -0.75, -0.5  # the cubic's parameter without and with antialiasing


_EXACT = frozenset((*BORDERS, "nearest", "nearest-exact"))


def _source(size: int, out: int, align: bool, scale: float, cubic: bool, f: Any) -> Any:
    """Where in the input each output lies, computed in the type `f` of the input, as in torch."""
    i = np.arange(out, dtype=f)
    if align:
        return i * (f(size - 1) / f(out - 1)) if out > 1 else i * f(0)
    step = f(scale) if scale else f(size) / f(out)
    at = step * (i + f(0.5)) - f(0.5)
    return at if cubic else np.maximum(at, f(0))


def _cubic(x: Any, a: float) -> Any:
    """Keys' cubic convolution kernel (Keys 1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _windowed(rows: list[tuple[int, Any]]) -> tuple[Any, Any, Any]:
    """Tables from one (first index, weights) for each output."""
    taps = max(len(w) for _, w in rows)
    index, weight = np.zeros((len(rows), taps), np.int64), np.zeros((len(rows), taps))
    used = np.zeros((len(rows), taps), bool)
    for i, (start, w) in enumerate(rows):
        index[i, : len(w)] = start + np.arange(len(w))
        index[i, len(w) :] = start
        weight[i, : len(w)] = w
        used[i, : len(w)] = True
    return index, weight, used


_FILTERS = {
    1.0: lambda x: np.maximum(0.0, 1 - np.abs(x)),
    2.0: lambda x: _cubic(x, _FAR),
    3.0: lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0),
}


def _antialiased(mode: str, size: int, out: int, align: bool, scale: float) -> tuple[Any, Any, Any]:
    """Filters widened to the scale, as Pillow's resize does: triangle, cubic or Lanczos (Duchon 1979)."""
    if align:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = scale or size / out
    reach = {"linear": 1.0, "cubic": 2.0, "lanczos": 3.0}[mode.partition("-")[0]]
    support = reach * step if step >= 1 else reach
    squeeze = 1 / step if step >= 1 else 1.0
    rows = []
    for i in range(out):
        center = step * (i + 0.5)
        start = max(int(center - support + 0.5), 0)
        end = min(int(center + support + 0.5), size)
        x = (np.arange(start, end) - center + 0.5) * squeeze
        w = _FILTERS[reach](x)
        rows.append((start, w / w.sum() if w.sum() else w))
    return _windowed(rows)


@functools.lru_cache(maxsize=256)
def taps(spec: Spec, f: Any) -> tuple[Any, Any, Any]:
    """(index, weight, used), each (output size, taps); unused taps only pad the table. Places are computed in the type `f`."""
    mode, size, out, align, scale = spec
    if mode in BORDERS:
        index = BORDERS[mode](np.arange(out) - int(scale), size)[:, None]
        return index, np.ones(index.shape), np.ones(index.shape, bool)
    if mode.endswith("antialias"):
        return _antialiased(mode, size, out, align, scale)
    if mode == "area":
        rows = []
        for i in range(out):
            start, end = i * size // out, -(-(i + 1) * size // out)
            rows.append((start, np.full(end - start, 1 / (end - start))))
        return _windowed(rows)
    if mode in ("nearest", "nearest-exact"):
        single = np.float32  # for every type of input
        step = single(scale) if scale else single(size) / single(out)
        offset = single(0.5 if mode == "nearest-exact" else 0)
        at = np.floor((np.arange(out, dtype=single) + offset) * step).astype(np.int64)
        index = np.minimum(at, size - 1)[:, None]
        return index, np.ones(index.shape), np.ones(index.shape, bool)
    at = _source(size, out, align, scale, mode == "cubic", f)
    low = np.floor(at)
    part = (at - low).astype(np.float64)
    low = low.astype(np.int64)
    if mode == "linear":
        low = np.minimum(low, size - 1)
        index = np.stack([low, np.minimum(low + 1, size - 1)], 1)
        weight = np.stack([1 - part, part], 1)
    else:
        index = np.clip(np.stack([low - 1, low, low + 1, low + 2], 1), 0, size - 1)
        weight = np.stack([_cubic(part + 1, _NEAR), _cubic(part, _NEAR), _cubic(1 - part, _NEAR), _cubic(2 - part, _NEAR)], 1)
    return index, weight, np.ones(index.shape, bool)


@functools.lru_cache(maxsize=256)
def transposed_taps(spec: Spec, f: Any) -> tuple[Any, Any, Any]:
    """The table of the transposed map: from gradients of outputs to gradients of inputs."""
    index, weight, used = taps(spec, f)
    size = spec[1]
    source, target = np.repeat(np.arange(index.shape[0]), index.shape[1])[used.ravel()], index.ravel()[used.ravel()]
    order = np.argsort(target, kind="stable")
    counts = np.bincount(target, minlength=size)
    column = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = max(int(counts.max(initial=0)), 1)
    back, factor, has = np.zeros((size, width), np.int64), np.zeros((size, width)), np.zeros((size, width), bool)
    back[target[order], column] = source[order]
    factor[target[order], column] = weight.ravel()[used.ravel()][order]
    has[target[order], column] = True
    return back, factor, has


def _apply(xp: Any, x: Any, axis: int, table: tuple[Any, Any, Any]) -> Any:
    index, weight, used = table
    found = xp.resampled(x, axis, index, weight, used)
    if found is not None:
        return found
    ones = (1,) * (x.ndim - axis - 1)
    if index.shape[1] > 8 and x.dtype.kind == "f" and bool(xp.isfinite(x).all()):  # many taps: one matrix product
        dense = np.zeros((index.shape[0], x.shape[axis]), x.dtype)
        np.add.at(dense, (np.arange(index.shape[0])[:, None], index), np.where(used, weight, 0))
        return xp.moveaxis(xp.matmul(xp.moveaxis(x, axis, -1), xp.asarray(dense).T), -1, axis)
    out = None
    for t in range(index.shape[1]):
        part = xp.take(x, xp.asarray(index[:, t]), axis=axis)
        if not (weight[:, t] == 1).all():
            part *= xp.asarray(weight[:, t], x.dtype).reshape(-1, *ones)
        if not used[:, t].all():
            part[(slice(None),) * axis + (xp.asarray(~used[:, t]),)] = 0
        if out is None:
            out = part
        else:
            out += part
    return out


@functools.lru_cache(maxsize=256)
def _integer_taps(spec: Spec) -> tuple[Any, Any, int]:
    """(index, weight, bits): weights of 16-bit integers with as many binary digits behind the point as fit, for images of bytes."""
    index, weight, used = taps(spec, np.float64)
    weight = np.where(used, weight, 0.0)
    for t in range(1, index.shape[1]):  # taps beyond the border count for the element there, before they are rounded
        again = used[:, t] & (index[:, t] == index[:, t - 1])
        weight[again, t] += weight[again, t - 1]
        weight[again, t - 1] = 0.0
    largest, bits = weight.max(initial=0.0), 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    scaled = weight * (1 << bits)
    return index, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int32), bits


def _fixed_point(xp: Any, x: Any, specs: tuple[Spec, ...]) -> Any:
    """Bytes resampled one dimension after the other, the last first, each rounded to bytes (as Pillow's resize does)."""
    first = x.ndim - len(specs)
    for i in reversed(range(len(specs))):
        if specs[i][1] == specs[i][2] and not specs[i][4]:
            continue
        index, weight, bits = _integer_taps(specs[i])
        shape = (-1,) + (1,) * (x.ndim - first - i - 1)
        total: Any = 1 << (bits - 1)
        for t in range(index.shape[1]):
            total = total + xp.take(x, xp.asarray(index[:, t]), axis=first + i) * xp.asarray(weight[:, t]).reshape(shape)
        x = xp.clip(total >> bits, 0, 255).astype(x.dtype)
    return x


_FEW = 8  # places of a border that are copied one by one rather than through an index


def _grows(spec: Spec) -> bool:
    """Whether a padding mode's spec takes nothing away at either end."""
    mode, size, out, _, before = spec
    return mode in BORDERS and before >= 0 and out - int(before) >= size


def _pad(xp: Any, x: Any, specs: tuple[Spec, ...]) -> Any:
    """x in the middle of a larger array, then the borders, dimension by dimension, from what is filled already."""
    first = x.ndim - len(specs)
    out = xp.empty((*x.shape[:first], *(s[2] for s in specs)), x.dtype)
    middle = [slice(None)] * first + [slice(int(s[4]), int(s[4]) + s[1]) for s in specs]
    out[tuple(middle)] = x
    for i in reversed(range(len(specs))):
        region = out[tuple(middle[: first + i])]
        lead, start = (slice(None),) * (first + i), middle[first + i].start
        source = taps(specs[i], np.float32)[0][:, 0] + start
        for side in (range(start), range(middle[first + i].stop, specs[i][2])):
            if len(side) > _FEW:
                region[(*lead, slice(side.start, side.stop))] = region[(*lead, xp.asarray(source[side.start : side.stop]))]
                continue
            for place in side:
                region[(*lead, place)] = region[(*lead, int(source[place]))]
    return out


def _places(x: Any) -> Any:
    return np.float64 if x.dtype == np.float64 else np.float32


def _infer(position: int) -> Any:
    def infer(input: Any, *, specs: tuple[Any, ...]) -> MetaArray:
        lead = input.shape[: len(input.shape) - len(specs)]
        return MetaArray((*lead, *(s[position] for s in specs)), input.dtype)

    return infer


@prim("resample", "resample", vjp=lambda g, *, specs: resample_backward(g, specs=specs), infer=_infer(2))
def resample(xp: Any, input: Any, *, specs: tuple[Spec, ...]) -> Any:
    """The last len(specs) dimensions of input resampled."""
    if input.size and all(map(_grows, specs)):
        return _pad(xp, input, specs)
    first = input.ndim - len(specs)
    exact = all(s[0] in _EXACT for s in specs)
    if input.dtype.kind == "u" and not exact and specs[0][0] != "area":
        return _fixed_point(xp, input, specs)
    x = input if exact or input.dtype.kind in "fc" else input.astype(xp.float64)
    order = sorted(range(len(specs)), key=lambda i: (specs[i][2] / max(specs[i][1], 1), -i))  # shrink first
    for i in order:
        if specs[i][0] == "linear" and specs[i][1] == specs[i][2] and not specs[i][4]:
            continue
        x = _apply(xp, x, first + i, taps(specs[i], _places(x)))
    if input.dtype.kind in "iu" and not exact:
        info = np.iinfo(input.dtype)
        return xp.clip(xp.floor(x + 0.5), info.min, info.max).astype(input.dtype)
    return x.copy() if x is input else x


@prim("resample_backward", "resample", vjp=lambda h, *, specs: resample(h, specs=specs), infer=_infer(1))
def resample_backward(xp: Any, g: Any, *, specs: tuple[Spec, ...]) -> Any:
    """The transpose of `resample`."""
    first, x = g.ndim - len(specs), g
    for i, spec in enumerate(specs):
        x = _apply(xp, x, first + i, transposed_taps(spec, _places(x)))
    return x
