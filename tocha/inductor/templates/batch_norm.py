"""Batch normalisation of float32 images and its gradient: one channel is a unit, whose rows stay in cache while they are read again.

Rounding is that of torch's CPU kernels on AVX2: moments are added in float64; the gradient's two sums run along eight lanes of each row in float32,
which are put together in halves, and over rows in float64. The lanes are those of the sum, not of the CPU, so that every CPU has these bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tocha.inductor import jit
from tocha.inductor.templates.builder import Function, Value, Variable, module
from tocha.inductor.templates.gemm import Geometry, Vectors
from tocha.inductor.templates.windows import Fields

BUFFERS = ("out", "mean", "var", "x", "weight", "bias", "eps")
BACKWARD_BUFFERS = ("out", "of_weight", "of_bias", "g", "x", "weight", "mean", "var", "eps")
SIZES = ("samples", "channels", "length")
LANES = 8
_UNROLL = 4  # vectors, or rows of the gradient's sums, at once
_FLOATS, _DOUBLES = f"<{LANES} x float>", f"<{LANES} x double>"


class _Channel:
    """What both kernels do with a channel's rows."""

    def __init__(self, buffers: tuple[str, ...]) -> None:
        self.f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
        self.s = Fields(self.f, buffers, SIZES)
        self.v = Vectors(self.f, Geometry("float", LANES, 1, 1, jit.has_fma()))
        self.whole = self.s.length // LANES * LANES

    def binary(self, op: str, x: Value, y: Any) -> Value:
        """An operation on floats or vectors of them; a number is one of each lane."""
        y = self.f.splat(y, x.type) if x.type[0] == "<" and y.type != x.type else y
        return self.f.op(f"f{op} {x.type} {x.name}, {y.name}", x.type)

    def negative(self, x: Value) -> Value:
        return self.f.op(f"fneg {x.type} {x.name}", x.type)

    def wide(self, x: Value) -> Value:
        to = _DOUBLES if x.type == _FLOATS else "double"
        return self.f.op(f"fpext {x.type} {x.name} to {to}", to)

    def narrow(self, x: Value) -> Value:
        return self.f.op(f"fptrunc double {x.name} to float", "float")

    def number(self, x: Value, type: str) -> Value:
        return self.f.op(f"sitofp i64 {x.name} to {type}", type)

    def one(self, pointer: Value, index: Any, type: str = "float") -> Value:
        return self.f.load(type, self.f.at(pointer, index, type), 8 if type == "double" else 4)

    def put(self, value: Value, pointer: Value, index: Any) -> None:
        self.f.store(value, self.f.at(pointer, index, "float"), 4)

    def row(self, pointer: Value, sample: Value, channel: Value) -> Value:
        return self.f.at(pointer, (sample * self.s.channels + channel) * self.s.length, "float")

    def load(self, row: Value, i: Any, mask: Value | None) -> Value:
        place = self.v.at(row, i)
        return self.v.load(place) if mask is None else self.v.masked_load(place, mask)

    def store(self, value: Value, row: Value, i: Any, mask: Value | None) -> None:
        place = self.v.at(row, i)
        if mask is None:
            self.v.store(value, place)
        else:
            self.v.masked_store(value, place, mask)

    def along(self, unroll: int, do: Callable[[Value, int, Value | None], None]) -> None:
        """`do(first, number, mask)` for each vector of a row, `unroll` of them at a time."""
        f, step = self.f, unroll * LANES
        several = self.whole // step * step
        with f.loop(0, several, step) as i:
            for number in range(unroll):
                do(i + number * LANES, number, None)
        with f.loop(several, self.whole, LANES) as i:
            do(i, 0, None)
        with f.when(self.whole < self.s.length):
            do(self.whole, 0, self.v.mask(None, self.s.length - self.whole))

    def wide_sum(self, x: Value, channel: Value, sums: list[Variable], element: Callable[[Value], Value]) -> Value:
        """The float64 sum of what `element` makes of a channel's vectors."""
        f = self.f
        for each in sums:
            each.set("zeroinitializer")

        def add(row: Value, i: Value, number: int, mask: Value | None) -> None:
            value = element(self.load(row, i, mask))
            if mask is not None:
                value = f.op(f"select {mask.type} {mask.name}, {_FLOATS} {value.name}, {_FLOATS} zeroinitializer", _FLOATS)
            sums[number].set(self.binary("add", sums[number].get(), self.wide(value)))

        with f.loop(0, self.s.samples) as n:
            row = self.row(x, n, channel)
            self.along(_UNROLL, lambda i, number, mask: add(row, i, number, mask))
        total = functools.reduce(functools.partial(self.binary, "add"), [partial.get() for partial in sums])
        return f.call(f"llvm.vector.reduce.fadd.v{LANES}f64", "double", ("double", "0.0"), (_DOUBLES, total), declare=True)

    def inverse_deviation(self, var: Value) -> Value:
        f = self.f
        sum_ = self.binary("add", self.wide(var), self.one(self.s.eps, 0, "double"))
        root = f.call("llvm.sqrt.f64", "double", ("double", sum_), declare=True)
        return self.narrow(f.op(f"fdiv double 1.0, {root.name}", "double"))

    def lanes_sum(self, x: Value) -> Value:
        """A vector's lanes, added in halves."""
        for half in (4, 2, 1):
            order = ", ".join(f"i32 {lane ^ half}" for lane in range(LANES))
            other = self.f.op(f"shufflevector {_FLOATS} {x.name}, {_FLOATS} poison, <{LANES} x i32> <{order}>", _FLOATS)
            x = self.binary("add", x, other)
        return self.f.op(f"extractelement {_FLOATS} {x.name}, i32 0", "float")


def code() -> str:
    """out = x * scale + shift, and a channel's mean and (biased) variance."""
    c = _Channel(BUFFERS)
    f, s = c.f, c.s
    sums = [f.variable("zeroinitializer", _DOUBLES) for _ in range(_UNROLL)]
    with f.loop(f["lo"], f["hi"]) as channel:
        count = s.samples * s.length
        mean = c.narrow(c.binary("div", c.wide_sum(s.x, channel, sums, lambda x: x), c.number(count, "double")))

        def square(x: Value) -> Value:
            apart = c.binary("sub", x, mean)
            return c.binary("mul", apart, apart)

        var = c.binary("div", c.narrow(c.wide_sum(s.x, channel, sums, square)), c.number(count, "float"))
        c.put(mean, s.mean, channel)
        c.put(var, s.var, channel)
        scale = c.v.splat(c.binary("mul", c.inverse_deviation(var), c.one(s.weight, channel)))
        shift = c.v.fma(c.v.splat(c.negative(mean)), scale, c.v.splat(c.one(s.bias, channel)))
        with f.loop(0, s.samples) as n:
            row, out = c.row(s.x, n, channel), c.row(s.out, n, channel)
            c.along(1, lambda i, _, mask: c.store(c.v.fma(c.load(row, i, mask), scale, shift), out, i, mask))
    return module(f)


def backward_code() -> str:
    """The gradients of input, weight and bias."""
    c = _Channel(BACKWARD_BUFFERS)
    f, s = c.f, c.s
    kinds = range(2)  # sums of the gradient, and of it times the input's distance from the mean
    rows = [[f.variable("zeroinitializer", _FLOATS) for _ in kinds] for _ in range(_UNROLL)]
    totals = [f.variable("0.0", "double") for _ in kinds]
    with f.loop(f["lo"], f["hi"]) as channel:
        mean, inverse = c.one(s.mean, channel), c.inverse_deviation(c.one(s.var, channel))
        for kind in kinds:
            totals[kind].set("0.0")
        with f.loop(0, s.samples, _UNROLL) as n:
            places = [[c.row(a, f.min(n + r, s.samples - 1), channel) for a in (s.g, s.x)] for r in range(_UNROLL)]
            for sums in rows:
                for kind in kinds:
                    sums[kind].set("zeroinitializer")

            def add(i: Value, _: int, mask: Value | None) -> None:
                for (of_g, of_x), sums in zip(places, rows, strict=True):
                    g = c.load(of_g, i, mask)
                    product = c.binary("mul", c.binary("sub", c.load(of_x, i, mask), mean), g)
                    for kind, value in zip(kinds, (g, product), strict=True):
                        sums[kind].set(c.binary("add", sums[kind].get(), value))

            c.along(1, add)
            for r, sums in enumerate(rows):
                with f.when(n + r < s.samples):
                    for kind in kinds:
                        totals[kind].set(c.binary("add", totals[kind].get(), c.wide(c.lanes_sum(sums[kind].get()))))
        of_bias, products = (total.get() for total in totals)
        c.put(c.narrow(c.binary("mul", products, c.wide(inverse))), s.of_weight, channel)
        c.put(c.narrow(of_bias), s.of_bias, channel)
        count = s.samples * s.length
        slope = c.binary("mul", c.binary("mul", c.narrow(products), inverse), inverse)
        slope = c.binary("div", slope, c.number(count, "float"))
        level = c.narrow(c.binary("div", of_bias, c.number(count, "double")))
        weight = c.one(s.weight, channel)
        with f.loop(0, s.samples) as n:
            of_g, of_x, out = (c.row(a, n, channel) for a in (s.g, s.x, s.out))

            def write(i: Value, _: int, mask: Value | None) -> None:
                apart = c.binary("sub", c.load(of_x, i, mask), mean)
                found = c.v.fma(c.negative(apart), c.v.splat(slope), c.binary("sub", c.load(of_g, i, mask), level))
                c.store(c.binary("mul", c.binary("mul", found, inverse), weight), out, i, mask)

            c.along(1, write)
    return module(f)
