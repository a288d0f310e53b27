"""Max pooling: the largest element of each window with its tap, and gradients put back where maxima were.

A channel of a sample is one convolution without products (`depthwise`, whose plans and packing these are, padding being -Inf). A
window's *code* is the number of the tap that its maximum was found at: the first of equal ones, the last NaN. It takes a byte, where
an index takes eight.

`place` adds gradients at indices, `spread` at codes; units are rows (channels of samples), each written by one thread in order.
"""

from __future__ import annotations

from tocha.inductor.templates import windows
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.gemm import Geometry, Vectors
from tocha.inductor.templates.windows import Fields

LOWEST = "0xFFF0000000000000"  # -Inf
PLACE_BUFFERS = ("out", "g", "indices")
PLACE_SIZES = ("length", "windows")
SPREAD_BUFFERS = ("out", "g", "codes", "offsets")
SPREAD_SIZES = ("length", "windows", "out_d", "out_h", "out_w", "first", "step_d", "step_h", "step_w")
_ROWS = 2


def rows(g: Geometry, count: int) -> Function:
    """`count` output rows: out[r, i] = max over k of x[offsets[k] + r * pitch + i], codes[r, i] = the k; `seen` becomes 1 if any is -Inf."""
    f = Function(
        f"rows_{count}",
        [("i64", "k"), ("ptr", "x"), ("ptr", "offsets"), ("i64", "pitch"), ("ptr", "out"), ("ptr", "codes"), ("i64", "row"), ("i64", "width"),
         ("ptr", "seen")],
    )  # fmt: skip
    v = Vectors(f, g)
    mask, wide, small = (f"<{g.lanes} x {t}>" for t in ("i1", "i32", "i8"))
    lowest = Value(f, v.constant(LOWEST), g.vector)

    def finish(best: Value, code: Value, start: Value, r: int) -> None:
        out, codes = v.at(v.at(f["out"], f["row"] * r), start), f.at(f.at(f["codes"], f["row"] * r, "i8"), start, "i8")
        byte = f.op(f"trunc {wide} {code.name} to {small}", small)
        low = f.op(f"fcmp oeq {g.vector} {best.name}, {lowest.name}", mask)

        def tell(lanes: Value) -> None:
            with f.when(f.call(f"llvm.vector.reduce.or.v{g.lanes}i1", "i1", (mask, lanes), declare=True)):
                f.emit(f"store atomic i64 1, ptr {f['seen'].name} monotonic, align 8")

        def whole() -> None:
            v.store(best, out)
            f.store(byte, codes, 1)
            tell(low)

        def part() -> None:
            some = v.mask(None, f["width"] - start)
            v.masked_store(best, out, some)
            kind = f"v{g.lanes}i8"
            f.call(f"llvm.masked.store.{kind}.p0", "void", (small, byte), ("ptr", codes), ("i32", 1), (mask, some), declare=True)
            tell(f.op(f"and {mask} {low.name}, {some.name}", mask))

        f.choose(start + g.lanes <= f["width"], whole, part)

    def columns(start: Value, vectors: int) -> None:
        best = [[f.variable(lowest, g.vector) for _ in range(vectors)] for _ in range(count)]
        code = [[f.variable("zeroinitializer", wide) for _ in range(vectors)] for _ in range(count)]
        with f.loop(0, f["k"]) as k:
            x = v.at(v.at(f["x"], f.word(f["offsets"], k)), start)
            number = f.splat(f.op(f"trunc i64 {k.name} to i32", "i32"), wide)
            for r in range(count):
                for j in range(vectors):
                    value, old = v.load(v.at(v.at(x, f["pitch"] * r), j * g.lanes)), best[r][j].get()
                    more = f.op(f"fcmp ogt {g.vector} {value.name}, {old.name}", mask)
                    odd = f.op(f"fcmp uno {g.vector} {value.name}, {value.name}", mask)
                    better = f.op(f"or {mask} {more.name}, {odd.name}", mask)
                    best[r][j].set(f.op(f"select {mask} {better.name}, {g.vector} {value.name}, {g.vector} {old.name}", g.vector))
                    at = code[r][j].get()
                    code[r][j].set(f.op(f"select {mask} {better.name}, {wide} {number.name}, {wide} {at.name}", wide))
        for r in range(count):
            for j in range(vectors):
                with f.when(start + j * g.lanes < f["width"]):
                    finish(best[r][j].get(), code[r][j].get(), start + j * g.lanes, r)

    with f.loop(0, f["width"], 2 * g.lanes) as start:
        f.choose(f["width"] - start > g.lanes, lambda: columns(start, 2), lambda: columns(start, 1))
    return f


def body(g: Geometry) -> Function:
    """Units are boxes of groups (see `windows`; `weight` are the codes, `bias` is `seen`)."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f)
    slot, packed = windows.take_scratch(f, g, s)
    with f.loop(f["lo"], f["hi"]) as unit:
        n0, d0, h0, w0, group = windows.unit_box(f, s, unit)
        samples = f.min(s.samples - n0, s.box_n)
        where = f.at(s.table, s.planes * 3, "i64")
        taps, offsets = f.word(where, 0), f.at(s.table, f.word(where, 1), "i64")
        types = ("ptr", "ptr", *["i64"] * 5, "ptr")
        x = v.at(s.x, n0 * s.x_n + group * s.x_group)
        f.call("pack_box", "void", *zip(types, (f["ctx"], x, 1, samples, d0, h0, w0, packed), strict=True))
        box_d, box_h, box_w = (
            f.min(f.word(where, at) - start, size) for at, start, size in ((4, d0, s.box_d), (5, h0, s.box_h), (6, w0, s.box_w))
        )
        with f.loop(0, samples) as n, f.loop(0, box_d) as d:
            place = (n0 + n) * s.out_n + group * s.out_c + (d0 + d) * s.out_d + h0 * s.out_h + w0 * s.out_w
            source = v.at(packed, (n * s.plane_d + d) * s.plane_h * s.plane_w)

            def call_rows(count: int, h: Value, place: Value = place, source: Value = source) -> None:
                at = place + h * s.out_h
                f.call(
                    f"rows_{count}", "void", ("i64", taps), ("ptr", v.at(source, h * s.plane_w)), ("ptr", offsets), ("i64", s.plane_w),
                    ("ptr", v.at(s.out, at)), ("ptr", f.at(s.weight, at, "i8")), ("i64", s.out_h), ("i64", box_w), ("ptr", s.bias),
                )  # fmt: skip

            many = box_h - box_h % _ROWS
            with f.loop(0, many, _ROWS) as h:
                call_rows(_ROWS, h)
            with f.loop(many, box_h) as h:
                call_rows(1, h)
    windows.give_back(f, s, slot)
    return f


def code(g: Geometry) -> str:
    """The module of the maxima."""
    return module(body(g), rows(g, _ROWS), rows(g, 1), windows.pack_box(g), windows.pack_row(g, LOWEST))


def _add_at(f: Function, v: Vectors, out: Value, at: Value, length: Value, value: Value) -> None:
    """out[at] += value, if that is inside."""
    with f.when(f.op(f"icmp ult i64 {at.name}, {length.name}", "i1")):
        place = v.at(out, at)
        v.store(f.op(f"fadd {v.g.scalar} {v.one(place).name}, {value.name}", v.g.scalar), place)


def _cleared(f: Function, v: Vectors, out: Value, unit: Value, length: Value) -> Value:
    """A row of the result, zeros."""
    row = v.at(out, unit * length)
    f.call("llvm.memset.p0.i64", "void", ("ptr", row), ("i8", 0), ("i64", length * v.g.align), ("i1", "false"), declare=True)
    return row


def place_code(g: Geometry) -> str:
    """The module that adds gradients at int64 indices of their row."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f, PLACE_BUFFERS, PLACE_SIZES)
    length, number, out, values, indices = s.length, s.windows, s.out, s.g, s.indices
    with f.loop(f["lo"], f["hi"]) as unit:
        row = _cleared(f, v, out, unit, length)
        with f.loop(unit * number, (unit + 1) * number) as i:
            _add_at(f, v, row, f.word(indices, i), length, v.one(v.at(values, i)))
    return module(f)


def spread_code(g: Geometry) -> str:
    """The module that adds gradients at codes: `offsets` from a window's first element by code, `first` the place of the first window's."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f, SPREAD_BUFFERS, SPREAD_SIZES)
    length, number, out, values, codes, offsets = s.length, s.windows, s.out, s.g, s.codes, s.offsets
    out_d, out_h, out_w, first, step_d, step_h, step_w = s.out_d, s.out_h, s.out_w, s.first, s.step_d, s.step_h, s.step_w
    with f.loop(f["lo"], f["hi"]) as unit:
        row = _cleared(f, v, out, unit, length)
        with f.loop(0, out_d) as d, f.loop(0, out_h) as h:
            line = unit * number + (d * out_h + h) * out_w
            start = first + d * step_d + h * step_h
            with f.loop(0, out_w) as w:
                code = f.load("i8", f.at(codes, line + w, "i8"), 1)
                at = start + w * step_w + f.word(offsets, f.op(f"zext i8 {code.name} to i64"))
                _add_at(f, v, row, at, length, v.one(v.at(values, line + w)))
    return module(f)
