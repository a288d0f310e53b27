"""Generators whose frames the interpreter runs."""

from __future__ import annotations

import contextlib
import types
from typing import Any

from tocha._dynamo.bytecode import decode
from tocha._dynamo.exc import Break
from tocha._dynamo.frame import Frame
from tocha._dynamo.interpreter import Interpreter


class Generator:
    """A suspended frame. `vm` runs it: the tracer, or (None) a plain interpreter of its own."""

    __slots__ = ("__weakref__", "frame", "running", "vm")
    __class__ = property(lambda self: types.GeneratorType)  # what isinstance asks

    def __init__(self, frame: Frame, vm: Any = None) -> None:
        self.frame: Frame | None = frame
        self.vm, self.running = vm, False

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def cleans_up(self) -> bool:
        """Whether leaving it where it is suspended runs code of its own (`finally`, `with`, an `except`)."""
        f = self.frame
        if f is None or not f.ip:
            return False
        code = decode(f.code)
        handler = code.handlers[f.ip - 1]
        return handler is not None and code.instructions[handler.target].name != "STOPITERATION_ERROR"

    def send(self, value: Any) -> Any:
        """Go on with `value` as the yield's."""
        frame = self.frame
        if frame is None:
            raise StopIteration
        if frame.ip:
            frame.stack.append(value)
        elif value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        return self._resume(None)

    def throw(self, error: Any, value: Any = None, trace: Any = None) -> Any:
        """Go on by raising `error` at the yield."""
        error = error if isinstance(error, BaseException) else value if value is not None else error()
        frame, self.frame = self.frame, None
        if frame is None or not frame.ip:
            raise error
        if any(i.name == "SEND" for i in decode(frame.code).instructions):
            raise Break("an exception is thrown into a generator that may be in `yield from`")
        self.frame = frame
        return self._resume(error)

    def close(self) -> None:
        """End it as if it had raised GeneratorExit."""
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration):
            return
        raise RuntimeError("generator ignored GeneratorExit")

    def _resume(self, error: BaseException | None) -> Any:
        if self.running:
            raise ValueError("generator already executing")
        vm = self.vm if self.vm is not None else Interpreter([])
        frame, self.running = self.frame, True
        assert frame is not None
        try:
            what, value = vm.resume(frame, error)
        except BaseException:
            self.frame = None
            raise
        finally:
            self.running = False
        if what == "yield":
            return value
        self.frame = None
        raise StopIteration(value)

    def __del__(self) -> None:
        if getattr(self, "vm", self) is None and not self.running and self.cleans_up():
            with contextlib.suppress(Break):
                self.close()
