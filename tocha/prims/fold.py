"""Windows as columns and back: the kernels of F.unfold and F.fold, each the other's gradient."""

from __future__ import annotations

import math
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.windows import Shape, crop_spatial, out_sizes, pad_spatial, scatter_windows, windows


def _pairs(padding: Shape) -> tuple[tuple[int, int], ...]:
    return tuple((p, p) for p in padding)


def _to_infer(input: Any, *, kernel: Shape, dilation: Shape, padding: Shape, stride: Shape) -> MetaArray:
    sizes = out_sizes(input.shape[2:], kernel, stride, dilation, _pairs(padding))
    return MetaArray((input.shape[0], input.shape[1] * math.prod(kernel), math.prod(sizes)), input.dtype)


@prim(
    "to_columns", "index", infer=_to_infer, half="native",
    vjp=lambda g, input_shape, *, kernel, dilation, padding, stride: from_columns(
        g, size=input_shape[2:], kernel=kernel, dilation=dilation, padding=padding, stride=stride
    ),
)  # fmt: skip
def to_columns(xp: Any, input: Any, *, kernel: Shape, dilation: Shape, padding: Shape, stride: Shape) -> Any:
    """(N, C, *spatial) -> (N, C * kernel elements, windows)."""
    sizes = out_sizes(input.shape[2:], kernel, stride, dilation, _pairs(padding))
    view = windows(xp, pad_spatial(xp, input, _pairs(padding)), kernel, stride, dilation, sizes)
    return xp.ascontiguousarray(view).reshape(input.shape[0], input.shape[1] * math.prod(kernel), math.prod(sizes))


@prim(
    "from_columns", "index",
    infer=lambda input, *, size, kernel, **rest: MetaArray((input.shape[0], input.shape[1] // math.prod(kernel), *size), input.dtype),
    vjp=lambda g, *, kernel, dilation, padding, stride: to_columns(g, kernel=kernel, dilation=dilation, padding=padding, stride=stride),
)  # fmt: skip
def from_columns(xp: Any, input: Any, *, size: Shape, kernel: Shape, dilation: Shape, padding: Shape, stride: Shape) -> Any:
    """(N, C * kernel elements, windows) -> (N, C, *size), overlapping windows summed."""
    pairs = _pairs(padding)
    n, c = input.shape[0], input.shape[1] // math.prod(kernel)
    sizes = out_sizes(size, kernel, stride, dilation, pairs)
    out = xp.zeros((n, c, *(m + 2 * p for m, p in zip(size, padding, strict=True))), input.dtype)
    scatter_windows(xp, out, input.reshape(n, c, *kernel, *sizes), kernel, stride, dilation)
    return xp.ascontiguousarray(crop_spatial(out, pairs))
