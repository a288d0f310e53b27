"""Kernels over contiguous rows: softmax, layer normalisation and their gradients, each row read a few times while it is in cache.

A unit of work is one row of `n` elements. Sums run in float32 over blocks and in float64 over the blocks' sums, as in tocha.inductor.reduce.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tocha.inductor.elementary import elementary
from tocha.inductor.loop_ir import (
    HALVES,
    Accumulate,
    Assign,
    Binary,
    Buffer,
    Const,
    Convert,
    Declare,
    Expr,
    If,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Param,
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

_BLOCK = 1024
_ZERO = Const(0, "index")
Each = Callable[[Expr], Expr]


class Row:
    """The statements for one row. `compute` is the type elements are computed with in."""

    def __init__(self, buffers: dict[str, str], compute: str, index: str = "unit") -> None:
        self.buffers, self.compute, self.row = buffers, compute, Index(index)
        self.statements: list[Statement] = []
        self.start = self.row * Size("n")
        self.loops = 0

    def load(self, name: str, j: Expr, whole: bool = True) -> Expr:
        """Element j of the row; with `whole` false, of a vector that all rows share."""
        return self.loaded(name, self.start + j if whole else j)

    def loaded(self, name: str, offset: Expr) -> Expr:
        """What a buffer has at an offset, in the type elements are computed with in."""
        type = self.buffers[name]
        value: Expr = Load(name, offset, type)
        return convert(Convert(value, "f32") if type in HALVES else value, self.compute)

    def per_row(self, name: str) -> Expr:
        """The row's element of a buffer with one for each row, in the type elements are computed with in."""
        return self.loaded(name, self.row)

    def whole(self, name: str) -> Expr:
        """The same in the buffer's own type."""
        return Load(name, self.row, self.buffers[name])

    def put_row(self, name: str, value: Expr) -> None:
        self.statements.append(Store(name, self.row, convert(value, self.buffers[name])))

    def target(self) -> Expr:
        """The row's class, as an index into it."""
        return convert(Load("target", Index("unit"), "i64"), "index")

    def let(self, name: str, value: Expr) -> Expr:
        self.statements += [Declare(name, value.type, value), Assign(name, value)]
        return Read(name, value.type)

    def each(self, out: str, value: Each) -> None:
        """Store a value for every element."""
        j = self._index()
        store = Store(out, self.start + j, convert(value(j), self.buffers[out]))
        self.statements.append(Loop(j.name, _ZERO, Size("n"), (store,), "vector"))

    def sums(self, *values: Each, out: str | None = None, kept: Each | None = None) -> list[Expr]:
        """float64 sums over the row of one or more values; with `out` the first value, or what `kept` says, is also stored there."""
        number = self.loops
        names = [f"sum{number}_{i}" for i in range(len(values))]
        self._begin("add", names, "f64")
        j, block = self._index(), Index(f"block{number}")
        start = block * _BLOCK
        stop = Binary("min", start + _BLOCK, Size("n"))
        count = Binary("div", Size("n") + (_BLOCK - 1), Const(_BLOCK, "index"))
        zero = const(0, self.compute)
        computed = [v(j) for v in values]
        body: list[Statement] = [Accumulate("add", f"{n}_small", v) for n, v in zip(names, computed, strict=True)]
        if out is not None:
            body.append(Store(out, self.start + j, convert(computed[0] if kept is None else kept(j), self.buffers[out])))
        self.statements += [Declare(f"{n}_small", self.compute, zero) for n in names]
        self.statements.append(Loop(block.name, _ZERO, count, (
            *[Assign(f"{n}_small", zero) for n in names], Loop(j.name, start, stop, tuple(body), "vector"),
            *[Accumulate("add", n, convert(Read(f"{n}_small", self.compute), "f64")) for n in names],
        )))  # fmt: skip
        return [Read(n, "f64") for n in names]

    def sum(self, value: Each) -> Expr:
        return self.sums(value)[0]

    def max(self, value: Each) -> Expr:
        name = f"max{self.loops}"
        self._begin("max", [name], self.compute)
        j = self._index()
        self.statements.append(Loop(j.name, _ZERO, Size("n"), (Accumulate("max", name, value(j)),), "vector"))
        return Read(name, self.compute)

    def _begin(self, op: str, names: list[str], type: str) -> None:
        start = const(0.0 if op == "add" else -math.inf, type)
        for name in names:
            self.statements += [Declare(name, type, start), Assign(name, start)]

    def _index(self) -> Index:
        self.loops += 1
        return Index(f"j{self.loops}")

    def kernel(self, name: str, params: tuple[Param, ...] = (), sizes: tuple[str, ...] = ()) -> Kernel:
        body = (Loop("unit", Size("lo"), Size("hi"), tuple(self.statements)),)
        made = Kernel(name, tuple(Buffer(n, t) for n, t in self.buffers.items()), params, (Size("n"), *map(Size, sizes)), body)
        verify(made)
        return made


def _exp(x: Expr) -> Expr:
    return elementary("exp", x, hard=None)


def _log(x: Expr) -> Expr:
    return elementary("log", x, hard=None)


def softmax(type: str, compute: str, along: type[Row] = Row) -> Kernel:
    """e^(x - max) over its sum."""
    row = along({"out": type, "x": type}, compute)
    top = row.max(lambda j: row.load("x", j))
    if type == compute:
        (total,) = row.sums(lambda j: _exp(row.load("x", j) - top), out="out")
        sum_ = row.let("total", convert(total, compute))
        row.each("out", lambda j: row.load("out", j) / sum_)
    else:  # computed twice rather than rounded twice
        sum_ = row.let("total", convert(row.sum(lambda j: _exp(row.load("x", j) - top)), compute))
        row.each("out", lambda j: _exp(row.load("x", j) - top) / sum_)
    return row.kernel("softmax")


def log_softmax(type: str, compute: str, along: type[Row] = Row) -> Kernel:
    """x - max - log of the sum of e^(x - max)."""
    row = along({"out": type, "x": type}, compute)
    top = row.max(lambda j: row.load("x", j))
    total = row.sum(lambda j: _exp(row.load("x", j) - top))
    log = row.let("log", _log(convert(total, compute)))
    row.each("out", lambda j: row.load("x", j) - top - log)
    return row.kernel("log_softmax")


def softmax_backward(type: str, compute: str, along: type[Row] = Row) -> Kernel:
    """out * (g - sum(g * out))."""
    row = along({"grad": type, "g": type, "out": type}, compute)
    total = row.let("total", convert(row.sum(lambda j: row.load("g", j) * row.load("out", j)), compute))
    row.each("grad", lambda j: row.load("out", j) * (row.load("g", j) - total))
    return row.kernel("softmax_backward")


def log_softmax_backward(type: str, compute: str, along: type[Row] = Row) -> Kernel:
    """g - e^out * sum(g)."""
    row = along({"grad": type, "g": type, "out": type}, compute)
    total = row.let("total", convert(row.sum(lambda j: row.load("g", j)), compute))
    row.each("grad", lambda j: row.load("g", j) - _exp(row.load("out", j)) * total)
    return row.kernel("log_softmax_backward")


def layer_norm(type: str, compute: str, weight: str | None, bias: str | None) -> Kernel:
    """(x - mean) / sqrt(var + eps) * weight + bias, with mean and variance of each row."""
    buffers = {"out": type, "mean": compute, "var": compute, "x": type}
    buffers |= {n: t for n, t in (("weight", weight), ("bias", bias)) if t is not None}
    row = Row(buffers, compute)
    count = convert(Size("n"), "f64")
    middle = row.let("middle", convert(row.sum(lambda j: row.load("x", j)) / count, compute))

    def apart(j: Expr) -> Expr:
        return row.load("x", j) - middle

    squares, rest = row.sums(lambda j: apart(j) * apart(j), apart)
    var = row.let("spread", convert((squares - rest * rest / count) / count, compute))
    scale = row.let("scale", 1.0 / Unary("sqrt", var + convert(Param("eps", "f64"), compute)))

    def value(j: Expr) -> Expr:
        y = apart(j) * scale
        if weight is not None:
            y = y * row.load("weight", j, whole=False)
        return y if bias is None else y + row.load("bias", j, whole=False)

    row.each("out", value)
    row.put_row("mean", middle)
    row.put_row("var", var)
    return row.kernel("layer_norm", (Param("eps", "f64"),))


def rms_norm(type: str, compute: str, weight: str | None) -> Kernel:
    """x / sqrt(mean of squares + eps) * weight."""
    row = Row({"out": type, "x": type} | ({} if weight is None else {"weight": weight}), compute)
    scale = _rms_scale(row)
    row.each("out", lambda j: row.load("x", j) * scale * (1.0 if weight is None else row.load("weight", j, whole=False)))
    return row.kernel("rms_norm", (Param("eps", "f64"),))


def _rms_scale(row: Row) -> Expr:
    """1 / sqrt(mean of squares + eps) of a row."""
    square = row.sum(lambda j: row.load("x", j) * row.load("x", j)) / convert(Size("n"), "f64")
    return row.let("scale", 1.0 / Unary("sqrt", convert(square, row.compute) + convert(Param("eps", "f64"), row.compute)))


def normal_sums(type: str, compute: str, scaled: bool) -> Kernel:
    """Sums of g * (x - mean) * scale and of g over each row; with `scaled` also g * factor. `repeat` rows one after the other have one mean,
    scale and factor, and so has every `period` of these again."""
    buffers = {"products": compute, "grads": compute, "g": type, "x": type, "mean": compute, "scale": compute}
    row = Row(({"out": type} if scaled else {}) | buffers | ({"factor": compute} if scaled else {}), compute)
    at = Binary("rem", Binary("div", row.row, Size("repeat")), Size("period"))
    mean, scale = row.let("middle", row.loaded("mean", at)), row.let("spread", row.loaded("scale", at))
    factor = row.let("times", row.loaded("factor", at)) if scaled else None
    products, grads = row.sums(
        lambda j: row.load("g", j) * ((row.load("x", j) - mean) * scale), lambda j: row.load("g", j),
        out="out" if scaled else None, kept=None if factor is None else lambda j: row.load("g", j) * factor,
    )  # fmt: skip
    row.put_row("products", products)
    row.put_row("grads", grads)
    return row.kernel("normal_sums_scaled" if scaled else "normal_sums", sizes=("repeat", "period"))


ROWS = 64  # of norm_backward's units


def norm_backward(type: str, compute: str, weight: str | None, centred: bool) -> Kernel:
    """The gradients of layer_norm (`centred`) with respect to input, weight and bias, or of rms_norm with respect to input and weight.

    A unit is 64 rows: it leaves its part of the latter, sums over rows, in `partial` (first all units' parts of weight, then of bias), and
    `finish` adds the parts.
    """
    summed = ("of_weight", "of_bias") if centred else ("of_weight",)
    buffers = {"grad": type, **dict.fromkeys(summed, compute), "partial": compute, "g": type, "x": type}
    buffers |= ({"mean": compute, "var": compute} if centred else {}) | ({} if weight is None else {"weight": weight})
    row = Row(buffers, compute, "row")
    if centred:
        middle = row.let("middle", row.per_row("mean"))
        scale = row.let("scale", 1.0 / Unary("sqrt", row.per_row("var") + convert(Param("eps", "f64"), compute)))
    else:
        scale = _rms_scale(row)

    def inner(j: Expr) -> Expr:
        g = row.load("g", j)
        return g if weight is None else g * row.load("weight", j, whole=False)

    def normal(j: Expr) -> Expr:
        return (row.load("x", j) - middle) * scale if centred else row.load("x", j) * scale

    n, unit = Size("n"), Index("unit")
    along, *total = row.sums(lambda j: inner(j) * normal(j), *((inner,) if centred else ()))
    means = [row.let(f"mean{i}", convert(t / convert(n, "f64"), compute)) for i, t in enumerate((along, *total))]

    def slope(j: Expr) -> Expr:
        found = inner(j) - normal(j) * means[0]
        return (found - means[1] if centred else found) * scale

    row.each("grad", slope)
    at = [(Size("units") * i + unit) * n for i in range(len(summed))]
    j, zero = Index("k"), Index("z")
    parts = [row.load("g", j) * normal(j), row.load("g", j)]
    added = [Store("partial", p + j, Load("partial", p + j, compute) + v) for p, v in zip(at, parts, strict=False)]
    row.statements.append(Loop("k", _ZERO, n, tuple(added), "vector"))
    clear = [Store("partial", place + zero, const(0, compute)) for place in at]
    last = Binary("min", unit * ROWS + ROWS, Size("rows"))
    body = (
        Loop("unit", Size("lo"), Size("hi"), (
            Loop("z", _ZERO, n, tuple(clear), "vector"), Loop("row", unit * ROWS, last, tuple(row.statements)),
        )),
    )  # fmt: skip
    made = Kernel(
        "layer_norm_backward" if centred else "rms_norm_backward", tuple(Buffer(b, t) for b, t in row.buffers.items()), (Param("eps", "f64"),),
        (n, Size("rows")), body, _added_parts(compute, summed),
    )  # fmt: skip
    verify(made)
    return made


def _added_parts(compute: str, names: tuple[str, ...]) -> tuple[Statement, ...]:
    """Each buffer of `names` from the units' parts, in blocks of columns."""
    n, c, p, part = Size("n"), Index("c"), Index("p"), Index("part")
    statements: list[Statement] = [Local("total", "f64", _BLOCK)]
    column = Index("block") * _BLOCK
    width = Binary("min", n - column, Const(_BLOCK, "index"))
    for number, name in enumerate(names):

        def renamed(index: Index, number: int = number) -> Index:
            return Index(f"{index.name}{number}")

        a, b, d = renamed(c), renamed(p), renamed(part)
        first = Size("units") * number
        value = convert(Load("partial", (first + d) * n + column + b, compute), "f64")
        statements += [
            Loop(a.name, _ZERO, width, (Store("total", a, const(0, "f64")),), "vector"),
            Loop(d.name, _ZERO, Size("units"), (Loop(b.name, _ZERO, width, (Store("total", b, Load("total", b, "f64") + value),), "vector"),)),
            Loop(f"e{number}", _ZERO, width, (
                Store(name, column + Index(f"e{number}"), convert(Load("total", Index(f"e{number}"), "f64"), compute)),
            ), "vector"),
        ]  # fmt: skip
    blocks = Binary("div", n + (_BLOCK - 1), Const(_BLOCK, "index"))
    return (Loop("block", _ZERO, blocks, tuple(statements)),)


def logsumexp(type: str, compute: str, along: type[Row] = Row) -> Kernel:
    """max + log of the sum of e^(x - max), one for each row."""
    row = along({"out": type, "x": type}, compute)
    top = row.max(lambda j: row.load("x", j))
    base = row.let(
        "base", select(compare("lt", abs(top), math.inf), top, select(compare("ne", top, top), top, const(0.0, compute)))
    )
    total = convert(row.sum(lambda j: _exp(row.load("x", j) - base)), compute)
    row.put_row("out", _log(total) + base)
    return row.kernel("logsumexp")


def place(type: str, compute: str, along: type[Row] = Row) -> Kernel:
    """Each row's value at its index, 0 elsewhere."""
    row = along({"out": type, "g": type, "indices": "i64"}, compute)
    value, at = row.let("value", row.per_row("g")), row.let("at", convert(row.whole("indices"), "i32"))
    row.each("out", lambda j: select(compare("eq", convert(j, "i32"), at), value, const(0, compute)))
    return row.kernel("place")


def cross_entropy(type: str, compute: str, smooth: bool, keep: bool = True) -> Kernel:
    """softmax of each row (unless `keep` is false), and minus the logarithm of its element at the target class; with `smooth`, mixed with
    the mean of all classes."""
    row = Row({"losses": compute} | ({"out": type} if keep else {}) | {"x": type, "target": "i64"}, compute)
    top = row.max(lambda j: row.load("x", j))
    rest = (lambda j: row.load("x", j) - top,) if smooth else ()
    total, *spread = row.sums(lambda j: _exp(row.load("x", j) - top), *rest, out="out" if keep and type == compute else None)
    sum_ = row.let("total", convert(total, compute))
    if keep and type == compute:
        row.each("out", lambda j: row.load("out", j) / sum_)
    elif keep:  # computed twice rather than rounded twice
        row.each("out", lambda j: _exp(row.load("x", j) - top) / sum_)
    at_target = row.load("x", row.target()) - top
    if smooth:
        share = convert(Param("smoothing", "f64"), compute)
        at_target = at_target * (1.0 - share) + convert(spread[0] / convert(Size("n"), "f64"), compute) * share
    row.put_row("losses", _log(sum_) - at_target)
    return row.kernel("cross_entropy", (Param("smoothing", "f64"),) if smooth else ())


def picked(type: str, summed: bool) -> Kernel:
    """Minus the element at each row's target, or minus the sum of them over `_BLOCK` rows; and how many targets are no classes."""
    unit, i, rows = Index("unit"), Index("i"), Size("rows")
    target = Load("target", i, "i64")
    at = convert(target, "index")
    known = compare("ge", at, 0) & compare("lt", at, Size("n"))
    value = Unary("neg", Load("x", i * Size("n") + select(known, at, _ZERO), type))
    each: list[Statement] = [Accumulate("add", "strange", select(known, const(0, "i64"), const(1, "i64")))]
    each.append(Accumulate("add", "total", convert(value, "f64")) if summed else Store("losses", i, value))
    start = unit * _BLOCK
    body: list[Statement] = [Declare("strange", "i64", const(0, "i64")), Assign("strange", const(0, "i64"))]
    end: list[Statement] = [Store("unknown", unit, Read("strange", "i64"))]
    if summed:
        body += [Declare("total", "f64", const(0.0, "f64")), Assign("total", const(0.0, "f64"))]
        end.append(Store("losses", unit, Read("total", "f64")))
    body += [Loop("i", start, Binary("min", start + _BLOCK, rows), tuple(each)), *end]
    buffers = (Buffer("losses", "f64" if summed else type), Buffer("unknown", "i64"), Buffer("x", type), Buffer("target", "i64"))
    kernel = Kernel("picked", buffers, (), (rows, Size("n")), (Loop("unit", Size("lo"), Size("hi"), tuple(body)),))
    verify(kernel)
    return kernel


def cross_entropy_backward(type: str, compute: str) -> Kernel:
    """probability * factor - all, and minus `one` at the target class."""
    row = Row({"out": type, "probability": type, "target": "i64"}, compute)
    factor, less, one = (convert(Param(n, "f64"), compute) for n in ("factor", "all", "one"))
    row.each("out", lambda j: row.load("probability", j) * factor - less)
    at = row.target()
    row.statements.append(Store("out", row.start + at, convert(row.load("probability", at) * factor - less - one, type)))
    return row.kernel("cross_entropy_backward", tuple(Param(n, "f64") for n in ("factor", "all", "one")))


def argmax(type: str, sign: int) -> Kernel:
    """The largest (sign -1: smallest) value of each row and the first index that has it; NaN counts as largest and as smallest."""
    compute = "f32" if type in HALVES else type
    row = Row({"values": type, "indices": "i64", "x": type}, compute)
    op = "max" if sign > 0 else "min"
    from tocha.inductor.reduce import START

    start = START[op](compute)
    row.statements += [Declare("top", compute, start), Assign("top", start)]
    j = row._index()
    row.statements.append(Loop(j.name, _ZERO, Size("n"), (Accumulate(op, "top", row.load("x", j)),), "vector"))
    top = Read("top", compute)
    none = Const((1 << 31) - 1, "i32")
    row.statements += [Declare("first", "i32", none), Assign("first", none)]
    j = row._index()
    value = row.load("x", j)
    here = compare("eq", value, top)
    if compute in ("f32", "f64"):
        here = here | (compare("ne", value, value) & compare("ne", top, top))
    found = select(here, convert(j, "i32"), none)
    row.statements.append(Loop(j.name, _ZERO, Size("n"), (Accumulate("min", "first", found),), "vector"))
    first = Read("first", "i32")
    row.statements.append(Store("values", Index("unit"), convert(top, type)))
    row.statements.append(If(compare("ne", first, none), (Store("indices", Index("unit"), convert(first, "i64")),)))
    return row.kernel("argmax" if sign > 0 else "argmin")
