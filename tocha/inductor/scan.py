"""Kernels of scans along one dimension of a contiguous array seen as (outer, n, inner): running sums, products and extremes.

With inner dimensions a unit of work is a block of columns that are scanned side by side; without, a few rows, whose chains of dependent
operations overlap (sums and products), or one (extremes). Every chain runs in order, so the result has NumPy's bits: float32 accumulates in
float64 and is rounded for each element.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    BITS,
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
    const,
    convert,
    select,
    verify,
)  # fmt: skip
from tocha.inductor.reduce import START

COLUMNS = 256  # of a unit
KINDS = ("add", "mul", "max", "min")
_ZERO = Const(0, "index")
_SIZES = ("outer", "n", "inner", "blocks")


def rows_at_once(kind: str, type: str) -> int:
    """Rows of a unit: as many as fill the wait for an addition of floats or a product. Integers' additions wait for nothing, and rows whose length
    is a power of 2 get into each other's way in the cache."""
    return 1 if kind in ("max", "min") or (kind == "add" and type not in FLOATS) else 4


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
        """What comes before the loop over places, and in it, for the sum or product of one row in a variable."""
        total = f"total{number}"
        at = _offset(row, k, self.reverse)
        held = Read(total, self.wide)
        inside = (Assign(total, Binary(self.kind, held, self.load(at))), Store("out", at, convert(held, self.type)))
        return (Declare(total, self.wide, self.start), Assign(total, self.start)), inside

    def rows(self) -> tuple[Statement, ...]:
        """Some rows a unit, the last rows one by one."""
        count = rows_at_once(self.kind, self.type)
        unit, k, single, m = Index("unit"), Index("k"), Index("single"), Index("m")
        whole = Binary("min", Size("hi"), Binary("div", Size("outer"), Const(count, "index")))
        parts = [self.row(r, unit * count + r, k) for r in range(count)]
        body = [s for before, _ in parts for s in before]
        # All loads before all stores: to the CPU addresses a page apart look alike, and a load waits for a store to what it takes for its own.
        body.append(Loop("k", _ZERO, Size("n"), tuple([inside[i] for i in (0, 1) for _, inside in parts])))
        before, inside = self.row(count, single, m)
        first = Binary("max", Size("lo") * count, Binary("div", Size("outer"), Const(count, "index")) * count)
        last = Binary("min", Size("hi") * count, Size("outer"))
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


_CHUNK = 256  # places whose keys are computed at once
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}  # its bits


def _key(x: Expr, type: str, missing: int) -> Expr:
    """Integers in the order of floats of the given bits: zeros of both signs are equal, NaN is `missing`."""
    infinity = _INFINITY.get(type)
    if infinity is None:
        return x
    positive = (1 << (BITS[type] - 1)) - 1
    sign = x >> (BITS[type] - 1)
    return select(compare("gt", x & positive, infinity), missing, (x ^ (sign & positive)) - sign)


def extremes(kind: str, type: str) -> Kernel:
    """Running extremes of rows, on their bits: keys are compared, so that little has to wait for what came before. The buffers and sizes of
    `make`; a unit is a row."""
    bits = f"i{BITS[type]}" if type in _INFINITY else type
    low, high = (-(1 << (BITS[bits] - 1)), (1 << (BITS[bits] - 1)) - 1) if bits[0] == "i" else (0, (1 << BITS[bits]) - 1)
    worst, missing = (low, high) if kind == "max" else (high, low)
    n, z, k = Size("n"), Index("z"), Index("k")
    first = Index("chunk") * _CHUNK
    width = Binary("min", n - first, Const(_CHUNK, "index"))
    row = Index("unit") * n + first
    best, value, place = Read("best", bits), Read("value", bits), Read("place", "i64")
    key = Load("keys", k, bits)
    step = (
        Declare("better", "bool", compare("ge" if kind == "max" else "le", key, best)),
        Assign("best", select(Read("better", "bool"), key, best)),
        Assign("value", select(Read("better", "bool"), Load("x", row + k, bits), value)),
        Assign("place", select(Read("better", "bool"), convert(first + k, "i64"), place)),
        Store("out", row + k, value),
        Store("places", row + k, place),
    )
    start: list[Statement] = []
    for name, held, number in (("best", bits, worst), ("value", bits, 0), ("place", "i64", 0)):
        start += [Declare(name, held, const(number, held)), Assign(name, const(number, held))]
    keys = Store("keys", z, _key(Load("x", row + z, bits), type, missing))
    chunk = (Loop("z", _ZERO, width, (keys,), "vector"), Loop("k", _ZERO, width, step))
    chunks = Loop("chunk", _ZERO, Binary("div", n + (_CHUNK - 1), Const(_CHUNK, "index")), chunk)
    body = (Local("keys", bits, _CHUNK), Loop("unit", Size("lo"), Binary("min", Size("hi"), Size("outer")), (*start, chunks)))
    buffers = (Buffer("out", bits), Buffer("places", "i64"), Buffer("x", bits))
    kernel = Kernel(f"scan_{kind}", buffers, (), tuple(map(Size, _SIZES)), body)
    verify(kernel)
    return kernel


def make(kind: str, type: str, columns: bool, reverse: bool) -> Kernel:
    """The kernel: out, of extremes also their places (int64), x; sizes outer, n, inner, blocks of columns. Units beyond the last do nothing."""
    if not columns and kind in ("max", "min"):
        return extremes(kind, type)
    scan = _Scan(kind, type, reverse)
    body = scan.columns() if columns else scan.rows()
    kernel = Kernel(f"scan_{kind}", tuple(scan.buffers), (), tuple(map(Size, _SIZES)), body)
    verify(kernel)
    return kernel
