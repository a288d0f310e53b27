"""Convolutions with one output channel for each group (depthwise), and the gradients of such: no product of matrices, taps one by one.

Boxes are packed as for the other convolutions (`windows`), so a tap is an offset here too. Forward and input gradient: four output
rows and up to two vectors of columns are summed in registers over all taps, eight multiply-adds for each weight that is broadcast;
kernels three, five or seven high load each input row once for all output rows it reaches.
Weight gradient: a vector of the output's gradient meets up to nine taps' inputs, whose sums stay in registers along a box.

Weights lie as [group][phase][output][channel][tap]; tables and numbers are those of `conv` with row blocks of one.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from tocha.inductor.templates import windows
from tocha.inductor.templates.builder import Function, Value, Variable, module
from tocha.inductor.templates.conv import _PHASE, Line
from tocha.inductor.templates.gemm import Geometry, Vectors
from tocha.inductor.templates.windows import Fields

_ROWS = 4
_TALL = (1, 3, 5, 7)  # heights of kernels that have code of their own
_TAPS = (9, 3, 1)  # taps summed at a time


def single(g: Geometry) -> Geometry:
    """The geometry plans are made with: row blocks of one."""
    return replace(g, rows=1, granule=1)


def tall(lines: list[Line]) -> int:
    """The height of the kernel if its rows read the input's one after the other and it is one of _TALL, else 1."""
    phases = lines[1].phases
    shifts = [shift for _, plane, shift in phases[0][2] if plane == 0]
    return len(shifts) if len(phases) == 1 and len(shifts) in _TALL and shifts == list(range(len(phases[0][2]))) else 1


def rows(g: Geometry, count: int, tall: int) -> Function:
    """`count` output rows: out[r, i] = bias + sum over k of weight[k] * x[offsets[k] + r * pitch + i].

    With `tall` > 1 taps come in blocks of `tall` rows of `across`, a row's a pitch after those of the one before: an input row that is
    loaded serves several output rows.
    """
    f = Function(
        f"rows_{count}_{tall}",
        [("i64", "k"), ("i64", "across"), ("ptr", "weight"), ("ptr", "x"), ("ptr", "offsets"), ("i64", "pitch"), ("ptr", "out"), ("i64", "row"),
         ("i64", "step"), ("i64", "width"), (g.scalar, "bias")],
    )  # fmt: skip
    v = Vectors(f, g)
    kept = f.variable("zeroinitializer", g.vector)

    def store(total: Value, to: Value, length: Value) -> None:
        def whole() -> None:
            v.store(total, to)

        def part() -> None:
            v.masked_store(total, to, v.mask(None, length))

        def strided() -> None:
            kept.set(total)
            with f.loop(0, f.min(length, g.lanes)) as i:
                v.store(v.one(v.at(kept.slot, i)), v.at(to, i * f["step"]))

        f.choose(f["step"].equals(1), lambda: f.choose(length >= g.lanes, whole, part), strided)

    def columns(start: Value, vectors: int) -> None:
        sums = [[f.variable("zeroinitializer", g.vector) for _ in range(vectors)] for _ in range(count)]
        bias = v.splat(f["bias"])
        for line in sums:
            for total in line:
                total.set(bias)

        def tap(k: Value) -> None:
            factors = [v.splat(v.one(v.at(f["weight"], k + f["across"] * i))) for i in range(tall)]
            x = v.at(v.at(f["x"], f.word(f["offsets"], k)), start)
            for r in range(count + tall - 1):
                line = [v.load(v.at(v.at(x, f["pitch"] * r), j * g.lanes)) for j in range(vectors)]
                for i in range(max(0, r - count + 1), min(tall, r + 1)):
                    for value, total in zip(line, sums[r - i], strict=True):
                        total.set(v.fma(factors[i], value, total.get()))

        if tall == 1:
            with f.loop(0, f["k"]) as k:
                tap(k)
        else:
            with f.loop(0, f["k"], f["across"] * tall) as block, f.loop(block, block + f["across"]) as k:
                tap(k)
        for r, line in enumerate(sums):
            for j, total in enumerate(line):
                first = start + j * g.lanes
                store(total.get(), v.at(v.at(f["out"], f["row"] * r), first * f["step"]), f["width"] - first)

    at = f.variable(0)
    with f.repeat(lambda: at.get() < f["width"]):
        start = at.get()
        wide = f["width"] - start > g.lanes
        f.choose(wide, lambda: columns(start, 2), lambda: columns(start, 1))
        at.set(start + f.select(wide, 2 * g.lanes, g.lanes))
    return f


def body(g: Geometry) -> Function:
    """Forward and input gradient; units are boxes of groups."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f)
    slot, packed = windows.take_scratch(f, g, s)
    with f.loop(f["lo"], f["hi"]) as unit:
        n0, d0, h0, w0, group = windows.unit_box(f, s, unit)
        samples = f.min(s.samples - n0, s.box_n)
        x = v.at(s.x, n0 * s.x_n + group * s.x_group)
        windows.call_pack(f, g, x, s.channels, samples, d0, h0, w0, packed)
        with f.loop(0, s.phases) as phase:
            where = f.at(s.table, s.planes * 3 + phase * _PHASE, "i64")
            steps, offsets = f.word(where, 0) * s.channels, f.at(s.table, f.word(where, 1), "i64")
            box_d, box_h, box_w = (
                f.min(f.word(where, 4) - d0, s.box_d),
                f.min(f.word(where, 5) - h0, s.box_h),
                f.min(f.word(where, 6) - w0, s.box_w),
            )
            weights = v.at(s.weight, group * s.weight_group + f.word(where, 2))
            base = v.at(s.out, f.word(where, 3) + n0 * s.out_n + d0 * s.out_d + h0 * s.out_h + w0 * s.out_w)
            with f.loop(0, s.outputs) as o, f.loop(0, samples) as n, f.loop(0, box_d) as d:
                out = v.at(base, (group * s.outputs + o) * s.out_c + n * s.out_n + d * s.out_d)
                source = v.at(packed, (n * s.plane_d + d) * s.plane_h * s.plane_w)
                bias = v.one(v.at(s.bias, group * s.outputs + o))
                weight = v.at(weights, o * steps)
                many = box_h - box_h % _ROWS

                def call_rows(count: int, tall: int, h: Value) -> None:
                    f.call(
                        f"rows_{count}_{tall}", "void", ("i64", steps), ("i64", s.across), ("ptr", weight), ("ptr", v.at(source, h * s.plane_w)),
                        ("ptr", offsets), ("i64", s.plane_w), ("ptr", v.at(out, h * s.out_h)), ("i64", s.out_h), ("i64", s.out_w),
                        ("i64", box_w), (g.scalar, bias),
                    )  # fmt: skip

                for tall in _TALL:
                    with f.when(s.tall.equals(tall)), f.loop(0, many, _ROWS) as h:
                        call_rows(_ROWS, tall, h)
                with f.loop(many, box_h) as h:
                    call_rows(1, 1, h)
    windows.give_back(f, s, slot)
    return f


def code(g: Geometry) -> str:
    """The module of forward and input gradient."""
    return module(body(g), *[rows(g, _ROWS, tall) for tall in _TALL], rows(g, 1, 1), *windows.packers(g))


def taps(g: Geometry, count: int) -> Function:
    """sums[t] += x[offsets[t] + position] * gradient, lane by lane, over a sheet of `height` rows."""
    f = Function(
        f"taps_{count}",
        [
            ("ptr", "sums"),
            ("ptr", "x"),
            ("ptr", "offsets"),
            ("i64", "pitch"),
            ("ptr", "gradient"),
            ("i64", "row"),
            ("i64", "height"),
            ("i64", "width"),
        ],
    )
    v = Vectors(f, g)
    sums = [f.variable("zeroinitializer", g.vector) for _ in range(count)]
    places = [f.word(f["offsets"], t) for t in range(count)]
    for t, total in enumerate(sums):
        total.set(v.load(v.at(f["sums"], t * g.lanes)))

    def whole(x: Value, gradient: Value) -> None:
        factor = v.load(gradient)
        for place, total in zip(places, sums, strict=True):
            total.set(v.fma(v.load(v.at(x, place)), factor, total.get()))

    def part(x: Value, gradient: Value, length: Value) -> None:
        mask = v.mask(None, length)  # both factors are masked: what lies beyond may be infinite
        factor = v.masked_load(gradient, mask)
        for place, total in zip(places, sums, strict=True):
            total.set(v.fma(v.masked_load(v.at(x, place), mask), factor, total.get()))

    with f.loop(0, f["height"]) as h:
        x, gradient = v.at(f["x"], h * f["pitch"]), v.at(f["gradient"], h * f["row"])
        many = f["width"] & -g.lanes
        with f.loop(0, many, g.lanes) as w:
            whole(v.at(x, w), v.at(gradient, w))
        with f.when(many < f["width"]):
            part(v.at(x, many), v.at(gradient, many), f["width"] - many)
    for t, total in enumerate(sums):
        v.store(total.get(), v.at(f["sums"], t * g.lanes))
    return f


def _room_for(tap: Variable, number: int, count: Value) -> Value:
    return tap.get() + number <= count


def weight_body(g: Geometry) -> Function:
    """Weight gradient; units are groups, their boxes come in order. `weight` is the output's gradient (its strides in out_*), `out` the result."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f)
    slot, sums = windows.take_scratch(f, g, s)
    where = f.at(s.table, s.planes * 3, "i64")
    count, offsets = f.word(where, 0), f.at(s.table, f.word(where, 1), "i64")
    packed = v.at(sums, count * s.outputs * g.lanes)
    with f.loop(f["lo"], f["hi"]) as group:
        with f.loop(0, count * s.outputs) as t:
            v.store(Value(f, "zeroinitializer", g.vector), v.at(sums, t * g.lanes))
        with f.loop(0, s.count_n * s.count_d * s.count_h * s.count_w) as box:
            n0, d0, h0, w0, _ = windows.unit_box(f, s, box)
            samples = f.min(s.samples - n0, s.box_n)
            box_d, box_h, box_w = (
                f.min(f.word(where, 4) - d0, s.box_d),
                f.min(f.word(where, 5) - h0, s.box_h),
                f.min(f.word(where, 6) - w0, s.box_w),
            )
            windows.call_pack(f, g, v.at(s.x, n0 * s.x_n + group * s.x_group), Value(f, "1"), samples, d0, h0, w0, packed)
            with f.loop(0, s.outputs) as o, f.loop(0, samples) as n, f.loop(0, box_d) as d:
                place = (n0 + n) * s.out_n + (group * s.outputs + o) * s.out_c + (d0 + d) * s.out_d + h0 * s.out_h + w0
                source = v.at(packed, (n * s.plane_d + d) * s.plane_h * s.plane_w)
                tap = f.variable(0)
                for number in _TAPS:
                    with f.repeat(functools.partial(_room_for, tap, number, count)):
                        t = tap.get()
                        f.call(
                            f"taps_{number}", "void", ("ptr", v.at(sums, (o * count + t) * g.lanes)), ("ptr", source),
                            ("ptr", f.at(offsets, t, "i64")), ("i64", s.plane_w),
                            ("ptr", v.at(s.weight, place)), ("i64", s.out_h), ("i64", box_h), ("i64", box_w),
                        )  # fmt: skip
                        tap.set(t + number)
        with f.loop(0, count * s.outputs) as t:
            line = v.load(v.at(sums, t * g.lanes))
            start = "-0.0"
            total = f.call(f"llvm.vector.reduce.fadd.{g.suffix}", g.scalar, (g.scalar, start), (g.vector, line), declare=True)
            v.store(total, v.at(s.out, group * count * s.outputs + t))
    windows.give_back(f, s, slot)
    return f


def weight_code(g: Geometry) -> str:
    """The module of the weight gradient."""
    return module(weight_body(g), *[taps(g, n) for n in _TAPS], *windows.packers(g))
