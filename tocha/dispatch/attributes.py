"""Tensor's own methods and properties as public names: subclasses and modes are asked before they run.

The function a handler is given is the one users can name: `Tensor.backward`, `Tensor.shape.__get__`, `Tensor.grad.__set__`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tocha.dispatch.override import FUNCTION_MODES, HANDLERS, KEEPS_CLASS, OVERRIDES, dispatch_function
from tocha.tensor import Tensor

# Properties whose value is a tensor: even Tensor's own __torch_function__ has something to do, to keep the class.
_TENSORS = frozenset(("data", "grad", "_base"))
_METHODS = (
    "backward", "data_ptr", "detach", "is_inference", "is_shared", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_",
    "retain_grad", "_is_view", "__deepcopy__", "__reduce_ex__", "__setstate__",
)  # fmt: skip


def overridable_method(function: Callable[..., Any], gives_tensor: bool = True, name: str | None = None) -> Callable[..., Any]:
    """A method that asks for overrides of its first argument."""
    table = OVERRIDES if gives_tensor else HANDLERS

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if FUNCTION_MODES or table[self.__class__]:
            return dispatch_function(call, function, (self, *args), kwargs)
        return function(self, *args, **kwargs)

    call.__name__ = name or function.__name__
    call.__module__, call.__qualname__ = "tocha", "Tensor." + call.__name__
    return call


def overridable_property(
    getter: Callable[[Any], Any], setter: Any = None, deleter: Any = None, gives_tensor: bool = True
) -> property:
    """A property that asks for overrides; handlers are given its `__get__`, `__set__` or `__delete__`."""
    table = OVERRIDES if gives_tensor else HANDLERS

    def get(self: Any) -> Any:
        if FUNCTION_MODES or table[self.__class__]:
            return dispatch_function(found.__get__, getter, (self,), {})
        return getter(self)

    def put(self: Any, value: Any) -> None:
        if FUNCTION_MODES or table[self.__class__]:
            dispatch_function(found.__set__, setter, (self, value), {})
        else:
            setter(self, value)

    def delete(self: Any) -> None:
        if FUNCTION_MODES or table[self.__class__]:
            dispatch_function(found.__delete__, deleter, (self,), {})
        else:
            deleter(self)

    found = property(get, setter and put, deleter and delete, getter.__doc__)
    return found


def attach() -> None:
    """Make what the class Tensor itself defines overridable."""
    for name, value in list(vars(Tensor).items()):
        if isinstance(value, property):
            setattr(Tensor, name, overridable_property(value.fget, value.fset, value.fdel, name in _TENSORS))  # type: ignore[arg-type]
        elif name in _METHODS:
            setattr(Tensor, name, overridable_method(value, name in ("detach", "requires_grad_")))
    KEEPS_CLASS.update((Tensor.grad.__get__, Tensor._base.__get__))
