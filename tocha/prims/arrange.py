"""Rearrangements that copy: flip, roll, repeat, triangles, constant padding."""

from __future__ import annotations

import functools
import math
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.backends.shared import in_memory_order, number
from tocha.backends.strides import result_strides
from tocha.dispatch.prim import prim

Shape = tuple[int, ...]


def _same(input: Any, **unused: Any) -> MetaArray:
    return MetaArray(input.shape, input.dtype)


def _flip_infer(input: Any, *, dims: Shape) -> MetaArray:
    return MetaArray(input.shape, input.dtype, result_strides(input.shape, input.dtype.itemsize, (input,)))


@prim("flip", "move", vjp=lambda g, *, dims: flip(g, dims=dims), half="native", infer=_flip_infer)
def flip(xp: Any, input: Any, *, dims: Shape) -> Any:
    """The order of elements reversed along `dims`; a copy, since strides are never negative, whose dimensions lie as the input's."""
    return in_memory_order(input, lambda x, order: xp.flip(x, tuple([order.index(d) for d in dims])).copy())


@prim(
    "roll",
    "move",
    vjp=lambda g, *, shifts, dims: roll(g, shifts=tuple(-s for s in shifts), dims=dims),
    half="native",
    infer=_same,
)
def roll(xp: Any, input: Any, *, shifts: Shape, dims: Shape) -> Any:
    """Elements moved along `dims`, those that leave coming in again at the other end."""
    return xp.roll(input, shifts, dims)


def _repeat_vjp(g: Any, input_shape: Shape, *, repeats: Shape) -> Any:
    lead = len(repeats) - len(input_shape)
    shape: list[int] = []
    for r, n in zip(repeats, (1,) * lead + tuple(input_shape), strict=True):
        shape += [r, n]
    return g.reshape(shape).sum(tuple(range(0, len(shape), 2))).reshape(input_shape) if shape else g


@prim("repeat", "move", vjp=_repeat_vjp, half="native",
      infer=lambda input, *, repeats: MetaArray(
          tuple(r * n for r, n in zip(repeats, (1,) * (len(repeats) - len(input.shape)) + tuple(input.shape), strict=True)),
          input.dtype))  # fmt: skip
def repeat(xp: Any, input: Any, *, repeats: Shape) -> Any:
    """The whole repeated along every dimension."""
    sizes = (1,) * (len(repeats) - input.ndim) + input.shape
    seen = input.reshape([k for n in sizes for k in (1, n)])
    spread = xp.broadcast_to(seen, [k for r, n in zip(repeats, sizes, strict=True) for k in (r, n)])
    out = spread.reshape([r * n for r, n in zip(repeats, sizes, strict=True)])
    return out.copy() if math.prod(repeats) == 1 else out


@prim("tril", "move", vjp=lambda g, *, diagonal: tril(g, diagonal=diagonal), half="native", infer=_same)
def tril(xp: Any, input: Any, *, diagonal: int) -> Any:
    """Matrices with zeros above a diagonal."""
    rows, columns = input.shape[-2:]
    return xp.where(xp.tri(rows, columns, diagonal, dtype=bool), input, input.dtype.type(0))


@prim("triu", "move", vjp=lambda g, *, diagonal: triu(g, diagonal=diagonal), half="native", infer=_same)
def triu(xp: Any, input: Any, *, diagonal: int) -> Any:
    """Matrices with zeros below a diagonal."""
    rows, columns = input.shape[-2:]
    return xp.where(xp.tri(rows, columns, diagonal - 1, dtype=bool), input.dtype.type(0), input)


def _pad_infer(input: Any, *, pad: Any, value: Any) -> MetaArray:
    return MetaArray(tuple(n + a + b for n, (a, b) in zip(input.shape, pad, strict=True)), input.dtype)


def _pad_vjp(g: Any, *, pad: Any, value: Any) -> Any:
    return constant_pad(g, pad=tuple((-a, -b) for a, b in pad), value=0)


@prim("constant_pad", "move", vjp=_pad_vjp, half="native", infer=_pad_infer)
def constant_pad(xp: Any, input: Any, *, pad: tuple[tuple[int, int], ...], value: Any) -> Any:
    """`pad[d]` elements of `value` before and after each dimension; negative counts crop."""
    shape, kept, place = _pad_places(input.shape, pad)
    zero = value.__class__ is int and value == 0
    out = xp.zeros(shape, input.dtype) if zero else xp.full(shape, number(value, input.dtype), input.dtype)
    out[place] = input[kept]
    return out


@functools.lru_cache(1024)
def _pad_places(shape: Shape, pad: tuple[tuple[int, int], ...]) -> tuple[Shape, tuple[slice, ...], tuple[slice, ...]]:
    """The padded shape, which part of the input is kept, and where that lies."""
    padded = tuple([n + a + b for n, (a, b) in zip(shape, pad, strict=True)])
    kept = tuple([slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(shape, pad, strict=True)])
    return padded, kept, tuple([slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(padded, pad, strict=True)])
