"""Kernels over columns: what tocha.inductor.rows does with rows, along any dimension but the last.

An array is seen as (outer, n, inner), contiguous. A unit of work is a block of columns side by side in one outer slice: each statement about
a row becomes a loop over the block, and what a row keeps in a variable a block keeps in a small buffer. So loops run along memory.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    FLOATS,
    Binary,
    Buffer,
    Const,
    Expr,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Param,
    Size,
    Statement,
    Store,
    compare,
    const,
    convert,
    select,
    verify,
)  # fmt: skip
from tocha.inductor.pointwise import Renamer
from tocha.inductor.reduce import START
from tocha.inductor.rows import Each, Row

COLUMNS = 256  # side by side in one unit
_ROWS = 16  # a float32 sum runs over
_ZERO = Const(0, "index")
_I, _C = Index("i"), Index("c")  # the element's place in its column and the column's in the block, until a loop gives them names


class Columns(Row):
    """The statements for one block of columns."""

    def __init__(self, buffers: dict[str, str], compute: str) -> None:
        super().__init__(buffers, compute)
        n, inner, unit = Size("n"), Size("inner"), Index("unit")
        outer, block = Binary("div", unit, Size("blocks")), Binary("rem", unit, Size("blocks"))
        self.width = Binary("min", inner - block * COLUMNS, Const(COLUMNS, "index"))
        self.column = outer * inner + block * COLUMNS + _C  # among all columns
        self.start = outer * n * inner + block * COLUMNS + _C

    def load(self, name: str, j: Expr, whole: bool = True) -> Expr:
        return self.loaded(name, self.start + j * Size("inner") if whole else j)

    def per_row(self, name: str) -> Expr:
        return self.loaded(name, self.column)

    def whole(self, name: str) -> Expr:
        return Load(name, self.column, self.buffers[name])

    def put_row(self, name: str, value: Expr) -> None:
        self.statements.append(self._across(Store(name, self.column, convert(value, self.buffers[name]))))

    def let(self, name: str, value: Expr) -> Expr:
        self.statements += [Local(name, value.type, COLUMNS), self._across(Store(name, _C, value))]
        return Load(name, _C, value.type)

    def each(self, out: str, value: Each) -> None:
        self.statements.append(
            self._down(_ZERO, Size("n"), Store(out, self.start + _I * Size("inner"), convert(value(_I), self.buffers[out])))
        )

    def sums(self, *values: Each, out: str | None = None, kept: Each | None = None) -> list[Expr]:
        number = self.loops
        names = [f"sum{number}_{i}" for i in range(len(values))]
        computed = [v(_I) for v in values]
        self.statements += [Local(f"{n}_small", self.compute, COLUMNS) for n in names] + [Local(n, "f64", COLUMNS) for n in names]
        small = [Load(f"{n}_small", _C, self.compute) for n in names]
        added = [Store(f"{n}_small", _C, s + v) for n, s, v in zip(names, small, computed, strict=True)]
        if out is not None:
            value = computed[0] if kept is None else kept(_I)
            added.append(Store(out, self.start + _I * Size("inner"), convert(value, self.buffers[out])))
        block = Index(f"block{number}")
        start = block * _ROWS
        count = Binary("div", Size("n") + (_ROWS - 1), Const(_ROWS, "index"))
        clear, total = self._across(*[Store(n, _C, const(0, "f64")) for n in names]), [Load(n, _C, "f64") for n in names]
        self.statements += [clear, Loop(block.name, _ZERO, count, (
            self._across(*[Store(f"{n}_small", _C, const(0, self.compute)) for n in names]),
            self._down(start, Binary("min", start + _ROWS, Size("n")), *added),
            self._across(*[Store(n, _C, t + convert(s, "f64")) for n, t, s in zip(names, total, small, strict=True)]),
        ))]  # fmt: skip
        return list(total)

    def max(self, value: Each) -> Expr:
        name = f"max{self.loops}"
        top = Load(name, _C, self.compute)
        self.statements += [
            Local(name, self.compute, COLUMNS), self._across(Store(name, _C, START["max"](self.compute))),
            self._down(_ZERO, Size("n"), Store(name, _C, Binary("max", top, value(_I)))),
        ]  # fmt: skip
        return top

    def _across(self, *body: Statement) -> Statement:
        """A loop over the block."""
        c = self._index()
        return Loop(c.name, _ZERO, self.width, _renamed(body, _C, c), "vector")

    def _down(self, start: Expr, stop: Expr, *body: Statement) -> Statement:
        """A loop over the columns' elements."""
        i = self._index()
        return Loop(i.name, start, stop, _renamed((self._across(*body),), _I, i))

    def kernel(self, name: str, params: tuple[Param, ...] = (), sizes: tuple[str, ...] = ()) -> Kernel:
        body = (Loop("unit", Size("lo"), Size("hi"), tuple(self.statements)),)
        every = tuple(map(Size, ("n", "inner", "blocks", *sizes)))
        made = Kernel(f"{name}_columns", tuple(Buffer(n, t) for n, t in self.buffers.items()), params, every, body)
        verify(made)
        return made


def _renamed(body: tuple[Statement, ...], old: Index, new: Index) -> tuple[Statement, ...]:
    rename = Renamer({old: new})
    return tuple(rename(s) for s in body)


def argmax(type: str, sign: int) -> Kernel:
    """The largest (sign -1: smallest) value of each column and the first index that has it; NaN counts as largest and as smallest."""
    compute = "f32" if type in ("f16", "bf16") else type
    block = Columns({"values": type, "indices": "i64", "x": type}, compute)
    top, first = block.let("top", block.load("x", _ZERO)), block.let("first", const(0, "i32"))
    value = block.load("x", _I)
    better = compare("gt" if sign > 0 else "lt", value, top)
    if compute in FLOATS:
        better = better | (compare("ne", value, value) & compare("eq", top, top))
    i = convert(_I, "i32")
    block.statements += [
        block._down(
            Const(1, "index"),
            Size("n"),
            Store("first", _C, select(better, i, first)),
            Store("top", _C, select(better, value, top)),
        )
    ]
    block.put_row("values", top)
    block.put_row("indices", first)
    return block.kernel("argmax" if sign > 0 else "argmin")
