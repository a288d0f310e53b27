"""torch.jit: marks of scripted code, which mean nothing to plain Python, and refusals. Programs run as they are
written; there is no TorchScript compiler. (`torch.compile` and `torch.export` are the ways to make programs fast.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tocha.nn.modules.module import Module

__all__ = [
    "Attribute", "Final", "ScriptFunction", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore", "is_scripting",
    "is_tracing", "isinstance", "load", "optimize_for_inference", "save", "script", "script_if_tracing", "trace", "trace_module",
    "unused", "wait",
]  # fmt: skip

T = TypeVar("T")
_builtin_isinstance = isinstance


class ScriptModule(Module):
    """The type of scripted modules; RuntimeError when made, since there are none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("ScriptModule")


class ScriptFunction:
    """The type of scripted functions; RuntimeError when made, since there are none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("ScriptFunction")


RecursiveScriptModule = ScriptModule
TopLevelTracedModule = ScriptModule


def _refuse(name: str) -> Any:
    raise RuntimeError(
        f"torch.jit.{name}: there is no TorchScript here. Run the module as it is, or use torch.compile; to load a TorchScript file, "
        "convert it to a state_dict where torch is installed"
    )


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """`obj` (a function, module or class) as it is, as torch does under PYTORCH_JIT=0: libraries script their helpers at import."""
    return obj


def trace(func: Any = None, *args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no TorchScript tracer."""
    return _refuse("trace")


def trace_module(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no TorchScript tracer."""
    return _refuse("trace_module")


def load(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: TorchScript files hold compiled programs."""
    return _refuse("load")


def save(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there are no scripted modules to save."""
    return _refuse("save")


def freeze(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there are no scripted modules to freeze."""
    return _refuse("freeze")


def optimize_for_inference(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there are no scripted modules to optimise."""
    return _refuse("optimize_for_inference")


def script_if_tracing(fn: T) -> T:
    """`fn` itself: it would be scripted only while tracing, which never happens."""
    return fn


_script_if_tracing = script_if_tracing


def unused(fn: T) -> T:
    """Marks a method that a script compiler should leave out."""
    return fn


def export(fn: T) -> T:
    """Marks a method that a script compiler should include."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Marks a method that a script compiler should call in Python; usable with or without arguments."""
    return drop if callable(drop) else lambda fn: fn


def _overload(func: T) -> T:
    """Marks a declaration of one of a scripted function's signatures."""
    return func


def _overload_method(func: T) -> T:
    """Marks a declaration of one of a scripted method's signatures."""
    return func


def interface(obj: T) -> T:
    """Marks a class as an interface of scripted classes."""
    return obj


def annotate(the_type: Any, the_value: T) -> T:
    """The value: the type is for a script compiler."""
    return the_value


def Attribute(value: Any, type: Any) -> Any:
    """The value: the type is for a script compiler."""
    return value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type, container types by their container."""
    origin = getattr(target_type, "__origin__", None)
    return _builtin_isinstance(obj, origin or target_type)


def is_scripting() -> bool:
    """False: code always runs as plain Python."""
    return False


def is_tracing() -> bool:
    """False: code always runs as plain Python."""
    return False


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A Future of `func(*args, **kwargs)`, run at once as plain Python does in torch."""
    from tocha.futures import Future

    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """The value of a `fork`."""
    return future.wait()


_fork, _wait = fork, wait


def enable_onednn_fusion(enabled: bool) -> None:
    """Nothing to switch: it concerns scripted graphs."""


def onednn_fusion_enabled() -> bool:
    """False."""
    return False
