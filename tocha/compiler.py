"""torch.compiler and torch.compile. Functions run eagerly for now, whatever they are compiled with, and a warning says so."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance", "substitute_in_graph",
]  # fmt: skip

_warned = False


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
    options: dict[str, Any] | None = None, disable: bool = False,
) -> Any:  # fmt: skip
    """`model` to be called as before: eager execution, with the same results. Usable as a decorator, with or without
    arguments. Warns once unless backend is "eager"."""
    global _warned
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return lambda model: compile(
            model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise TypeError(f"torch.compile: expected a function or module, got {type(model).__name__}")
    if not _warned and not disable and backend != "eager":
        warnings.warn("torch.compile: there is no compiler yet, functions run eagerly", UserWarning, stacklevel=2)
        _warned = True
    from tocha.nn import Module

    if isinstance(model, Module):
        return _OptimizedModule(model)

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    call._torchdynamo_orig_callable = model  # type: ignore[attr-defined]
    return call


def _OptimizedModule(module: Any) -> Any:
    from tocha._dynamo.eval_frame import OptimizedModule

    return OptimizedModule(module)


def is_compiling() -> bool:
    """Whether this code is being compiled: False."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Mark a function as one never to compile; also a decorator with arguments."""
    return fn if fn is not None else lambda fn: fn


def allow_in_graph(fn: Any) -> Any:
    """Mark a function as one that a compiler may call without looking into it."""
    return fn


def assume_constant_result(fn: F) -> F:
    """Mark a function as one whose result is always the same."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[F], F]:
    """Name a Python function that a compiler may look into in place of `original_fn`."""
    return lambda fn: fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Names that `backend` takes and that do something: none compile yet."""
    return []


def reset() -> None:
    """Forget what was compiled: nothing was."""


def cudagraph_mark_step_begin() -> None:
    """Mark the start of a step for recorded CUDA graphs: there are none."""


@contextlib.contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Inside, how compiled functions behave: they run eagerly under every stance."""
    yield
