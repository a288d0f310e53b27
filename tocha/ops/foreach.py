"""torch._foreach_*: one operator on lists of tensors. A table over the ordinary operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.convert import clone, copy_
from tocha.ops.creation import zero_
from tocha.prims.rounding import clamp_high, clamp_low
from tocha.tensor import Tensor

_TORCH = NAMESPACES["torch"]

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10",
    "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


def _tensors(name: str, tensors: Any) -> Sequence[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return tensors


def _per_tensor(name: str, tensors: Sequence[Any], other: Any) -> Sequence[Any]:
    """An operand for each tensor: a list has one for each, anything else serves all."""
    if isinstance(other, (list, tuple)):
        if len(other) != len(tensors):
            raise RuntimeError(f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}")
        return other
    if isinstance(other, Tensor) and other._a.ndim == 1 and name.endswith(("addcmul", "addcdiv")):
        return other.tolist()
    return [other] * len(tensors)


def _enter(name: str, each: Callable[..., Any], positional: Callable[..., Any]) -> None:
    """Register `_foreach_name` and, writing into its first list, `_foreach_name_`."""

    def foreach(self: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return tuple(each(*operands, **keywords) for operands, keywords in positional(full, self, *args, **kwargs))

    def foreach_(self: Any, *args: Any, **kwargs: Any) -> None:
        calls = list(positional(full, self, *args, **kwargs))
        for operands, keywords in calls:
            inplace(*operands, **keywords)

    full = "_foreach_" + name
    inplace = _inplace(each, name)
    foreach.__name__, foreach_.__name__ = full, full + "_"
    foreach.__doc__ = f"`{name}` of every tensor of a list."
    foreach_.__doc__ = f"`{name}_` of every tensor of a list."
    op("torch")(foreach)
    op("torch")(foreach_)


def _inplace(each: Callable[..., Any], name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name + "_", None)
    if method is not None and name not in ("maximum", "minimum"):
        return method

    def assign_result(first: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        from tocha.dispatch.inplace import assign, check_writable

        check_writable(first, name + "_")
        return assign(first, each(first, *args, **kwargs), name + "_")

    return assign_result


def _one_list(name: str, self: Any) -> Any:
    return (((t,), {}) for t in _tensors(name, self))


def _two(name: str, self: Any, other: Any, **options: Any) -> Any:
    """A list with a list, a number or a tensor."""
    if not isinstance(self, (list, tuple)) and isinstance(other, (list, tuple)):  # pow of a number to a list
        return (((self, t), options) for t in _tensors(name, other))
    tensors = _tensors(name, self)
    return (((t, o), options) for t, o in zip(tensors, _per_tensor(name, tensors, other), strict=True))


def _three(name: str, self: Any, tensor1: Any, tensor2: Any, scalars: Any = None, *, value: Any = 1) -> Any:
    """Lists with a factor for all or one for each."""
    tensors = _tensors(name, self)
    factors = _per_tensor(name, tensors, value if scalars is None else scalars)
    first, second = _per_tensor(name, tensors, tensor1), _per_tensor(name, tensors, tensor2)
    return (((t, a, b), {"value": v}) for t, a, b, v in zip(tensors, first, second, factors, strict=True))


def _lerp(name: str, self: Any, tensors1: Any, weight: Any) -> Any:
    tensors = _tensors(name, self)
    ends, weights = _per_tensor(name, tensors, tensors1), _per_tensor(name, tensors, weight)
    return (((t, e, w), {}) for t, e, w in zip(tensors, ends, weights, strict=True))


def _bound(tensor_rule: Any) -> Callable[..., Any]:
    """maximum and minimum, also with a number."""

    def each(x: Tensor, other: Any) -> Any:
        if isinstance(other, Tensor):
            return tensor_rule[0](x, other)
        return tensor_rule[1](x, other)

    return each


for _name in _UNARY:
    _enter(_name, _TORCH[_name], _one_list)
for _name in ("add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max"):
    _enter(_name, _TORCH[_name], _two)
_enter("maximum", _bound((_TORCH["maximum"], clamp_low)), _two)
_enter("minimum", _bound((_TORCH["minimum"], clamp_high)), _two)
_enter("addcmul", _TORCH["addcmul"], _three)
_enter("addcdiv", _TORCH["addcdiv"], _three)
_enter("lerp", _TORCH["lerp"], _lerp)


@op("torch")
def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The vector norm of every tensor of a list."""
    return tuple(_TORCH["norm"](t, ord, dtype=dtype) for t in _tensors("_foreach_norm", self))


@op("torch")
def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|**ord of every tensor of a list."""
    return tuple(_TORCH["sum"](_TORCH["pow"](t.abs(), ord), dtype=dtype) for t in _tensors("_foreach_powsum", self))


@op("torch")
def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of every tensor of a list."""
    return tuple(_TORCH["max"](t) for t in _tensors("_foreach_max", self))


@op("torch")
def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of every tensor of a list."""
    return tuple(clone(t) for t in _tensors("_foreach_clone", self))


@op("torch")
def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """Matrix products of two lists."""
    tensors = _tensors("_foreach_mm", self)
    return tuple(_TORCH["mm"](a, b) for a, b in zip(tensors, _per_tensor("_foreach_mm", tensors, mat2), strict=True))


@op("torch")
def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> None:
    """Copy the values of a list of tensors into another's."""
    tensors = _tensors("_foreach_copy_", self)
    for t, s in zip(tensors, _per_tensor("_foreach_copy_", tensors, src), strict=True):
        copy_(t, s)


@op("torch")
def _foreach_zero_(self: Any) -> None:
    """Set every tensor of a list to 0."""
    for t in _tensors("_foreach_zero_", self):
        zero_(t)
