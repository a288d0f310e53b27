"""torch.compiler and torch.compile: functions captured as graphs (`tocha._dynamo`) that a backend compiles."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance", "substitute_in_graph",
]  # fmt: skip

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
    options: dict[str, Any] | None = None, disable: bool = False,
) -> Any:  # fmt: skip
    """`model` (a function, method or module) to be called as before, its tensor code captured and compiled by `backend`; usable as a
    decorator, with or without arguments. What can't be captured runs in plain Python, or raises with `fullgraph=True`.

    Graphs are for the sizes they were captured with; other sizes are captured anew, up to `torch._dynamo.config.recompile_limit`
    variants, and run eagerly beyond, whatever `dynamic` says (torch docs: torch.compile).
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode!r}, should be one of: {', '.join(_MODES)}")
    if model is None:
        return lambda model: compile(
            model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise TypeError(f"torch.compile: expected a function or module, got {type(model).__name__}")
    from tocha._dynamo import eval_frame
    from tocha.nn import Module

    given: dict[str, Any] = {"mode": mode} if mode is not None and callable(backend) else {}
    given |= {"options": options} if options is not None and callable(backend) else {}
    if isinstance(model, Module):
        call = model if disable else eval_frame.compile_callable(model, backend, given, fullgraph, dynamic)
        return eval_frame.OptimizedModule(model, call)
    model = getattr(model, "_torchdynamo_orig_callable", model)
    if disable:
        return model
    return eval_frame.compiled_function(model, backend, given, fullgraph, dynamic)


def is_compiling() -> bool:
    """Whether this code is being compiled. It is True in a captured function, also when a captured graph runs."""
    report = sys.modules.get("tocha._dynamo.report")
    return report is not None and bool(report.capturing_now)


def is_dynamo_compiling() -> bool:
    """Whether this code is being captured."""
    return is_compiling()


def is_exporting() -> bool:
    """Whether this code is being exported: False."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that is never captured: compiled code calls it in plain Python. Also a decorator with arguments."""
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, type) or not callable(fn):
        return fn
    fn = getattr(fn, "_torchdynamo_orig_callable", fn)

    @functools.wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with set_stance("force_eager") if recursive else contextlib.nullcontext():
            return fn(*args, **kwargs)

    plain._torchdynamo_disable, plain._torchdynamo_disable_msg = True, reason  # type: ignore[attr-defined]
    return plain


def allow_in_graph(fn: Any) -> Any:
    """Enter calls of a function (or of each of a list of them) into graphs without looking into it."""
    for one in fn if isinstance(fn, (list, tuple)) else (fn,):
        _allowed().add(one)
    return fn


def _allowed() -> set[Any]:
    from tocha._dynamo import calls

    return calls.ALLOWED


def assume_constant_result(fn: F) -> F:
    """Mark a function as one whose result is always the same."""
    fn._dynamo_constant_result = True  # type: ignore[attr-defined]
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[F], F]:
    """Name a Python function that is captured in place of `original_fn`, which it must equal."""

    def register(fn: F) -> F:
        from tocha._dynamo import calls

        calls.rule(original_fn)(lambda vm, args, kwargs: vm.call(fn, args, kwargs))
        return fn

    return register


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Names that `backend` takes."""
    from tocha._dynamo import backends

    return backends.list_backends(exclude_tags)


def reset() -> None:
    """Forget what was captured."""
    if (eval_frame := sys.modules.get("tocha._dynamo.eval_frame")) is not None:
        eval_frame.reset()


def cudagraph_mark_step_begin() -> None:
    """Mark the start of a step for recorded CUDA graphs: there are none."""


@contextlib.contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Inside, how compiled functions behave: "force_eager" runs them in plain Python (torch docs: torch.compiler.set_stance)."""
    if stance not in _STANCES:
        raise RuntimeError(f"invalid torch.compile stance {stance!r}, expected one of: {', '.join(_STANCES)}")
    from tocha._dynamo import eval_frame

    before, eval_frame.stance[0] = eval_frame.stance[0], stance
    try:
        yield
    finally:
        eval_frame.stance[0] = before
