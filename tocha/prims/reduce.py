"""Reductions over dimensions. `dim` is a tuple of non-negative dimensions, () meaning none."""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim

Shape = tuple[int, ...]


def reduced_shape(shape: Shape, dim: Shape, keepdim: bool) -> Shape:
    """The shape left after reducing `dim`."""
    if keepdim:
        return tuple(1 if i in dim else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dim)


def spread(g: Any, shape: Shape, dim: Shape, keepdim: bool) -> Any:
    """Undo the shape of a reduction: g with the reduced dimensions back, expanded to `shape`."""
    if not keepdim:
        g = g.reshape(reduced_shape(shape, dim, True))
    return g.expand(shape)


@prim("sum", "reduce", vjp=lambda g, input_shape, *, dim, keepdim: spread(g, input_shape, dim, keepdim),
      infer=lambda input, *, dim, keepdim: MetaArray(reduced_shape(input.shape, dim, keepdim), input.dtype))  # fmt: skip
def sum_(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.add.reduce(input, axis=dim, keepdims=keepdim, dtype=input.dtype) if xp.name == "cpu" else xp.sum(
        input, axis=dim, keepdims=keepdim, dtype=input.dtype
    )
