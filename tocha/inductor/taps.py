"""Kernels of weighted sums of few elements along one dimension of a contiguous array seen as (outer, n, inner):

    out[o, i, j] = Σ_t x[o, index[t, i], j] * weight[t, i]

in the order of t, each product and sum rounded. They are a step of resizing images, and of its gradient. The caller promises indices from 0
to below n.
"""

from __future__ import annotations

from typing import NamedTuple

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
    Store,
    const,
    convert,
    select,
    verify,
)  # fmt: skip

MOST = 8  # taps, which are written one after the other
_ZERO = Const(0, "index")


class Key(NamedTuple):
    """What a kernel depends on: `partial` tables have taps that don't count (`used` says which do); without inner dimensions (`columns`) the
    loop runs along the dimension itself and gathers."""

    type: str
    taps: int
    weighted: bool
    partial: bool
    columns: bool


def make(key: Key) -> Kernel:
    """The kernel: out, x, index (int32), weight and used if the key has them; sizes n, of out along the dimension (`m`), inner. A unit is a
    place of the outer dimensions if it runs along columns, else one of outer and own dimension."""
    n, m, inner, unit = Size("n"), Size("m"), Size("inner"), Index("unit")
    place: Expr = Index("j") if key.columns else Binary("rem", unit, m)
    row: Expr = unit if key.columns else Binary("div", unit, m)
    total: Expr | None = None
    for t in range(key.taps):
        entry = m * t + place
        at = convert(Load("index", entry, "i32"), "index")
        offset = row * n + at if key.columns else (row * n + at) * inner + Index("j")
        value: Expr = Load("x", offset, key.type)
        if key.weighted:
            value = value * Load("weight", entry, key.type)
        if key.partial:
            value = select(Load("used", entry, "bool"), value, const(0, key.type))
        total = value if total is None else total + value
    assert total is not None
    step = Store("out", unit * (m if key.columns else inner) + Index("j"), total)
    moves = key.columns and key.taps == 1 and not key.weighted  # CPUs load one by one faster than they gather
    loop = Loop("j", _ZERO, m if key.columns else inner, (step,), "serial" if moves else "vector")
    body = (Loop("unit", Size("lo"), Size("hi"), (loop,)),)
    buffers = [Buffer("out", key.type), Buffer("x", key.type), Buffer("index", "i32")]
    buffers += [Buffer("weight", key.type)] if key.weighted else []
    buffers += [Buffer("used", "bool")] if key.partial else []
    kernel = Kernel("taps", tuple(buffers), (), (n, m, inner), body)
    verify(kernel)
    return kernel
