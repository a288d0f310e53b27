"""torch.overrides: what libraries with their own tensor-like types use."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tocha.dispatch.interpret import TorchFunctionMode
from tocha.dispatch.override import (
    OVERRIDES,
    DisableTorchFunctionSubclass,
    dispatch_function,
    overloaded,
    overridable,
    stacks,
)
from tocha.dispatch.registry import NAMESPACES
from tocha.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunctionSubclass", "TorchFunctionMode", "enable_reentrant_dispatch",
    "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
    "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]  # fmt: skip


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing: every function runs as called."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether some argument has its own __torch_function__, or a mode is on."""
    return bool(stacks.function_modes and not stacks.functions_disabled) or bool(overloaded(relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """`has_torch_function` for one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` for several arguments."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Call `public_api` through the modes in force and the overrides of `relevant_args`."""
    return dispatch_function(public_api, public_api, args, kwargs, tuple(relevant_args))


#: Make a function overridable; `dispatcher`, called like it, returns its relevant arguments.
wrap_torch_function = overridable


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor or has __torch_function__."""
    return isinstance(inp, Tensor) or (OVERRIDES[type(inp)] and hasattr(inp, "__torch_function__"))


#: Functions that look at no tensor, or only at its type: subclasses aren't asked about them.
_IGNORED = (
    "arange as_tensor asarray bartlett_window blackman_window can_cast empty empty_strided eye frombuffer from_numpy full hamming_window "
    "hann_window is_storage is_tensor kaiser_window linspace logspace ones promote_types rand randint randn randperm range result_type "
    "scalar_tensor tensor tril_indices triu_indices vander zeros"
).split()


@functools.cache
def _ignored() -> frozenset[Any]:
    table = NAMESPACES["torch"]
    return frozenset(table[name] for name in _IGNORED if name in table)


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that no argument can override."""
    return set(_ignored())


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results `Tensor.__torch_function__` hands out as they are."""
    from tocha.dispatch.override import KEEPS_CLASS

    return set(KEEPS_CLASS)


def _method_table() -> list[Any]:
    found = []
    for value in vars(Tensor).values():
        if isinstance(value, property):
            found.append(value.__get__)
        elif callable(value) and not isinstance(value, type):
            found.append(value)
    return found


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Overridable functions by the namespace (module or class) they are found in."""
    import tocha
    from tocha.nn import functional

    names = {"torch": tocha, "F": functional}
    found: dict[Any, list[Callable[..., Any]]] = {}
    for space, table in NAMESPACES.items():
        place = names.get(space) or sys.modules.get(f"tocha.{space}")
        if place is not None:
            found[place] = [f for f in table.values() if f not in _ignored()]
    found[Tensor] = _method_table()
    return found


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For every overridable function a stand-in that takes any arguments and returns -1."""

    def stand_in(*args: Any, **kwargs: Any) -> int:
        return -1

    return {f: stand_in for functions in get_overridable_functions().values() for f in functions}


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether `func` is a method of Tensor, or the `__get__` of one of its properties."""
    return getattr(func, "__name__", "") == "__get__" or func in _method_table()


def resolve_name(f: Any) -> str | None:
    """A function's qualified name, as users write it."""
    if getattr(f, "__name__", "") in ("__get__", "__set__", "__delete__"):
        owner = f.__self__
        name = next((n for n, value in vars(Tensor).items() if value is owner), None)
        return None if name is None else f"torch.Tensor.{name}.{f.__name__}"
    return f"{f.__module__.replace('tocha', 'torch', 1)}.{f.__qualname__}"


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Inside a __torch_dispatch__, let public functions be dispatched again: they always are here."""
    yield


def _get_current_function_mode() -> Any:
    return stacks.function_modes[-1] if stacks.function_modes else None


def _get_current_function_mode_stack() -> list[Any]:
    return list(stacks.function_modes)


def _get_overloaded_args(relevant_args: Iterable[Any]) -> list[Any]:
    return overloaded(relevant_args)
