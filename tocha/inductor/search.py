"""Kernels of binary search in sorted rows: how many of a row's edges come before each value, NaN being the largest number.

The search has the same steps for every value, and no branch that depends on it.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    FLOATS,
    Binary,
    Buffer,
    Const,
    Expr,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Size,
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
