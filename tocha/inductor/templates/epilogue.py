"""Holes of a matrix product: what is done with its factors' elements as they are packed, and with the sums before they are stored.

An `Epilogue` is a scalar rule, as a primitive's is, of the sum and of operands that lie beside the result. `x @ w.T + bias` through gelu,
with a residual added, is

    Epilogue(lambda o, s, bias, rest: o.add(gelu(o, o.add(s, bias)), rest), (Operand("column", "f32"), Operand("full", "f32")))

The rule is computed in the product's own type (float32 for half types), once for each element, in vectors; operands are converted to it.
A `prologue` is a rule of one element of a factor. Rules whose functions have no vector form, or are right for part of their arguments
only, are refused (Unsupported).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tocha.inductor import lower
from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.loop_ir import BITS, FLOATS, Expr, Read
from tocha.inductor.templates.builder import Function, Value
from tocha.inductor.templates.expressions import convert, emit

PLACES = ("column", "row", "full", "scalar")


@dataclass(frozen=True)
class Operand:
    """An array beside the result: "column", one element for each of its columns; "row", for each row of all batches; "full", of the
    result's shape and row-major; "scalar", one element. `type` is the loop IR type it has in memory."""

    place: str
    type: str

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise ValueError(f"an operand lies by {', '.join(PLACES)}, not {self.place}")


@dataclass(frozen=True)
class Epilogue:
    """`rule(o, sum, *operands)`; without a rule the sum is stored as it is."""

    rule: Callable[..., Any] | None = None
    operands: tuple[Operand, ...] = ()
    params: tuple[tuple[str, Any], ...] = ()

    def names(self) -> tuple[str, ...]:
        return tuple([f"operand{number}" for number in range(len(self.operands))])

    def expression(self, compute: str) -> Expr:
        return traced(self.rule, [Read("sum", compute), *[Read(name, compute) for name in self.names()]], self.params)


def traced(rule: Any, operands: list[Any], params: tuple[tuple[str, Any], ...] = ()) -> Expr:
    """The expression of a rule that vectors can compute."""
    found, run = lower.trace(rule, operands, dict(params))
    if run.hard:
        raise lower.Unsupported("a function that is right for part of its arguments only")
    if run.guards:
        raise lower.Unsupported("a rule that depends on its parameters")
    return found


def apply(f: Function, lanes: int, rule: Any, compute: str, x: Value) -> Value:
    """A prologue on a vector."""
    return emit(f, lanes, traced(rule, [Read("element", compute)]), {Read("element", compute): x})


def finished(
    f: Function,
    lanes: int,
    epilogue: Epilogue,
    compute: str,
    target: str,
    total: Value,
    addresses: list[Value],
    mask: Value | None,
) -> Value:
    """The vector to store: the epilogue of `total`; `addresses` are those of the operands' elements."""
    if epilogue.rule is not None:
        known: Any = {Read("sum", compute): total}
        for name, operand, address in zip(epilogue.names(), epilogue.operands, addresses, strict=True):
            known[Read(name, compute)] = _loaded(f, lanes, operand, compute, address, mask)
        found = epilogue.expression(compute)
        total, compute = emit(f, lanes, found, known), found.type
    return convert(f, lanes, total, compute, target)


def _loaded(f: Function, lanes: int, operand: Operand, compute: str, address: Value, mask: Value | None) -> Value:
    if operand.place in ("column", "full"):
        return load(f, lanes, operand.type, compute, address, mask)
    kind = MEMORY[operand.type]
    one = f.load(kind, address, BITS[operand.type] // 8)
    return convert(f, lanes, f.splat(one, f"<{lanes} x {kind}>"), operand.type, compute)


def load(f: Function, lanes: int, type: str, compute: str, address: Value, mask: Value | None) -> Value:
    """A vector of elements of `type` as `compute`; where `mask` is false, nothing is read."""
    kind = f"<{lanes} x {MEMORY[type]}>"
    align = BITS[type] // 8
    if mask is None:
        return convert(f, lanes, f.load(kind, address, align), type, compute)
    name = f"llvm.masked.load.v{lanes}{suffix(type)}.p0"
    value = f.call(name, kind, ("ptr", address), ("i32", align), (mask.type, mask), (kind, "zeroinitializer"), declare=True)
    return convert(f, lanes, value, type, compute)


def store(f: Function, lanes: int, type: str, value: Value, address: Value, mask: Value | None) -> None:
    align = BITS[type] // 8
    if mask is None:
        f.store(value, address, align)
        return
    name = f"llvm.masked.store.v{lanes}{suffix(type)}.p0"
    f.call(name, "void", (value.type, value), ("ptr", address), ("i32", align), (mask.type, mask), declare=True)


def suffix(type: str) -> str:
    """How intrinsics' names spell a type in memory."""
    return {"float": "f32", "double": "f64", "half": "f16"}.get(MEMORY[type], MEMORY[type])


__all__ = ["FLOATS", "PLACES", "Epilogue", "Operand", "apply", "finished", "load", "store", "suffix", "traced"]
