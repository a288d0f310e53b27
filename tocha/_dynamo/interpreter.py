"""The interpreter: what each instruction does to a frame, in terms of a few operations on values.

`Interpreter` itself runs programs plainly, on real values; `tocha._dynamo.tracer.Tracer` overrides the operations to capture them.
Exceptions unwind the frames here as CPython does (zero-cost exception tables).
"""

from __future__ import annotations

import builtins
import collections.abc
import operator
import types
from collections.abc import Callable
from typing import Any

from tocha._dynamo.bytecode import VERSION, decode
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
            return done  # type: ignore[no-any-return]
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
        ins = decode(f.code).instructions[f.ip]
        f.ip += 1
        try:
            OPS[ins.name](self, f, ins.arg)
        except _INTERNAL:
            raise
        except BaseException as error:
            self.unwind(error)

    def unwind(self, error: BaseException) -> None:
        """Go to the innermost handler of an exception."""
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
            self.frames.pop()
        raise error

    # ---- operations on values, plain

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call's result, or PUSHED if it goes on in a new frame."""
        return fn(*args, **kwargs)

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


OPS: dict[str, Callable[[Interpreter, Frame, Any], None]] = {}


def _op(function: Callable[[Interpreter, Frame, Any], None]) -> Callable[[Interpreter, Frame, Any], None]:
    OPS[function.__name__] = function
    return function


# ---- variables


@_op
def LOAD_FAST(vm: Interpreter, f: Frame, name: str) -> None:
    if name not in f.local:
        raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    f.stack.append(vm.load_local(f, name))


@_op
def LOAD_FAST_AND_CLEAR(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(f.local.pop(name, NULL))


@_op
def STORE_FAST(vm: Interpreter, f: Frame, name: str) -> None:
    value = f.stack.pop()
    if value is NULL:
        f.local.pop(name, None)
    else:
        f.local[name] = value


@_op
def DELETE_FAST(vm: Interpreter, f: Frame, name: str) -> None:
    if name not in f.local:
        raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    del f.local[name]


@_op
def LOAD_CONST(vm: Interpreter, f: Frame, value: Any) -> None:
    f.stack.append(value)


@_op
def LOAD_GLOBAL(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(vm.load_global(f, name))


@_op
def STORE_GLOBAL(vm: Interpreter, f: Frame, name: str) -> None:
    vm.store_global(f, name, f.stack.pop())


@_op
def DELETE_GLOBAL(vm: Interpreter, f: Frame, name: str) -> None:
    vm.delete_global(f, name)


@_op
def MAKE_CELL(vm: Interpreter, f: Frame, name: str) -> None:
    f.local[name] = types.CellType(vm.load_local(f, name)) if name in f.local else types.CellType()


@_op
def LOAD_DEREF(vm: Interpreter, f: Frame, name: str) -> None:
    try:
        f.stack.append(vm.cell_get(vm.load_local(f, name)))
    except ValueError:
        raise NameError(
            f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
        ) from None


@_op
def STORE_DEREF(vm: Interpreter, f: Frame, name: str) -> None:
    vm.cell_set(vm.load_local(f, name), f.stack.pop())


@_op
def DELETE_DEREF(vm: Interpreter, f: Frame, name: str) -> None:
    vm.cell_clear(vm.load_local(f, name))


@_op
def LOAD_ASSERTION_ERROR(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(AssertionError)


@_op
def LOAD_BUILD_CLASS(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(builtins.__build_class__)


@_op
def IMPORT_NAME(vm: Interpreter, f: Frame, name: str) -> None:
    fromlist, level = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.import_name(f, name, fromlist, level))


@_op
def IMPORT_FROM(vm: Interpreter, f: Frame, name: str) -> None:
    try:
        f.stack.append(vm.getattr(f.stack[-1], name))
    except AttributeError:
        raise ImportError(f"cannot import name {name!r} from {f.stack[-1].__name__!r}") from None


# ---- attributes and items


@_op
def LOAD_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(vm.getattr(f.stack.pop(), name))


@_op
def LOAD_METHOD(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(vm.getattr(f.stack.pop(), name))
    AS_METHOD(vm, f, None)


@_op
def AS_METHOD(vm: Interpreter, f: Frame, arg: Any) -> None:
    """The slot beside a method that a call expects."""
    method = f.stack.pop()
    f.stack += (NULL, method) if VERSION < (3, 13) else (method, NULL)


@_op
def STORE_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    obj, value = f.stack.pop(), f.stack.pop()
    vm.setattr(obj, name, value)


@_op
def DELETE_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    vm.delattr(f.stack.pop(), name)


@_op
def LOAD_SUPER_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    obj, cls, sup = f.stack.pop(), f.stack.pop(), f.stack.pop()
    f.stack.append(vm.load_super(sup, cls, obj, name))


@_op
def BINARY_SUBSCR(vm: Interpreter, f: Frame, arg: Any) -> None:
    key, obj = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.getitem(obj, key))


@_op
def BINARY_SLICE(vm: Interpreter, f: Frame, arg: Any) -> None:
    stop, start, obj = f.stack.pop(), f.stack.pop(), f.stack.pop()
    f.stack.append(vm.getitem(obj, slice(start, stop)))


@_op
def STORE_SUBSCR(vm: Interpreter, f: Frame, arg: Any) -> None:
    key, obj, value = f.stack.pop(), f.stack.pop(), f.stack.pop()
    vm.setitem(obj, key, value)


@_op
def STORE_SLICE(vm: Interpreter, f: Frame, arg: Any) -> None:
    stop, start, obj, value = f.stack.pop(), f.stack.pop(), f.stack.pop(), f.stack.pop()
    vm.setitem(obj, slice(start, stop), value)


@_op
def DELETE_SUBSCR(vm: Interpreter, f: Frame, arg: Any) -> None:
    key, obj = f.stack.pop(), f.stack.pop()
    vm.delitem(obj, key)


# ---- operators


@_op
def BINARY_OP(vm: Interpreter, f: Frame, symbol: str) -> None:
    b, a = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.operate(BINARY[symbol], a, b))


@_op
def COMPARE_OP(vm: Interpreter, f: Frame, symbol: str) -> None:
    b, a = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.operate(COMPARE[symbol], a, b))


@_op
def UNARY_NEGATIVE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.operate(operator.neg, f.stack.pop()))


@_op
def UNARY_POSITIVE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.operate(operator.pos, f.stack.pop()))


@_op
def UNARY_INVERT(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.operate(operator.invert, f.stack.pop()))


@_op
def UNARY_NOT(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(not vm.truth(f.stack.pop()))


@_op
def IS_OP(vm: Interpreter, f: Frame, inverted: int) -> None:
    b, a = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.same(a, b) is not bool(inverted))


@_op
def CONTAINS_OP(vm: Interpreter, f: Frame, inverted: int) -> None:
    container, item = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.contains(container, item) is not bool(inverted))


# ---- building


def _popped(f: Frame, count: int) -> list[Any]:
    at = len(f.stack) - count
    values = f.stack[at:]
    del f.stack[at:]
    return values


@_op
def BUILD_TUPLE(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(tuple(_popped(f, count)))


@_op
def BUILD_LIST(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(_popped(f, count))


@_op
def BUILD_SET(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(set(_popped(f, count)))


@_op
def BUILD_MAP(vm: Interpreter, f: Frame, count: int) -> None:
    items = _popped(f, 2 * count)
    f.stack.append(dict(zip(items[::2], items[1::2], strict=True)))


@_op
def BUILD_CONST_KEY_MAP(vm: Interpreter, f: Frame, count: int) -> None:
    keys = f.stack.pop()
    f.stack.append(dict(zip(keys, _popped(f, count), strict=True)))


@_op
def BUILD_SLICE(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(slice(*_popped(f, count)))


@_op
def BUILD_STRING(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append("".join(_popped(f, count)))


@_op
def LIST_APPEND(vm: Interpreter, f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].append(value)


@_op
def SET_ADD(vm: Interpreter, f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].add(value)


@_op
def MAP_ADD(vm: Interpreter, f: Frame, depth: int) -> None:
    value, key = f.stack.pop(), f.stack.pop()
    f.stack[-depth][key] = value


@_op
def LIST_EXTEND(vm: Interpreter, f: Frame, depth: int) -> None:
    value = f.stack.pop()
    try:
        values = vm.listed(value)
    except TypeError as error:
        if hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__"):
            raise
        raise TypeError(f"Value after * must be an iterable, not {type(value).__name__}") from error
    f.stack[-depth].extend(values)


@_op
def SET_UPDATE(vm: Interpreter, f: Frame, depth: int) -> None:
    values = vm.listed(f.stack.pop())
    f.stack[-depth].update(values)


@_op
def DICT_UPDATE(vm: Interpreter, f: Frame, depth: int) -> None:
    added = vm.mapping(f.stack.pop())
    f.stack[-depth].update(added)


@_op
def DICT_MERGE(vm: Interpreter, f: Frame, depth: int) -> None:
    added = vm.mapping(f.stack.pop())
    into = f.stack[-depth]
    for key in added:
        if key in into:
            raise TypeError(f"got multiple values for keyword argument '{key}'")
    into.update(added)


@_op
def LIST_TO_TUPLE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(tuple(f.stack.pop()))


@_op
def UNPACK_SEQUENCE(vm: Interpreter, f: Frame, count: int) -> None:
    values = vm.listed(f.stack.pop())
    if len(values) > count:
        raise ValueError(f"too many values to unpack (expected {count})")
    if len(values) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(values)})")
    f.stack += values[::-1]


@_op
def UNPACK_EX(vm: Interpreter, f: Frame, counts: int) -> None:
    before, after = counts & 0xFF, counts >> 8
    values = vm.listed(f.stack.pop())
    if len(values) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(values)})")
    end = len(values) - after
    f.stack += [*values[:before], values[before:end], *values[end:]][::-1]


@_op
def FORMAT_VALUE(vm: Interpreter, f: Frame, flags: int) -> None:
    spec = f.stack.pop() if flags & 4 else ""
    value = f.stack.pop()
    f.stack.append(vm.format(vm.convert(flags & 3, value) if flags & 3 else value, spec))


@_op
def FORMAT_SIMPLE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.format(f.stack.pop(), ""))


@_op
def FORMAT_WITH_SPEC(vm: Interpreter, f: Frame, arg: Any) -> None:
    spec, value = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.format(value, spec))


@_op
def CONVERT_VALUE(vm: Interpreter, f: Frame, how: int) -> None:
    f.stack.append(vm.convert(how, f.stack.pop()))


# ---- stack and jumps


@_op
def PUSH_NULL(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(NULL)


@_op
def POP_TOP(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.pop()


END_FOR = OPS["END_FOR"] = POP_TOP


@_op
def COPY(vm: Interpreter, f: Frame, depth: int) -> None:
    f.stack.append(f.stack[-depth])


@_op
def SWAP(vm: Interpreter, f: Frame, depth: int) -> None:
    f.stack[-1], f.stack[-depth] = f.stack[-depth], f.stack[-1]


@_op
def JUMP(vm: Interpreter, f: Frame, target: int) -> None:
    f.ip = target


@_op
def POP_JUMP_IF_TRUE(vm: Interpreter, f: Frame, target: int) -> None:
    if vm.truth(f.stack.pop()):
        f.ip = target


@_op
def POP_JUMP_IF_FALSE(vm: Interpreter, f: Frame, target: int) -> None:
    if not vm.truth(f.stack.pop()):
        f.ip = target


@_op
def POP_JUMP_IF_NONE(vm: Interpreter, f: Frame, target: int) -> None:
    if f.stack.pop() is None:
        f.ip = target


@_op
def POP_JUMP_IF_NOT_NONE(vm: Interpreter, f: Frame, target: int) -> None:
    if f.stack.pop() is not None:
        f.ip = target


@_op
def JUMP_IF_TRUE_OR_POP(vm: Interpreter, f: Frame, target: int) -> None:
    if vm.truth(f.stack[-1]):
        f.ip = target
    else:
        f.stack.pop()


@_op
def JUMP_IF_FALSE_OR_POP(vm: Interpreter, f: Frame, target: int) -> None:
    if not vm.truth(f.stack[-1]):
        f.ip = target
    else:
        f.stack.pop()


@_op
def GET_ITER(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.iter(f.stack.pop()))


@_op
def GET_YIELD_FROM_ITER(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.iter(f.stack.pop()))


@_op
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


@_op
def CALL(vm: Interpreter, f: Frame, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    args = _popped(f, count)
    split = len(args) - len(names)
    _call(vm, f, args[:split], dict(zip(names, args[split:], strict=True)))


@_op
def CALL_KW(vm: Interpreter, f: Frame, arg: tuple[int, Any]) -> None:
    names = f.stack.pop()
    CALL(vm, f, (arg[0], names))


@_op
def CALL_FUNCTION_EX(vm: Interpreter, f: Frame, flags: int) -> None:
    kwargs = vm.mapping(f.stack.pop()) if flags & 1 else {}
    _call(vm, f, vm.listed(f.stack.pop()), kwargs)


_SETS = ((8, "__closure__"), (4, "__annotations__"), (2, "__kwdefaults__"), (1, "__defaults__"))


@_op
def MAKE_FUNCTION(vm: Interpreter, f: Frame, flags: int) -> None:
    made = vm.make_function(f.stack.pop(), f.globals)
    for flag, name in _SETS:
        if flags & flag:
            made = _with(vm, made, name, f.stack.pop())
    f.stack.append(made)


@_op
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


@_op
def RETURN_VALUE(vm: Interpreter, f: Frame, arg: Any) -> None:
    value = f.stack.pop() if f.instead is NULL else f.instead
    vm.frames.pop()
    if len(vm.frames) == vm._base:
        vm.done = ("return", value)
    else:
        vm.frames[-1].stack.append(value)


@_op
def RETURN_GENERATOR(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(None)


@_op
def YIELD_VALUE(vm: Interpreter, f: Frame, arg: Any) -> None:
    value = f.stack.pop()
    vm.frames.pop()
    vm.done = ("yield", value)


@_op
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


@_op
def END_SEND(vm: Interpreter, f: Frame, arg: Any) -> None:
    del f.stack[-2]


@_op
def CLEANUP_THROW(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack[-1]
    if isinstance(error, StopIteration):
        del f.stack[-3:]
        f.stack += (None, error.value)
    else:
        raise error


# ---- exceptions and with


@_op
def RAISE_VARARGS(vm: Interpreter, f: Frame, count: int) -> None:
    if count == 0:
        if vm.handled is None:
            raise RuntimeError("No active exception to reraise")
        raise vm.handled
    cause = f.stack.pop() if count == 2 else NULL
    error = f.stack.pop()
    if isinstance(error, type):
        error = vm.operate(lambda: error())
    if not isinstance(error, BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if cause is not NULL:
        error.__cause__ = cause() if isinstance(cause, type) else cause
    if vm.handled is not None and vm.handled is not error and error.__context__ is None:
        error.__context__ = vm.handled
    raise error


@_op
def RERAISE(vm: Interpreter, f: Frame, depth: int) -> None:
    raise f.stack.pop()


@_op
def PUSH_EXC_INFO(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack.pop()
    f.stack += (vm.handled, error)
    vm.handled = error


@_op
def POP_EXCEPT(vm: Interpreter, f: Frame, arg: Any) -> None:
    vm.handled = f.stack.pop()


@_op
def CHECK_EXC_MATCH(vm: Interpreter, f: Frame, arg: Any) -> None:
    kinds = f.stack.pop()
    f.stack.append(vm.matches(f.stack[-1], kinds))


@_op
def STOPITERATION_ERROR(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack.pop()
    if isinstance(error, StopIteration):
        new = RuntimeError("generator raised StopIteration")
        new.__cause__ = new.__context__ = error
        error = new
    f.stack.append(error)


@_op
def BEFORE_WITH(vm: Interpreter, f: Frame, arg: Any) -> None:
    manager = f.stack.pop()
    kind = type(manager)
    if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
        raise TypeError(f"'{kind.__name__}' object does not support the context manager protocol")
    f.stack.append(vm.getattr(manager, "__exit__"))
    vm.push_call(f, vm.getattr(manager, "__enter__"), (), {})


@_op
def WITH_EXCEPT_START(vm: Interpreter, f: Frame, arg: Any) -> None:
    error = f.stack[-1]
    vm.push_call(f, f.stack[-4], (type(error), error, error.__traceback__), {})


# ---- match


@_op
def GET_LEN(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(len(f.stack[-1]))


@_op
def MATCH_SEQUENCE(vm: Interpreter, f: Frame, arg: Any) -> None:
    value = f.stack[-1]
    f.stack.append(isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes, bytearray)))


@_op
def MATCH_MAPPING(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(isinstance(f.stack[-1], collections.abc.Mapping))


@_op
def MATCH_KEYS(vm: Interpreter, f: Frame, arg: Any) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    found = all(vm.contains(subject, k) for k in keys)
    f.stack.append(tuple([vm.getitem(subject, k) for k in keys]) if found else None)


@_op
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
