"""Instructions that move frames (jumps, iteration, calls, generators, exceptions, with, match): what each does, by the interpreter's
operations."""

from __future__ import annotations

import collections.abc
import types
from typing import Any

from tocha._dynamo.bytecode import VERSION
from tocha._dynamo.frame import NULL, PUSHED, Frame
from tocha._dynamo.interpreter import OPS, Interpreter, op
from tocha._dynamo.opcodes import popped

# ---- stack and jumps


@op
def PUSH_NULL(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(NULL)


@op
def POP_TOP(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.pop()


END_FOR = OPS["END_FOR"] = POP_TOP


@op
def COPY(vm: Interpreter, f: Frame, depth: int) -> None:
    f.stack.append(f.stack[-depth])


@op
def SWAP(vm: Interpreter, f: Frame, depth: int) -> None:
    f.stack[-1], f.stack[-depth] = f.stack[-depth], f.stack[-1]


@op
def JUMP(vm: Interpreter, f: Frame, target: int) -> None:
    f.ip = target


@op
def POP_JUMP_IF_TRUE(vm: Interpreter, f: Frame, target: int) -> None:
    if vm.truth(f.stack.pop()):
        f.ip = target


@op
def POP_JUMP_IF_FALSE(vm: Interpreter, f: Frame, target: int) -> None:
    if not vm.truth(f.stack.pop()):
        f.ip = target


@op
def POP_JUMP_IF_NONE(vm: Interpreter, f: Frame, target: int) -> None:
    if f.stack.pop() is None:
        f.ip = target


@op
def POP_JUMP_IF_NOT_NONE(vm: Interpreter, f: Frame, target: int) -> None:
    if f.stack.pop() is not None:
        f.ip = target


@op
def JUMP_IF_TRUE_OR_POP(vm: Interpreter, f: Frame, target: int) -> None:
    if vm.truth(f.stack[-1]):
        f.ip = target
    else:
        f.stack.pop()


@op
def JUMP_IF_FALSE_OR_POP(vm: Interpreter, f: Frame, target: int) -> None:
    if not vm.truth(f.stack[-1]):
        f.ip = target
    else:
        f.stack.pop()


@op
def GET_ITER(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.iter(f.stack.pop()))


@op
def GET_YIELD_FROM_ITER(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.iter(f.stack.pop()))


@op
def FOR_ITER(vm: Interpreter, f: Frame, target: int) -> None:
    try:
        f.stack.append(vm.next(f.stack[-1]))
    except StopIteration:
        f.stack.pop()
        f.ip = target


# ---- calls


def _call(vm: Interpreter, f: Frame, args: list[Any], kwargs: dict[str, Any]) -> None:
    second, first = f.stack.pop(), f.stack.pop()
    if first is NULL:
        fn = second
    elif second is NULL:
        fn = first
    else:
        fn, args = first, [second, *args]
    vm.push_call(f, fn, tuple(args), kwargs)


@op
def CALL(vm: Interpreter, f: Frame, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    args = popped(f, count)
    split = len(args) - len(names)
    _call(vm, f, args[:split], dict(zip(names, args[split:], strict=True)))


@op
def CALL_KW(vm: Interpreter, f: Frame, arg: tuple[int, Any]) -> None:
    names = f.stack.pop()
    CALL(vm, f, (arg[0], names))


@op
def CALL_FUNCTION_EX(vm: Interpreter, f: Frame, flags: int) -> None:
    kwargs = vm.mapping(f.stack.pop()) if flags & 1 else {}
    _call(vm, f, vm.listed(f.stack.pop()), kwargs)


_SETS = ((8, "__closure__"), (4, "__annotations__"), (2, "__kwdefaults__"), (1, "__defaults__"))


@op
def MAKE_FUNCTION(vm: Interpreter, f: Frame, flags: int) -> None:
    made = vm.make_function(f.stack.pop(), f.globals)
    for flag, name in _SETS:
        if flags & flag:
            made = _with(vm, made, name, f.stack.pop())
    f.stack.append(made)


@op
def SET_FUNCTION_ATTRIBUTE(vm: Interpreter, f: Frame, flag: int) -> None:
    made, value = f.stack.pop(), f.stack.pop()
    f.stack.append(_with(vm, made, dict(_SETS)[flag], value))


def _with(vm: Interpreter, made: types.FunctionType, name: str, value: Any) -> types.FunctionType:
    if name == "__closure__":
        new = types.FunctionType(made.__code__, made.__globals__, made.__name__, made.__defaults__, value)
        new.__kwdefaults__, new.__annotations__, new.__module__ = made.__kwdefaults__, made.__annotations__, made.__module__
        return vm.made_function(new)
    if name == "__annotations__" and isinstance(value, tuple):
        value = dict(zip(value[::2], value[1::2], strict=True))
    setattr(made, name, value)
    return made


@op
def RETURN_VALUE(vm: Interpreter, f: Frame, arg: Any) -> None:
    value = f.stack.pop() if f.instead is NULL else f.instead
    vm.frames.pop()
    if len(vm.frames) == vm._base:
        vm.done = ("return", value)
    else:
        vm.frames[-1].stack.append(value)


@op
def RETURN_GENERATOR(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(None)


@op
def YIELD_VALUE(vm: Interpreter, f: Frame, arg: Any) -> None:
    value = f.stack.pop()
    vm.frames.pop()
    vm.done = ("yield", value)


@op
def SEND(vm: Interpreter, f: Frame, target: int) -> None:
    value = f.stack.pop()
    receiver = f.stack[-1]
    try:
        got = vm.next(receiver) if value is None else vm.call(vm.getattr(receiver, "send"), (value,), {})
        if got is PUSHED:
            raise AssertionError("send runs in no new frame")
        f.stack.append(got)
    except StopIteration as stop:
        if VERSION < (3, 12):
            f.stack.pop()
        f.stack.append(stop.value)
        f.ip = target


@op
def END_SEND(vm: Interpreter, f: Frame, arg: Any) -> None:
    del f.stack[-2]


@op
def CLEANUP_THROW(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack[-1]
    if isinstance(error, StopIteration):
        del f.stack[-3:]
        f.stack += (None, error.value)
    else:
        raise error


# ---- exceptions and with


@op
def RAISE_VARARGS(vm: Interpreter, f: Frame, count: int) -> None:
    if count == 0:
        if vm.handled is None:
            raise RuntimeError("No active exception to reraise")
        raise vm.handled
    cause: Any = f.stack.pop() if count == 2 else NULL
    error: Any = f.stack.pop()
    if isinstance(error, type):
        error = vm.instance(error)
    if not isinstance(error, BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if cause is not NULL:
        error.__cause__ = vm.instance(cause) if isinstance(cause, type) else cause
    if vm.handled is not None and vm.handled is not error and error.__context__ is None:
        error.__context__ = vm.handled
    raise error


@op
def RERAISE(vm: Interpreter, f: Frame, depth: int) -> None:
    raise f.stack.pop()


@op
def PUSH_EXC_INFO(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack.pop()
    f.stack += (vm.handled, error)
    vm.handled = error


@op
def POP_EXCEPT(vm: Interpreter, f: Frame, arg: Any) -> None:
    vm.handled = f.stack.pop()


@op
def CHECK_EXC_MATCH(vm: Interpreter, f: Frame, arg: Any) -> None:
    kinds = f.stack.pop()
    f.stack.append(vm.matches(f.stack[-1], kinds))


@op
def STOPITERATION_ERROR(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack.pop()
    if isinstance(error, StopIteration):
        new = RuntimeError("generator raised StopIteration")
        new.__cause__ = new.__context__ = error
        error = new
    f.stack.append(error)


@op
def BEFORE_WITH(vm: Interpreter, f: Frame, arg: Any) -> None:
    manager = f.stack.pop()
    kind = type(manager)
    if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
        raise TypeError(f"'{kind.__name__}' object does not support the context manager protocol")
    f.stack.append(vm.getattr(manager, "__exit__"))
    vm.push_call(f, vm.getattr(manager, "__enter__"), (), {})


@op
def WITH_EXCEPT_START(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack[-1]
    vm.push_call(f, f.stack[-4], (type(error), error, error.__traceback__), {})


# ---- match


@op
def GET_LEN(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(len(f.stack[-1]))


@op
def MATCH_SEQUENCE(vm: Interpreter, f: Frame, arg: Any) -> None:
    value = f.stack[-1]
    f.stack.append(isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes, bytearray)))


@op
def MATCH_MAPPING(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(isinstance(f.stack[-1], collections.abc.Mapping))


@op
def MATCH_KEYS(vm: Interpreter, f: Frame, arg: Any) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    found = all(vm.contains(subject, k) for k in keys)
    f.stack.append(tuple([vm.getitem(subject, k) for k in keys]) if found else None)


@op
def MATCH_CLASS(vm: Interpreter, f: Frame, count: int) -> None:
    names, cls, subject = f.stack.pop(), f.stack.pop(), f.stack.pop()
    f.stack.append(_matched(vm, subject, cls, count, names))


_WHOLE = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def _matched(vm: Interpreter, subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    if not isinstance(subject, cls):
        return None
    if count and cls in _WHOLE:
        return (subject,) if count == 1 and not names else None
    positional = getattr(cls, "__match_args__", ())
    if count > len(positional):
        raise TypeError(f"{cls.__name__}() accepts {len(positional)} positional sub-patterns ({count} given)")
    try:
        return tuple([vm.getattr(subject, name) for name in (*positional[:count], *names)])
    except AttributeError:
        return None
