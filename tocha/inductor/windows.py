"""Kernels that copy rows of which only a part is kept, or backwards: triangles of matrices, and flips of the last dimension."""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    Binary,
    Buffer,
    Const,
    Expr,
    Index,
    Kernel,
    Load,
    Loop,
    Size,
    Statement,
    Store,
    const,
    verify,
)  # fmt: skip

_ZERO = Const(0, "index")


def _loop(name: str, start: Expr, stop: Expr, row: Expr, value: Expr) -> Statement:
    return Loop(name, start, stop, (Store("out", row + Index(name), value),), "vector")


def triangle(type: str, upper: bool) -> Kernel:
    """out, x: matrices of `n` columns, zeros above (`upper`: below) the diagonal that begins at column `diagonal` of the first row. A unit
    is a row."""
    n, unit = Size("n"), Index("unit")
    start = Binary("rem", unit, Size("rows")) + Size("diagonal") + (0 if upper else 1)
    bound = Binary("min", Binary("max", start, _ZERO), n)
    row, zero = unit * n, const(0, type)
    kept = Load("x", row + Index("kept"), type)
    body = (
        (_loop("cleared", _ZERO, bound, row, zero), _loop("kept", bound, n, row, kept))
        if upper
        else (_loop("kept", _ZERO, bound, row, kept), _loop("cleared", bound, n, row, zero))
    )
    return _kernel("triangle", type, ("rows", "n", "diagonal"), body)


def flip(type: str, outer: int) -> Kernel:
    """out (contiguous), x: rows backwards, for each place of `outer` dimensions along which x has strides, from an offset on. A unit is a row."""
    n, j = Size("n"), Index("j")
    source: Expr = Size("start")
    rest: Expr = Index("unit")
    for d in range(outer - 1, -1, -1):
        source = source + (rest if d == 0 else Binary("rem", rest, Size(f"n{d}"))) * Size(f"step{d}")
        rest = Binary("div", rest, Size(f"n{d}"))
    body = (_loop("j", _ZERO, n, Index("unit") * n, Load("x", source + (n - 1) - j, type)),)
    names = ("n", "start", *[f"n{d}" for d in range(outer)], *[f"step{d}" for d in range(outer)])
    return _kernel("flip", type, names, body)


def _kernel(name: str, type: str, sizes: tuple[str, ...], body: tuple[Statement, ...]) -> Kernel:
    units = (Loop("unit", Size("lo"), Size("hi"), body),)
    kernel = Kernel(name, (Buffer("out", type), Buffer("x", type)), (), tuple(map(Size, sizes)), units)
    verify(kernel)
    return kernel
