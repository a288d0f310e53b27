"""Interpreters: who runs a primitive when it isn't the plain path.

The thread's stack holds vmap levels and `TorchDispatchMode`s, the innermost last. The last one handles the primitive
with itself off the stack, so what it calls goes to the next. Without any, a tensor subclass with
`__torch_dispatch__` gets the call, below autograd: its results are put on the tape here.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

from tocha.autograd.mode import no_grad, state
from tocha.dispatch import aten
from tocha.dispatch.overload import OpOverload
from tocha.dispatch.override import FUNCTION_MODES, INTERPRETERS, has_dispatch, stacks
from tocha.dispatch.prim import Prim, record
from tocha.tensor import Tensor


class Interpreter(Protocol):
    """Something that can run primitives."""

    def run(self, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The result of the primitive under this interpreter's meaning."""


def push(interpreter: Interpreter) -> None:
    """Make `interpreter` the innermost one of this thread."""
    stacks.interpreters.append(interpreter)
    INTERPRETERS.append(interpreter)


def pop() -> None:
    """Take the innermost interpreter off."""
    INTERPRETERS.remove(stacks.interpreters.pop())


def run(prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run a primitive with the innermost interpreter, a subclass's __torch_dispatch__, or plainly."""
    stack = stacks.interpreters
    if stack:
        top = stack.pop()
        try:
            return top.run(prim, args, params)
        finally:
            stack.append(top)
    if not any(has_dispatch(a) for a in args):
        return prim.plain(args, params)
    made = aten.decomposed(prim, args, params)
    if made is not None:
        return made
    with no_grad():
        func, given, kwargs = aten.overload_call(prim, args, params)
        got = ask_classes(func, given, kwargs)
    return _on_tape(prim, args, params, got)


def ask_classes(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The first answer of the arguments' __torch_dispatch__, subclasses before their bases."""
    types = _dispatching(args, kwargs)
    for cls in types:
        got = cls.__torch_dispatch__(func, tuple(types), args, kwargs)
        if got is not NotImplemented:
            return got
    raise _nobody(func, types)


def _dispatching(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    types: list[Any] = []
    for a in (*args, *kwargs.values()):
        for item in a if isinstance(a, (list, tuple)) else (a,):
            cls = type(item)
            if has_dispatch(item) and cls not in types:
                place = next((i for i, t in enumerate(types) if issubclass(cls, t)), len(types))
                types.insert(place, cls)
    return types


def _nobody(func: Any, asked: Any) -> TypeError:
    return TypeError(
        f"Multiple dispatch failed for '{func.name()}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n"
        + "\n".join(f"  - {'tensor subclass' if isinstance(a, type) else 'mode object'} {a!r}" for a in asked)
    )


def _on_tape(prim: Prim, args: tuple[Any, ...], params: dict[str, Any], got: Any) -> Any:
    outs = got if isinstance(got, (tuple, list)) else (got,)
    if not all(isinstance(o, Tensor) for o in outs):
        raise RuntimeError(f"Unable to cast the result of __torch_dispatch__ for {prim.name} to Tensor: it is {got!r}")
    if state.grad:
        for o in outs:
            if o._view is not None and o._view.kind in ("no_grad", "inference"):
                o._view.kind = (
                    "normal" if len(outs) == 1 else "multi"
                )  # handlers run without recording; the view was made where it is on
    wants = prim.vjp is not None and state.grad and any(isinstance(a, Tensor) and a._rg for a in args)
    if wants and not any(o._node is not None for o in outs):
        record(prim, args, outs, params)
    return got


def run_function(public: Any, implementation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A public function that no __torch_function__ took: whole to __torch_dispatch__ if torch does so (functions that
    make a tensor, change one in place or read a number), else as it is made of primitives."""
    stack = stacks.interpreters
    mode = stack[-1] if stack and isinstance(stack[-1], TorchDispatchMode) else None
    if mode is None and (stack or not _dispatching(args, kwargs)):
        got = implementation(*args, **kwargs)
        if stack and args and public.__name__ in aten.LIKE and hasattr(stack[-1], "like"):
            return stack[-1].like(args[0], got)
        return got
    name = getattr(public, "__name__", "")
    func = aten.whole_call(name, args, kwargs)
    if func is None:
        return implementation(*args, **kwargs)
    args = aten.with_sizes_listed(name, args)
    if mode is None:
        with no_grad():
            return ask_classes(func, args, kwargs)
    stack.pop()
    try:
        with no_grad():
            return mode.ask(func, args, kwargs)
    finally:
        stack.append(mode)


class TorchDispatchMode:
    """A context manager whose `__torch_dispatch__(func, types, args, kwargs)` sees every operator run inside, below
    autograd (torch docs: torch.utils._python_dispatch.TorchDispatchMode)."""

    def __init__(self, _dispatch_key: Any = None) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def ask(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The mode's answer; a TypeError if it has none."""
        got = self.__torch_dispatch__(func, tuple(_dispatching(args, kwargs)), args, kwargs)
        if got is NotImplemented:
            raise _nobody(func, [self])
        return got

    def run(self, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Ask the mode, then record its result."""
        stack = stacks.interpreters
        stack.append(self)  # what torch's form takes to build (a transposition, say) is seen by the mode too
        try:
            made = aten.decomposed(prim, args, params)
            if made is not None:
                return made
            with no_grad():
                func, given, kwargs = aten.overload_call(prim, args, params)
        finally:
            stack.pop()
        with no_grad():
            got = self.ask(func, given, kwargs)
        return _on_tape(prim, args, params, got)

    def __enter__(self) -> Self:
        push(self)
        FUNCTION_MODES.append(self)  # public functions then ask `run_function`
        return self

    def __exit__(self, *exc: object) -> None:
        FUNCTION_MODES.remove(self)
        pop()


class TorchFunctionMode:
    """A context manager whose `__torch_function__(func, types, args, kwargs)` sees every public torch function called
    inside (torch docs: torch.overrides.TorchFunctionMode)."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Self:
        stacks.function_modes.append(self)
        FUNCTION_MODES.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        FUNCTION_MODES.remove(stacks.function_modes.pop())
