"""Numbers of windows that primitives and kernels share: how many there are, places of maxima, what sums are divided by."""

from __future__ import annotations

from typing import Any

import numpy as np

Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
CODES = 256  # taps that a byte tells apart


def out_sizes(sizes: Shape, kernel: Shape, stride: Shape, dilation: Shape, padding: Pairs) -> Shape:
    """How many windows fit along each dimension."""
    return tuple(
        [
            (n + low + high - d * (k - 1) - 1) // s + 1
            for n, k, s, d, (low, high) in zip(sizes, kernel, stride, dilation, padding, strict=True)
        ]
    )


def code_places(
    xp: Any, codes: Any, spatial: Shape, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, sizes: Shape
) -> Any:
    """The flattened place that each window's code stands for."""
    taps: Any = np.zeros((), np.int64)
    first = xp.zeros((), xp.int64)
    for n, k, s, p, d, o in zip(spatial, kernel, stride, padding, dilation, sizes, strict=True):
        taps = taps[..., None] * n + np.arange(k) * d
        first = first[..., None] * n + (xp.arange(o) * s - p)
    places = xp.asarray(taps.ravel()).take(codes)
    places += first
    return places


def window_counts(
    spatial: Shape, kernel: Shape, stride: Shape, padding: Shape, sizes: Shape, include_pad: bool, divisor: int | None
) -> Any:
    """What the sum of each window is divided by."""
    if divisor is not None:
        return divisor
    counts: Any = np.ones(())
    for n, k, s, p, o in zip(spatial, kernel, stride, padding, sizes, strict=True):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        counts = counts[..., None] * (end - start)
    return counts if counts.size and (counts != counts.flat[0]).any() else int(counts.flat[0]) if counts.size else 1
