"""Choosing elements by condition: where, masked_fill, masked_select, masked_scatter, nonzero, argwhere."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.backends import namespace
from tocha.dispatch.inplace import assign, check_writable, mutated
from tocha.dispatch.overlap import has_history
from tocha.dispatch.override import INTERPRETERS, PLAIN, in_memory
from tocha.dispatch.prim import record
from tocha.dispatch.promote import number_type, result_type
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_fits, check_tensor, scalar_of, settle
from tocha.prims import elementary
from tocha.prims import indexing as prims
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor, wrap

_INF = float("inf")
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)


def _mask(mask: Any, name: str, argument: str = "mask") -> Tensor:
    """A bool tensor; uint8 ones pass with a warning where torch lets them."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}(): argument '{argument}' must be Tensor, not {type(mask).__name__}")
    if mask._a.dtype.kind != "b":
        if mask._a.dtype.name == "uint8" and name == "masked_select":
            warnings.warn(f"{name} received a mask with dtype torch.uint8, please use a bool mask", UserWarning, stacklevel=4)
            return mask.bool()
        raise RuntimeError(f"{name}: expected {argument} to be a bool tensor, but got a tensor with dtype {mask.dtype.name}")
    return mask


def _operand(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, _NUMBERS):
        raise TypeError(f"{name}(): expected a Tensor or a number, not {type(value).__name__}")
    return wrap(np.array(value, number_type(value).np))


def _few_where(condition: Any, input: Any, other: Any) -> Tensor | None:
    """`elementary.where` of few dense elements of plain tensors; `input` and `other` have the condition's shape or no dimensions."""
    mask, a, b = condition._a, input._a, other._a
    if mask.size >= 512 or not a.__class__ is b.__class__ is mask.__class__ is np.ndarray or INTERPRETERS:
        return None
    if not (a.flags.c_contiguous and b.flags.c_contiguous and mask.flags.c_contiguous):
        return None
    out = wrap(np.where(mask, a, b))
    if (input._rg or other._rg) and state.grad:
        record(elementary.where, (condition, input, other), (out,), {"dtype": a.dtype})
    return out


def _as_float(value: float, like: Any) -> Tensor | None:
    """A number as a tensor of the type of a plain tensor of floats."""
    return wrap(state.run(np.asarray, value, like._a.dtype)) if like.__class__ is Tensor and like._a.dtype.char in "fd" else None


def _short_where(condition: Any, input: Any = None, other: Any = None) -> Tensor | None:
    """Plain tensors of one shape and type, or a tensor and a float; None for the rest."""
    other = _as_float(other, input) if other.__class__ is float else other
    if not condition.__class__ is input.__class__ is other.__class__ is Tensor:
        return None
    mask, a, b = condition._a, input._a, other._a
    if mask.dtype.kind != "b" or a.dtype is not b.dtype or mask.shape != a.shape or (b.shape and b.shape != a.shape):
        return None
    if (few := _few_where(condition, input, other)) is not None:
        return few
    return settle(elementary.where(condition, input, other, dtype=a.dtype), condition, input, other)


@op("torch strictout", short=_short_where)
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """input where the condition holds, else other, broadcast; of a condition alone its nonzero indices (torch docs:
    torch.where)."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    condition = check_tensor(condition, "where", "condition")
    if condition._a.dtype.kind != "b":
        if condition._a.dtype.name != "uint8":
            raise RuntimeError(
                f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype.name}"
            )
        condition = condition.bool()
    kind = result_type((input, other))
    arrays = (_operand(input, "where"), _operand(other, "where"))
    check_fits(kind, input, other)
    broadcast_shapes("where", condition._a.shape, *(a._a.shape for a in arrays))
    return settle(elementary.where(condition, *arrays, dtype=kind.np), condition, *arrays)


def _where_method(self: Tensor, condition: Any, other: Any) -> Tensor:
    """self where the condition holds, else other (torch docs: Tensor.where)."""
    return where(condition, self, other)


_where_method.__name__ = "where"
op("method", name="where")(_where_method)


def _fill_value(input: Tensor, value: Any, name: str) -> Tensor:
    """The value as a 0-d tensor of input's type."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"{name} only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
            )
        if value.dtype is input.dtype:
            return value
        if value.is_cpu and in_memory(value):
            scalar_of(value.item(), input.dtype)  # torch takes the number in it: 2.5 fits an integer type, 300 no uint8
        elif not value.is_meta and not dtypes.can_cast(value.dtype, input.dtype):
            raise RuntimeError(f"value cannot be converted to type {input.dtype.name} without overflow")
        return value.real.to(input.dtype) if value.dtype.is_complex and not input.dtype.is_complex else value.to(input.dtype)
    if not isinstance(value, _NUMBERS):
        raise TypeError(f"{name}(): argument 'value' must be Tensor or Number, not {type(value).__name__}")
    return wrap(np.asarray(scalar_of(value, input.dtype)))


def _short_masked(input: Any, mask: Any = None, value: Any = None, *more: Any) -> Tensor | None:
    """A float for places of few elements."""
    if more or value.__class__ is not float or not (-1e38 <= value <= 1e38 or abs(value) == _INF):
        return None
    filled = _as_float(value, input)
    if filled is None or mask.__class__ is not Tensor or mask._a.dtype.kind != "b" or mask._a.shape != input._a.shape:
        return None
    return _few_where(mask, filled, input)


@op("torch method", short=_short_masked)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """input with `value` where the mask holds, both broadcast (torch docs: Tensor.masked_fill)."""
    mask, filled = _mask(mask, "masked_fill"), _fill_value(input, value, "masked_fill")
    broadcast_shapes("masked_fill", input._a.shape, mask._a.shape)
    out = elementary.where(mask, filled, input, dtype=input._a.dtype)
    if out.__class__ is Tensor and not out._a.flags.c_contiguous:
        out._a = out._a.copy("C")  # row-major whatever the input is, in torch
    return out


def _short_masked_fill(input: Any, mask: Any = None, value: Any = None, *more: Any) -> Tensor | None:
    """A float for places of a plain float tensor, nothing recorded."""
    if more or value.__class__ is not float or input.__class__ not in PLAIN or mask.__class__ is not Tensor or INTERPRETERS:
        return None
    a, m = input._a, mask._a
    if not a.__class__ is m.__class__ is np.ndarray or a.dtype.char not in "fd" or m.dtype.kind != "b" or m.shape != a.shape:
        return None
    if (state.grad and has_history(input)) or input._vc is UNCOUNTED or not (-1e38 <= value <= 1e38 or abs(value) == _INF):
        return None
    np.copyto(a, value, where=m)
    version_of(input).bump("masked_fill_")
    return input


@op("method", short=_short_masked_fill)
def masked_fill_(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Set elements under the mask, which broadcasts to input, to `value` (torch docs: Tensor.masked_fill_)."""
    check_writable(input, "masked_fill_", one_value=True)
    mask, filled = _mask(mask, "masked_fill"), _fill_value(input, value, "masked_fill_")
    if (state.grad and (input._rg or filled._rg)) or input.is_meta or not in_memory(input, mask, filled):
        return assign(input, masked_fill(input, mask, filled), "masked_fill_")
    if broadcast_shapes("masked_fill_", input._a.shape, mask._a.shape) != input._a.shape:
        return assign(input, masked_fill(input, mask, filled), "masked_fill_")
    if input._a.__class__ is np.ndarray:
        state.run(np.copyto, input._a, filled._a, where=mask._a)
    else:
        namespace(input._a).store(input._a, elementary.where(mask, filled, input.detach(), dtype=input._a.dtype)._a)
    mutated(input, None, "masked_fill_")
    return input


@op("torch method strictout")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements under the mask, in order, as a 1-d tensor (torch docs: torch.masked_select)."""
    mask = _mask(mask, "masked_select")
    shape = broadcast_shapes("masked_select", input._a.shape, mask._a.shape)
    spread = input if input._a.shape == shape else input.expand(shape)
    return prims.masked_select(spread, mask if mask._a.shape == shape else mask.expand(shape), indexed=False)


@op("torch method inplace")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """input with source's first elements where the mask holds, in order (torch docs: Tensor.masked_scatter)."""
    mask = _mask(mask, "masked_scatter")
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.dtype.name} and {source.dtype.name}"
        )
    shape = broadcast_shapes("masked_scatter", input._a.shape, mask._a.shape)
    input = input if input._a.shape == shape else input.expand(shape)
    mask = mask if mask._a.shape == shape else mask.expand(shape)
    return prims.masked_scatter(input, mask, source)


@op("torch method strictout")
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that aren't zero, one row each, or one tensor for each dimension (torch docs: torch.nonzero)."""
    check_tensor(input, "nonzero")
    if as_tuple:
        return tuple(nonzero(input if input.ndim else input.reshape(1)).unbind(1))
    return prims.nonzero(input)


@op("torch method")
def argwhere(input: Tensor) -> Tensor:
    """Indices of the elements that aren't zero, one row each (torch docs: torch.argwhere)."""
    return prims.nonzero(check_tensor(input, "argwhere"))


@op("torch method strictout")
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """`nonzero` cut, or padded with `fill_value`, to `size` rows (torch docs: torch.nonzero_static)."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = prims.nonzero(input)
    out = found.new_full((size, input.ndim), fill_value)
    kept = min(size, int(found._a.shape[0]))
    out[:kept] = found[:kept]
    return out
