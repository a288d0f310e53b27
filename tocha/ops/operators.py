"""Python's operators on tensors: `+`, `@`, `==`, `x[i]`, `bool(x)`, … tied to the operators of the same meaning."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import namespace
from tocha.dispatch.attributes import overridable_method
from tocha.dispatch.override import FUNCTION_MODES, NO_DISPATCH, OVERRIDES, dispatch_function
from tocha.dispatch.registry import NAMESPACES, name_it, public
from tocha.tensor import Tensor

_TORCH = NAMESPACES["torch"]


#: Operators that handlers of __torch_function__ see under another name than the method's (`x + y` is Tensor.add to them).
_SEEN_AS = {
    **{name: name for name in "__eq__ __and__ __or__ __xor__ __floordiv__ __lshift__ __rshift__".split()},
    "__truediv__": "div",
}


def _forward(name: str, dunder: str) -> None:
    """`x + y`: the method's function, handing unknown operands to the other side."""
    function = getattr(Tensor, name)
    function = getattr(function, "unscaled", function)  # `+` has no alpha to look at
    seen_as = _SEEN_AS.get(dunder)
    short: Any = getattr(function, "short", None)

    def other_side(self: Tensor, other: Any) -> Any:
        if isinstance(other, (Tensor, bool, int, float, complex)):
            raise
        return _with_array(dunder, self, other)

    def call(self: Tensor, other: Any) -> Any:
        try:
            return function(self, other)
        except TypeError:
            return other_side(self, other)

    def short_call(self: Tensor, other: Any) -> Any:
        if not FUNCTION_MODES and (got := short(self, other)) is not None:
            return got
        return call(self, other)

    def renamed_call(self: Tensor, other: Any) -> Any:
        try:
            if FUNCTION_MODES or OVERRIDES[self.__class__] or OVERRIDES[other.__class__]:
                return dispatch_function(getattr(Tensor, seen_as or name), function, (self, other), {})
            return function(self, other)
        except TypeError:
            return other_side(self, other)

    chosen = renamed_call if seen_as else call if short is None else short_call
    name_it(chosen, dunder, "Tensor")
    setattr(Tensor, dunder, chosen)


def _with_array(dunder: str, self: Tensor, other: Any) -> Any:
    """NumPy arrays beside a tensor: NumPy computes, by its own promotion, and the result becomes a tensor."""
    if not isinstance(other, np.ndarray):
        return NotImplemented
    from tocha.ops.convert import from_numpy, numpy

    own = numpy(self)
    if dunder.startswith("__r") and dunder != "__rshift__":
        return from_numpy(np.asarray(getattr(operator, f"__{dunder[3:]}")(other, own)))
    return from_numpy(np.asarray(getattr(operator, dunder)(own, other)))


def _reflected(name: str, dunder: str) -> None:
    """`2 - x`. `2 / x` is rounded twice, as in torch: the reciprocal, times 2."""
    function, reciprocal, mul = _TORCH[name], _TORCH["reciprocal"], _TORCH["mul"]

    def swapped(self: Tensor, other: Any) -> Any:
        return mul(reciprocal(self), other) if name == "true_divide" else function(other, self)

    def call(self: Tensor, other: Any) -> Any:
        try:
            if FUNCTION_MODES or OVERRIDES[self.__class__] or OVERRIDES[other.__class__]:
                return dispatch_function(call, swapped, (self, other), {})
            return swapped(self, other)
        except TypeError:
            if isinstance(other, (Tensor, bool, int, float, complex)):
                raise
            return _with_array(dunder, self, other)

    name_it(call, dunder, "Tensor")
    setattr(Tensor, dunder, call)


def attach() -> None:
    """Set the dunder methods; called once every operator is registered."""
    direct = {
        "__add__": "add", "__mul__": "mul", "__sub__": "sub", "__truediv__": "true_divide", "__eq__": "eq", "__ne__": "ne",
        "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__neg__": "neg", "__abs__": "abs",
        "__pow__": "pow", "__floordiv__": "floor_divide", "__mod__": "remainder", "__matmul__": "matmul",
        "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__invert__": "bitwise_not",
        "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    }  # fmt: skip
    for dunder, name in direct.items():
        if not hasattr(Tensor, name):
            continue
        if dunder in ("__neg__", "__abs__"):
            setattr(Tensor, dunder, getattr(Tensor, name))
        elif dunder == "__invert__":
            setattr(Tensor, dunder, overridable_method(_invert, name=dunder))
        else:
            _forward(name, dunder)
        reflected = f"__r{dunder[2:]}"
        if dunder in ("__add__", "__mul__", "__and__", "__or__", "__xor__"):
            _forward(name, reflected)
        elif dunder in ("__sub__", "__truediv__", "__pow__", "__floordiv__", "__mod__", "__matmul__", "__lshift__", "__rshift__"):
            _reflected(name, reflected)
        if hasattr(Tensor, name + "_"):
            setattr(Tensor, f"__i{dunder[2:]}", getattr(Tensor, ("div" if name == "true_divide" else name) + "_"))
    Tensor.__rdiv__ = Tensor.__rtruediv__  # type: ignore[attr-defined]
    Tensor.__div__ = Tensor.__truediv__  # type: ignore[attr-defined]
    for name in (
        "__bool__",
        "__float__",
        "__int__",
        "__complex__",
        "__index__",
        "__len__",
        "__iter__",
        "__contains__",
        "__format__",
        "__pos__",
        "__reversed__",
    ):
        setattr(Tensor, name, public(_PYTHON[name], name, "Tensor"))


def _invert(input: Tensor) -> Tensor:
    if input._a.dtype.kind not in "biu":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return _TORCH["bitwise_not"](input)


def _truth(input: Tensor) -> bool:
    a = input._a
    if a.size != 1:
        if a.size == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    if input.__class__ not in NO_DISPATCH:
        return bool(input.item())
    return bool(namespace(a).to_host(a).item())


def _number(kind: type) -> Callable[[Tensor], Any]:
    def convert(input: Tensor) -> Any:
        if input._a.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        value = input.item()
        if kind is not complex and isinstance(value, complex):
            if value.imag != 0:
                raise RuntimeError(f"value cannot be converted to type {kind.__name__}: its imaginary part is not 0 ({value})")
            value = value.real
        return kind(value)

    return convert


def _index(input: Tensor) -> int:
    if input._a.dtype.kind not in "biu" or input._a.size != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(input.item())


def _len(input: Tensor) -> int:
    if input._a.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return int(input._a.shape[0])


def _iter(input: Tensor) -> Any:
    if input._a.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(input.unbind(0))


def _contains(input: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, bool, int, float, complex)):
        return bool((input == element).any())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


def _format(input: Tensor, spec: str) -> str:
    if input._a.ndim == 0 and not input.is_meta and type(input) is Tensor:
        return format(input.item(), spec)
    return object.__format__(input, spec)


def _reversed(input: Tensor) -> Tensor:
    return input.flip(0) if input._a.ndim else input


_PYTHON: dict[str, Callable[..., Any]] = {
    "__bool__": _truth, "__float__": _number(float), "__int__": _number(int), "__complex__": _number(complex), "__index__": _index,
    "__len__": _len, "__iter__": _iter, "__contains__": _contains, "__format__": _format,
    "__pos__": lambda input: _TORCH["positive"](input), "__reversed__": _reversed,
}  # fmt: skip
