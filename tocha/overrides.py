"""torch.overrides: what libraries with their own tensor-like types use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tocha.dispatch.interpret import TorchFunctionMode
from tocha.dispatch.override import OVERRIDES, DisableTorchFunctionSubclass, dispatch_function, overloaded, stacks
from tocha.dispatch.registry import NAMESPACES

__all__ = [
    "DisableTorchFunctionSubclass", "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions",
    "handle_torch_function", "has_torch_function", "is_tensor_like", "resolve_name", "wrap_torch_function",
]  # fmt: skip


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether some argument has its own __torch_function__, or a mode is on."""
    return bool(stacks.function_modes) or bool(overloaded(relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """`has_torch_function` for one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` for several arguments."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Call `public_api` through the overrides of its arguments."""
    return dispatch_function(public_api, public_api, args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function overridable; `dispatcher` returns its relevant arguments."""

    def inner(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if has_torch_function(dispatcher(*args, **kwargs)):
                return dispatch_function(wrapped, function, args, kwargs)
            return function(*args, **kwargs)

        return wrapped

    return inner


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor or has __torch_function__."""
    from tocha.tensor import Tensor

    return isinstance(inp, Tensor) or (OVERRIDES[type(inp)] and hasattr(inp, "__torch_function__"))


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Public functions by namespace."""
    return {space: list(table.values()) for space, table in NAMESPACES.items()}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Functions that can't be overridden (none: every registered operator can)."""
    return set()


def resolve_name(f: Callable[..., Any]) -> str:
    """A function's qualified name."""
    return f"{f.__module__}.{f.__qualname__}"
