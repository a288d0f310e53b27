"""Instructions on values (variables, attributes, operators, building): what each does to a frame, by the interpreter's operations."""

from __future__ import annotations

import builtins
import operator
import types
from typing import Any

from tocha._dynamo.bytecode import VERSION
from tocha._dynamo.frame import NULL, Frame
from tocha._dynamo.interpreter import BINARY, COMPARE, Interpreter, op

# ---- variables


@op
def LOAD_FAST(vm: Interpreter, f: Frame, name: str) -> None:
    if name not in f.local:
        raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    f.stack.append(vm.load_local(f, name))


@op
def LOAD_FAST_AND_CLEAR(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(f.local.pop(name, NULL))


@op
def STORE_FAST(vm: Interpreter, f: Frame, name: str) -> None:
    value = f.stack.pop()
    if value is NULL:
        f.local.pop(name, None)
    else:
        f.local[name] = value


@op
def DELETE_FAST(vm: Interpreter, f: Frame, name: str) -> None:
    if name not in f.local:
        raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    del f.local[name]


@op
def LOAD_CONST(vm: Interpreter, f: Frame, value: Any) -> None:
    f.stack.append(value)


@op
def LOAD_GLOBAL(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(vm.load_global(f, name))


@op
def STORE_GLOBAL(vm: Interpreter, f: Frame, name: str) -> None:
    vm.store_global(f, name, f.stack.pop())


@op
def DELETE_GLOBAL(vm: Interpreter, f: Frame, name: str) -> None:
    vm.delete_global(f, name)


@op
def MAKE_CELL(vm: Interpreter, f: Frame, name: str) -> None:
    f.local[name] = types.CellType(vm.load_local(f, name)) if name in f.local else types.CellType()


@op
def LOAD_DEREF(vm: Interpreter, f: Frame, name: str) -> None:
    try:
        f.stack.append(vm.cell_get(vm.load_local(f, name)))
    except ValueError:
        raise NameError(
            f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
        ) from None


@op
def STORE_DEREF(vm: Interpreter, f: Frame, name: str) -> None:
    vm.cell_set(vm.load_local(f, name), f.stack.pop())


@op
def DELETE_DEREF(vm: Interpreter, f: Frame, name: str) -> None:
    vm.cell_clear(vm.load_local(f, name))


@op
def LOAD_ASSERTION_ERROR(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(AssertionError)


@op
def LOAD_BUILD_CLASS(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(builtins.__build_class__)


@op
def IMPORT_NAME(vm: Interpreter, f: Frame, name: str) -> None:
    fromlist, level = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.import_name(f, name, fromlist, level))


@op
def IMPORT_FROM(vm: Interpreter, f: Frame, name: str) -> None:
    try:
        f.stack.append(vm.getattr(f.stack[-1], name))
    except AttributeError:
        raise ImportError(f"cannot import name {name!r} from {f.stack[-1].__name__!r}") from None


# ---- attributes and items


@op
def LOAD_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(vm.getattr(f.stack.pop(), name))


@op
def LOAD_METHOD(vm: Interpreter, f: Frame, name: str) -> None:
    f.stack.append(vm.getattr(f.stack.pop(), name))
    AS_METHOD(vm, f, None)


@op
def AS_METHOD(vm: Interpreter, f: Frame, arg: Any) -> None:
    """The slot beside a method that a call expects."""
    method = f.stack.pop()
    f.stack += (NULL, method) if VERSION < (3, 13) else (method, NULL)


@op
def STORE_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    obj, value = f.stack.pop(), f.stack.pop()
    vm.setattr(obj, name, value)


@op
def DELETE_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    vm.delattr(f.stack.pop(), name)


@op
def LOAD_SUPER_ATTR(vm: Interpreter, f: Frame, name: str) -> None:
    obj, cls, sup = f.stack.pop(), f.stack.pop(), f.stack.pop()
    f.stack.append(vm.load_super(sup, cls, obj, name))


@op
def BINARY_SUBSCR(vm: Interpreter, f: Frame, arg: Any) -> None:
    key, obj = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.getitem(obj, key))


@op
def BINARY_SLICE(vm: Interpreter, f: Frame, arg: Any) -> None:
    stop, start, obj = f.stack.pop(), f.stack.pop(), f.stack.pop()
    f.stack.append(vm.getitem(obj, slice(start, stop)))


@op
def STORE_SUBSCR(vm: Interpreter, f: Frame, arg: Any) -> None:
    key, obj, value = f.stack.pop(), f.stack.pop(), f.stack.pop()
    vm.setitem(obj, key, value)


@op
def STORE_SLICE(vm: Interpreter, f: Frame, arg: Any) -> None:
    stop, start, obj, value = f.stack.pop(), f.stack.pop(), f.stack.pop(), f.stack.pop()
    vm.setitem(obj, slice(start, stop), value)


@op
def DELETE_SUBSCR(vm: Interpreter, f: Frame, arg: Any) -> None:
    key, obj = f.stack.pop(), f.stack.pop()
    vm.delitem(obj, key)


# ---- operators


@op
def BINARY_OP(vm: Interpreter, f: Frame, symbol: str) -> None:
    b, a = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.operate(BINARY[symbol], a, b))


@op
def COMPARE_OP(vm: Interpreter, f: Frame, symbol: str) -> None:
    b, a = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.operate(COMPARE[symbol], a, b))


@op
def UNARY_NEGATIVE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.operate(operator.neg, f.stack.pop()))


@op
def UNARY_POSITIVE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.operate(operator.pos, f.stack.pop()))


@op
def UNARY_INVERT(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.operate(operator.invert, f.stack.pop()))


@op
def UNARY_NOT(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(not vm.truth(f.stack.pop()))


@op
def IS_OP(vm: Interpreter, f: Frame, inverted: int) -> None:
    b, a = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.same(a, b) is not bool(inverted))


@op
def CONTAINS_OP(vm: Interpreter, f: Frame, inverted: int) -> None:
    container, item = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.contains(container, item) is not bool(inverted))


# ---- building


def popped(f: Frame, count: int) -> list[Any]:
    """The topmost values, taken off."""
    at = len(f.stack) - count
    values = f.stack[at:]
    del f.stack[at:]
    return values


@op
def BUILD_TUPLE(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(tuple(popped(f, count)))


@op
def BUILD_LIST(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(popped(f, count))


@op
def BUILD_SET(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(set(popped(f, count)))


@op
def BUILD_MAP(vm: Interpreter, f: Frame, count: int) -> None:
    items = popped(f, 2 * count)
    f.stack.append(dict(zip(items[::2], items[1::2], strict=True)))


@op
def BUILD_CONST_KEY_MAP(vm: Interpreter, f: Frame, count: int) -> None:
    keys = f.stack.pop()
    f.stack.append(dict(zip(keys, popped(f, count), strict=True)))


@op
def BUILD_SLICE(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append(slice(*popped(f, count)))


@op
def BUILD_STRING(vm: Interpreter, f: Frame, count: int) -> None:
    f.stack.append("".join(popped(f, count)))


@op
def LIST_APPEND(vm: Interpreter, f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].append(value)


@op
def SET_ADD(vm: Interpreter, f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].add(value)


@op
def MAP_ADD(vm: Interpreter, f: Frame, depth: int) -> None:
    value, key = f.stack.pop(), f.stack.pop()
    f.stack[-depth][key] = value


@op
def LIST_EXTEND(vm: Interpreter, f: Frame, depth: int) -> None:
    value = f.stack.pop()
    try:
        values = vm.listed(value)
    except TypeError as error:
        if hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__"):
            raise
        raise TypeError(f"Value after * must be an iterable, not {type(value).__name__}") from error
    f.stack[-depth].extend(values)


@op
def SET_UPDATE(vm: Interpreter, f: Frame, depth: int) -> None:
    values = vm.listed(f.stack.pop())
    f.stack[-depth].update(values)


@op
def DICT_UPDATE(vm: Interpreter, f: Frame, depth: int) -> None:
    added = vm.mapping(f.stack.pop())
    f.stack[-depth].update(added)


@op
def DICT_MERGE(vm: Interpreter, f: Frame, depth: int) -> None:
    added = vm.mapping(f.stack.pop())
    into = f.stack[-depth]
    for key in added:
        if key in into:
            raise TypeError(f"got multiple values for keyword argument '{key}'")
    into.update(added)


@op
def LIST_TO_TUPLE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(tuple(f.stack.pop()))


@op
def UNPACK_SEQUENCE(vm: Interpreter, f: Frame, count: int) -> None:
    values = vm.listed(f.stack.pop())
    if len(values) > count:
        raise ValueError(f"too many values to unpack (expected {count})")
    if len(values) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(values)})")
    f.stack += values[::-1]


@op
def UNPACK_EX(vm: Interpreter, f: Frame, counts: int) -> None:
    before, after = counts & 0xFF, counts >> 8
    values = vm.listed(f.stack.pop())
    if len(values) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(values)})")
    end = len(values) - after
    f.stack += [*values[:before], values[before:end], *values[end:]][::-1]


@op
def FORMAT_VALUE(vm: Interpreter, f: Frame, flags: int) -> None:
    spec = f.stack.pop() if flags & 4 else ""
    value = f.stack.pop()
    f.stack.append(vm.format(vm.convert(flags & 3, value) if flags & 3 else value, spec))


@op
def FORMAT_SIMPLE(vm: Interpreter, f: Frame, arg: Any) -> None:
    f.stack.append(vm.format(f.stack.pop(), ""))


@op
def FORMAT_WITH_SPEC(vm: Interpreter, f: Frame, arg: Any) -> None:
    spec, value = f.stack.pop(), f.stack.pop()
    f.stack.append(vm.format(value, spec))


@op
def CONVERT_VALUE(vm: Interpreter, f: Frame, how: int) -> None:
    f.stack.append(vm.convert(how, f.stack.pop()))
