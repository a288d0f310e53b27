"""Products with few rows: the right factor is read once, as it lies, and never packed.

There are two ways, by how it lies. *Dots*: its columns are dense (a weight as nn.Linear has it), each sum runs along vectors that are added up at
the end; `rows` x `columns` sums at once. *Sweeps*: its rows are dense, a few of them at a time are added to sums that stay in cache. Rows
of the left factor beyond the last repeat it. A unit of work is a range of columns, whose sums are a strip in scratch before they are stored;
a sum's order depends on k alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.templates import epilogue as holes
from tocha.inductor.templates import matmul
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.gemm import Geometry, Vectors
from tocha.inductor.templates.matmul import Spec
from tocha.inductor.templates.panels import Packer
from tocha.inductor.templates.windows import Fields, give_back, take_scratch

BUFFERS = ("out", "a", "b", "flags", "scratch")
SIZES = ("m", "n", "k", "chunk", "a_row", "b_step", "out_row", "scratch_size", "slots")
ROWS = 4  # of a tile or strip
_DOTS = {1: 8, ROWS: 4}  # columns of a tile by its rows
_SWEEPS = {1: 8, ROWS: 4}  # rows of the right factor taken at once


def _fields(f: Function) -> Fields:
    return Fields(f, BUFFERS, (holes.HOLE, *SIZES))


def _pitch(g: Geometry, s: Fields) -> Value:
    """From one row of a strip to the next."""
    return s.chunk + max(g.lanes, *_DOTS.values())


def _units(f: Function, spec: Spec, s: Fields, work: Any) -> None:
    """For each unit `work(first column, end, strip)`, then the strip's sums to their place."""
    slot, strip = take_scratch(f, spec.tile, s)
    hole, pitch = matmul.hole(f, spec, BUFFERS, SIZES), _pitch(spec.tile, s)
    with f.loop(f["lo"], f["hi"]) as unit:
        start = unit * s.chunk
        stop = f.min(s.n, start + s.chunk)
        work(start, stop, strip)

        def finish() -> None:
            hole.finish(strip, pitch, s.m, stop - start, start, s.out_row, 0, start)

        def plain() -> None:
            types = ("ptr", "i64", "i64", "i64", "ptr", "i64", "i1")
            out = f.at(s.out, start, MEMORY[spec.target])
            f.call("add_tile", "void", *zip(types, (strip, pitch, s.m, stop - start, out, s.out_row, "false"), strict=True))

        if spec.plain:
            f.choose(hole.given, finish, plain)
        else:
            finish()
    give_back(f, s, slot)


def dots_code(spec: Spec) -> str:
    """The module for a right factor with dense columns; both factors are of the same type in pairs, else the left one of that computed with."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s = _fields(f)

    def work(start: Value, stop: Value, strip: Value) -> None:
        def tiles(rows: int) -> None:
            with f.loop(start, stop, _DOTS[rows]) as j, f.loop(0, s.m, rows) as r:
                f.call(f"dots_{rows}", "void", ("ptr", f["ctx"]), ("i64", j), ("i64", r), ("ptr", strip), ("i64", start))

        f.choose(s.m.equals(1), lambda: tiles(1), lambda: tiles(ROWS))

    _units(f, spec, s, work)
    return module(f, _dots(spec, 1), _dots(spec, ROWS), *matmul.holes_functions(spec))


def _dots(spec: Spec, rows: int) -> Function:
    """A tile of sums, from row `first` and column j on, into the strip that begins at column `start`."""
    g, columns = spec.tile, _DOTS[rows]
    f = Function(f"dots_{rows}", [("ptr", "ctx"), ("i64", "j"), ("i64", "first"), ("ptr", "strip"), ("i64", "start")])
    s, v = _fields(f), Vectors(f, g)
    right = Packer(f, spec.packed, spec.factor(spec.right))
    left = Packer(f, spec.packed, spec.factor(None)) if spec.pairs else Packer(f, g, matmul.Source(spec.compute))
    lines = [left.at(s.a, f.min(s.m - 1, f["first"] + r) * s.a_row) for r in range(rows)]
    weights = [right.at(s.b, f.min(s.n - 1, f["j"] + c) * s.b_step) for c in range(columns)]
    sums = [[f.variable("zeroinitializer", g.vector) for _ in range(columns)] for _ in range(rows)]
    step = g.lanes * right.each
    whole = s.k // step * step

    def add(start: Value, count: Value | None) -> None:
        factors = [left.along(left.at(line, start), count) for line in lines]
        for c, weight in enumerate(weights):
            column = right.along(right.at(weight, start), count)
            for r, factor in enumerate(factors):
                sums[r][c].set(matmul.multiply_add(f, spec, factor, column, sums[r][c].get()))

    with f.loop(0, whole, step) as start:
        add(start, None)
    with f.when(whole < s.k):
        add(whole, s.k - whole)
    every = [sums[r][c].get() for r in range(rows) for c in range(columns)]
    found = []
    for first in range(0, len(every), g.lanes):
        group = every[first : first + g.lanes]
        group += [Value(f, "zeroinitializer", g.vector)] * (g.lanes - len(group))
        parts = v.transpose(group)
        while len(parts) > 1:
            parts = [v.add(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
        found.append(parts[0])
    to = v.at(f["strip"], f["first"] * _pitch(g, s) + f["j"] - f["start"])
    for number in range(rows * columns):
        r, c = divmod(number, columns)
        one = f.op(f"extractelement {g.vector} {found[number // g.lanes].name}, i32 {number % g.lanes}", g.scalar)
        f.store(one, v.at(to, _pitch(g, s) * r + c), g.align)
    return f


def sweeps_code(spec: Spec) -> str:
    """The module for a right factor with dense rows; the left one is of the type computed with."""
    g = spec.tile
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, v = _fields(f), Vectors(f, g)

    def work(start: Value, stop: Value, strip: Value) -> None:
        width = stop - start

        def sweep(rows: int) -> None:
            with f.loop(0, _pitch(g, s) * rows, g.lanes) as i:
                v.store(Value(f, "zeroinitializer", g.vector), v.at(strip, i))
            once = _SWEEPS[rows]
            whole = s.k // once * once
            arguments = [("ptr", f["ctx"]), ("i64", start), ("i64", width), ("ptr", strip)]
            with f.loop(0, whole, once) as k:
                f.call(f"sweep_{rows}x{once}", "void", *arguments, ("i64", k))
            with f.loop(whole, s.k) as k:
                f.call(f"sweep_{rows}x1", "void", *arguments, ("i64", k))

        f.choose(s.m.equals(1), lambda: sweep(1), lambda: sweep(ROWS))

    _units(f, spec, s, work)
    sweeps = [_sweep(spec, rows, once) for rows, most in _SWEEPS.items() for once in (1, most)]
    return module(f, *sweeps, *matmul.holes_functions(spec))


def _sweep(spec: Spec, rows: int, once: int) -> Function:
    """strip[r, :] += sum over `once` rows k of a[r, k] * b[k, :]."""
    g = spec.tile
    f = Function(f"sweep_{rows}x{once}", [("ptr", "ctx"), ("i64", "start"), ("i64", "width"), ("ptr", "strip"), ("i64", "k")])
    s, v = _fields(f), Vectors(f, g)
    right = Packer(f, g, matmul.Source(spec.source, rule=spec.right))
    plain = Spec(spec.source, spec.target)
    factors = [[v.splat(v.one(v.at(s.a, f.min(s.m - 1, r) * s.a_row + f["k"] + i))) for i in range(once)] for r in range(rows)]
    lines = [right.at(s.b, (f["k"] + i) * s.b_step + f["start"]) for i in range(once)]
    strip = _pitch(g, s)

    def add(j: Value, left: Value | None) -> None:
        places = [v.at(f["strip"], strip * r + j) for r in range(rows)]
        totals = [v.load(place) for place in places]
        for i, line in enumerate(lines):
            column = right.along(right.at(line, j), left)
            totals = [matmul.multiply_add(f, plain, factors[r][i], column, total) for r, total in enumerate(totals)]
        for place, total in zip(places, totals, strict=True):
            v.store(total, place)

    whole = f["width"] // g.lanes * g.lanes
    with f.loop(0, whole, g.lanes) as j:
        add(j, None)
    with f.when(whole < f["width"]):
        add(whole, f["width"] - whole)
    return f


def plan(spec: Spec, dots: bool, m: int, n: int, k: int, a_row: int, b_step: int, slots: int) -> tuple[Any, int]:
    """The work array of a call and the scratch memory of a thread, in elements."""
    g = spec.tile
    multiple = max(g.columns, *_DOTS.values())
    pieces = matmul.units_wanted(slots, n * k)
    chunk = -(-n // (pieces * multiple)) * multiple
    chunk = min(max(chunk, 4 * multiple), 64 * g.columns)
    scratch = -(-m // ROWS) * ROWS * (chunk + max(g.lanes, *_DOTS.values())) + 64
    fields = {
        "m": m, "n": n, "k": k, "chunk": chunk, "a_row": a_row, "b_step": b_step, "out_row": n, "scratch_size": scratch, "slots": slots,
    }  # fmt: skip
    return np.array([-(-n // chunk), 1, *[fields[name] for name in SIZES]], np.int64), scratch
