"""Interpreters: who runs a primitive when it isn't the plain path.

The thread's stack holds vmap levels and `TorchDispatchMode`s, the innermost last. The last one handles the primitive
with itself off the stack, so what it calls goes to the next. Without any, a tensor subclass with
`__torch_dispatch__` gets the call, below autograd: its results are put on the tape here.
"""

from __future__ import annotations

from typing import Any, Protocol

from tocha.autograd.mode import no_grad, state
from tocha.dispatch.override import INTERPRETERS, stacks
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
    special = next((a for a in args if isinstance(a, Tensor) and hasattr(type(a), "__torch_dispatch__")), None)
    if special is None:
        return prim.plain(args, params)
    with no_grad():
        got = _ask(getattr(type(special), "__torch_dispatch__"), prim, args, params)
    return _on_tape(prim, args, params, got)


def _ask(handler: Any, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    types = tuple({type(a) for a in args if isinstance(a, Tensor) and hasattr(type(a), "__torch_dispatch__")})
    got = handler(overload(prim), types, args, params)
    if got is NotImplemented:
        names = ", ".join(t.__name__ for t in types)
        raise TypeError(f"Multiple dispatch failed for {overload(prim)}: __torch_dispatch__ of {names or handler} returned NotImplemented")
    return got


def _on_tape(prim: Prim, args: tuple[Any, ...], params: dict[str, Any], got: Any) -> Any:
    wants = prim.vjp is not None and state.grad and any(isinstance(a, Tensor) and a._rg for a in args)
    if wants:
        outs = got if isinstance(got, (tuple, list)) else (got,)
        record(prim, args, outs, params)
    return got


class Overload:
    """What __torch_dispatch__ is handed as `func`: an operator overload of torch.ops.aten, here one primitive."""

    def __init__(self, prim: Prim) -> None:
        self.prim = prim
        self.__name__ = f"{prim.name}.default"
        self.namespace, self.overloadpacket = "aten", prim.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.prim(*args, **kwargs)

    def name(self) -> str:
        return f"aten::{self.prim.name}"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.prim.name}', overload='default')>"


_OVERLOADS: dict[str, Overload] = {}


def overload(prim: Prim) -> Overload:
    """The one Overload object of a primitive."""
    found = _OVERLOADS.get(prim.name)
    if found is None:
        found = _OVERLOADS[prim.name] = Overload(prim)
    return found


class TorchDispatchMode:
    """A context manager whose `__torch_dispatch__(func, types, args, kwargs)` sees every primitive run inside, below
    autograd (torch docs: torch.utils._python_dispatch.TorchDispatchMode)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def run(self, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Ask the mode, then record its result."""
        with no_grad():
            got = _ask(self.__torch_dispatch__, prim, args, params)
        if any(isinstance(o, Tensor) and o._node is not None for o in (got if isinstance(got, tuple) else (got,))):
            return got
        return _on_tape(prim, args, params, got)

    def __enter__(self) -> TorchDispatchMode:
        push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        pop()


class TorchFunctionMode:
    """A context manager whose `__torch_function__(func, types, args, kwargs)` sees every public torch function called
    inside (torch docs: torch.overrides.TorchFunctionMode)."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        from tocha.dispatch.override import FUNCTION_MODES

        stacks.function_modes.append(self)
        FUNCTION_MODES.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        from tocha.dispatch.override import FUNCTION_MODES

        FUNCTION_MODES.remove(stacks.function_modes.pop())
