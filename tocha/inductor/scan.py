"""Kernels of scans along one dimension of a contiguous array seen as (outer, n, inner): running sums, products and extremes.

With inner dimensions a unit of work is a block of columns that are scanned side by side; without, a few rows, whose chains of dependent
operations overlap. Every chain runs in order, so the result has NumPy's bits: float32 accumulates in float64 and is rounded for each
element.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    FLOATS,
    HALVES,
    Assign,
    Binary,
    Buffer,
    Const,
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
    compare,
    convert,
    select,
    verify,
)  # fmt: skip
from tocha.inductor.reduce import START

ROWS, COLUMNS = 8, 256  # of a unit
KINDS = ("add", "mul", "max", "min")
_ZERO = Const(0, "index")


def _offset(row: Expr, k: Expr, reverse: bool) -> Expr:
    """The first inner element at place k of an outer index."""
    n = Size("n")
    place = n - 1 - k if reverse else k
    return (row * n + place) * Size("inner")


def _step(kind: str, x: Expr, total: Expr, k: Expr, place: Expr | None) -> tuple[Expr, Expr | None]:
    """The accumulated value and, of extremes, where it was last reached; once NaN is met it stays."""
    if place is None:
        return Binary(kind, total, x), None
    better = compare("ge" if kind == "max" else "le", x, total)
    if x.type in FLOATS:
        better = better | compare("ne", x, x)
    return select(better, x, total), select(better, convert(k, "i64"), place)


class _Scan:
    def __init__(self, kind: str, type: str, reverse: bool) -> None:
        self.kind, self.type, self.reverse = kind, type, reverse
        self.picks = kind in ("max", "min")
        held = "f32" if type in HALVES else type
        self.wide = "f64" if type == "f32" and not self.picks else held
        self.start = START[kind](self.wide)
        self.buffers = [Buffer("out", type), *([Buffer("places", "i64")] if self.picks else []), Buffer("x", type)]

    def load(self, offset: Expr) -> Expr:
        x: Expr = Load("x", offset, self.type)
        return convert(convert(x, "f32") if self.type in HALVES else x, self.wide)

    def row(self, number: int, row: Expr, k: Expr) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
        """What comes before the loop over places, and in it, for one row in variables."""
        total, place = f"total{number}", f"place{number}"
        before: list[Statement] = [Declare(total, self.wide, self.start), Assign(total, self.start)]
        if self.picks:
            before += [Declare(place, "i64", Const(0, "i64")), Assign(place, Const(0, "i64"))]
        at = _offset(row, k, self.reverse)
        old = Read(place, "i64") if self.picks else None
        value, reached = _step(self.kind, self.load(at), Read(total, self.wide), k, old)
        inside: list[Statement] = [] if reached is None else [Assign(place, reached)]
        inside += [Assign(total, value), Store("out", at, convert(Read(total, self.wide), self.type))]
        if reached is not None:
            inside.append(Store("places", at, Read(place, "i64")))
        return tuple(before), tuple(inside)

    def rows(self) -> tuple[Statement, ...]:
        """ROWS rows a unit, the last rows one by one."""
        unit, k, single, m = Index("unit"), Index("k"), Index("single"), Index("m")
        whole = Binary("min", Size("hi"), Binary("div", Size("outer"), Const(ROWS, "index")))
        parts = [self.row(r, unit * ROWS + r, k) for r in range(ROWS)]
        body = [s for before, _ in parts for s in before]
        body.append(Loop("k", _ZERO, Size("n"), tuple([s for _, inside in parts for s in inside])))
        before, inside = self.row(ROWS, single, m)
        first = Binary("max", Size("lo") * ROWS, Binary("div", Size("outer"), Const(ROWS, "index")) * ROWS)
        last = Binary("min", Size("hi") * ROWS, Size("outer"))
        return (
            Loop("unit", Size("lo"), whole, tuple(body)),
            Loop("single", first, last, (*before, Loop("m", _ZERO, Size("n"), inside))),
        )  # fmt: skip

    def columns(self) -> tuple[Statement, ...]:
        unit, k, j, z = Index("unit"), Index("k"), Index("j"), Index("z")
        row = Binary("div", unit, Size("blocks"))
        first = Binary("rem", unit, Size("blocks")) * COLUMNS
        width = Binary("min", Size("inner") - first, Const(COLUMNS, "index"))
        at = _offset(row, k, self.reverse) + first + j
        old = Load("place", j, "i64") if self.picks else None
        value, reached = _step(self.kind, self.load(at), Load("total", j, self.wide), k, old)
        step: list[Statement] = [] if reached is None else [Store("place", j, reached)]
        step += [Store("total", j, value), Store("out", at, convert(Load("total", j, self.wide), self.type))]
        clear: list[Statement] = [Store("total", z, self.start)]
        head: list[Statement] = [Local("total", self.wide, COLUMNS)]
        if reached is not None:
            step.append(Store("places", at, Load("place", j, "i64")))
            clear.append(Store("place", z, Const(0, "i64")))
            head.append(Local("place", "i64", COLUMNS))
        body = (
            *head, Loop("z", _ZERO, width, tuple(clear), "vector"),
            Loop("k", _ZERO, Size("n"), (Loop("j", _ZERO, width, tuple(step), "vector"),)),
        )  # fmt: skip
        return (Loop("unit", Size("lo"), Binary("min", Size("hi"), Size("outer") * Size("blocks")), body),)


def make(kind: str, type: str, columns: bool, reverse: bool) -> Kernel:
    """The kernel: out, of extremes also their places (int64), x; sizes outer, n, inner, blocks of columns. Units beyond the last do nothing."""
    scan = _Scan(kind, type, reverse)
    body = scan.columns() if columns else scan.rows()
    names = ("outer", "n", "inner", "blocks")
    kernel = Kernel(f"scan_{kind}", tuple(scan.buffers), (), tuple(map(Size, names)), body)
    verify(kernel)
    return kernel
