"""Products of rows with few columns, and sums of a matrix's columns, rounded as torch rounds them (oneMKL's products of this shape on AMD CPUs, and
ATen's sums on AVX2).

*Products*: out[i, j] = a[i, :] . b[j, :] + bias[j], both factors' rows dense. A sum has four lanes, or eight in the columns that are left of
groups of four; products are rounded before they are added, and lanes are put together in halves.

*Sweeps*: out[i, :] = a[i, 0] * b[0, :] + a[i, 1] * b[1, :] + …, as are the gradients of such a product, with b's rows dense; one after the
other, each product and sum rounded once, whatever the width of vectors.

*Sums*: 32 columns side by side go down all rows, the columns that are left every fourth row, four sums beside each other. After 16 rows a
sum is added to one of the next level, and so on for four levels.
"""

from __future__ import annotations

import functools
from typing import Any

from tocha.inductor.templates.builder import Function, Value, Variable, module
from tocha.inductor.templates.gemm import Geometry, Vectors, geometry
from tocha.inductor.templates.windows import Fields

BUFFERS = ("out", "a", "b", "bias")
SIZES = ("rows", "columns", "length", "a_row", "b_row", "block")
SWEEP_BUFFERS = ("out", "a", "b")
SWEEP_SIZES = ("rows", "depth", "columns", "a_row", "a_step", "b_row")
SUM_BUFFERS = ("out", "x")
SUM_SIZES = ("rows", "columns", "x_row")
_ROWS, _UNROLL = 5, 2  # rows of a tile; steps of its loop
_GROUP = 4  # columns of a tile; lanes of their sums
_WIDE = 8  # floats of a vector: two columns of four lanes, or one of eight
_LEVELS, _STEP = 4, 16
_HEIGHT = 5  # rows of a sweep's tile
_VECTOR = f"<{_WIDE} x float>"


def _op(f: Function, op: str, x: Value, y: Value) -> Value:
    return f.op(f"f{op} {x.type} {x.name}, {y.name}", x.type)


def _sum(f: Function, parts: list[Value]) -> Value:
    return functools.reduce(functools.partial(_op, f, "add"), parts)


def _shuffle(f: Function, x: Value, y: Value, lanes: list[int]) -> Value:
    order = ", ".join(f"i32 {lane}" for lane in lanes)
    return f.op(f"shufflevector {x.type} {x.name}, {y.type} {y.name}, <{len(lanes)} x i32> <{order}>", f"<{len(lanes)} x float>")


def _vectors(f: Function, lanes: int) -> Vectors:
    return Vectors(f, Geometry("float", lanes, 1, 1, False))


def _fetch(f: Function, row: Value, k: Any, lanes: int, left: Value | None) -> Value:
    """`lanes` elements of a row, or the first `left` of them and zeros."""
    v = _vectors(f, lanes)
    place = v.at(row, k)
    return v.load(place) if left is None else v.masked_load(place, v.mask(None, left))


def _tile(columns: int, lanes: int) -> Function:
    """Some rows from `row` on, times `columns` columns from `column` on, with `lanes` for each sum; rows past the end repeat the last."""
    f = Function(f"tile_{columns}x{lanes}", [("ptr", "ctx"), ("i64", "row"), ("i64", "column")])
    s, each = Fields(f, BUFFERS, SIZES), _WIDE // lanes
    numbers = [f.min(f["row"] + r, s.rows - 1) for r in range(_ROWS)]
    lines = [f.at(s.a, number * s.a_row, "float") for number in numbers]
    weights = [f.at(s.b, (f["column"] + j) * s.b_row, "float") for j in range(columns)]
    sums = [[f.variable("zeroinitializer", _VECTOR) for _ in range(columns // each)] for _ in range(_ROWS)]
    length = s.length
    whole = length // lanes * lanes

    def add(k: Value, left: Value | None) -> None:
        parts = [_fetch(f, weight, k, lanes, left) for weight in weights]
        if each == 2:
            parts = [_shuffle(f, parts[j], parts[j + 1], list(range(_WIDE))) for j in range(0, columns, 2)]
        for r, line in enumerate(lines):
            x = _fetch(f, line, k, lanes, left)
            if each == 2:
                x = _shuffle(f, x, x, [*range(lanes)] * 2)
            for total, part in zip(sums[r], parts, strict=True):
                total.set(_op(f, "add", total.get(), _op(f, "mul", x, part)))

    several = length // (lanes * _UNROLL) * (lanes * _UNROLL)
    with f.loop(0, several, lanes * _UNROLL) as k:
        for step in range(_UNROLL):
            add(k + step * lanes, None)
    with f.loop(several, whole, lanes) as k:
        add(k, None)
    with f.when(whole < length):
        add(whole, length - whole)
    for number, line in zip(numbers, sums, strict=True):
        for i, total in enumerate(line):
            found = total.get()
            for half in (4, 2, 1) if lanes == _WIDE else (2, 1):
                found = _op(f, "add", found, _shuffle(f, found, found, [lane ^ half for lane in range(_WIDE)]))
            for part in range(each):
                column = f["column"] + (i * each + part)
                one = f.op(f"extractelement {_VECTOR} {found.name}, i32 {part * lanes}", "float")
                bias = f.load("float", f.at(s.bias, column, "float"), 4)
                f.store(_op(f, "add", one, bias), f.at(s.out, number * s.columns + column, "float"), 4)
    return f


def code() -> str:
    """The module of the products; units are blocks of rows."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s = Fields(f, BUFFERS, SIZES)
    groups = s.columns // _GROUP * _GROUP
    types = ("ptr", "i64", "i64")
    with f.loop(f["lo"], f["hi"]) as unit:
        end = f.min(s.rows, (unit + 1) * s.block)
        with f.loop(unit * s.block, end, _ROWS) as row:
            with f.loop(0, groups, _GROUP) as column:
                f.call(f"tile_{_GROUP}x{_GROUP}", "void", *zip(types, (f["ctx"], row, column), strict=True))
            for left in range(1, _GROUP):
                with f.when((s.columns - groups).equals(left)):
                    f.call(f"tile_{left}x{_WIDE}", "void", *zip(types, (f["ctx"], row, groups), strict=True))
    return module(f, _tile(_GROUP, _GROUP), *[_tile(left, _WIDE) for left in range(1, _GROUP)])


def sweep_code() -> str:
    """The module of the sweeps; units are tiles of rows."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, g = Fields(f, SWEEP_BUFFERS, SWEEP_SIZES), geometry("float")
    v, across = Vectors(f, g), 4 if g.lanes == 16 else 2  # vectors
    sums = [[f.variable("zeroinitializer", g.vector) for _ in range(across)] for _ in range(_HEIGHT)]
    step = across * g.lanes

    def tile(numbers: list[Value], column: Value, wide: int, mask: Value | None) -> None:
        lines = [v.at(s.a, number * s.a_row) for number in numbers]
        for row in sums:
            for total in row[:wide]:
                total.set("zeroinitializer")
        with f.loop(0, s.depth) as j:
            b = v.at(s.b, j * s.b_row + column)
            parts = [v.load(v.at(b, i * g.lanes)) if mask is None else v.masked_load(b, mask) for i in range(wide)]
            for row, line in zip(sums, lines, strict=True):
                factor = v.splat(v.one(v.at(line, j * s.a_step)))
                for total, part in zip(row, parts, strict=False):
                    total.set(v.fma(factor, part, total.get()))
        for row, number in zip(sums, numbers, strict=True):
            to = v.at(s.out, number * s.columns + column)
            for i, total in enumerate(row[:wide]):
                if mask is None:
                    v.store(total.get(), v.at(to, i * g.lanes))
                else:
                    v.masked_store(total.get(), to, mask)

    with f.loop(f["lo"], f["hi"]) as unit:
        numbers = [f.min(unit * _HEIGHT + r, s.rows - 1) for r in range(_HEIGHT)]
        several, whole = s.columns // step * step, s.columns // g.lanes * g.lanes
        with f.loop(0, several, step) as column:
            tile(numbers, column, across, None)
        with f.loop(several, whole, g.lanes) as column:
            tile(numbers, column, 1, None)
        with f.when(whole < s.columns):
            tile(numbers, whole, 1, v.mask(None, s.columns - whole))
    return module(f)


def _down(beside: int) -> Function:
    """Sums of up to eight columns from `column` on: of every row, or, with four `beside` each other, of every fourth and of those left."""
    f = Function(f"down_{beside}", [("ptr", "ctx"), ("i64", "column")])
    s, vector = Fields(f, SUM_BUFFERS, SUM_SIZES), _VECTOR
    width = f.min(s.columns - f["column"], _WIDE)
    levels: list[list[Variable]] = [[f.variable("zeroinitializer", vector) for _ in range(_LEVELS)] for _ in range(beside)]
    rows = s.rows // beside

    def add(row: Value, level: list[Variable]) -> None:
        x = _fetch(f, f.at(s.x, row * s.x_row, "float"), f["column"], _WIDE, width)
        level[0].set(_op(f, "add", level[0].get(), x))

    def raise_(done: Value, to: int) -> None:
        """Add each sum of a level to that of the next, if the count of rows says so, and then the same above."""
        for level in levels:
            level[to].set(_op(f, "add", level[to].get(), level[to - 1].get()))
            level[to - 1].set("zeroinitializer")
        if to + 1 < _LEVELS:
            with f.when((done % _STEP ** (to + 1)).equals(0)):
                raise_(done, to + 1)

    with f.loop(0, rows) as i:
        for number, level in enumerate(levels):
            add(i * beside + number, level)
        with f.when(((i + 1) % _STEP).equals(0)):
            raise_(i + 1, 1)
    found = [f.variable(_sum(f, [each.get() for each in level]), vector) for level in levels]
    with f.loop(rows * beside, s.rows) as i:
        add(i, found[:1])
    total = _sum(f, [each.get() for each in found])
    v = _vectors(f, _WIDE)
    v.masked_store(total, v.at(s.out, f["column"]), v.mask(None, width))
    return f


def sum_code() -> str:
    """The module of the sums; units are columns' vectors."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s = Fields(f, SUM_BUFFERS, SUM_SIZES)
    side_by_side = s.columns // (4 * _WIDE) * (4 * _WIDE)
    with f.loop(f["lo"], f["hi"]) as unit:
        column = unit * _WIDE

        def down(beside: int, column: Value = column) -> None:
            f.call(f"down_{beside}", "void", ("ptr", f["ctx"]), ("i64", column))

        f.choose(column < side_by_side, lambda: down(1), lambda: down(4))
    return module(f, _down(1), _down(4))


# What each kernel's entry is made of.
KERNELS: dict[str, Any] = {
    "few": (BUFFERS, SIZES, code), "sweep": (SWEEP_BUFFERS, SWEEP_SIZES, sweep_code), "column_sums": (SUM_BUFFERS, SUM_SIZES, sum_code),
}  # fmt: skip
