"""Loop IR: what a kernel does, as plain data.

    kernel    ::= Kernel(name, buffers, params, sizes, body, finish)     body runs for units lo ≤ unit < hi, finish once at the end
    buffer    ::= Buffer(name, type)
    statement ::= Loop(index, start, stop, body, kind)                   kind "vector": iterations are independent, or "serial"
                | Store(buffer, offset, value)
                | Prefetch(buffer, offset, type)                         a hint, which may point anywhere
                | Declare(name, type, value)                             a variable of the enclosing block
                | Assign(name, value)
                | Accumulate(op, name, value)                            name = op(name, value), in any order if it is a float sum
                | Local(name, type, count)                               a small buffer on the stack
                | If(condition, body)
    expr      ::= Const(value, type) | Param(name, type) | Size(name) | Index(name)
                | Load(buffer, offset, type) | Read(name, type)
                | Unary(op, x) | Binary(op, x, y) | Fma(x, y, z) | Compare(op, x, y) | Select(condition, x, y)
                | Convert(x, type) | Bitcast(x, type) | Call(function, arguments, type)
    type      ::= index | bool | i8 … i64 | u8 … u64 | f16 | bf16 | f32 | f64

Offsets are in elements. `lo`, `hi` and `units` are sizes that every kernel has. f16 and bf16 exist in memory only: they are
loaded, converted and computed with as f32. Nodes are immutable and interned: equal nodes are one object, so that expressions form a DAG. Constructors
check types; `verify` checks names. Expressions have Python's arithmetic operators, in which numbers are constants.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16")
TYPES = ("index", "bool", *INTEGERS, *FLOATS, *HALVES)
BITS = {"bool": 8, "index": 64, "bf16": 16, **{t: int(t[1:]) for t in (*INTEGERS, *FLOATS, "f16")}}

_ANY, _INTEGRAL, _FLOATING = (*INTEGERS, *FLOATS, "index"), (*INTEGERS, "index", "bool"), FLOATS
UNARY = {
    "neg": _ANY,
    "abs": _ANY,
    "sqrt": _FLOATING,
    "floor": _FLOATING,
    "ceil": _FLOATING,
    "rint": _FLOATING,
    "trunc": _FLOATING,
    "not": _INTEGRAL,
}
BINARY = {
    "add": _ANY, "sub": _ANY, "mul": _ANY, "div": _ANY, "rem": (*INTEGERS, "index"), "min": _ANY, "max": _ANY, "copysign": _FLOATING,
    "and": _INTEGRAL, "or": _INTEGRAL, "xor": _INTEGRAL, "shl": INTEGERS, "shr": INTEGERS,
}  # fmt: skip
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
ACCUMULATE = ("add", "mul", "min", "max", "and", "or")
BUILT_IN_SIZES = ("lo", "hi", "units")


class IRError(ValueError):
    """A node that the grammar doesn't allow."""


@dataclass_transform(frozen_default=True)
class _Interned(type):
    """Makes constructors return the existing node where there is an equal one."""

    _nodes: ClassVar[weakref.WeakValueDictionary[Any, Any]] = weakref.WeakValueDictionary()

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        cls = super().__new__(mcs, name, bases, body)
        return dataclass(frozen=True, eq=False, repr=False)(cls)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        node = super().__call__(*args, **kwargs)
        # repr tells 0.0 from -0.0 and finds NaN equal to itself.
        key = (cls, *[repr(v) if v.__class__ is float else v for v in node.__dict__.values()])
        return _Interned._nodes.setdefault(key, node)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise IRError(message)


class Node(metaclass=_Interned):
    """Anything in a kernel."""

    def children(self) -> Iterator[Node]:
        """The nodes directly below."""
        for value in self.__dict__.values():  # the fields
            for item in value if value.__class__ is tuple else (value,):
                if isinstance(item, Node):
                    yield item

    def __repr__(self) -> str:
        from tocha.inductor.text import show

        return show(self)


class Expr(Node):
    """A value. `type` is a field or derived from the operands."""

    if TYPE_CHECKING:

        @property
        def type(self) -> str: ...

    def __add__(self, other: Any) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return binary("div", other, self)

    def __and__(self, other: Any) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: Any) -> Expr:
        return binary("or", self, other)

    def __xor__(self, other: Any) -> Expr:
        return binary("xor", self, other)

    def __lshift__(self, other: Any) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: Any) -> Expr:
        return binary("shr", self, other)

    def __lt__(self, other: Any) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return compare("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return compare("ge", self, other)

    def __neg__(self) -> Expr:
        return Unary("neg", self)

    def __abs__(self) -> Expr:
        return Unary("abs", self)


class _LikeOperand(Expr):
    if not TYPE_CHECKING:
        type = property(lambda self: self.x.type)


class _Offset(Expr):
    if not TYPE_CHECKING:
        type = property(lambda self: "index")


class Const(Expr):
    value: int | float | bool
    type: str

    def __post_init__(self) -> None:
        wanted = float if self.type in FLOATS else bool if self.type == "bool" else int
        _check(self.type in TYPES and self.type not in HALVES, f"constant of type {self.type}")
        _check(self.value.__class__ is wanted, f"{self.value!r} is not a {self.type} constant")
        if wanted is int:
            bits, signed = BITS[self.type], self.type[0] != "u"
            low = -(1 << (bits - 1)) if signed else 0
            _check(low <= self.value < low + (1 << bits), f"{self.value} doesn't fit {self.type}")


class Param(Expr):
    """A scalar argument of the kernel."""

    name: str
    type: str

    def __post_init__(self) -> None:
        _check(self.type in TYPES and self.type not in HALVES, f"parameter of type {self.type}")


class Size(_Offset):
    """An extent or stride, known when the kernel is called."""

    name: str


class Index(_Offset):
    """A loop's variable."""

    name: str


class Load(Expr):
    buffer: str
    offset: Expr
    type: str

    def __post_init__(self) -> None:
        _check(self.type in TYPES[1:], f"load of type {self.type}")
        _check(self.offset.type == "index", f"offset of type {self.offset.type}")


class Read(Expr):
    """A variable's value."""

    name: str
    type: str


class Unary(_LikeOperand):
    op: str
    x: Expr

    def __post_init__(self) -> None:
        _check(self.x.type in UNARY.get(self.op, ()), f"{self.op} of {self.x.type}")


class Binary(_LikeOperand):
    op: str
    x: Expr
    y: Expr

    def __post_init__(self) -> None:
        _check(self.x.type == self.y.type, f"{self.op} of {self.x.type} and {self.y.type}")
        _check(self.x.type in BINARY.get(self.op, ()), f"{self.op} of {self.x.type}")


class Fma(_LikeOperand):
    """x * y + z, rounded once where the CPU can."""

    x: Expr
    y: Expr
    z: Expr

    def __post_init__(self) -> None:
        _check(
            self.x.type == self.y.type == self.z.type and self.x.type in FLOATS,
            f"fma of {self.x.type}, {self.y.type}, {self.z.type}",
        )


class Compare(Expr):
    """A bool; comparisons with NaN are false, `ne` true."""

    op: str
    x: Expr
    y: Expr
    if not TYPE_CHECKING:
        type = property(lambda self: "bool")

    def __post_init__(self) -> None:
        _check(
            self.op in COMPARE and self.x.type == self.y.type and self.x.type not in HALVES,
            f"{self.op} of {self.x.type} and {self.y.type}",
        )


class Select(_LikeOperand):
    condition: Expr
    x: Expr
    y: Expr

    def __post_init__(self) -> None:
        _check(self.condition.type == "bool" and self.x.type == self.y.type, f"select of {self.x.type} and {self.y.type}")


class Convert(Expr):
    """The value as another type; floats outside an integer type's range give an unspecified integer."""

    x: Expr
    type: str

    def __post_init__(self) -> None:
        _check(self.type in TYPES and self.type != self.x.type, f"conversion of {self.x.type} to {self.type}")


class Bitcast(Expr):
    x: Expr
    type: str

    def __post_init__(self) -> None:
        _check(
            self.type in (*INTEGERS, *FLOATS) and BITS[self.type] == BITS[self.x.type], f"bits of {self.x.type} as {self.type}"
        )


class Call(Expr):
    """A function of the C library, the same for all its arguments' type."""

    function: str
    arguments: tuple[Expr, ...]
    type: str


class Statement(Node):
    """A step of a kernel."""


class Loop(Statement):
    index: str
    start: Expr
    stop: Expr
    body: tuple[Statement, ...]
    kind: str = "serial"

    def __post_init__(self) -> None:
        _check(self.start.type == self.stop.type == "index", f"loop over {self.start.type}")
        _check(self.kind in ("serial", "vector"), f"loop of kind {self.kind}")


class Store(Statement):
    buffer: str
    offset: Expr
    value: Expr

    def __post_init__(self) -> None:
        _check(self.offset.type == "index", f"offset of type {self.offset.type}")


class Prefetch(Statement):
    buffer: str
    offset: Expr
    type: str

    def __post_init__(self) -> None:
        _check(self.offset.type == "index", f"offset of type {self.offset.type}")


class Declare(Statement):
    name: str
    type: str
    value: Expr

    def __post_init__(self) -> None:
        _check(self.type == self.value.type, f"{self.name} of type {self.type} declared with {self.value.type}")


class Assign(Statement):
    name: str
    value: Expr


class Accumulate(Statement):
    op: str
    name: str
    value: Expr

    def __post_init__(self) -> None:
        _check(self.op in ACCUMULATE, f"accumulation with {self.op}")


class Local(Statement):
    name: str
    type: str
    count: int


class If(Statement):
    condition: Expr
    body: tuple[Statement, ...]

    def __post_init__(self) -> None:
        _check(self.condition.type == "bool", f"condition of type {self.condition.type}")


class Buffer(Node):
    name: str
    type: str

    def __post_init__(self) -> None:
        _check(self.type in TYPES[1:], f"buffer of type {self.type}")


class Kernel(Node):
    name: str
    buffers: tuple[Buffer, ...]
    params: tuple[Param, ...]
    sizes: tuple[Size, ...]
    body: tuple[Statement, ...]
    finish: tuple[Statement, ...] = ()


# ---- constructors that take Python numbers, and fold constants of integers


def const(value: Any, type: str) -> Const:
    """A number as a constant; integers wrap around."""
    if type in FLOATS:
        return Const(float(value), type)
    if type == "bool":
        return Const(bool(value), type)
    bits = BITS[type]
    value = int(value) & ((1 << bits) - 1)
    return Const(value - (1 << bits) if type[0] != "u" and value >> (bits - 1) else value, type)


def _pair(x: Any, y: Any) -> tuple[Expr, Expr]:
    if not isinstance(x, Expr):
        return const(x, y.type), y
    return x, y if isinstance(y, Expr) else const(y, x.type)


def binary(op: str, x: Any, y: Any) -> Expr:
    """x op y; sums and products of offsets with constants 0 and 1 are simplified."""
    x, y = _pair(x, y)
    if x.type == "index":
        zero, one = Const(0, "index"), Const(1, "index")
        if op == "add" and zero in (x, y):
            return y if x is zero else x
        if op == "mul" and (zero in (x, y) or one in (x, y)):
            return zero if zero in (x, y) else y if x is one else x
    return Binary(op, x, y)


def compare(op: str, x: Any, y: Any) -> Expr:
    x, y = _pair(x, y)
    return Compare(op, x, y)


def fma(x: Any, y: Any, z: Any) -> Expr:
    type = next(v.type for v in (x, y, z) if isinstance(v, Expr))
    return Fma(*[v if isinstance(v, Expr) else const(v, type) for v in (x, y, z)])


def select(condition: Expr, x: Any, y: Any) -> Expr:
    x, y = _pair(x, y)
    return Select(condition, x, y)


def convert(x: Expr, type: str) -> Expr:
    """x as `type`, x itself if it has it; constants convert at once, but extents (which `_inductor.varying` may have to find)."""
    if x.type == type:
        return x
    if x.__class__ is Const and x.type != "index" and type not in HALVES and not (x.type in FLOATS and type in INTEGERS):
        return const(x.value, type)
    return Convert(x, type)


# ---- checking


def walk(nodes: Iterable[Node], seen: set[Node] | None = None) -> Iterator[Node]:
    """Every node below and including `nodes`, each once, children first."""
    seen = set() if seen is None else seen
    stack: list[tuple[Node | None, Iterator[Node]]] = [(None, iter(nodes))]
    while stack:
        node, below = stack[-1]
        for child in below:
            if child not in seen:
                seen.add(child)
                stack.append((child, child.children()))
                break
        else:
            stack.pop()
            if node is not None:
                yield node


def verify(kernel: Kernel) -> None:
    """IRError unless every name in the kernel is defined once, in scope where used, and of the type it is used with."""
    names: dict[str, Any] = {}
    items: tuple[Buffer | Param | Size, ...] = (*kernel.buffers, *kernel.params, *kernel.sizes)
    for item in items:
        _check(item.name not in names and item.name not in BUILT_IN_SIZES, f"{kernel.name}: {item.name} is defined twice")
        names[item.name] = item
    for name in BUILT_IN_SIZES:
        names[name] = Size(name)
    for body in (kernel.body, kernel.finish):
        _verify_block(body, names)
        indices = [s.index for s in walk(body) if isinstance(s, Loop)]
        _check(len(indices) == len(set(indices)), f"{kernel.name}: an index is used by two loops")


def _verify_block(body: tuple[Statement, ...], names: dict[str, Any]) -> None:
    names = dict(names)
    for s in body:
        for child in s.children():
            if isinstance(child, Expr):
                _verify_expr(child, names)
        if isinstance(s, Loop):
            _check(s.index not in names, f"index {s.index} is defined twice")
            _verify_block(s.body, {**names, s.index: Index(s.index)})
        elif isinstance(s, If):
            _verify_block(s.body, names)
        elif isinstance(s, Declare):
            _check(s.name not in names, f"variable {s.name} is defined twice")
            names[s.name] = Read(s.name, s.type)
        elif isinstance(s, Local):
            _check(s.name not in names, f"buffer {s.name} is defined twice")
            names[s.name] = Buffer(s.name, s.type)
        elif isinstance(s, Store):
            buffer = names.get(s.buffer)
            _check(isinstance(buffer, Buffer) and buffer.type == s.value.type, f"store of {s.value.type} to {buffer or s.buffer}")
        elif isinstance(s, Prefetch):
            _check(names.get(s.buffer) is Buffer(s.buffer, s.type), f"prefetch of {s.type} from {names.get(s.buffer, s.buffer)}")
        elif isinstance(s, (Assign, Accumulate)):
            _check(names.get(s.name) is Read(s.name, s.value.type), f"{s.value.type} put in {names.get(s.name, s.name)}")


def _verify_expr(expr: Expr, names: dict[str, Any]) -> None:
    for node in walk([expr]):
        if isinstance(node, Load):
            _check(
                names.get(node.buffer) is Buffer(node.buffer, node.type),
                f"load of {node.type} from {names.get(node.buffer, node.buffer)}",
            )
        elif isinstance(node, (Param, Size, Index, Read)):
            _check(names.get(node.name) is node, f"{node.name} is not in scope as {node.__class__.__name__}")
