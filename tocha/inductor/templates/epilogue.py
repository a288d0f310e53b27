"""Holes of a product: what is done with its factors' elements as they are packed, and with the sums before they are stored.

An `Epilogue` says what is stored, as expressions of the sum and of operands that lie beside the result. `x @ w.T + bias` through gelu, with
a residual added, is

    Epilogue.of(lambda o, s, bias, rest: o.add(gelu(o, o.add(s, bias)), rest), "f32", "f32", (Operand("column", "f32"), Operand("full", "f32")))

Kernels of products don't know their epilogue: they call a function whose address they are given (`finisher` makes it, a module of its own),
for a tile of sums that lies in cache:

    finish(arrays, tile, tile_row, rows, width, place, out_row, row, column, ahead)

`arrays` points at addresses: those of the results, then those of the operands. The tile has `rows` rows of `width` sums, `tile_row` apart. Its
first sum belongs to the element `place` of results and "full" operands, whose rows are `out_row` apart, to the element `row` of "row"
operands and `column` of "column" ones. So any kernel whose results lie in rows has this hole: in a convolution over channels-first memory a
row is a channel, a column a pixel. With `ahead`, the function only asks for the "full" operands' elements to be brought to cache: a call of
that kind before the sums are computed hides the wait.

A `prologue` is a rule of one element of a factor. Functions that have no vector form, or are right for part of their arguments only, are
refused (Unsupported).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tocha.inductor import jit, lower, memo
from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.loop_ir import BITS, FLOATS, HALVES, Expr, Read
from tocha.inductor.loop_ir import convert as converted
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.expressions import convert, emit

PLACES = ("column", "row", "full", "scalar")
FINISH = ("ptr", "ptr", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "i1")  # types of a finisher's arguments
_LINE = 64  # bytes that memory is fetched in
HOLE = "finish"  # a kernel's field for the function's address
_NAMES = ("arrays", "tile", "tile_row", "rows", "width", "place", "out_row", "row", "column", "ahead")


@dataclass(frozen=True)
class Operand:
    """An array beside the result: "column", one element for each of its columns; "row", for each row of all batches; "full", lying
    as the result does; "scalar", one element. `type` is the loop IR type it has in memory."""

    place: str
    type: str

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise ValueError(f"an operand lies by {', '.join(PLACES)}, not {self.place}")

    def read(self, number: int) -> Expr:
        """Its element in expressions, where it is the epilogue's operand of that number."""
        return Read(f"operand{number}", computed(self.type))


def computed(type: str) -> str:
    """The type that elements of `type` have in expressions."""
    return "f32" if type in HALVES else type


@dataclass(frozen=True)
class Epilogue:
    """Values to store, of `Read("sum", compute)` and the operands' `read`s, and the types they have in memory. There may be several: the
    arrays of all lie as the first does."""

    values: tuple[Expr, ...]
    types: tuple[str, ...]
    operands: tuple[Operand, ...] = ()

    @staticmethod
    def of(
        rule: Callable[..., Any],
        compute: str,
        type: str,
        operands: tuple[Operand, ...] = (),
        params: dict[str, Any] | None = None,
    ) -> Epilogue:
        """A scalar rule, as a primitive's is, of the sum and the operands' elements as `compute`."""
        given = [converted(x.read(number), compute) for number, x in enumerate(operands)]
        return Epilogue((traced(rule, [Read("sum", compute), *given], params or {}),), (type,), operands)


def traced(rule: Any, operands: list[Any], params: dict[str, Any]) -> Expr:
    """The expression of a rule that vectors can compute."""
    found, run = lower.trace(rule, operands, params)
    if run.hard:
        raise lower.Unsupported("a function that is right for part of its arguments only")
    if run.guards:
        raise lower.Unsupported("a rule that depends on its parameters")
    return found


def apply(f: Function, lanes: int, rule: Any, compute: str, x: Value) -> Value:
    """A prologue on a vector."""
    return emit(f, lanes, traced(rule, [Read("element", compute)], {}), {Read("element", compute): x})


def finisher(epilogue: Epilogue, compute: str, lanes: int, name: str = "finish") -> Function:
    """The function of an epilogue, for kernels whose sums are of type `compute`."""
    f = Function(name, list(zip(FINISH, _NAMES, strict=True)))
    types = (*epilogue.types, *[x.type for x in epilogue.operands])
    starts = [f.load("ptr", f.at(f["arrays"], number, "ptr"), 8) for number in range(len(types))]
    places = [*["full"] * len(epilogue.types), *[x.place for x in epilogue.operands]]

    def vectors(r: Value, start: Value, mask: Value | None) -> None:
        index = {"column": f["column"] + start, "row": f["row"] + r, "scalar": 0, "full": f["place"] + r * f["out_row"] + start}
        addresses = [f.at(x, index[place], MEMORY[type]) for x, place, type in zip(starts, places, types, strict=True)]
        results, operands = addresses[: len(epilogue.types)], addresses[len(epilogue.types) :]
        total = f.load(
            f"<{lanes} x {MEMORY[compute]}>", f.at(f["tile"], r * f["tile_row"] + start, MEMORY[compute]), BITS[compute] // 8
        )
        known: Any = {Read("sum", compute): total}
        for number, (operand, address) in enumerate(zip(epilogue.operands, operands, strict=True)):
            known[operand.read(number)] = _loaded(f, lanes, operand, address, mask)
        values = [emit(f, lanes, value, known) for value in epilogue.values]  # all before the stores: arrays may be both
        for value, expr, type, to in zip(values, epilogue.values, epilogue.types, results, strict=True):
            store(f, lanes, type, convert(f, lanes, value, expr.type, type), to, mask)

    def finish() -> None:
        with f.loop(0, f["rows"]) as r, f.loop(0, f["width"], lanes) as start:
            left = f["width"] - start
            f.choose(left >= lanes, lambda: vectors(r, start, None), lambda: vectors(r, start, below(f, lanes, left)))

    def ask() -> None:
        for x, type, place in zip(
            starts[len(epilogue.types) :], types[len(epilogue.types) :], places[len(epilogue.types) :], strict=True
        ):
            if place == "full":
                line = _LINE * 8 // BITS[type]
                with f.loop(0, f["rows"]) as r, f.loop(0, f["width"], line) as start:
                    at = f.at(x, f["place"] + r * f["out_row"] + start, MEMORY[type])
                    f.call("llvm.prefetch.p0", "void", ("ptr", at), ("i32", 0), ("i32", 3), ("i32", 1), declare=True)

    f.choose(f["ahead"], ask, finish)
    return f


class Hole:
    """The epilogue of a kernel whose ctx is laid out as its entry does (tocha.inductor.entry): `given` says whether there is one;
    without, `otherwise` is called, if that is a function's name."""

    def __init__(self, f: Function, buffers: tuple[str, ...], sizes: tuple[str, ...], otherwise: str | None = None) -> None:
        self.f = f
        address = f.word(f["ctx"], len(buffers))
        self.given = f.op(f"icmp ne i64 {address.name}, 0", "i1")
        self.arrays = f.at(f["ctx"], len(buffers) + len(sizes) + 2, "i64")
        self.code = f.op(f"inttoptr i64 {address.name} to ptr", "ptr")
        if otherwise is not None:
            self.code = f.select(self.given, self.code, otherwise, "ptr")

    def finish(self, *arguments: Any, ahead: bool = False) -> None:
        """tile, tile_row, rows, width, place, out_row, row, column (see the module's text)"""
        self.f.call(self.code, "void", *zip(FINISH, (self.arrays, *arguments, str(ahead).lower()), strict=True))


@functools.lru_cache(maxsize=4096)
def build(epilogue: Epilogue, compute: str, lanes: int) -> int:
    """The address of the finisher, compiled. Unsupported, CompileError."""

    def make() -> int:
        text = module(finisher(epilogue, compute, lanes)).replace("define internal void @finish(", "define void @finish(")
        return jit.load(text, ("finish",), {}, by_hand=True)[0]

    return memo.address(f"epilogue {epilogue!r} {compute} {lanes}", make)


def _loaded(f: Function, lanes: int, operand: Operand, address: Value, mask: Value | None) -> Value:
    type = operand.type
    if operand.place in ("column", "full"):
        return load(f, lanes, type, computed(type), address, mask)
    one = f.load(MEMORY[type], address, BITS[type] // 8)
    return _value(f, lanes, f.splat(one, f"<{lanes} x {MEMORY[type]}>"), type, computed(type))


def _value(f: Function, lanes: int, x: Value, type: str, compute: str) -> Value:
    """Elements from memory as `compute`."""
    if type == "bool":
        kind = f"<{lanes} x i1>"
        return convert(f, lanes, f.op(f"icmp ne {x.type} {x.name}, zeroinitializer", kind), type, compute)
    return convert(f, lanes, x, type, compute)


def below(f: Function, lanes: int, count: Value) -> Value:
    """The mask of the first `count` lanes."""
    wide = f"<{lanes} x i32>"
    lane = f"<{', '.join(f'i32 {i}' for i in range(lanes))}>"
    small = f.op(f"trunc i64 {count.name} to i32", "i32")
    return f.op(f"icmp slt {wide} {lane}, {f.splat(small, wide).name}", f"<{lanes} x i1>")


def load(f: Function, lanes: int, type: str, compute: str, address: Value, mask: Value | None) -> Value:
    """A vector of elements of `type` as `compute`; where `mask` is false, nothing is read."""
    kind = f"<{lanes} x {MEMORY[type]}>"
    align = BITS[type] // 8
    if mask is None:
        return _value(f, lanes, f.load(kind, address, align), type, compute)
    name = f"llvm.masked.load.v{lanes}{suffix(type)}.p0"
    value = f.call(name, kind, ("ptr", address), ("i32", align), (mask.type, mask), (kind, "zeroinitializer"), declare=True)
    return _value(f, lanes, value, type, compute)


def store(f: Function, lanes: int, type: str, value: Value, address: Value, mask: Value | None) -> None:
    align = BITS[type] // 8
    if type == "bool":
        kind = f"<{lanes} x i8>"
        value = f.op(f"zext {value.type} {value.name} to {kind}", kind)
    if mask is None:
        f.store(value, address, align)
        return
    name = f"llvm.masked.store.v{lanes}{suffix(type)}.p0"
    f.call(name, "void", (value.type, value), ("ptr", address), ("i32", align), (mask.type, mask), declare=True)


def suffix(type: str) -> str:
    """How intrinsics' names spell a type in memory."""
    return {"float": "f32", "double": "f64", "half": "f16"}.get(MEMORY[type], MEMORY[type])


__all__ = [
    "FINISH", "FLOATS", "PLACES", "Epilogue", "Hole", "Operand", "apply", "below", "build", "computed", "finisher", "load", "store", "suffix",
    "traced",
]  # fmt: skip
