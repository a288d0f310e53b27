"""The interpreter: frames run instruction by instruction, in terms of a few operations on values.

`Interpreter` itself runs programs plainly, on real values; `tocha._dynamo.tracer.Tracer` overrides the operations to capture them.
Exceptions unwind the frames here as CPython does (zero-cost exception tables).
"""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable
from typing import Any

from tocha._dynamo.bytecode import decode
from tocha._dynamo.exc import Break, NotDynamic, Refused, Restart
from tocha._dynamo.frame import NULL, PUSHED, Frame

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul, "&=": operator.iand,
    "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
COMPARE = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge}
CONVERT: dict[int, Callable[[Any], str]] = {1: str, 2: repr, 3: ascii}
_INTERNAL = (Break, NotDynamic, Restart, Refused)


class Interpreter:
    """Runs frames; the innermost is the last. `handled` is the exception being handled."""

    def __init__(self, frames: list[Frame], handled: Any = None) -> None:
        self.frames, self.handled = frames, handled
        self.done: Any = NULL  # (what, value) once the base frame returned or yielded
        self._base = 0

    # ---- running

    def execute(self, base: int) -> tuple[str, Any]:
        """Run until the frame at index `base` returns ("return", value) or yields ("yield", value)."""
        outer, self._base = self._base, base
        try:
            while self.done is NULL:
                self.step()
            done, self.done = self.done, NULL
            return done
        finally:
            self._base = outer

    def resume(self, frame: Frame, error: BaseException | None) -> tuple[str, Any]:
        """Go on with a generator's frame until it yields or returns, first raising `error` in it if given."""
        base = len(self.frames)
        self.frames.append(frame)
        try:
            if error is not None:
                outer, self._base = self._base, base
                try:
                    self.unwind(error)
                finally:
                    self._base = outer
            return self.execute(base)
        except BaseException:
            del self.frames[base:]
            raise

    def step(self) -> None:
        """Run one instruction; its exception goes to the handler, or out if no frame has one."""
        f = self.frames[-1]
        ins = f.instructions[f.ip]
        f.ip += 1
        try:
            OPS[ins.name](self, f, ins.arg)
        except _INTERNAL:
            raise
        except BaseException as error:
            self.unwind(error)

    def unwind(self, error: BaseException) -> None:
        """Go to the innermost handler of an exception."""
        places = []
        while len(self.frames) > self._base:
            f = self.frames[-1]
            handler = decode(f.code).handlers[f.ip - 1]
            if handler is not None:
                del f.stack[handler.depth :]
                if handler.lasti:
                    f.stack.append(f.ip - 1)
                f.stack.append(error)
                f.ip = handler.target
                return
            places.append(f.where())
            self.frames.pop()
        if self._base == 0:
            for place in places:  # the traceback shows this file; say where the program was
                error.add_note(f"  at {place}, compiled")
        raise error

    # ---- operations on values, plain

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call's result, or PUSHED if it goes on in a new frame."""
        if not args and fn in (super, vars, dir):
            return self._of_frame(fn)
        if self.handled is None:
            return fn(*args, **kwargs)
        try:
            raise self.handled  # sys.exc_info() tells what is being handled
        except BaseException:
            return fn(*args, **kwargs)

    def _of_frame(self, fn: Any) -> Any:
        """super(), vars() and dir(), which look at the frame they are called in."""
        f = self.frames[-1]
        local = {k: self.cell_get(v) if isinstance(v, types.CellType) else v for k, v in f.local.items()}
        if fn is super:
            return super(local["__class__"], local[f.code.co_varnames[0]])
        return local if fn is vars else sorted(local)

    def instance(self, cls: type) -> Any:
        """An instance without arguments."""
        return cls()

    def getattr(self, obj: Any, name: str) -> Any:
        return getattr(obj, name)

    def setattr(self, obj: Any, name: str, value: Any) -> None:
        setattr(obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        delattr(obj, name)

    def getitem(self, obj: Any, key: Any) -> Any:
        return obj[key]

    def setitem(self, obj: Any, key: Any, value: Any) -> None:
        obj[key] = value

    def delitem(self, obj: Any, key: Any) -> None:
        del obj[key]

    def operate(self, op: Callable[..., Any], *operands: Any) -> Any:
        """A unary, binary or comparing operator."""
        return op(*operands)

    def contains(self, container: Any, item: Any) -> bool:
        return item in container

    def same(self, a: Any, b: Any) -> bool:
        return a is b

    def truth(self, value: Any) -> bool:
        return bool(value)

    def iter(self, value: Any) -> Any:
        return iter(value)

    def next(self, iterator: Any) -> Any:
        return next(iterator)

    def listed(self, value: Any) -> list[Any]:
        """All that an iterable yields."""
        return list(value)

    def mapping(self, value: Any) -> dict[Any, Any]:
        """A mapping as a dict."""
        return dict(value)

    def format(self, value: Any, spec: str) -> str:
        return format(value, spec)

    def convert(self, how: int, value: Any) -> str:
        return CONVERT[how](value)

    def load_global(self, f: Frame, name: str) -> Any:
        if name in f.globals:
            return f.globals[name]
        if name in f.builtins:
            return f.builtins[name]
        raise NameError(f"name '{name}' is not defined", name=name)

    def store_global(self, f: Frame, name: str, value: Any) -> None:
        f.globals[name] = value

    def delete_global(self, f: Frame, name: str) -> None:
        if name not in f.globals:
            raise NameError(f"name '{name}' is not defined")
        del f.globals[name]

    def load_local(self, f: Frame, name: str) -> Any:
        return f.local[name]

    def cell_get(self, cell: Any) -> Any:
        return cell.cell_contents

    def cell_set(self, cell: Any, value: Any) -> None:
        cell.cell_contents = value

    def cell_clear(self, cell: Any) -> None:
        del cell.cell_contents

    def load_super(self, sup: Any, cls: Any, obj: Any, name: str) -> Any:
        return getattr(sup(cls, obj), name)

    def import_name(self, f: Frame, name: str, fromlist: Any, level: int) -> Any:
        return builtins.__import__(name, f.globals, None, fromlist, level)

    def make_function(self, code: types.CodeType, globals: dict[str, Any]) -> types.FunctionType:
        made = types.FunctionType(code, globals, code.co_name, None, tuple(types.CellType() for _ in code.co_freevars))
        made.__module__ = globals.get("__name__")  # type: ignore[assignment]
        return self.made_function(made)

    def made_function(self, made: types.FunctionType) -> types.FunctionType:
        """Told of every function that the program makes."""
        return made

    def make_generator(self, f: Frame) -> Any:
        raise AssertionError("a generator's frame runs in its own object")

    def matches(self, error: BaseException, kinds: Any) -> bool:
        """Whether `except kinds` catches an exception."""
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError("catching classes that do not inherit from BaseException is not allowed")
        return isinstance(error, kinds)

    def push_call(self, f: Frame, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call, and push the result now or when the new frame returns."""
        got = self.call(fn, args, kwargs)
        if got is not PUSHED:
            f.stack.append(got)


#: The instructions by name; `tocha._dynamo.opcodes` and `control` fill it.
OPS: dict[str, Callable[[Interpreter, Frame, Any], None]] = {}


def op(function: Callable[[Interpreter, Frame, Any], None]) -> Callable[[Interpreter, Frame, Any], None]:
    """Enter an instruction under its name."""
    OPS[function.__name__] = function
    return function
