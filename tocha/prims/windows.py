"""Sliding windows over spatial dimensions: what convolution, pooling, fold and unfold have in common."""

from __future__ import annotations

import itertools
from typing import Any

from tocha.backends.pooling import out_sizes as out_sizes

Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def pad_spatial(xp: Any, x: Any, padding: Pairs, value: Any = 0) -> Any:
    """x (…, *spatial) with `value` before and after each of its last len(padding) dimensions; negative pads crop."""
    if not any(low or high for low, high in padding):
        return x
    lead = x.ndim - len(padding)
    if any(low < 0 or high < 0 for low, high in padding):
        crop = [slice(None)] * lead
        for (low, high), n in zip(padding, x.shape[lead:], strict=True):
            crop.append(slice(max(-low, 0), n - max(-high, 0)))
        x = x[tuple(crop)]
        padding = tuple((max(low, 0), max(high, 0)) for low, high in padding)
    shape = x.shape[:lead] + tuple(low + n + high for n, (low, high) in zip(x.shape[lead:], padding, strict=True))
    out = xp.zeros(shape, x.dtype) if value == 0 else xp.full(shape, value, x.dtype)
    out[(Ellipsis, *(slice(low, low + n) for n, (low, high) in zip(x.shape[lead:], padding, strict=True)))] = x
    return out


def windows(xp: Any, x: Any, kernel: Shape, stride: Shape, dilation: Shape, sizes: Shape) -> Any:
    """A view (…, *kernel, *sizes) of x (…, *spatial), already padded: element [k, o] is x[o * stride + k * dilation]."""
    lead = x.ndim - len(kernel)
    steps = x.strides[lead:]
    return xp.restride(
        x, (*x.shape[:lead], *kernel, *sizes),
        (*x.strides[:lead], *[s * d for s, d in zip(steps, dilation, strict=True)], *[s * t for s, t in zip(steps, stride, strict=True)]),
    )  # fmt: skip


def scatter_windows(xp: Any, out: Any, values: Any, kernel: Shape, stride: Shape, dilation: Shape) -> None:
    """Add values (…, *kernel, *sizes) to `out` (…, *padded spatial) where `windows` would have read them."""
    n = len(kernel)
    sizes = values.shape[values.ndim - n :]
    for position in itertools.product(*map(range, kernel)):
        place = tuple(
            slice(k * d, k * d + (size - 1) * s + 1, s) for k, d, s, size in zip(position, dilation, stride, sizes, strict=True)
        )
        target = out[(Ellipsis, *place)]
        target += values[(Ellipsis, *position, *(slice(None),) * n)]


def crop_spatial(x: Any, padding: Pairs) -> Any:
    """Undo `pad_spatial` (a view)."""
    lead = x.ndim - len(padding)
    return x[(Ellipsis, *(slice(low, n - high) for n, (low, high) in zip(x.shape[lead:], padding, strict=True)))]
