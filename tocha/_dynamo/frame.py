"""Frames as plain records: what a function's run is made of between two instructions."""

from __future__ import annotations

import builtins
import inspect
import types
from typing import Any, Final

from tocha._dynamo.bytecode import decode


class Marker:
    """A value that no program has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        return True


NULL: Final = Marker("NULL")  # the interpreter's empty stack slot
PUSHED: Final = Marker("PUSHED")  # a call went into a new frame


class Frame:
    """`local` maps names to values (cells for captured variables). `instead` is pushed on return in place of the result."""

    __slots__ = ("builtins", "code", "globals", "instead", "instructions", "ip", "local", "stack")

    def __init__(self, code: types.CodeType, globals: dict[str, Any], local: dict[str, Any], ip: int = 0) -> None:
        self.code, self.globals, self.local, self.ip = code, globals, local, ip
        self.instructions = decode(code).instructions
        found = globals.get("__builtins__", builtins)
        self.builtins: dict[str, Any] = found if isinstance(found, dict) else vars(found)
        self.stack: list[Any] = []
        self.instead: Any = NULL

    @property
    def line(self) -> int:
        """The line of the instruction that runs, or comes next."""
        return self.instructions[min(self.ip, len(self.instructions) - 1)].line

    def outline(self) -> Any:
        """How deep the stack is, and which slots are empty."""
        stack = self.stack
        return (len(stack), *[i for i, v in enumerate(stack) if v is NULL]) if stack else ()

    def where(self) -> str:
        """The place in the user's program."""
        return f"{self.code.co_filename}:{self.line} in {self.code.co_name}"


def is_generator(code: types.CodeType) -> bool:
    """Whether calling the code makes a generator."""
    return bool(code.co_flags & inspect.CO_GENERATOR)


def bind(
    code: types.CodeType, name: str, defaults: Any, kwdefaults: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """A call's arguments as local variables; TypeError as Python raises it."""
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    local = dict(zip(names[:count], args, strict=False))
    extra: dict[str, Any] | None = {} if code.co_flags & inspect.CO_VARKEYWORDS else None
    if len(args) > count and not code.co_flags & inspect.CO_VARARGS:
        raise TypeError(f"{name}() takes {count} positional argument{'s' * (count != 1)} but {len(args)} were given")
    if kwargs:
        named = set(names[code.co_posonlyargcount : count + only])
        for key, value in kwargs.items():
            if key in named:
                if key in local:
                    raise TypeError(f"{name}() got multiple values for argument '{key}'")
                local[key] = value
            elif extra is not None:
                extra[key] = value
            else:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    if defaults:
        for key, value in zip(names[count - len(defaults) : count], defaults, strict=True):
            local.setdefault(key, value)
    for key in names[count : count + only]:
        if key not in local and kwdefaults and key in kwdefaults:
            local[key] = kwdefaults[key]
    missing = [key for key in names[: count + only] if key not in local]
    if missing:
        kind = "positional" if missing[0] in names[:count] else "keyword-only"
        listed = " and ".join(f"'{m}'" for m in missing)
        raise TypeError(f"{name}() missing {len(missing)} required {kind} argument{'s' * (len(missing) > 1)}: {listed}")
    place = count + only
    if code.co_flags & inspect.CO_VARARGS:
        local[names[place]] = tuple(args[count:])
        place += 1
    if extra is not None:
        local[names[place]] = extra
    return local
