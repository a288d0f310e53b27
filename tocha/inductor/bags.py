"""Kernels of bags of rows: their sums, and where the largest element of each is, column by column; of equal ones the first, and NaN is
the largest. Rows are taken in order.
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    BITS,
    FLOATS,
    HALVES,
    Accumulate,
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
    Prefetch,
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


_GROUP, _AHEAD = 4, 16  # rows whose sum is stored once, and after how many more they are fetched from memory
_WIDE = 64  # columns of a unit's sums; whole blocks of them have loops of their own, which need not ask


def sums(type: str, index: str, factors: bool, mean: bool) -> Kernel:
    """out (bags, m): sums of the rows of a table at indices[starts[b]] … before starts[b + 1], each times its factor if there are `factors`;
    `mean`: over their number, if that isn't 0. Indices equal to `padding` are left out; `last` is the last one's place. A unit of work is a bag."""
    compute = "f32" if type in HALVES else type
    m, unit, e = Size("m"), Index("unit"), Index("e")
    first = Index("block") * _WIDE
    start, stop = (convert(Load("starts", unit + d, "i64"), "index") for d in (0, 1))

    def used(at: Expr) -> Expr:
        return compare("ne", convert(Load("indices", at, index), "index"), Size("padding"))

    def value(at: Expr, column: Expr) -> Expr:
        found = convert(Load("table", convert(Load("indices", at, index), "index") * m + first + column, type), compute)
        return found * convert(Load("factors", at, type), compute) if factors else found

    def added(width: Expr, column: Index, *rows: Expr) -> Statement:
        total: Expr = Load("total", column, compute)
        for at in rows:
            total = total + value(at, column)
        return Loop(column.name, _ZERO, width, (Store("total", column, total),), "vector")

    before: list[Statement] = []
    result: Expr = Load("total", e, compute)
    if mean:
        one, zero = const(1, "i64"), const(0, "i64")
        step = Accumulate("add", "count", select(used(Index("k")), one, zero))
        before = [Declare("count", "i64", zero), Assign("count", zero), Loop("k", start, stop, (step,))]
        result = result / convert(Binary("max", Read("count", "i64"), one), compute)

    def block(width: Expr, number: int) -> tuple[Statement, ...]:
        """The statements for a block of columns."""
        group, i, r = Index(f"group{number}"), Index(f"i{number}"), Index(f"r{number}")
        base, every, j = start + group * _GROUP, f"every{number}", Index(f"j{number}")
        four = [base + n for n in range(_GROUP)]
        all_used = used(four[0])
        for at in four[1:]:
            all_used = all_used & used(at)
        line, ahead, each = Index(f"line{number}"), Index(f"ahead{number}"), 512 // BITS[type]
        lines = Binary("div", width + (each - 1), Const(each, "index"))
        row = convert(Load("indices", Binary("min", ahead + _AHEAD, Size("last")), index), "index")
        fetch = Loop(line.name, _ZERO, lines, (Prefetch("table", row * m + first + line * each, type),))
        whole = Binary("div", stop - start, Const(_GROUP, "index"))
        single = Loop(r.name, base, base + _GROUP, (If(used(r), (added(width, Index(f"s{number}"), r),)),))
        groups = (
            Loop(ahead.name, base, base + _GROUP, (fetch,)),
            Declare(every, "bool", all_used),
            If(Read(every, "bool"), (added(width, j, *four),)),
            If(compare("eq", Read(every, "bool"), const(0, "bool")), (single,)),
        )
        return (
            Loop(f"z{number}", _ZERO, width, (Store("total", Index(f"z{number}"), const(0, compute)),), "vector"),
            Loop(group.name, _ZERO, whole, groups),
            Loop(i.name, start + whole * _GROUP, stop, (If(used(i), (added(width, Index(f"t{number}"), i),)),)),
        )

    width = Binary("min", m - first, Const(_WIDE, "index"))
    blocks = Binary("div", m + (_WIDE - 1), Const(_WIDE, "index"))
    columns = (
        If(compare("eq", width, Const(_WIDE, "index")), block(Const(_WIDE, "index"), 0)),
        If(compare("lt", width, Const(_WIDE, "index")), block(width, 1)),
        Loop("e", _ZERO, width, (Store("out", unit * m + first + e, convert(result, type)),), "vector"),
    )
    body = (
        Local("total", compute, _WIDE),
        Loop("unit", Size("lo"), Size("hi"), (*before, Loop("block", _ZERO, blocks, columns))),
    )
    given = (Buffer("factors", type),) if factors else ()
    buffers = (Buffer("out", type), Buffer("table", type), Buffer("indices", index), Buffer("starts", "i64"), *given)
    kernel = Kernel("bag_sum", buffers, (), (m, Size("padding"), Size("last")), body)
    verify(kernel)
    return kernel
