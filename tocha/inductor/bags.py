"""A kernel that finds where the largest element of each bag of rows is, column by column; of equal ones the first, and NaN is the largest.

Rows are taken in order, a block of columns a unit of work.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    FLOATS,
    Binary,
    Buffer,
    Const,
    Declare,
    Expr,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    Read,
    Size,
    Store,
    compare,
    convert,
    select,
    verify,
)  # fmt: skip

BLOCK = 256  # columns of a unit
_ZERO = Const(0, "index")


def maximum_place(type: str) -> Kernel:
    """out (bags, m; -1 before the first row), best (bags, m; of no matter before), rows (n, m), bags (n): negative ones are skipped."""
    m, row, j = Size("m"), Index("row"), Index("j")
    first = Index("unit") * BLOCK
    bag = Load("bags", row, "i64")
    column = first + j
    place = convert(bag, "index") * m + column
    x, best, old = Load("rows", row * m + column, type), Load("best", place, type), Load("out", place, "i64")
    better: Expr = compare("gt", x, best)
    if type in FLOATS:
        better = better | (compare("ne", x, x) & compare("eq", best, best))
    better = better | compare("lt", old, 0)
    stores = (  # both values are computed before either is stored
        Declare("found", "i64", select(better, convert(row, "i64"), old)),
        Declare("largest", type, select(better, x, best)),
        Store("out", place, Read("found", "i64")),
        Store("best", place, Read("largest", type)),
    )
    width = Binary("min", m - first, Const(BLOCK, "index"))
    step = If(compare("ge", bag, 0), (Loop("j", _ZERO, width, stores, "vector"),))
    body = (Loop("unit", Size("lo"), Size("hi"), (Loop("row", _ZERO, Size("n"), (step,)),)),)
    buffers = (Buffer("out", "i64"), Buffer("best", type), Buffer("rows", type), Buffer("bags", "i64"))
    kernel = Kernel("bag_maximum_place", buffers, (), (Size("n"), m), body)
    verify(kernel)
    return kernel
