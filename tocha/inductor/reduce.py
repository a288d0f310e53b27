"""Kernels of reductions over any dimensions.

Dimensions are sorted by memory order and merged, kept and reduced ones apart. If the fastest dimension is reduced, a unit of work is one
result and the loop runs along the row; otherwise a unit is a block of results and the loop runs along the columns side by side.
Where there are too few units for the threads, the reduced range is cut in chunks, by size alone, so that the result is the same
for any number of threads: units then write partial results, which `finish` puts together.

Sums of float32 (and half types) are made in blocks, and the blocks' sums added in float64: the error doesn't grow with the number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tocha.inductor.layout import Shape, memory_order, merge
from tocha.inductor.loop_ir import (
    BITS,
    FLOATS,
    HALVES,
    Accumulate,
    Assign,
    Binary,
    Buffer,
    Const,
    Convert,
    Declare,
    Expr,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Read,
    Size,
    Statement,
    Store,
    Unary,
    compare,
    const,
    convert,
    verify,
)  # fmt: skip
from tocha.inductor.lower import Unsupported, trace

COLUMNS = 256  # results side by side in one unit
_BLOCK, _ROWS = 1024, 16  # elements a float32 sum runs over, along a row and down a column
_PIECE = 32768  # elements worth a thread's while
_MOST_CHUNKS = 256

ZERO, ONE = Const(0, "index"), Const(1, "index")


class Kind(NamedTuple):
    """`element` of the loaded values is accumulated with `op` in type `wide(type)`; `end` makes the result of that and the count."""

    op: str
    element: Callable[..., Expr]
    wide: Callable[[str], str] = lambda type: "f64" if type in FLOATS else type
    end: Callable[[Expr, Expr], Expr] = lambda total, count: total


def _same(type: str) -> str:
    return type


def _flag(type: str) -> str:
    return "i32"


def _true(x: Expr) -> Expr:
    return convert(x if x.type == "bool" else compare("ne", x, 0), "i32")


def _total(total: Expr, count: Expr) -> Expr:
    """A sum from 0 on, which is never -0: LLVM may have left out the 0."""
    return total + const(0, total.type) if total.type in FLOATS else total


def _mean(total: Expr, count: Expr) -> Expr:
    return _total(total, count) / convert(count, "f64")


def _square(x: Expr) -> Expr:
    return x * x


def _normal(g: Expr, x: Expr, middle: Expr, scale: Expr) -> Expr:
    return g * ((x - middle) * scale)


def _apart(x: Expr, middle: Expr) -> Expr:
    return (x - middle) * (x - middle)


KINDS: dict[str, Kind] = {
    "sum": Kind("add", lambda x: x, end=_total),
    "mean": Kind("add", lambda x: x, end=_mean),
    "prod": Kind("mul", lambda x: convert(x, "f64") if x.type == "f32" else x),
    "amax": Kind("max", lambda x: x, _same),
    "amin": Kind("min", lambda x: x, _same),
    "any": Kind("or", _true, _flag),
    "all": Kind("and", _true, _flag),
    "count_nonzero": Kind("add", lambda x: convert(_true(x), "i64")),
    "square_sum": Kind("add", _square),
    "norm": Kind("add", _square, end=lambda total, count: Unary("sqrt", total)),
    "abs_sum": Kind("add", abs),
    "abs_max": Kind("max", abs, _same),
    "not_finite": Kind("add", lambda x: x * 0),  # NaN if an element isn't finite
    "apart_sum": Kind("add", _apart),
    "apart_mean": Kind("add", _apart, end=lambda total, count: total / convert(count, "f64")),
    "normal_sum": Kind("add", _normal),
    "weighted_sum": Kind("add", lambda g, weight: g * weight),
    "weighted_normal_sum": Kind("add", lambda g, weight, x, middle, scale: g * weight * ((x - middle) * scale)),
}
START: dict[str, Callable[[str], Expr]] = {
    "add": lambda type: const(0, type), "mul": lambda type: const(1, type), "or": lambda type: const(0, type), "and": lambda type: const(-1, type),
    "max": lambda type: _limit(type, -1), "min": lambda type: _limit(type, 1),
}  # fmt: skip


def sum_of(rule: Callable[..., Any]) -> Kind:
    """The sum of what a scalar rule makes of the operands."""

    def element(*operands: Expr) -> Expr:
        value, run = trace(rule, list(operands), {})
        if run.hard or run.guards:
            raise Unsupported("a rule that isn't computed in one go")
        return value

    return Kind("add", element)


def _limit(type: str, sign: int) -> Expr:
    if type in FLOATS:
        return Const(sign * math.inf, type)
    bits = BITS[type]
    if type[0] == "u":
        return const(0 if sign < 0 else (1 << bits) - 1, type)
    return const(-(1 << (bits - 1)) if sign < 0 else (1 << (bits - 1)) - 1, type)


class Plan(NamedTuple):
    """What a reduction of certain strides needs: the kernel's key, its work array, and the length of the partial results."""

    key: tuple[Any, ...]
    work: Any
    partial: int


def plan(shape: Shape, strides: list[Shape], out: Shape, dims: Shape) -> Plan | None:
    """`strides` of the operands and `out` of the result (0 in reduced dimensions), in elements; None where NumPy is as good."""
    order = memory_order(shape, strides)
    kept = merge(shape, [out, *strides], tuple(d for d in order if d not in dims and shape[d] != 1))
    reduced = merge(shape, [out, *strides], tuple(d for d in order if d in dims and shape[d] != 1))
    size, count = math.prod(shape), math.prod(reduced.shape)
    if count < 4 or size == 0:
        return None
    results = size // count
    columns = results > 1 and kept.strides[1][-1] < reduced.strides[1][-1]
    if not columns and reduced.shape[-1] < 16:
        return None
    units = results
    blocks = 1
    if columns:
        blocks = -(-kept.shape[-1] // COLUMNS)
        units = results // kept.shape[-1] * blocks
    chunks, first = 1, reduced.shape[0]
    if units < 16 and size > 2 * _PIECE:
        chunks = max(1, min(_MOST_CHUNKS, size // units // _PIECE, first))
    length = -(-first // chunks)
    if len(reduced.shape) == 1 and not columns and chunks > 1:
        length = -(-length // _BLOCK) * _BLOCK
    chunks = -(-first // length)
    units *= chunks
    sizes = [*kept.shape, *reduced.shape, blocks, length, chunks, count]
    for k, r in zip(kept.strides, reduced.strides, strict=True):
        sizes += [*k, *r]
    inner = "".join(str(s) if s in (0, 1) else "n" for s in (a[-1] for a in (kept if columns else reduced).strides))
    short = not columns and len(reduced.shape) == 1 and reduced.shape[0] <= _BLOCK and chunks == 1
    key = (columns, len(kept.shape), len(reduced.shape), inner, chunks > 1, short)
    work = np.array([units, max(1, _PIECE * units // size), *sizes], np.int64)
    return Plan(key, work, 0 if chunks == 1 else units * (COLUMNS if columns else 1))


def make(name: str, types: tuple[str, ...], compute: str, out: str, key: tuple[Any, ...]) -> Kernel:
    """The kernel for operands of `types`, whose elements are computed with in type `compute`."""
    return make_kind(name, KINDS[name], types, compute, out, key)


def make_kind(name: str, kind: Kind, types: tuple[str, ...], compute: str | None, out: str, key: tuple[Any, ...]) -> Kernel:
    """The kernel of any kind. Without `compute` its `element` gets the loaded values in their own types (halves as f32)."""
    kernel = _Builder(kind, types, compute, out, *key).kernel(name)
    verify(kernel)
    return kernel


def chunks(name: str, type: str, length: int) -> Kernel:
    """The kernel that reduces an array of one dimension, `length` elements a unit, to partial results of its second buffer's type."""
    builder = _Builder(KINDS[name], (type,), "f32" if type in HALVES else type, "f64", False, 0, 1, "11", True)
    unit = Index("unit")
    start = unit * length
    body = (Loop("unit", Size("lo"), Size("hi"), builder.along(unit, [], start, Binary("min", start + length, Size("r0")))),)
    kernel = Kernel(name, (*builder.operands, Buffer("partial", builder.wide)), (), (Size("r0"),), body)
    verify(kernel)
    return kernel


class _Builder:
    def __init__(
        self,
        kind: Kind,
        types: tuple[str, ...],
        compute: str | None,
        out: str,
        columns: bool,
        kept: int,
        reduced: int,
        inner: str,
        split: bool,
        short: bool = False,
    ) -> None:
        self.kind, self.out, self.compute, self.columns, self.split, self.inner = kind, out, compute, columns, split, inner
        self.short = short  # rows are one block
        self.operands = [Buffer(f"x{i}", t) for i, t in enumerate(types)]
        self.kept, self.reduced = kept, reduced
        sample = kind.element(*[Read(f"_{i}", compute or ("f32" if t in HALVES else t)) for i, t in enumerate(types)])
        self.small = sample.type
        self.wide = kind.wide(sample.type)
        if self.small not in (*FLOATS, "bool") and kind.op in ("add", "mul") and self.small != out:
            raise Unsupported(f"a sum of {self.small} as {out}")
        if self.small == "bool" or (kind.op == "mul" and self.small not in FLOATS and self.small != "i64"):
            raise Unsupported(f"{kind.op} of {self.small}")

    # ---- offsets

    def kernel(self, name: str) -> Kernel:
        sizes = (
            [f"k{d}" for d in range(self.kept)] + [f"r{d}" for d in range(self.reduced)] + ["blocks", "length", "chunks", "count"]
        )
        for a in range(len(self.operands) + 1):
            sizes += [f"s{a}_k{d}" for d in range(self.kept)] + [f"s{a}_r{d}" for d in range(self.reduced)]
        buffers = [Buffer("out", self.out), *self.operands]
        if self.split:
            buffers.append(Buffer("partial", self.wide))
        body = (Loop("unit", Size("lo"), Size("hi"), self.unit(Index("unit"))),)
        finish: tuple[Statement, ...] = ()
        if self.split:
            group = Index("group")
            whole = Binary("div", Size("units"), Size("chunks"))
            finish = (Loop("group", ZERO, whole, self.gather(group)),)
        return Kernel(name, tuple(buffers), (), tuple(map(Size, sizes)), body, finish)

    def places(self, group: Expr) -> tuple[list[Expr], Expr]:
        """Indices of the outer kept dimensions of a group of results, and the first column."""
        last = self.kept - 1 if self.columns else self.kept
        rest = Binary("div", group, Size("blocks")) if self.columns else group
        found: list[Expr] = []
        for d in range(last - 1, -1, -1):
            found.insert(0, rest if d == 0 else Binary("rem", rest, Size(f"k{d}")))
            rest = Binary("div", rest, Size(f"k{d}"))
        return found, Binary("rem", group, Size("blocks")) * COLUMNS if self.columns else ZERO

    def base(self, array: int, outer: list[Expr]) -> Expr:
        offset: Expr = ZERO
        for d, position in enumerate(outer):
            offset = offset + position * Size(f"s{array}_k{d}")
        return offset

    def step(self, array: int) -> Expr:
        kind = self.inner[array]
        if kind != "n":
            return Const(int(kind), "index")
        return Size(f"s{array}_k{self.kept - 1}" if self.columns else f"s{array}_r{self.reduced - 1}")

    def element(self, outer: list[Expr], column: Expr, row: list[Expr]) -> Expr:
        values = []
        for a, buffer in enumerate(self.operands, 1):
            offset = self.base(a, outer)
            along = range(self.reduced if self.columns else self.reduced - 1)
            for d in along:
                offset = offset + row[d] * Size(f"s{a}_r{d}")
            offset = offset + (column if self.columns else row[-1]) * self.step(a)
            value: Expr = Load(buffer.name, offset, buffer.type)
            if buffer.type in HALVES:
                value = Convert(value, "f32")
            values.append(value if self.compute is None else convert(value, self.compute))
        return self.kind.element(*values)

    # ---- loops

    def unit(self, unit: Expr) -> tuple[Statement, ...]:
        group = Binary("div", unit, Size("chunks")) if self.split else unit
        start: Expr = ZERO
        stop: Expr = Size("r0")
        if self.split:
            start = Binary("rem", unit, Size("chunks")) * Size("length")
            stop = Binary("min", start + Size("length"), Size("r0"))
        outer, first = self.places(group)
        return self.down(unit, outer, first, start, stop) if self.columns else self.along(unit, outer, start, stop)

    def nest(
        self, start: Expr, stop: Expr, levels: int, inside: Callable[[list[Expr]], tuple[Statement, ...]]
    ) -> tuple[Statement, ...]:
        """Serial loops over the first `levels` reduced dimensions."""
        indices: list[Expr] = [Index(f"i{d}") for d in range(levels)]
        body = inside(indices)
        for d in range(levels - 1, -1, -1):
            low, high = (start, stop) if d == 0 else (ZERO, Size(f"r{d}"))
            body = (Loop(f"i{d}", low, high, body),)
        return body

    def along(self, unit: Expr, outer: list[Expr], start: Expr, stop: Expr) -> tuple[Statement, ...]:
        small, wide, op = self.small, self.wide, self.kind.op
        low, high = (start, stop) if self.reduced == 1 else (ZERO, Size(f"r{self.reduced - 1}"))

        def inside(row: list[Expr]) -> tuple[Statement, ...]:
            begin = low + Index("block") * _BLOCK
            end = Binary("min", begin + _BLOCK, high)
            count = Binary("div", high - low + (_BLOCK - 1), Const(_BLOCK, "index"))
            element = self.element(outer, ZERO, [*row, Index("j")])
            return (
                Loop("block", ZERO, count, (
                    Assign("small", START[op](small)),
                    Loop("j", begin, end, (Accumulate(op, "small", element),), "vector"),
                    Accumulate(op, "total", convert(Read("small", small), wide)),
                )),
            )  # fmt: skip

        if small == wide and not (op == "add" and small in FLOATS):  # exact, whatever the order

            def inside(row: list[Expr]) -> tuple[Statement, ...]:
                return (Loop("j", low, high, (Accumulate(op, "total", self.element(outer, ZERO, [*row, Index("j")])),), "vector"),)

        if self.short:
            row = Loop("j", low, high, (Accumulate(op, "small", self.element(outer, ZERO, [Index("j")])),), "vector")
            put = Store("out", self.base(0, outer), self.result(convert(Read("small", small), wide)))
            return (
                Declare("small", small, START[op](small)),
                Assign("small", START[op](small)),
                row,
                put,
            )
        total: Expr = Read("total", wide)
        if self.split:
            end: Statement = Store("partial", unit, total)
        else:
            end = Store("out", self.base(0, outer), self.result(total))
        return (
            Declare("total", wide, START[op](wide)), Declare("small", small, START[op](small)), Assign("total", START[op](wide)),
            *self.nest(start, stop, self.reduced - 1, inside), end,
        )  # fmt: skip

    def down(self, unit: Expr, outer: list[Expr], first: Expr, start: Expr, stop: Expr) -> tuple[Statement, ...]:
        small, wide, op = self.small, self.wide, self.kind.op
        width = Binary("min", Size(f"k{self.kept - 1}") - first, Const(COLUMNS, "index"))

        def each(index: str, buffer: str, value: Callable[[Expr], Expr]) -> Statement:
            j = Index(index)
            return Loop(index, ZERO, width, (Store(buffer, j, value(j)),), "vector")

        def combined(buffer: str, type: str, j: Expr, value: Expr) -> Expr:
            return Binary(op, Load(buffer, j, type), value)

        low, high = (start, stop) if self.reduced == 1 else (ZERO, Size(f"r{self.reduced - 1}"))

        def inside(row: list[Expr]) -> tuple[Statement, ...]:
            begin = low + Index("block") * _ROWS
            end = Binary("min", begin + _ROWS, high)
            count = Binary("div", high - low + (_ROWS - 1), Const(_ROWS, "index"))
            add = each("j", "small", lambda j: combined("small", small, j, self.element(outer, first + j, [*row, Index("i")])))
            if small == wide and not (op == "add" and small in FLOATS):
                add = each("j", "total", lambda j: combined("total", wide, j, self.element(outer, first + j, [*row, Index("i")])))
                return (Loop("i", low, high, (add,)),)
            return (
                Loop("block", ZERO, count, (
                    each("j0", "small", lambda j: START[op](small)), Loop("i", begin, end, (add,)),
                    each("j1", "total", lambda j: combined("total", wide, j, convert(Load("small", j, small), wide))),
                )),
            )  # fmt: skip

        if self.split:
            last = Loop(
                "j3", ZERO, width, (Store("partial", unit * COLUMNS + Index("j3"), Load("total", Index("j3"), wide)),), "vector"
            )
        else:
            last = self.put("j3", outer, first, width, Load("total", Index("j3"), wide))
        return (
            Local("small", small, COLUMNS), Local("total", wide, COLUMNS), each("j2", "total", lambda j: START[op](wide)),
            *self.nest(start, stop, self.reduced - 1, inside), last,
        )  # fmt: skip

    def put(self, index: str, outer: list[Expr], first: Expr, width: Expr, total: Expr) -> Loop:
        offset = self.base(0, outer) + (first + Index(index)) * self.step(0)
        return Loop(index, ZERO, width, (Store("out", offset, self.result(total)),), "vector")

    def gather(self, group: Expr) -> tuple[Statement, ...]:
        """Partial results of a group put together, in the order of the chunks."""
        op, wide = self.kind.op, self.wide
        outer, first = self.places(group)
        piece = Index("chunk")
        at = group * Size("chunks") + piece
        if not self.columns:
            return (
                Declare("total", wide, START[op](wide)), Assign("total", START[op](wide)),
                Loop("chunk", ZERO, Size("chunks"), (Accumulate(op, "total", Load("partial", at, wide)),)),
                Store("out", self.base(0, outer), self.result(Read("total", wide))),
            )  # fmt: skip
        width = Binary("min", Size(f"k{self.kept - 1}") - first, Const(COLUMNS, "index"))
        j = Index("j")
        add = Store("total", j, Binary(op, Load("total", j, wide), Load("partial", at * COLUMNS + j, wide)))
        return (
            Local("total", wide, COLUMNS), Loop("j2", ZERO, width, (Store("total", Index("j2"), START[op](wide)),), "vector"),
            Loop("chunk", ZERO, Size("chunks"), (Loop("j", ZERO, width, (add,), "vector"),)),
            self.put("j3", outer, first, width, Load("total", Index("j3"), wide)),
        )  # fmt: skip

    def result(self, total: Expr) -> Expr:
        return convert(self.kind.end(total, Size("count")), self.out)
