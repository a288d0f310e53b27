"""torch._dynamo.eval_frame: compiled functions and modules, as callers see them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

from tocha._dynamo import config, report
from tocha._dynamo.backends import lookup_backend
from tocha._dynamo.bytecode import decode
from tocha._dynamo.frame import NULL, Frame, bind, is_generator
from tocha._dynamo.segments import Frames, Program, stance
from tocha.autograd.mode import state
from tocha.dispatch.override import stacks
from tocha.nn import Module

__all__ = ["OptimizedModule", "compile_callable", "reset", "stance"]

_programs: weakref.WeakSet[Program] = weakref.WeakSet()


def reset() -> None:
    """Forget every captured segment."""
    for program in list(_programs):
        program.segments.clear()
        program.plain.clear()
        program.fixed.clear()
        program.constant.clear()
        program.bound = ()


def watched() -> bool:
    """Whether a mode, a transform or hooks on what the tape saves look at every operator: then nothing is captured."""
    return bool(stacks.function_modes or stacks.interpreters or state.saved_hooks or state.anomaly)


def _call_object(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    return self(*args, **kwargs)


def compile_callable(
    fn: Callable[..., Any], backend: Any, options: dict[str, Any], fullgraph: bool, dynamic: bool | None = None
) -> Callable[..., Any]:
    """`fn` through captured segments."""
    function: Any = fn
    bound: tuple[Any, ...] = ()
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        function, bound = fn.__func__, (fn.__self__,)
    elif not isinstance(fn, types.FunctionType):
        function, bound = _call_object, (fn,)
    assert isinstance(function, types.FunctionType)
    program = Program(getattr(fn, "__qualname__", type(fn).__name__), lookup_backend(backend), options, fullgraph)
    program.dynamic = dynamic
    _programs.add(program)
    code = function.__code__
    count, flags = code.co_argcount, code.co_flags
    names, starred = code.co_varnames[:count], flags & inspect.CO_VARARGS
    several = code.co_varnames[count : count + bool(starred) + bool(flags & inspect.CO_VARKEYWORDS)]
    positional, named = not code.co_kwonlyargcount, bool(flags & inspect.CO_VARKEYWORDS) and code.co_posonlyargcount == count
    settings = vars(config)
    unsupported = decode(code).unsupported or ("a generator" if is_generator(code) else None)

    parts = [f"{name!r}: given[{i}]" for i, name in enumerate(names)]
    parts += [f"{name!r}: {part}" for name, part in zip(several, [f"given[{count}:]", "kwargs"][not starred :], strict=False)]
    parts += [f"{name!r}: cells[{i}]" for i, name in enumerate(code.co_freevars)]
    display = eval(f"lambda given, kwargs, cells: {{{', '.join(parts)}}}")  # quicker than any loop over names

    def variables(given: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The local variables of a call, in the order in which `bind` has them."""
        local = bind(code, function.__qualname__, function.__defaults__, function.__kwdefaults__, given, kwargs)
        if function.__closure__:
            local.update(zip(code.co_freevars, function.__closure__, strict=True))
        return local

    def frames(local: dict[str, Any]) -> Frames:
        return Frames([Frame(code, function.__globals__, local)])

    def call(*args: Any, **kwargs: Any) -> Any:
        if unsupported or settings["disable"] or report.capturing_now or stance[0] == "force_eager":
            return fn(*args, **kwargs)
        given = (*bound, *args)
        if positional and (named or not kwargs) and (len(given) == count or (starred and len(given) > count)):
            local = display(given, kwargs, function.__closure__)
        else:
            try:
                local = variables(given, kwargs)
            except TypeError:
                return fn(*args, **kwargs)
        if program.bound and not stacks.function_modes:
            result = program.recall(local, frames)
            if result is not NULL:
                return result
        if stacks.interpreters or stacks.functions_disabled:
            return fn(*args, **kwargs)
        return program.run(frames(local), lambda: fn(*args, **kwargs))

    call._dynamo_program = program  # type: ignore[attr-defined]
    return call


def compiled_function(
    fn: Callable[..., Any], backend: Any, options: dict[str, Any], fullgraph: bool, dynamic: bool | None = None
) -> Callable[..., Any]:
    """`compile_callable` with the function's name and text."""
    call = compile_callable(fn, backend, options, fullgraph, dynamic)
    with contextlib.suppress(AttributeError):
        functools.update_wrapper(call, fn)
    call._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
    return call


class OptimizedModule(Module):
    """A module as torch.compile returns it: the original is `_orig_mod`, whose attributes it answers with."""

    def __init__(self, mod: Module, call: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._orig_mod = mod
        self.__dict__["_dynamo_call"] = mod if call is None else call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_dynamo_call"](*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's call."""
        return self.__dict__["_dynamo_call"](*args, **kwargs)

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._orig_mod,)

    def __deepcopy__(self, memo: Any) -> Any:
        import copy

        return self.__dict__["_remake"](copy.deepcopy(self._orig_mod, memo)) if "_remake" in self.__dict__ else OptimizedModule(
            copy.deepcopy(self._orig_mod, memo)
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_orig_mod", "training") or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)
