"""torch.compiler and torch.compile: functions captured as graphs (`tocha._dynamo`) that a backend compiles."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "CacheInfo", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "get_default_backend",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "load_cache_artifacts", "nested_compile_region", "reset",
    "save_cache_artifacts", "set_default_backend", "set_stance", "substitute_in_graph",
]  # fmt: skip

_default_backend: list[Any] = ["inductor"]
_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None, mode: str | None = None,
    options: dict[str, Any] | None = None, disable: bool = False, check: bool = False,
) -> Any:  # fmt: skip
    """`model` (a function, method or module) to be called as before, its tensor code captured and compiled by `backend`; usable as a
    decorator, with or without arguments. What can't be captured runs in plain Python, or raises with `fullgraph=True`.

    A graph is for the sizes it was captured with; when others come, one whose sizes vary is captured (at once with `dynamic=True`, never with
    False). What keeps differing is captured up to `torch._dynamo.config.recompile_limit` times and runs eagerly beyond (torch docs:
    torch.compile). `mode="max-autotune"` times ways of computing a node where there are several (`tocha/_inductor/autotune.py`). With `check`,
    which torch doesn't have, the first calls also run eagerly, and CheckFailed names the first operator whose result differs
    (`tocha/_dynamo/checked.py`).
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    backend = _default_backend[0] if backend is None else backend
    _check_settings(backend, mode, options)
    if model is None:
        return lambda model: compile(
            model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, check=check
        )
    if not callable(model):
        raise TypeError(f"torch.compile: expected a function or module, got {type(model).__name__}")
    from tocha._dynamo import eval_frame
    from tocha.nn import Module

    given: dict[str, Any] = {"mode": mode} if mode is not None and callable(backend) else {}
    if backend == "inductor" and mode not in (None, "default"):
        from tocha._inductor.options import list_mode_options

        options = list_mode_options(mode)
    given |= {"options": options} if options is not None else {}
    if check:
        from tocha._dynamo.checked import checked

        backend = checked(eval_frame.lookup_backend(backend))
    if isinstance(model, Module):
        call = model if disable else eval_frame.compile_callable(model, backend, given, fullgraph, dynamic)
        return eval_frame.OptimizedModule(model, call)
    model = getattr(model, "_torchdynamo_orig_callable", model)
    if disable:
        return model
    return eval_frame.compiled_function(model, backend, given, fullgraph, dynamic)


def _check_settings(backend: Any, mode: str | None, options: dict[str, Any] | None) -> None:
    """The inductor's modes and options are known ones; other backends get theirs as they are."""
    if backend == "inductor" and (mode not in (None, "default") or options):
        from tocha._inductor.options import check_options, list_mode_options

        if mode is not None:
            list_mode_options(mode)
        check_options(options or {})


def get_default_backend() -> Any:
    """The backend of `compile` calls that name none."""
    return _default_backend[0]


def set_default_backend(backend: Any) -> None:
    """Set the backend of `compile` calls that name none: a name or a callable."""
    from tocha._dynamo.backends import lookup_backend

    lookup_backend(backend)
    _default_backend[0] = backend


def is_compiling() -> bool:
    """Whether this code is being compiled. It is True in a captured function, also when a captured graph runs."""
    report = sys.modules.get("tocha._dynamo.report")
    return report is not None and bool(report.capturing_now)


def is_dynamo_compiling() -> bool:
    """Whether this code is being captured."""
    return is_compiling()


def is_exporting() -> bool:
    """Whether this code is being exported (torch.export)."""
    export = sys.modules.get("tocha.export.capture")
    return export is not None and bool(export.exporting_now)


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


class set_stance(contextlib.ContextDecorator):
    """How compiled functions behave from now on; as a context manager or decorator, inside (torch docs: torch.compiler.set_stance).

    "default"; "force_eager" runs them in plain Python; "eager_on_recompile" runs what is not captured yet in plain Python;
    "fail_on_recompile" raises where something would be captured.
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}, expected one of: {', '.join(_STANCES)}")
        from tocha._dynamo import eval_frame

        self._cell, self._stance = eval_frame.stance, stance
        self._before = [self._cell[0]]
        self._cell[0] = stance

    def __enter__(self) -> None:
        if (
            len(self._before) > 1 or self._cell[0] != self._stance
        ):  # entered again, or as a decorator after the stance was put back
            self._before.append(self._cell[0])
        self._cell[0] = self._stance

    def __exit__(self, *exc: Any) -> None:
        self._cell[0] = self._before.pop() if len(self._before) > 1 else self._before[0]

    def __call__(self, function: F) -> F:
        self._cell[0] = self._before[0]  # a decorator changes nothing outside
        stance = self._stance

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Mark a function that is called many times in a captured one. Regions are inlined; equal kernels are compiled once anyway."""
    return (lambda fn: fn) if fn is None else fn


@dataclasses.dataclass
class CacheInfo:
    """What `save_cache_artifacts` packed or `load_cache_artifacts` unpacked: keys by kind."""

    artifacts: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def inductor_artifacts(self) -> list[str]:
        """Keys of compiled kernels."""
        return self.artifacts.get("inductor", [])


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The kernels that this process compiled or loaded, as bytes for `load_cache_artifacts` elsewhere; None if there are none."""
    from tocha.inductor import cache

    return None if (packed := cache.pack()) is None else (packed[0], CacheInfo({"inductor": packed[1]}))


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave into this machine's cache. It is machine code: only load what you trust. None if it is damaged."""
    from tocha.inductor import cache

    keys = cache.unpack(serialized_artifacts)
    return None if keys is None else CacheInfo({"inductor": keys})
