"""Kernels of binary search in sorted rows: how many of a row's edges come before each value, NaN being the largest number; and of the
few largest or smallest elements of rows.

The search has the same steps for every value, and no branch that depends on it.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    FLOATS,
    Assign,
    Binary,
    Buffer,
    Const,
    Declare,
    Expr,
    If,
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
    select,
    verify,
)  # fmt: skip

BLOCK = 256  # values of a unit
_ZERO = Const(0, "index")


def steps(n: int) -> list[int]:
    """How far each step may go; together they leave one edge of `n` to look at, the last step."""
    found = []
    while n > 1:
        found.append(n // 2)
        n -= n // 2
    return [*found, 1]


def _less(x: Expr, y: Expr) -> Expr:
    less = compare("lt", x, y)
    return less | (compare("ne", y, y) & compare("eq", x, x)) if x.type in FLOATS else less


def make(type: str, right: bool) -> Kernel:
    """out (int64), edges (rows, n), values (rows, m), steps (int32). A unit is a block of a row's values; `n` ≥ 1 edges lie `row` apart."""
    row, first = Binary("div", Index("unit"), Size("blocks")), Binary("rem", Index("unit"), Size("blocks")) * BLOCK
    width = Binary("min", Size("m") - first, Const(BLOCK, "index"))
    place, j, z, k = row * Size("m") + first, Index("j"), Index("z"), Index("k")
    step, base = Load("steps", Index("s"), "i32"), Load("base", j, "i32")
    value, edge = Load("values", place + j, type), Load("edges", row * Size("row") + convert(base + step - 1, "index"), type)
    before = Unary("not", _less(value, edge)) if right else _less(edge, value)
    advance = Store("base", j, base + select(before, step, 0))
    unit = (
        Loop("z", _ZERO, width, (Store("base", z, const(0, "i32")),), "vector"),
        Loop("s", _ZERO, Size("count"), (Loop("j", _ZERO, width, (advance,), "vector"),)),
        Loop("k", _ZERO, width, (Store("out", place + k, convert(Load("base", k, "i32"), "i64")),), "vector"),
    )
    body = (Local("base", "i32", BLOCK), Loop("unit", Size("lo"), Size("hi"), unit))
    buffers = (Buffer("out", "i64"), Buffer("edges", type), Buffer("values", type), Buffer("steps", "i32"))
    kernel = Kernel("search", buffers, (), tuple(map(Size, ("m", "blocks", "row", "count"))), body)
    verify(kernel)
    return kernel


def first(type: str, largest: bool) -> Kernel:
    """values, places (int64), x: the `k` largest (or smallest) of each row of `n` elements, in order, and where they are; of equal ones those
    that come first. A unit is a row. An element that belongs to the k of those seen so far is put in its place among them, which is rare."""
    row, mine = Index("unit") * Size("n"), Index("unit") * Size("k")

    def insert(j: Expr, index: str, slot: Expr) -> tuple[Statement, ...]:
        """Put element j where it belongs, and what lay there and behind one place on."""
        new, at, goes, old, old_at = (
            Read(index + name, kind)
            for name, kind in (("new", type), ("at", "i64"), ("goes", "bool"), ("old", type), ("old_at", "i64"))
        )
        held = Load("values", slot, type)
        before = compare("lt", Load("places", slot, "i64"), 0) | (_less(held, new) if largest else _less(new, held))
        step = (
            Assign(goes.name, goes | before),
            Declare(old.name, type, held),
            Declare(old_at.name, "i64", Load("places", slot, "i64")),
            Store("values", slot, select(goes, new, old)),
            Store("places", slot, select(goes, at, old_at)),
            Assign(new.name, select(goes, old, new)),
            Assign(at.name, select(goes, old_at, at)),
        )
        return (
            Declare(new.name, type, Load("x", row + j, type)),
            Declare(at.name, "i64", convert(j, "i64")),
            Declare(goes.name, "bool", const(False, "bool")),
            Loop(index, _ZERO, Size("k"), step),
        )

    last, seen = Load("values", mine + Size("k") - 1, type), Load("x", row + Index("j"), type)
    may = Unary("not", compare("le" if largest else "ge", seen, last))  # NaN may; whether it does is asked at each place
    unit = (
        Loop("z", _ZERO, Size("k"), (Store("places", mine + Index("z"), const(-1, "i64")),), "vector"),
        Loop("i", _ZERO, Size("k"), insert(Index("i"), "b", mine + Index("b"))),
        Loop("j", Size("k"), Size("n"), (If(may, insert(Index("j"), "c", mine + Index("c"))),)),
    )
    buffers = (Buffer("values", type), Buffer("places", "i64"), Buffer("x", type))
    kernel = Kernel("first", buffers, (), (Size("n"), Size("k")), (Loop("unit", Size("lo"), Size("hi"), unit),))
    verify(kernel)
    return kernel
