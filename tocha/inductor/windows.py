"""Kernels that copy rows: a part of them, backwards, with borders, or side by side (triangles, flips, rolls, padding, cat)."""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Index,
    Kernel,
    Load,
    Loop,
    Param,
    Select,
    Size,
    Statement,
    Store,
    const,
    convert,
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


def filled(type: str) -> Kernel:
    """out: one value. A unit is an element."""
    value = Param("value", type)
    body = (Loop("unit", Size("lo"), Size("hi"), (Store("out", Index("unit"), value),), "vector"),)
    return _verified(Kernel("filled", (Buffer("out", type),), (value,), (), body))


def _kernel(name: str, type: str, sizes: tuple[str, ...], body: tuple[Statement, ...]) -> Kernel:
    units = (Loop("unit", Size("lo"), Size("hi"), body),)
    return _verified(Kernel(name, (Buffer("out", type), Buffer("x", type)), (), tuple(map(Size, sizes)), units))


_STEPS = {"+": 1, "-": -1, "0": 0}


def bordered(type: str, before: str, after: str) -> Kernel:
    """out, x, places: rows of `m` elements, in each the `n` of x from `start` on behind `low` others, counted from the row's place in x.
    `before` and `after` say what stands around them: "+", "-", "0": x from `first` (`last`) on, forwards, backwards or that one element;
    "c": a value, which also fills rows whose place is negative. A unit is a row."""
    m, row = Size("m"), Index("unit") * Size("m")
    at = convert(Load("places", Index("unit"), "i64"), "index")
    low, high = Size("low"), Size("low") + Size("n")
    if "c" in (before, after):
        missing = Compare("lt", at, _ZERO)
        low, high = Select(missing, m, low), Select(missing, m, high)  # type: ignore[assignment]
    value = Param("value", type)

    def border(kind: str, origin: str, start: Expr, j: str) -> Expr:
        return value if kind == "c" else Load("x", at + Size(origin) + (Index(j) - start) * _STEPS[kind], type)

    body = (
        _loop("left", _ZERO, low, row, border(before, "first", _ZERO, "left")),
        _loop("j", low, high, row, Load("x", at + Size("start") + (Index("j") - Size("low")), type)),
        _loop("right", high, m, row, border(after, "last", high, "right")),
    )
    units = (Loop("unit", Size("lo"), Size("hi"), body),)
    params = (value,) if "c" in (before, after) else ()
    buffers = (Buffer("out", type), Buffer("x", type), Buffer("places", "i64"))
    names = ("m", "low", "n", "start", "first", "last")
    return _verified(Kernel("bordered", buffers, params, tuple(map(Size, names)), units))


def joined(type: str, count: int) -> Kernel:
    """out, x0, x1, …: rows of all side by side; `n0`, `n1`, … are their lengths. A unit is a row."""
    unit = Index("unit")
    sizes = [Size(f"n{k}") for k in range(count)]
    total: Expr = sizes[0]
    for n in sizes[1:]:
        total = total + n
    row, body = unit * total, []
    for k, n in enumerate(sizes):
        body.append(_loop(f"j{k}", _ZERO, n, row, Load(f"x{k}", unit * n + Index(f"j{k}"), type)))
        row = row + n
    buffers = (Buffer("out", type), *[Buffer(f"x{k}", type) for k in range(count)])
    return _verified(Kernel("joined", buffers, (), tuple(sizes), (Loop("unit", Size("lo"), Size("hi"), tuple(body)),)))


def _verified(kernel: Kernel) -> Kernel:
    verify(kernel)
    return kernel
