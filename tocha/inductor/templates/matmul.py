"""Products of batches of matrices, out = epilogue(a @ b) (`epilogue`): the register tile of `gemm` on packed panels of both factors.

Loops, outermost first, after Goto & van de Geijn 2008 ("Anatomy of High-Performance Matrix Multiplication"): units of work (a batch's
rows `mc` at a time x columns `nc` at a time); pieces `kc` of the inner dimension; panels of columns, which stay in the L1 cache; row
blocks of the packed left factor, which stay in L2. The right factor is packed by a kernel of its own (`pack_code`) when several units
share it, else by the unit that uses it (`inside`).

Sums over pieces of the inner dimension are kept in the result itself; those that need finishing (another type, an epilogue) in scratch. A
piece's length depends on nothing but the element type, so a sum never depends on how the work is cut. Tiles over an edge are computed
whole, aside, and stored in part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tocha.inductor import jit
from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.loop_ir import BITS
from tocha.inductor.templates import epilogue as holes
from tocha.inductor.templates import panels
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.epilogue import Epilogue
from tocha.inductor.templates.gemm import ITEM, Geometry, Vectors, geometry, padded
from tocha.inductor.templates.panels import SCALAR, Packer, Source
from tocha.inductor.templates.windows import Fields, give_back, take_scratch

BUFFERS = ("out", "a", "b", "packed", "flags", "scratch", "offsets")
SIZES = (
    "m", "n", "k", "mc", "nc", "row_units", "column_units", "a_m", "a_k", "b_k", "b_n", "out_row", "out_batch", "padded", "inside", "hold",
    "scratch_size", "slots",
)  # fmt: skip
PACK_BUFFERS = ("packed", "b")
PACK_SIZES = ("k", "n", "b_k", "b_n", "padded", "panels")
_PIECE = 256  # steps of the inner dimension in a piece, for 4-byte elements: a panel of columns then fills two thirds of L1
_PIECE_OF_PAIRS = 384  # that multiply so fast that fetching sums again counts: 16 rows of 768 take 0.96 of the time with 256


@dataclass(frozen=True)
class Spec:
    """A product's element types and prologues. `pairs`: bfloat16 on a CPU that multiplies it. Without an epilogue, sums are stored as `target`."""

    source: str
    target: str
    pairs: bool = False
    left: Any = None  # rules of one element
    right: Any = None

    @property
    def compute(self) -> str:
        return panels.COMPUTE[self.source]

    @property
    def plain(self) -> bool:
        """Whether sums are stored as they are, if there is no epilogue."""
        return self.target == self.compute

    @property
    def tile(self) -> Geometry:
        return geometry(SCALAR[self.compute])

    @property
    def packed(self) -> Geometry:
        """The tile as packed elements are seen: pairs are words."""
        return geometry("i32") if self.pairs else self.tile

    @property
    def steps(self) -> int:
        """Steps of the inner dimension in a piece."""
        return _PIECE_OF_PAIRS if self.pairs else _PIECE * 4 // ITEM[self.tile.scalar]

    @property
    def depth(self) -> int:
        """Elements of the inner dimension in a piece."""
        return self.steps * (2 if self.pairs else 1)

    def factor(self, rule: Any) -> Source:
        return Source(self.source, self.pairs, rule)


def pairs_of_bfloat16() -> bool:
    """Whether the CPU multiplies pairs of bfloat16, adding in float32."""
    _, _, features = jit.host()
    return "+avx512bf16" in features.split(",")


# ---- the microkernel


def multiply_add(f: Function, spec: Spec, factor: Value, column: Value, total: Value) -> Value:
    v = Vectors(f, spec.tile)
    if not spec.pairs:
        return v.fma(factor, column, total)
    kind, halves = spec.tile.vector, f"<{2 * spec.tile.lanes} x bfloat>"
    a, b = (f.op(f"bitcast {x.type} {x.name} to {halves}", halves) for x in (factor, column))
    return f.call(
        f"llvm.x86.avx512bf16.dpbf16ps.{spec.tile.lanes * 32}", kind, (kind, total), (halves, a), (halves, b), declare=True
    )


def micro(spec: Spec, rows: int, vectors: int) -> Function:
    """c[r, :] = sum over k of a[k, r] * b[k, :], plus c if `more`; panels are as wide as a whole tile."""
    g = spec.tile
    f = Function(
        f"panel_{rows}x{vectors}", [("i64", "k"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "row"), ("i1", "more")]
    )
    v, p = Vectors(f, g), Vectors(f, spec.packed)
    sums = [[f.variable("zeroinitializer", g.vector) for _ in range(vectors)] for _ in range(rows)]
    with f.loop(0, f["k"]) as k:
        a, b = p.at(f["a"], k * g.rows), p.at(f["b"], k * g.columns)
        columns = [p.load(p.at(b, j * g.lanes)) for j in range(vectors)]
        for r in range(rows):
            factor = p.splat(p.one(p.at(a, r)))
            for total, column in zip(sums[r], columns, strict=True):
                total.set(multiply_add(f, spec, factor, column, total.get()))

    def finish(more: bool) -> None:
        for r in range(rows):
            for j, total in enumerate(sums[r]):
                place = v.at(v.at(f["c"], f["row"] * r), j * g.lanes)
                v.store(v.add(total.get(), v.load(place)) if more else total.get(), place)

    f.choose(f["more"], lambda: finish(True), lambda: finish(False))
    return f


def call_micro(f: Function, g: Geometry, rows: Value, wide: Value, arguments: list[Any]) -> None:
    """The microkernel of `rows` rows and, if `wide`, of all vectors of columns, else of one."""
    types = ("i64", "ptr", "ptr", "ptr", "i64", "i1")
    heights = list(reversed(g.heights))

    def pick(left: list[int], vectors: int) -> Callable[[], None]:
        def call() -> None:
            f.call(f"panel_{left[0]}x{vectors}", "void", *zip(types, arguments, strict=True))

        return call if len(left) == 1 else lambda: f.choose(rows.equals(left[0]), call, pick(left[1:], vectors))

    f.choose(wide, pick(heights, g.vectors), pick(heights, 1))


def micros(spec: Spec) -> list[Function]:
    return [micro(spec, rows, vectors) for rows in spec.tile.heights for vectors in (1, spec.tile.vectors)]


def hole(f: Function, spec: Spec, buffers: tuple[str, ...], sizes: tuple[str, ...]) -> holes.Hole:
    """A kernel's epilogue; sums that are stored as another type have one of their own."""
    return holes.Hole(f, buffers, sizes, None if spec.plain else "@as_target")


def holes_functions(spec: Spec) -> list[Function]:
    """What finishes tiles that no epilogue does."""
    sums = Epilogue((holes.Read("sum", spec.compute),), (spec.target,))
    return [add_tile(spec)] if spec.plain else [holes.finisher(sums, spec.compute, spec.tile.lanes, "as_target")]


def add_tile(spec: Spec) -> Function:
    """Store `rows` x `width` sums of a tile, or add them to the result if `more`."""
    g = spec.tile
    f = Function(
        "add_tile",
        [
            ("ptr", "tile"),
            ("i64", "tile_row"),
            ("i64", "rows"),
            ("i64", "width"),
            ("ptr", "out"),
            ("i64", "out_row"),
            ("i1", "more"),
        ],
    )
    v = Vectors(f, g)

    def vectors(r: Value, start: Value, mask: Value | None) -> None:
        to, total = v.at(f["out"], r * f["out_row"] + start), v.load(v.at(f["tile"], r * f["tile_row"] + start))

        def put(value: Value) -> None:
            holes.store(f, g.lanes, spec.target, value, to, mask)

        before = holes.load
        f.choose(
            f["more"], lambda: put(v.add(total, before(f, g.lanes, spec.target, spec.compute, to, mask))), lambda: put(total)
        )

    with f.loop(0, f["rows"]) as r, f.loop(0, f["width"], g.lanes) as start:
        left = f["width"] - start
        f.choose(left >= g.lanes, lambda: vectors(r, start, None), lambda: vectors(r, start, v.mask(None, left)))
    return f


# ---- the loops


def fields(f: Function) -> Fields:
    return Fields(f, BUFFERS, (holes.HOLE, *SIZES))


def body(spec: Spec) -> Function:
    """The loops over units, pieces, panels and row blocks."""
    g = spec.tile
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, v, p = fields(f), Vectors(f, g), Vectors(f, spec.packed)
    source = Packer(f, spec.packed, spec.factor(None))
    slot, scratch = take_scratch(f, g, s)
    left = v.at(scratch, g.columns * g.rows)
    right = v.at(left, (s.mc + g.lanes) * spec.steps)
    held = v.at(right, s.inside * s.nc * spec.steps)
    m_all, n_all, k_all, a_m, a_k, b_k, b_n = s.m, s.n, s.k, s.a_m, s.a_k, s.b_k, s.b_n
    types = ("ptr", "i64", "i64", "i64", "i64", "ptr")
    with f.loop(f["lo"], f["hi"]) as unit:
        j0, rest = (unit % s.column_units) * s.nc, unit // s.column_units
        i0, batch = (rest % s.row_units) * s.mc, rest // s.row_units
        m, n = f.min(m_all - i0, s.mc), f.min(n_all - j0, s.nc)
        a = source.at(s.a, f.word(s.offsets, batch * 2) + i0 * a_m)
        b = source.at(s.b, f.word(s.offsets, batch * 2 + 1) + j0 * b_n)
        place = batch * s.out_batch + i0 * s.out_row + j0
        with f.loop(0, k_all, spec.depth) as start:
            depth = f.min(k_all - start, spec.depth)
            steps = f.ceil_div(depth, 2) if spec.pairs else depth
            more, last = start > 0, start + spec.depth >= k_all
            with f.when(s.inside > 0), f.loop(0, n, g.columns) as j:
                lines = f.min(n - j, g.columns)
                to = p.at(right, j * steps)
                f.call(
                    "pack_right",
                    "void",
                    *zip(types, (source.at(b, j * b_n + start * b_k), b_n, b_k, depth, lines, to), strict=True),
                )
            begin = start // 2 if spec.pairs else start
            shared = p.at(s.packed, begin * s.padded + j0 * steps)
            columns = f.select(s.inside > 0, right, shared, "ptr")
            with f.loop(0, m, g.rows) as i:
                lines = f.min(m - i, g.rows)
                arguments = (source.at(a, i * a_m + start * a_k), a_m, a_k, depth, lines, p.at(left, i * steps))
                f.call("pack_left", "void", *zip(types, arguments, strict=True))
            tiles = [("ptr", f["ctx"]), ("i64", m), ("i64", n), ("i64", steps), ("ptr", left), ("ptr", columns), ("i64", place)]
            aside = f.select(s.hold > 0, held, scratch, "ptr")
            f.call("tiles", "void", *tiles, ("ptr", aside), ("i1", more), ("i1", last), ("i64", batch * m_all + i0), ("i64", j0))
    give_back(f, s, slot)
    return f


def tiles(spec: Spec) -> Function:
    """All tiles of a unit for one piece of the inner dimension."""
    g = spec.tile
    f = Function(
        "tiles",
        [("ptr", "ctx"), ("i64", "m"), ("i64", "n"), ("i64", "k"), ("ptr", "left"), ("ptr", "columns"), ("i64", "place"), ("ptr", "aside"),
         ("i1", "more"), ("i1", "last"), ("i64", "row"), ("i64", "column")],
    )  # fmt: skip
    s, v, p, end = fields(f), Vectors(f, g), Vectors(f, spec.packed), hole(f, spec, BUFFERS, SIZES)
    m, n, k, more = f["m"], f["n"], f["k"], f["more"]
    out, out_row = s.out, s.out_row
    step = f.select(s.hold > 0, g.columns * g.rows, 0)
    tile = f.variable(f["aside"], "ptr")
    with f.loop(0, n, g.columns) as j, f.loop(0, m, g.rows) as i:
        width, real = f.min(n - j, g.columns), f.min(m - i, g.rows)
        rows = f.ceil_div(real, g.granule) * g.granule
        wide = width > g.lanes
        first = [k, p.at(f["left"], i * k), p.at(f["columns"], j * k)]
        place = f["place"] + i * out_row + j
        to = f.at(out, place, MEMORY[spec.target])

        def finished() -> None:
            arguments = (tile.get(), g.columns, real, width, place, out_row, f["row"] + i, f["column"] + j)
            with f.when(f["last"]):
                end.finish(*arguments, ahead=True)
            call_micro(f, g, rows, wide, [*first, tile.get(), g.columns, more])
            with f.when(f["last"]):
                end.finish(*arguments)
            tile.set(v.at(tile.get(), step))

        def straight() -> None:
            call_micro(f, g, rows, wide, [*first, to, out_row, more])

        def edge() -> None:
            call_micro(f, g, rows, wide, [*first, tile.get(), g.columns, "false"])
            types = ("ptr", "i64", "i64", "i64", "ptr", "i64", "i1")
            f.call("add_tile", "void", *zip(types, (tile.get(), g.columns, real, width, to, out_row, more), strict=True))

        def plain() -> None:
            f.choose(f.both(real.equals(rows), width.equals(f.select(wide, g.columns, g.lanes))), straight, edge)

        if spec.plain:
            f.choose(end.given, finished, plain)
        else:
            finished()
    return f


def code(spec: Spec) -> str:
    """The product kernel's module."""
    left = panels.packer("pack_left", spec.packed, spec.factor(spec.left), spec.tile.rows)
    right = panels.packer("pack_right", spec.packed, spec.factor(spec.right), spec.tile.columns)
    return module(body(spec), tiles(spec), *holes_functions(spec), left, right, *micros(spec))


def pack_code(spec: Spec) -> str:
    """The module of the kernel that packs a right factor: a unit is a panel of columns of a piece."""
    g = spec.tile
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, p = Fields(f, PACK_BUFFERS, PACK_SIZES), Vectors(f, spec.packed)
    source = Packer(f, spec.packed, spec.factor(None))
    with f.loop(f["lo"], f["hi"]) as unit:
        start, j = (unit // s.panels) * spec.depth, (unit % s.panels) * g.columns
        depth = f.min(s.k - start, spec.depth)
        steps = f.ceil_div(depth, 2) if spec.pairs else depth
        begin = start // 2 if spec.pairs else start
        types = ("ptr", "i64", "i64", "i64", "i64", "ptr")
        arguments = (
            source.at(s.b, j * s.b_n + start * s.b_k), s.b_n, s.b_k, depth, f.min(s.n - j, g.columns), p.at(s.packed, begin * s.padded + j * steps),
        )  # fmt: skip
        f.call("pack_right", "void", *zip(types, arguments, strict=True))
    return module(f, panels.packer("pack_right", spec.packed, spec.factor(spec.right), g.columns))


# ---- plans


@dataclass(frozen=True)
class Plan:
    """A call's numbers. `packed` is the size of the packed right factor in words of the packed type, 0 if units pack it."""

    work: Any
    pack_work: Any
    packed: int
    scratch: int
    slots: int


_ROWS, _COLUMNS = 192, 512  # of a unit


def units_wanted(slots: int, work: int) -> int:
    """Units that keep the threads busy; a single thread's long work is two, for which Python's lock is released."""
    return 4 * slots if slots > 1 else 2 if work > 1 << 24 else 1


def plan(
    spec: Spec,
    batch: int,
    m: int,
    n: int,
    k: int,
    a: tuple[int, int],
    b: tuple[int, int],
    out_row: int,
    slots: int,
    packed: bool = False,
    finish: bool = False,
) -> Plan:
    """The plan of `batch` products (m, k) @ (k, n); `a` and `b`: strides (rows, columns) in elements. `packed`: b is packed beforehand;
    `finish`: an epilogue is given."""
    g = spec.tile
    rows = padded(m, g)
    item = ITEM[g.scalar]
    most = _ROWS * 4 // item // g.rows * g.rows
    inside = not packed and (rows <= 2 * most or batch > 1)
    mc = rows if rows <= 2 * most else most
    blocks = -(-m // mc)
    even = -(-m // blocks)
    mc = -(-even // g.rows) * g.rows
    nc = min(-(-n // g.columns) * g.columns, _COLUMNS * 4 // item if inside else n + g.columns)
    while -(-n // nc) * blocks * batch < units_wanted(slots, batch * m * n * k) and nc > 4 * g.columns:
        nc = -(-nc // 2 // g.columns) * g.columns
    row_units, column_units = -(-m // mc), -(-n // nc)
    padded_n = -(-n // g.columns) * g.columns
    hold = int((finish or not spec.plain) and k > spec.depth)
    scratch = (
        g.columns * g.rows + (mc + g.lanes) * spec.steps + inside * nc * spec.steps + hold * (mc + g.rows) * (nc + g.columns) + 64
    )
    fields = {
        "m": m, "n": n, "k": k, "mc": mc, "nc": nc, "row_units": row_units, "column_units": column_units, "a_m": a[0], "a_k": a[1],
        "b_k": b[0], "b_n": b[1], "out_row": out_row, "out_batch": m * out_row, "padded": padded_n, "inside": int(inside), "hold": hold,
        "scratch_size": scratch, "slots": slots,
    }  # fmt: skip
    pieces, count = -(-k // spec.depth), padded_n // g.columns
    pack = {"k": k, "n": n, "b_k": b[0], "b_n": b[1], "padded": padded_n, "panels": count}
    steps = -(-k // 2) if spec.pairs else k
    return Plan(
        np.array([batch * row_units * column_units, 1, *[fields[name] for name in SIZES]], np.int64),
        np.array([pieces * count, max(1, 8192 // (spec.steps * g.columns)), *[pack[name] for name in PACK_SIZES]], np.int64),
        0 if inside else steps * padded_n, scratch, slots,
    )  # fmt: skip


__all__ = [
    "BITS",
    "BUFFERS",
    "PACK_BUFFERS",
    "PACK_SIZES",
    "SIZES",
    "Plan",
    "Spec",
    "Value",
    "code",
    "pack_code",
    "pairs_of_bfloat16",
    "plan",
]
