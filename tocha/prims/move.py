"""Primitives that copy elements without computing: cast, clone, cat, fill."""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray, dense_strides
from tocha.dispatch.prim import prim

Shape = tuple[int, ...]


def _like(input: Any, **unused: Any) -> MetaArray:
    return MetaArray(input.shape, input.dtype)


@prim("cast", "move", vjp=lambda g, input_dtype: _cast_back(g, input_dtype), half="native",
      infer=lambda input, *, dtype: MetaArray(input.shape, dtype))  # fmt: skip
def cast(xp: Any, input: Any, *, dtype: Any) -> Any:
    """The same values as another NumPy dtype; complex to real keeps the real part."""
    if input.dtype.kind == "c" and dtype.kind not in "cb":
        input = input.real
    if dtype.kind in "iu" and input.dtype.kind not in "biu":
        return xp.float_to_int(input, dtype)
    return xp.converted(input, dtype)


def _cast_back(g: Any, dtype: Any) -> Any:
    return g.real.to(dtype) if g.is_complex() and not dtype.is_complex else g.to(dtype)


def _clone_infer(input: Any, *, order: str) -> MetaArray:
    if order == "C":
        return MetaArray(input.shape, input.dtype)
    return MetaArray(input.shape, input.dtype, dense_strides(input.shape, input.strides, input.dtype.itemsize))


@prim("clone", "move", vjp=lambda g: g, half="native", infer=_clone_infer)
def clone(xp: Any, input: Any, *, order: str) -> Any:
    """A copy; `order` 'K' keeps the order of strides, 'C' makes it contiguous."""
    return input.copy(order)


@prim("unsafe_view", "move", vjp=lambda g, input_shape: g.reshape(input_shape), half="native",
      infer=lambda input, *, shape: MetaArray(shape, input.dtype))  # fmt: skip
def unsafe_view(xp: Any, input: Any, *, shape: Shape) -> Any:
    """Another shape, in the books not a view: of a fresh array no one else holds, or where strides force a copy."""
    return input.reshape(shape)


def _cat_vjp(g: Any, tensors_shape: Any, *, dim: int, needs: Any) -> Any:
    from tocha.prims.view import split

    if all(len(s) == g.ndim for s in tensors_shape):
        return split(g, sizes=tuple(s[dim] for s in tensors_shape), dim=dim)
    parts, start = [], 0  # legacy: 1-d empty tensors are skipped
    for s in tensors_shape:
        if len(s) != g.ndim:
            parts.append(g.new_zeros(s))
        else:
            parts.append(g.narrow(dim, start, s[dim]))
            start += s[dim]
    return parts


def _cat_infer(*tensors: Any, dim: int) -> MetaArray:
    shape = list(next((t for t in tensors if len(t.shape) > 1), tensors[0]).shape)
    shape[dim] = sum(t.shape[dim] for t in tensors if len(t.shape) == len(shape))
    return MetaArray(tuple(shape), tensors[0].dtype)


@prim("cat", "move", vjp=_cat_vjp, half="native", infer=_cat_infer)
def cat(xp: Any, *tensors: Any, dim: int) -> Any:
    """Join along an existing dimension; types agree."""
    kept = [t for t in tensors if t.shape != (0,)] or [tensors[0]]
    return xp.concatenate(kept, axis=dim)


def _stack_vjp(g: Any, *, dim: int) -> Any:
    from tocha.prims.view import unbind

    return list(unbind(g, dim=dim))


def _stack_infer(*tensors: Any, dim: int) -> MetaArray:
    shape = tensors[0].shape
    return MetaArray((*shape[:dim], len(tensors), *shape[dim:]), tensors[0].dtype)


@prim("stack", "move", vjp=_stack_vjp, half="native", infer=_stack_infer)
def stack(xp: Any, *tensors: Any, dim: int) -> Any:
    """Join along a new dimension; types and shapes agree."""
    return xp.concatenate([t[(slice(None),) * dim + (None, Ellipsis)] for t in tensors], axis=dim)
