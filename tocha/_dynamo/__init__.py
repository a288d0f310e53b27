"""torch._dynamo: capture of Python programs as graphs of tensor operations.

`bytecode` is the instructions, `frame` and `interpreter` run them, `tracer` (with `attributes`, `calls`, `rules`) runs them on fakes with
provenance, `world` and `source` say where values come from, `guards` check it, `recorder` holds the graph, `rebuild` writes the epilogue,
`segments` drives, `backends` compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha._dynamo import config, exc, testing, utils
from tocha._dynamo.backends import list_backends, lookup_backend, register_backend
from tocha._dynamo.eval_frame import OptimizedModule, reset
from tocha._dynamo.report import Explanation
from tocha.aot import journal
from tocha.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    set_stance,
    substitute_in_graph,
)
from tocha.compiler import compile as _compile

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "exc", "explain", "graph_break", "is_compiling",
    "list_backends", "lookup_backend", "mark_dynamic", "mark_static", "maybe_mark_dynamic", "optimize", "register_backend", "reset",
    "run", "substitute_in_graph", "testing", "utils",
]  # fmt: skip


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Run `f` captured and say what happened: `explain(f)(*args)` gives graphs, breaks with their places, guards."""

    def inner(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()
        journal.listeners.append(found)
        try:
            _compile(f, backend="eager")(*args, **kwargs)
        finally:
            journal.listeners.remove(found)
        return found

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, disable: bool = False, dynamic: bool | None = None, **hooks: Any
) -> Callable[[Any], Any]:
    """torch.compile's older form, a decorator."""
    return lambda fn: _compile(fn, backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic)


def graph_break(msg: str = "") -> None:
    """End the graph here."""


def mark_dynamic(t: Any, index: Any, *, hint_override: int | None = None, min: int | None = None, max: int | None = None) -> None:
    """Capture this dimension (or these) of the tensor with a size that varies, between bounds if they are given: a size outside them is
    captured anew. A program that needs one size there is an error."""
    maybe_mark_dynamic(t, index)
    dims = (index,) if isinstance(index, int) else tuple(index)
    t.__dict__["_dynamo_bounds"] = {**t.__dict__.get("_dynamo_bounds", {}), **dict.fromkeys(dims, (min, max))}


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Capture this dimension (or these) of the tensor with a size that varies, if the program can."""
    t.__dict__["_dynamo_dynamic"] = {*t.__dict__.get("_dynamo_dynamic", ()), *((index,) if isinstance(index, int) else index)}


def mark_static(t: Any, index: Any = None) -> None:
    """Capture this dimension of the tensor (or these, or all) with the size it has."""
    every = range(t.dim()) if index is None else (index,) if isinstance(index, int) else index
    t.__dict__["_dynamo_static"] = {*t.__dict__.get("_dynamo_static", ()), *every}


def run(fn: Any = None) -> Any:
    """A compiled function that captures nothing new: what isn't captured yet runs in plain Python. Without a function, a decorator."""
    return run if fn is None else set_stance("eager_on_recompile")(fn)
