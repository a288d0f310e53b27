"""Backends: what turns a captured graph into a callable. A backend takes a GraphModule and example inputs, and returns a callable of
such inputs that returns a tuple (or list) of tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha._dynamo import report
from tocha._dynamo.exc import BackendCompilerFailed
from tocha.aot import journal

log = logging.getLogger("torch._dynamo")
Backend = Callable[..., Callable[..., Any]]
_backends: dict[str, Backend] = {}
_DEBUG = frozenset(("eager", "aot_eager"))


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    """Register a backend under its function's name, or another; also a decorator with arguments."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    _backends[name or compiler_fn.__name__] = compiler_fn
    return compiler_fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `backend` takes; those for debugging only if not excluded."""
    return sorted(n for n in _backends if not ("debug" in (exclude_tags or ()) and n in _DEBUG))


def lookup_backend(backend: Any) -> Backend:
    """The backend of a name; a callable is its own."""
    if callable(backend):
        return backend
    if backend not in _backends:
        raise InvalidBackend(f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends.")
    return _backends[backend]


class InvalidBackend(RuntimeError):
    """No backend has this name."""


def compile_graph(backend: Backend, module: Any, inputs: list[Any], options: dict[str, Any]) -> Callable[..., Any]:
    """The backend's callable; BackendCompilerFailed if it raises."""
    try:
        made = backend(module, inputs, **options)
    except Exception as error:
        raise BackendCompilerFailed(backend, error) from error
    if not callable(made):
        raise BackendCompilerFailed(backend, TypeError(f"the backend must return a callable, got {type(made).__name__}"))
    return made if backend in (eager, aot_eager, inductor) else undoing(made, module)


def undoing(run: Callable[..., Any], gm: Any) -> Callable[..., Any]:
    """`run` for a graph; if it raises, what it had written to inputs by then is undone, so that the program can run plainly instead."""
    written: list[int] = gm.meta.get("written", [])

    def call(*inputs: Any) -> Any:
        targets = [inputs[i] for i in written]
        histories = [(t, t._node, t._nr, t._rg) for x in targets for t in (x, *([] if x._view is None else [x._view.base]))]
        values = [t._a.copy() for t in targets]
        try:
            return run(*inputs)
        except Exception:
            for t, value in zip(targets, values, strict=True):
                np.copyto(t._a, value)
            for t, node, number, needs in histories:
                t._node, t._nr, t._rg = node, number, needs
            raise

    return call if written else run


@register_backend
def eager(gm: Any, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """The graph as captured, operator by operator."""
    return undoing(gm.forward, gm)


@register_backend
def aot_eager(gm: Any, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """The graph after AOTAutograd: functional, with its backward, node by node."""
    from tocha.aot import runtime

    return _ahead(gm, example_inputs, runtime.by_running)


@register_backend
def inductor(gm: Any, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """The graph after AOTAutograd, as native code."""
    from tocha.aot import kept, runtime

    try:
        from tocha._inductor import config, freezing
    except ImportError:
        return _ahead(gm, example_inputs, runtime.by_running)
    constants = {i: t._a for i, t in gm.meta.get("constants", {}).items()}
    about = {"varying": bool(gm.meta.get("dynamic")), "max_autotune": _setting("max_autotune", options)}
    words = None if constants else kept.words(gm, options, about, config.get_config_copy())  # type: ignore[attr-defined]
    return _ahead(gm, example_inputs, freezing(constants, **about), words)


def _setting(name: str, options: dict[str, Any]) -> bool:
    """A switch of the inductor's, by what a call of torch.compile was given or else by torch._inductor.config."""
    from tocha._inductor import config

    return bool((options.get("options") or {}).get(name, config.get(name)))  # type: ignore[attr-defined]


def freezes(backend: Backend, options: dict[str, Any]) -> bool:
    """Whether a backend takes parameters for constants where no gradients are recorded (torch._inductor.config.freezing)."""
    return backend is inductor and _setting("freezing", options)


_MOST_SIZES = 256


def _by_sizes(gm: Any, compiler: Any, words: str | None) -> Callable[..., Any]:
    """A graph whose sizes vary, planned when first called with some; the latest are kept."""
    made: dict[Any, Callable[..., Any]] = {}
    subject = journal.subject()

    def call(*inputs: Any) -> Any:
        shapes = tuple([t._a.shape for t in inputs])
        found = made.get(shapes)
        if found is None:
            for oldest in list(made)[: max(0, len(made) + 1 - _MOST_SIZES)]:  # a list: other threads may add to it
                made.pop(oldest, None)
            with journal.about(subject):
                found = made[shapes] = _ahead(gm, list(inputs), compiler, words)
        return found(*inputs)

    return call


def _ahead(gm: Any, example_inputs: list[Any], compiler: Any, words: str | None = None) -> Callable[..., Any]:
    """AOTAutograd's function; the graph as captured where that can't be, for a reason that is logged. `words` say what it is that is
    compiled, for processes to come (tocha.aot.kept)."""
    from tocha.aot import runtime

    def function(*inputs: Any) -> list[Any]:
        try:
            return list(gm.forward(*inputs))
        except RuntimeError:
            raise
        except Exception as error:  # the program's own, which is raised where it belongs when the graph runs
            raise RuntimeError(f"it raises {type(error).__name__}: {error}") from error

    if gm.meta.get("dynamic"):
        gm.meta["dynamic"] = False
        return _by_sizes(gm, compiler, words)
    try:
        made = runtime.compile(function, example_inputs, compiler, words)
    except RuntimeError as why:
        log.info("the graph runs eagerly: %s", why)
        report.uncompiled(str(why))
        return undoing(gm.forward, gm)
    return made if not made.traced.mutated else runtime.Apart(made, undoing(gm.forward, gm))
