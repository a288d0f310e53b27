"""Tiles of a box: which of its outputs a tile computes, as runs along output rows, and moving them.

A tile starts at the next output (sample, depth, height, width: the *cursor*) and takes those in its columns. Its columns are positions of
the packed box one after the other, some of which are no outputs (`windows`); or, if `dense`, outputs only: then their inputs
are first gathered to a *panel* [channel and tap][column], which pays where rows are short and outputs many.

A run is four words: first position, first column, length, and place in the output.
"""

from __future__ import annotations

import functools

from tocha.inductor.templates.builder import Function, Value, Variable
from tocha.inductor.templates.gemm import ITEM, Geometry, Vectors

WORDS = 4


def room(g: Geometry) -> int:
    """Elements that a tile's runs take: at most one a column."""
    return WORDS * g.columns * 8 // ITEM[g.scalar]


class Cursor:
    """The next output of a box of `sizes` (samples, depth, height, width) in planes of `plane` (depth, height, width)."""

    def __init__(self, f: Function, sizes: list[Value], plane: list[Value], out_steps: list[Value]) -> None:
        self.f, self.sizes, self.plane, self.out_steps = f, sizes, plane, out_steps
        empty = f.op(f"or i1 {(sizes[1] <= 0).name}, {(f.min(sizes[2], sizes[3]) <= 0).name}", "i1")
        self.at = [f.variable(f.select(empty, sizes[0], 0)), *[f.variable(0) for _ in range(3)]]

    def more(self) -> Value:
        return self.at[0].get() < self.sizes[0]

    def position(self) -> Value:
        n, d, h, w = (a.get() for a in self.at)
        return ((n * self.plane[0] + d) * self.plane[1] + h) * self.plane[2] + w

    def place(self) -> Value:
        n, d, h, w = (a.get() * step for a, step in zip(self.at, self.out_steps, strict=True))
        return n + d + h + w

    def advance(self, length: Value) -> None:
        """Past `length` outputs of a row; past its end to the next row, sheet, sample."""
        f = self.f
        self.at[3].set(self.at[3].get() + length)
        for axis in (3, 2, 1):
            with f.when(self.at[axis].get() >= self.sizes[axis]):
                self.at[axis].set(0)
                self.at[axis - 1].set(self.at[axis - 1].get() + 1)


def find_runs(f: Function, g: Geometry, cursor: Cursor, dense: Value, runs: Value) -> tuple[Value, Value]:
    """(number of runs, columns used) of the tile at the cursor, which moves past it."""
    first = cursor.position()
    count, column, used = f.variable(0), f.variable(0), f.variable(0)
    go: Variable = f.variable("true", "i1")
    with f.repeat(go.get):
        position, start = cursor.position(), column.get()
        length = f.min(cursor.sizes[3] - cursor.at[3].get(), g.columns - start)
        where = f.at(runs, count.get() * WORDS, "i64")
        for i, word in enumerate((position, start, length, cursor.place())):
            f.store(word, f.at(where, i, "i64"), 8)
        count.set(count.get() + 1)
        used.set(start + length)
        cursor.advance(length)
        column.set(f.select(dense, start + length, cursor.position() - first))
        go.set(f.both(cursor.more(), column.get() < g.columns))
    return count.get(), used.get()


_PIECES = 4  # pieces of runs put together at a time


def gather_panel(g: Geometry) -> Function:
    """panel[k, column] for the tile's columns, a vector of columns after the other, each put together of pieces of runs."""
    f = Function(
        "gather_panel",
        [("ptr", "runs"), ("i64", "count"), ("i64", "k"), ("ptr", "packed"), ("ptr", "offsets"), ("ptr", "panel")],
    )
    v = Vectors(f, g)

    def word(number: Value, which: int) -> Value:
        return f.word(f["runs"], number * WORDS + which)

    def pieces(first: int, run: Value, number: int, more: bool) -> None:
        sources, masks = [], []
        for i in range(number):
            start = word(run + i, 1) - first
            sources.append(v.at(f["packed"], word(run + i, 0) - start))
            masks.append(v.mask(start, start + word(run + i, 2)))
        with f.loop(0, f["k"]) as k:
            offset, to = f.word(f["offsets"], k), v.at(f["panel"], k * g.columns + first)
            line = v.load(to) if more else Value(f, "zeroinitializer", g.vector)
            for source, mask in zip(sources, masks, strict=True):
                line = v.masked_load(v.at(source, offset), mask, line.name)
            v.store(line, to)

    def search(place: Variable, edge: int, past_end: bool) -> None:
        """Move on to the first run that ends, or else starts, after `edge`."""

        def passes() -> Value:
            here = f.min(place.get(), f["count"] - 1)
            reached = word(here, 1) + word(here, 2) if past_end else word(here, 1)
            return f.both(place.get() < f["count"], reached <= edge)

        with f.repeat(passes):
            place.set(place.get() + 1)

    def together(first: int, run: Variable, end: Variable, again: Variable) -> None:
        with f.repeat(lambda: run.get() < end.get()):
            number = f.min(end.get() - run.get(), _PIECES)
            for count in range(1, _PIECES + 1):
                with f.when(number.equals(count)):
                    yes, no = (functools.partial(pieces, first, run.get(), count, more) for more in (True, False))
                    f.choose(again.get(), yes, no)
            again.set("true")
            run.set(run.get() + number)

    for first in range(0, g.columns, g.lanes):
        run, end = f.variable(0), f.variable(0)
        search(run, first, True)
        search(end, first + g.lanes - 1, False)
        together(first, run, end, f.variable("false", "i1"))
    return f


def place_tile(g: Geometry) -> Function:
    """Store (or add, if `more`) the outputs among a tile's columns, `out_c` from one row to the next and `out_w` along a run."""
    f = Function(
        "place_tile",
        [
            ("ptr", "runs"),
            ("i64", "count"),
            ("ptr", "tile"),
            ("i64", "rows"),
            ("ptr", "out"),
            ("i64", "out_c"),
            ("i64", "out_w"),
            ("i1", "more"),
        ],
    )
    v = Vectors(f, g)
    out_c, out_w, more = f["out_c"], f["out_w"], f["more"]
    with f.loop(0, f["count"]) as number:
        run = f.at(f["runs"], number * WORDS, "i64")
        source, out, length = v.at(f["tile"], f.word(run, 1)), v.far(f["out"], f.word(run, 3)), f.word(run, 2)

        def together(i: Value, mask: Value, source: Value = source, out: Value = out) -> None:
            with f.loop(0, f["rows"]) as r:
                value, to = v.masked_load(v.at(source, r * g.columns + i), mask), v.far(out, r * out_c + i)
                f.choose(more, lambda: v.keep(v.add(value, v.fetch(to, mask)), to, mask), lambda: v.keep(value, to, mask))

        def dense(length: Value = length) -> None:
            with f.loop(0, length, g.lanes) as i:
                together(i, v.mask(None, length - i))

        def strided(source: Value = source, out: Value = out, length: Value = length) -> None:
            with f.loop(0, f["rows"]) as r, f.loop(0, length) as i:
                value, to = v.one(v.at(source, r * g.columns + i)), v.far(out, r * out_c + i * out_w)

                def added(value: Value = value, to: Value = to) -> None:
                    v.keep_one(f.op(f"fadd {g.scalar} {value.name}, {v.fetch_one(to).name}", g.scalar), to)

                f.choose(more, added, functools.partial(v.keep_one, value, to))

        f.choose(out_w.equals(1), dense, strided)
    return f
