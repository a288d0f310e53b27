"""The register-blocked microkernel under matrix products and convolutions, and the packing of its left operand.

A tile of the result has `rows` rows and `vectors` vectors of columns, all of it in registers (12 x 2 of AVX-512's 32, 6 x 2 of AVX2's
16). A step of the inner dimension loads the tile's columns of B, broadcasts a column of packed A element by element and does
rows x vectors multiply-adds:

    tile[r, :] += A[k, r] * B[offsets[k] : offsets[k] + columns]

`offsets` is what makes one kernel serve all: for a product of matrices it is k times B's row length, for a convolution
the place of input channel and kernel tap k in a packed input (`windows`), so no column matrix is ever built; for a weight gradient it
is the place of pixel k. Packed A lies in row blocks: block after block, in each for every k the block's rows side by side. The
last block is narrower, a multiple of `granule`; rows past the end repeat the last.

Sources: Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"; Van Zee & van de Geijn 2015, "BLIS";
Dukhan 2019, "The Indirect Convolution Algorithm" (the table of offsets).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tocha.inductor import jit
from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.templates import epilogue
from tocha.inductor.templates.builder import Function, Value
from tocha.inductor.templates.expressions import constant, convert

AHEAD = 8192  # bytes before the microkernel that the left operand, read once, is fetched from memory
LETTER = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
ITEM = {"float": 4, "double": 8, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Geometry:
    """Sizes of the tile for an element type ("float", "double", "i32" or "i64") on a CPU."""

    scalar: str
    lanes: int
    rows: int
    granule: int
    fma: bool
    vectors: int = 2
    memory: str | None = None  # the half type of arrays ("f16" or "bf16"), computed with as float
    pairs: bool = False  # packed elements are pairs of bfloat16, the low half first, for a CPU that multiplies them

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.scalar}>"

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}{LETTER[self.scalar]}"

    @property
    def whole(self) -> bool:
        """Whether elements are integers, which wrap around."""
        return self.scalar[0] == "i"

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def stored(self) -> str:
        """LLVM's type of arrays' elements."""
        return MEMORY[self.memory] if self.memory else self.scalar

    @property
    def zeros(self) -> int:
        """Elements of a row of zeros that serves as a tile's columns and as its rows' bias."""
        return max(self.columns, -(-self.rows // 16) * 16)

    @property
    def align(self) -> int:
        return ITEM[self.scalar]

    @property
    def heights(self) -> range:
        """Row counts that have a microkernel."""
        return range(self.granule, self.rows + 1, self.granule)


def geometry(scalar: str) -> Geometry:
    """The tile for this machine: as many accumulators as leave a few registers free."""
    return _geometry(scalar, jit.host())


@functools.cache
def _geometry(scalar: str, target: tuple[str, str, str]) -> Geometry:
    triple, _, features = target
    has = set(features.split(","))
    if "+avx512f" in has:
        size, rows, granule = 64, 12, 4
    elif "+avx2" in has:
        size, rows, granule = 32, 6, 2
    elif triple.startswith(("aarch64", "arm64")):
        size, rows, granule = 16, 12, 4
    else:
        size, rows, granule = 16, 6, 2
    return Geometry(scalar, size // ITEM[scalar], rows, granule, jit.has_fma())


class Vectors:
    """Vector operations of a geometry inside a function."""

    def __init__(self, f: Function, g: Geometry) -> None:
        self.f, self.g = f, g

    def at(self, pointer: Any, index: Any) -> Value:
        return self.f.at(pointer, index, self.g.scalar)

    def far(self, pointer: Any, index: Any) -> Value:
        """The address of an array's element; `at` is that of a packed one."""
        return self.f.at(pointer, index, self.g.stored)

    def between(self, start: Value, end: Value) -> Value:
        """How many elements of an array lie between two addresses."""
        first, last = (self.f.op(f"ptrtoint ptr {p.name} to i64") for p in (start, end))
        return (last - first) // (2 if self.g.memory else self.g.align)

    def fetch(self, pointer: Value, mask: Value | None = None) -> Value:
        """A vector of an array, as it is computed with."""
        if self.g.memory:
            return epilogue.load(self.f, self.g.lanes, self.g.memory, "f32", pointer, mask)
        return self.load(pointer) if mask is None else self.masked_load(pointer, mask)

    def fetch_one(self, pointer: Value) -> Value:
        if not self.g.memory:
            return self.one(pointer)
        line = epilogue.load(self.f, 1, self.g.memory, "f32", pointer, None)
        return self.f.op(f"extractelement {line.type} {line.name}, i32 0", self.g.scalar)

    def fetch_pairs(self, low: Value, high: Value, mask: Value | None = None) -> Value:
        """Pairs of bfloat16 of two lines."""
        f, n = self.f, self.g.lanes
        wide = f"<{n} x i32>"
        a, b = (
            f.op(f"zext {x.type} {x.name} to {wide}", wide)
            for x in (epilogue.load(f, n, "i16", "i16", p, mask) for p in (low, high))
        )
        return f.op(f"bitcast {wide} {self._joined(a, b, constant(n, 16, 'i32')).name} to {self.g.vector}", self.g.vector)

    def fetch_pair(self, low: Value, high: Value) -> Value:
        f = self.f
        a, b = (f.op(f"zext i16 {f.load('i16', p, 2).name} to i32", "i32") for p in (low, high))
        return f.op(f"bitcast i32 {self._joined(a, b, '16').name} to float", "float")

    def _joined(self, low: Value, high: Value, bits: str) -> Value:
        raised = self.f.op(f"shl {high.type} {high.name}, {bits}", high.type)
        return self.f.op(f"or {low.type} {low.name}, {raised.name}", low.type)

    def keep(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store a vector to an array."""
        if not self.g.memory:
            self.masked_store(value, pointer, mask)
            return
        epilogue.store(
            self.f, self.g.lanes, self.g.memory, convert(self.f, self.g.lanes, value, "f32", self.g.memory), pointer, mask
        )

    def keep_one(self, value: Value, pointer: Value) -> None:
        if self.g.memory:
            line = self.f.op(f"insertelement <1 x float> poison, float {value.name}, i32 0", "<1 x float>")
            epilogue.store(self.f, 1, self.g.memory, convert(self.f, 1, line, "f32", self.g.memory), pointer, None)
        else:
            self.store(value, pointer)

    def load(self, pointer: Value) -> Value:
        return self.f.load(self.g.vector, pointer, self.g.align)

    def one(self, pointer: Value) -> Value:
        return self.f.load(self.g.scalar, pointer, self.g.align)

    def store(self, value: Value, pointer: Value) -> None:
        self.f.store(value, pointer, self.g.align)

    def splat(self, x: Value) -> Value:
        return self.f.splat(x, self.g.vector)

    def add(self, x: Value, y: Value) -> Value:
        return self.f.op(f"{'add' if self.g.whole else 'fadd'} {x.type} {x.name}, {y.name}", x.type)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        v = self.g.vector
        if self.g.whole:
            return self.add(self.f.op(f"mul {v} {x.name}, {y.name}", v), z)
        if self.g.pairs:
            halves = f"<{2 * self.g.lanes} x bfloat>"
            a, b = (self.f.op(f"bitcast {v} {n.name} to {halves}", halves) for n in (x, y))
            name = f"llvm.x86.avx512bf16.dpbf16ps.{self.g.lanes * 32}"
            return self.f.call(name, v, (v, z), (halves, a), (halves, b), declare=True)
        return self.f.call(f"llvm.{'fma' if self.g.fma else 'fmuladd'}.{self.g.suffix}", v, (v, x), (v, y), (v, z), declare=True)

    def mask(self, start: Any, stop: Any, first: int = 0) -> Value:
        """Lanes start <= i < stop, counted from `first`; `start` None for those below `stop`."""
        f, n = self.f, self.g.lanes
        lane = f"<{', '.join(f'i32 {first + i}' for i in range(n))}>"
        wide = f"<{n} x i32>"

        def compare(op: str, bound: Value) -> Value:
            small = f.op(f"trunc i64 {bound.name} to i32", "i32")
            return f.op(f"icmp {op} {wide} {lane}, {f.splat(small, wide).name}", f"<{n} x i1>")

        below = compare("slt", stop)
        return below if start is None else f.op(f"and <{n} x i1> {compare('sge', start).name}, {below.name}", below.type)

    def constant(self, number: str) -> str:
        """The vector of one number, as LLVM writes it."""
        return f"<{', '.join([f'{self.g.scalar} {number}'] * self.g.lanes)}>"

    def masked_load(self, pointer: Value, mask: Value, otherwise: str = "zeroinitializer") -> Value:
        v, f = self.g.vector, self.f
        return f.call(
            f"llvm.masked.load.{self.g.suffix}.p0", v, ("ptr", pointer), ("i32", self.g.align), (mask.type, mask), (v, otherwise),
            declare=True,
        )  # fmt: skip

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        self.f.call(
            f"llvm.masked.store.{self.g.suffix}.p0", "void", (self.g.vector, value), ("ptr", pointer), ("i32", self.g.align),
            (mask.type, mask), declare=True,
        )  # fmt: skip

    def first(self, value: Value, count: int) -> Value:
        """The first lanes of a vector."""
        if count == self.g.lanes:
            return value
        order = ", ".join(f"i32 {lane}" for lane in range(count))
        kind = f"<{count} x {self.g.scalar}>"
        return self.f.op(f"shufflevector {value.type} {value.name}, {value.type} poison, <{count} x i32> <{order}>", kind)

    def transpose(self, lines: list[Value]) -> list[Value]:
        """As many vectors as they have lanes, as a matrix, transposed: exchanges between vectors 1, 2, 4 … apart."""
        n, kind = self.g.lanes, self.g.vector

        def shuffle(a: Value, b: Value, lanes: list[int]) -> Value:
            order = ", ".join(f"i32 {lane}" for lane in lanes)
            return self.f.op(f"shufflevector {kind} {a.name}, {kind} {b.name}, <{n} x i32> <{order}>", kind)

        lines = list(lines)
        apart = 1
        while apart < n:
            for i in range(n):
                if not i & apart:
                    a, b = lines[i], lines[i + apart]
                    lines[i] = shuffle(a, b, [lane if not lane & apart else n + lane - apart for lane in range(n)])
                    lines[i + apart] = shuffle(a, b, [lane + apart if not lane & apart else n + lane for lane in range(n)])
            apart *= 2
        return lines


def micro(g: Geometry, rows: int, vectors: int, singles: int = 0, picked: bool = False, onward: bool = False) -> Function:
    """c[r, :] = sum over k of a[k, r] * b[offsets[k] :], plus bias[r], or plus c if `more`. Meanwhile as much memory as `a` has is fetched
    from `ahead` on. `singles`: so many more columns (7 x 7 pixels are 49), of which each one's sums for all rows are a vector. `picked`: a's steps
    are `picks[k]`. `onward`: products are added to bias or c one by one, as torch's convolutions add them, not their sum at the end; but to c at the
    end if `late`, where it may be far away."""
    f = Function(
        f"micro_{rows}x{vectors}s{singles}",
        [
            ("i64", "k"), *[("ptr", n) for n in ("a", "b", "offsets", "c")], ("i64", "row"), ("ptr", "bias"), ("i1", "more"), ("ptr", "ahead"),
            *([("ptr", "picks")] if picked else [("i1", "late")] if onward else []),
        ],
    )  # fmt: skip
    v = Vectors(f, g)
    sums = [[f.variable("zeroinitializer", g.vector) for _ in range(vectors)] for _ in range(rows)]
    starts = range(0, rows, g.lanes) if singles else ()
    # AVX-512's masks are hidden from LLVM, which makes constant ones anew in every step.
    number = f.opaque if g.lanes * g.align == 64 else lambda n: Value(f, str(n))
    masks = [None if first + g.lanes <= rows else v.mask(None, number(rows - first)) for first in starts]
    lasts = [[f.variable("zeroinitializer", g.vector) for _ in starts] for _ in range(singles)]
    room = len(starts) * g.lanes
    aside = f.array(singles * room, g.scalar) if singles else f["c"]

    def place(r: int, j: int) -> Value:
        return v.at(v.at(f["c"], f["row"] * r), j)

    def fetched(part: int, pointer: Value) -> Value:
        mask = masks[part]
        return v.load(pointer) if mask is None else v.masked_load(pointer, mask)

    def each_single(move: Callable[[Value, Value], None]) -> None:
        """Have single columns moved between their vectors' elements, put aside, and their places in c."""
        with f.loop(0, rows) as r:
            to = v.at(v.at(f["c"], f["row"] * r), vectors * g.lanes)
            for j in range(singles):
                move(v.at(aside, r + j * room), v.at(to, j))

    def begin(more: bool) -> None:
        for r in range(rows):
            start = None if more else v.splat(v.one(v.at(f["bias"], r)))
            for j, total in enumerate(sums[r]):
                total.set(start or v.load(place(r, j * g.lanes)))
        if more and singles:
            each_single(lambda here, to: v.store(v.one(to), here))
        for j, totals in enumerate(lasts):
            for part, total in enumerate(totals):
                total.set(fetched(part, v.at(aside, j * room + part * g.lanes) if more else v.at(f["bias"], part * g.lanes)))

    late = f["late"] if onward and not picked else None
    if onward:
        f.choose(f["more"] if late is None else f.both(f["more"], f.negate(late)), lambda: begin(True), lambda: begin(False))
    with f.loop(0, f["k"]) as k:
        b = v.at(f["b"], f.word(f["offsets"], k))
        a = v.at(f["a"], (f.word(f["picks"], k) if picked else k) * rows)
        f.prefetch(f.beyond(f["ahead"], k * (rows * g.align)))
        columns = [v.load(v.at(b, j * g.lanes)) for j in range(vectors)]
        for r in range(rows):
            factor = v.splat(v.one(v.at(a, r)))
            for total, column in zip(sums[r], columns, strict=True):
                total.set(v.fma(factor, column, total.get()))
        for part, first in enumerate(starts):
            factors = fetched(part, v.at(a, first))
            for j, totals in enumerate(lasts):
                totals[part].set(v.fma(factors, v.splat(v.one(v.at(b, vectors * g.lanes + j))), totals[part].get()))

    def finish(more: bool, done: bool = False) -> None:
        for r in range(rows):
            start = None if more or done else v.splat(v.one(v.at(f["bias"], r)))
            for j, total in enumerate(sums[r]):
                to = place(r, j * g.lanes)
                v.store(total.get() if done else v.add(total.get(), start or v.load(to)), to)
        for j, totals in enumerate(lasts):
            for part, total in enumerate(totals):
                line = total.get() if more or done else v.add(total.get(), fetched(part, v.at(f["bias"], part * g.lanes)))
                v.store(line, v.at(aside, j * room + part * g.lanes))
        if singles:
            each_single(lambda here, to: v.store(v.add(v.one(here), v.one(to)) if more and not done else v.one(here), to))

    if not onward:
        f.choose(f["more"], lambda: finish(True), lambda: finish(False))
    elif late is None:
        finish(True, True)
    else:
        f.choose(late, lambda: finish(True), lambda: finish(True, True))
    return f


def micros(g: Geometry, singles: int = 0, picked: bool = False, onward: bool = False) -> list[Function]:
    """All heights and widths; with `singles`, also a vector and so many columns where that pays."""
    found = [micro(g, rows, n, picked=picked, onward=onward) for rows in g.heights for n in range(1, g.vectors + 1)]
    return found + [micro(g, rows, 1, singles, picked, onward) for rows in _with_singles(g, singles)]


def _with_singles(g: Geometry, singles: int) -> list[int]:
    """The heights at which so many more columns take less than a second vector of columns would take; for one column, all heights."""
    return [rows for rows in g.heights if singles and singles * -(-rows // g.lanes) < rows]


def call_micro(f: Function, g: Geometry, rows: Value, columns: Value, arguments: list[Any], singles: int = 0) -> None:
    """The microkernel of `rows` rows and as many vectors as `columns` take, or of one and so many columns; `ahead` may be left out."""
    if len(arguments) < 9:
        arguments = [*arguments, f.beyond(arguments[1], AHEAD)]
    types = ("i64", "ptr", "ptr", "ptr", "ptr", "i64", "ptr", "i1", "ptr", *[a.type for a in arguments[9:]])

    def pick(heights: list[int], vectors: int, singles: int = 0) -> Callable[[], None]:
        name = f"micro_{heights[0]}x{vectors}s{singles}"

        def call() -> None:
            f.call(name, "void", *zip(types, arguments, strict=True))

        return call if len(heights) == 1 else lambda: f.choose(rows.equals(heights[0]), call, pick(heights[1:], vectors, singles))

    heights = list(reversed(g.heights))

    def widely() -> None:
        f.choose(columns > g.lanes, pick(heights, g.vectors), pick(heights, 1))

    tall = _with_singles(g, singles)
    if tall:
        some = f.both(columns.equals(g.lanes + singles), rows >= tall[0])
        f.choose(some, pick(tall[::-1], 1, singles), widely)
    else:
        widely()


def padded(rows: int, g: Geometry) -> int:
    """Rows of a packed left operand."""
    return -(-rows // g.granule) * g.granule
