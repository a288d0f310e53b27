"""LLVM IR functions written with Python's operators: `x + y * 8` emits the instructions, `with f.loop(0, n) as i:` the blocks.

Loop variables and everything assigned twice live in stack slots, which LLVM turns into registers (mem2reg).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Value:
    """An SSA value of a function. Operators work on i64 (with Python ints) and emit into the function."""

    __slots__ = ("f", "name", "type")

    def __init__(self, f: Function, name: str, type: str = "i64") -> None:
        self.f, self.name, self.type = f, name, type

    def __add__(self, other: Any) -> Value:
        return self.f.arithmetic("add nsw", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.f.arithmetic("sub nsw", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.f.arithmetic("sub nsw", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.f.arithmetic("mul nsw", self, other)

    def __floordiv__(self, other: Any) -> Value:
        return self.f.arithmetic("sdiv", self, other)

    def __mod__(self, other: Any) -> Value:
        return self.f.arithmetic("srem", self, other)

    def __and__(self, other: Any) -> Value:
        return self.f.arithmetic("and", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Any) -> Value:
        return self.f.compare("slt", self, other)

    def __le__(self, other: Any) -> Value:
        return self.f.compare("sle", self, other)

    def __gt__(self, other: Any) -> Value:
        return self.f.compare("sgt", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.f.compare("sge", self, other)

    def equals(self, other: Any) -> Value:
        return self.f.compare("eq", self, other)


class Variable:
    """A stack slot that is read with `get()` and written with `set()`."""

    def __init__(self, f: Function, type: str, start: Any) -> None:
        self.f, self.type = f, type
        self.slot = f.fresh()
        f.slots.append(f"  {self.slot} = alloca {type}")
        self.set(start)

    def get(self) -> Value:
        return self.f.op(f"load {self.type}, ptr {self.slot}", self.type)

    def set(self, value: Any) -> None:
        self.f.emit(f"store {self.type} {name_of(value)}, ptr {self.slot}")


def name_of(x: Any) -> str:
    return x.name if isinstance(x, Value) else str(x)


class Function:
    """One function's text. `parameters` are (type, name) pairs; `self.name` gives a parameter's value."""

    def __init__(self, name: str, parameters: list[tuple[str, str]], *, inline: bool = False, result: str = "void") -> None:
        self.name, self.count = name, 0
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.declared: set[str] = set()
        self.values = {n: Value(self, f"%{n}", t) for t, n in parameters}
        signature = ", ".join(f"{t} %{n}" for t, n in parameters)
        self.head = f"define internal {result} @{name}({signature}) {'alwaysinline' if inline else 'noinline'} nounwind {{"

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def op(self, line: str, type: str = "i64") -> Value:
        value = Value(self, self.fresh(), type)
        self.emit(f"{value.name} = {line}")
        return value

    # ---- integers

    def arithmetic(self, op: str, x: Any, y: Any) -> Value:
        return self.op(f"{op} i64 {name_of(x)}, {name_of(y)}")

    def compare(self, op: str, x: Any, y: Any) -> Value:
        return self.op(f"icmp {op} i64 {name_of(x)}, {name_of(y)}", "i1")

    def both(self, x: Value, y: Value) -> Value:
        return self.op(f"and i1 {x.name}, {y.name}", "i1")

    def negate(self, x: Value) -> Value:
        return self.op(f"xor i1 {x.name}, true", "i1")

    def select(self, condition: Value, x: Any, y: Any, type: str = "i64") -> Value:
        return self.op(f"select i1 {condition.name}, {type} {name_of(x)}, {type} {name_of(y)}", type)

    def min(self, x: Any, y: Any) -> Value:
        return self.call("llvm.smin.i64", "i64", ("i64", x), ("i64", y), declare=True)

    def max(self, x: Any, y: Any) -> Value:
        return self.call("llvm.smax.i64", "i64", ("i64", x), ("i64", y), declare=True)

    def ceil_div(self, x: Value, y: Any) -> Value:
        """x / y rounded up, for x >= 0."""
        return (x + y - 1) // y

    # ---- memory

    def at(self, pointer: Any, index: Any, type: str) -> Value:
        return self.op(f"getelementptr inbounds {type}, ptr {name_of(pointer)}, i64 {name_of(index)}", "ptr")

    def load(self, type: str, pointer: Value, align: int) -> Value:
        return self.op(f"load {type}, ptr {pointer.name}, align {align}", type)

    def store(self, value: Any, pointer: Value, align: int, type: str | None = None) -> None:
        self.emit(f"store {type or value.type} {name_of(value)}, ptr {pointer.name}, align {align}")

    def beyond(self, pointer: Value, count: Any) -> Value:
        """An address `count` bytes away, perhaps outside of what `pointer` points into; only `prefetch` may use it."""
        return self.op(f"getelementptr i8, ptr {pointer.name}, i64 {name_of(count)}", "ptr")

    def prefetch(self, pointer: Value) -> None:
        """Have memory that will be read brought to the cache."""
        self.call("llvm.prefetch.p0", "void", ("ptr", pointer), ("i32", 0), ("i32", 3), ("i32", 1), declare=True)

    def word(self, pointer: Value, index: Any) -> Value:
        """An element of an int64 array."""
        return self.load("i64", self.at(pointer, index, "i64"), 8)

    def opaque(self, number: int) -> Value:
        """A number that LLVM doesn't see: a loop of so many steps is not unrolled."""
        slot = self.variable(number).slot
        return self.op(f"load volatile i64, ptr {slot}")

    # ---- vectors

    def splat(self, x: Value, vector: str) -> Value:
        one = self.op(f"insertelement {vector} poison, {x.type} {x.name}, i32 0", vector)
        lanes = vector[1:].split()[0]
        return self.op(f"shufflevector {vector} {one.name}, {vector} poison, <{lanes} x i32> zeroinitializer", vector)

    def call(self, function: str | Value, result: str, *arguments: tuple[str, Any], declare: bool = False) -> Value:
        """`function` is a name, or an address."""
        if declare:
            self.declared.add(f"declare {result} @{function}({', '.join(t for t, _ in arguments)})")
        called = function.name if isinstance(function, Value) else f"@{function}"
        text = f"call {result} {called}({', '.join(f'{t} {name_of(v)}' for t, v in arguments)})"
        if result == "void":
            self.emit(text)
            return Value(self, "", "void")
        return self.op(text, result)

    # ---- blocks

    def array(self, count: int, type: str) -> Value:
        """Memory of the function's own, aligned to 64 bytes."""
        slot = self.fresh()
        self.slots.append(f"  {slot} = alloca [{count} x {type}], align 64")
        return Value(self, slot, "ptr")

    def variable(self, start: Any, type: str = "i64") -> Variable:
        return Variable(self, type, start)

    def label(self, name: str) -> None:
        self.lines.append(f"{name[1:]}:")

    def branch(self, target: str) -> None:
        self.emit(f"br label {target}")

    @contextmanager
    def loop(self, start: Any, stop: Any, step: Any = 1) -> Iterator[Value]:
        """for i in range(start, stop, step)"""
        index = self.variable(start)
        with self.repeat(lambda: index.get() < stop):
            i = index.get()
            yield i
            index.set(i + step)

    @contextmanager
    def repeat(self, condition: Callable[[], Value]) -> Iterator[None]:
        """while condition()"""
        head, body, done = (self.fresh() + s for s in (".head", ".body", ".done"))
        self.branch(head)
        self.label(head)
        self.emit(f"br i1 {condition().name}, label {body}, label {done}")
        self.label(body)
        yield
        self.branch(head)
        self.label(done)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        yes, done = self.fresh() + ".yes", self.fresh() + ".done"
        self.emit(f"br i1 {condition.name}, label {yes}, label {done}")
        self.label(yes)
        yield
        self.branch(done)
        self.label(done)

    def choose(self, condition: Value, yes: Callable[[], Any], no: Callable[[], Any]) -> None:
        """if condition: yes() else: no()"""
        then, other, done = (self.fresh() + s for s in (".then", ".else", ".done"))
        self.emit(f"br i1 {condition.name}, label {then}, label {other}")
        for label, emit in ((then, yes), (other, no)):
            self.label(label)
            emit()
            self.branch(done)
        self.label(done)

    def text(self) -> str:
        return "\n".join([self.head, "entry:", *self.slots, *self.lines, "  ret void", "}"]) + "\n"


def module(*functions: Function) -> str:
    """The functions with what they declare; `body`, which the entry calls, is one of them."""
    declared = sorted(set().union(*(f.declared for f in functions)))
    return "\n".join([*declared, *(f.text() for f in functions)])
