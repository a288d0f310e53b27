"""A kernel that copies between arrays whose fastest dimensions differ, tile by tile through a buffer in cache.

Every line of either array is then read, or written, once and whole, whatever the strides are (rows a power of two apart share few cache
sets). A unit of work is a row of tiles: all of dimension q, for TILE places of dimension p, at one place of the outer dimensions; along p the
source is contiguous, along q the target.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    BITS,
    Binary,
    Buffer,
    Const,
    Expr,
    If,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Size,
    Statement,
    Store,
    compare,
    verify,
)  # fmt: skip

_ZERO = Const(0, "index")


def tile_of(type: str) -> int:
    """Elements along a tile's side: a cache line of 64 bytes where that isn't too many."""
    return min(32, 512 // BITS[type])


def size_names(outer: int) -> list[str]:
    """Sizes of the outer dimensions, p and q; target's and source's strides of the outer ones; target's along p, source's along q."""
    names = [f"n{d}" for d in range(outer)] + ["p", "q"]
    return names + [f"{a}{d}" for a in ("target_", "source_") for d in range(outer)] + ["target_p", "source_q"]


def make(type: str, outer: int) -> Kernel:
    tile = tile_of(type)
    side = Const(tile, "index")
    p, q = Size("p"), Size("q")
    rows = Binary("div", p + (tile - 1), side)
    rest: Expr = Binary("div", Index("unit"), rows)
    places: list[Expr] = []
    for d in range(outer - 1, -1, -1):
        places.insert(0, rest if d == 0 else Binary("rem", rest, Size(f"n{d}")))
        rest = Binary("div", rest, Size(f"n{d}"))
    target: Expr = _ZERO
    source: Expr = _ZERO
    for d, place in enumerate(places):
        target, source = target + place * Size(f"target_{d}"), source + place * Size(f"source_{d}")
    first_p, first_q = Binary("rem", Index("unit"), rows) * tile, Index("column") * tile
    target, source = target + first_p * Size("target_p") + first_q, source + first_p + first_q * Size("source_q")
    left_p, left_q = p - first_p, q - first_q

    def copy(name: str, width: Expr, height: Expr) -> tuple[Statement, ...]:
        a, b, c, d = (Index(f"{name}{letter}") for letter in "abcd")
        read = Store("tile", a * tile + b, Load("source", source + b * Size("source_q") + a, type))
        write = Store("target", target + c * Size("target_p") + d, Load("tile", c * tile + d, type))
        return (
            Loop(b.name, _ZERO, height, (Loop(a.name, _ZERO, width, (read,), "vector"),)),
            Loop(c.name, _ZERO, width, (Loop(d.name, _ZERO, height, (write,), "vector"),)),
        )  # fmt: skip

    whole = compare("ge", left_p, tile) & compare("ge", left_q, tile)
    partial = compare("lt", left_p, tile) | compare("lt", left_q, tile)
    body = (
        Local("tile", type, tile * tile),
        Loop("unit", Size("lo"), Size("hi"), (
            Loop("column", _ZERO, Binary("div", q + (tile - 1), side), (
                If(whole, copy("whole_", side, side)),
                If(partial, copy("part_", Binary("min", left_p, side), Binary("min", left_q, side))),
            )),
        )),
    )  # fmt: skip
    kernel = Kernel("transpose", (Buffer("target", type), Buffer("source", type)), (), tuple(map(Size, size_names(outer))), body)
    verify(kernel)
    return kernel
