"""Packing the factors of a matrix product: lines of any strides and element type side by side, for each step of the inner dimension.

    panel[k, line] = prologue(source[line * step + k * inner])

A panel of the left factor holds a row block's rows, one of the right factor a tile's columns. Elements become the type that is computed
with; bfloat16 for a CPU that multiplies it becomes *pairs*: a step is then two elements, in one 32-bit word. Lines past the last
repeat it; an odd last element is paired with zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tocha.inductor.templates import epilogue
from tocha.inductor.templates.builder import Function, Value
from tocha.inductor.templates.gemm import Geometry, Vectors

COMPUTE = {
    "f32": "f32", "f64": "f64", "f16": "f32", "bf16": "f32", "i8": "i32", "u8": "i32", "i16": "i32", "u16": "i32", "i32": "i32", "u32": "i32",
    "i64": "i64", "u64": "i64",
}  # fmt: skip
SCALAR = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64"}


@dataclass(frozen=True)
class Source:
    """What a factor's elements are in memory, and what is done with each as it is packed."""

    type: str
    pairs: bool = False
    rule: Any = None
    into: str | None = None  # the type to compute with, if not the usual one

    @property
    def compute(self) -> str:
        return self.into or COMPUTE[self.type]


class Packer:
    """Reads vectors of packed elements along lines or along the inner dimension."""

    def __init__(self, f: Function, g: Geometry, source: Source) -> None:
        self.f, self.g, self.source = f, g, source
        self.v = Vectors(f, g)
        self.memory = epilogue.MEMORY[source.type]
        self.each = 2 if source.pairs else 1

    def at(self, pointer: Value, index: Any) -> Value:
        return self.f.at(pointer, index, self.memory)

    def along(self, pointer: Value, left: Any) -> Value:
        """Steps that lie one after the other; `left` elements of memory there, or None for enough."""
        f, g = self.f, self.g
        if not self.source.pairs:
            return self._plain(pointer, None if left is None else self.v.mask(None, left))
        if left is None:
            return f.load(g.vector, pointer, 2)
        lanes = 2 * g.lanes
        small = f.op(f"trunc i64 {f.min(left, lanes).name} to i32", "i32")
        wide = f"<{lanes} x i32>"
        lane = f"<{', '.join(f'i32 {i}' for i in range(lanes))}>"
        mask = f.op(f"icmp slt {wide} {lane}, {f.splat(small, wide).name}", f"<{lanes} x i1>")
        short = epilogue.load(f, lanes, "i16", "i16", pointer, mask)
        return f.op(f"bitcast {short.type} {short.name} to {g.vector}", g.vector)

    def across(self, pointer: Value, inner: Value, second: Value, mask: Value | None) -> Value:
        """A step of lines that lie side by side; `second`: whether a pair has its other half."""
        f, g = self.f, self.g
        if not self.source.pairs:
            return self._plain(pointer, mask)
        kind = f"<{g.lanes} x i16>"

        def half(place: Value, mask: Value | None) -> Value:
            short = epilogue.load(f, g.lanes, "i16", "i16", place, mask)
            return f.op(f"zext {kind} {short.name} to {g.vector}", g.vector)

        here = f.splat(second, f"<{g.lanes} x i1>")
        here = here if mask is None else f.op(f"and {here.type} {here.name}, {mask.name}", here.type)
        high = half(self.at(pointer, inner), here)
        sixteen = f"<{', '.join(['i32 16'] * g.lanes)}>"
        shifted = f.op(f"shl {g.vector} {high.name}, {sixteen}", g.vector)
        return f.op(f"or {g.vector} {half(pointer, mask).name}, {shifted.name}", g.vector)

    def single(self, pointer: Value, inner: Value, second: Value) -> Value:
        """One step of one line."""
        f, source = self.f, self.source
        if not source.pairs:
            one = f.op(
                f"insertelement <1 x {self.memory}> poison, {self.memory} {self._word(pointer).name}, i32 0",
                f"<1 x {self.memory}>",
            )
            value = epilogue.convert(f, 1, one, source.type, source.compute)
            if source.rule is not None:
                value = epilogue.apply(f, 1, source.rule, source.compute, value)
            return f.op(f"extractelement {value.type} {value.name}, i32 0", self.g.scalar)
        low = f.op(f"zext i16 {self._word(pointer).name} to i32", "i32")
        pair = f.variable(low, "i32")
        with f.when(second):
            high = f.op(f"zext i16 {self._word(self.at(pointer, inner)).name} to i32", "i32")
            pair.set(f.op(f"or i32 {low.name}, {f.op(f'shl i32 {high.name}, 16', 'i32').name}", "i32"))
        return pair.get()

    def _word(self, pointer: Value) -> Value:
        return self.f.load(self.memory, pointer, epilogue.BITS[self.source.type] // 8)

    def _plain(self, pointer: Value, mask: Value | None) -> Value:
        source = self.source
        value = epilogue.load(self.f, self.g.lanes, source.type, source.compute, pointer, mask)
        return value if source.rule is None else epilogue.apply(self.f, self.g.lanes, source.rule, source.compute, value)


PARAMETERS = [("ptr", "x"), ("i64", "step"), ("i64", "inner"), ("i64", "k"), ("i64", "lines"), ("ptr", "to")]


def packer(name: str, g: Geometry, source: Source, width: int) -> Function:
    """Pack `lines` lines of `k` elements as `width`; up to a vector past the panel's end may be written if `width` is no multiple of one."""
    f = Function(name, list(PARAMETERS))
    p = Packer(f, g, source)

    def strided() -> None:
        f.choose(f["step"].equals(1), lambda: _copied(f, p, width), lambda: _scattered(f, p, width))

    f.choose(f["inner"].equals(1), lambda: _transposed(f, p, width), strided)
    return f


def _line(f: Function, p: Packer, number: Any) -> Value:
    return p.at(f["x"], f.min(f["lines"] - 1, number) * f["step"])


def _steps(f: Function, p: Packer) -> Value:
    return f["k"] if p.each == 1 else f.ceil_div(f["k"], p.each)


def _transposed(f: Function, p: Packer, width: int) -> None:
    """Squares of as many lines and steps as a vector has lanes; the last group of lines, which may write over the next step's first, before
    the others."""
    g, v = p.g, p.v
    groups = -(-width // g.lanes)
    whole, steps = f["k"] // (g.lanes * p.each) * g.lanes, _steps(f, p)
    aside = f.array(g.lanes * g.lanes, g.scalar)

    def group(first: Any) -> None:
        lines = [_line(f, p, first + number) for number in range(min(width, g.lanes))]
        to = v.at(f["to"], first)

        def square(start: Value, left: Value | None) -> list[Value]:
            rows = [p.along(p.at(line, start * p.each), left) for line in lines]
            return v.transpose(rows + [rows[-1]] * (g.lanes - len(rows)))

        with f.loop(0, whole, g.lanes) as start:
            for step, line in enumerate(square(start, None)):
                v.store(line, v.at(to, (start + step) * width))
        with f.when(whole < steps):
            for step, line in enumerate(square(whole, f["k"] - whole * p.each)):
                v.store(line, v.at(aside, step * g.lanes))
            with f.loop(whole, steps) as rest:
                v.store(v.load(v.at(aside, (rest - whole) * g.lanes)), v.at(to, rest * width))

    if groups == 1:
        group(Value(f, "0"))
    else:
        with f.loop(0, f.opaque(groups)) as count:
            group((groups - 1 - count) * g.lanes)


def _copied(f: Function, p: Packer, width: int) -> None:
    """Lines side by side: whole vectors, or what there is of them."""
    g, v = p.g, p.v
    groups = -(-width // g.lanes)

    def part(whole: bool) -> None:
        with f.loop(0, _steps(f, p)) as step:
            here, second = p.at(f["x"], step * f["inner"] * p.each), step * p.each + 1 < f["k"]
            for group in range(groups):
                mask = None if whole else v.mask(None, f["lines"] - group * g.lanes)
                v.store(
                    p.across(p.at(here, group * g.lanes), f["inner"], second, mask), v.at(f["to"], step * width + group * g.lanes)
                )

    if width % g.lanes:
        part(False)
    else:
        f.choose(f["lines"].equals(width), lambda: part(True), lambda: part(False))


def _scattered(f: Function, p: Packer, width: int) -> None:
    """Element by element."""
    v = p.v
    with f.loop(0, f.opaque(width)) as number:
        line = _line(f, p, number)
        with f.loop(0, _steps(f, p)) as step:
            here = p.at(line, step * f["inner"] * p.each)
            v.store(p.single(here, f["inner"], step * p.each + 1 < f["k"]), v.at(f["to"], step * width + number))
