"""Loop IR expressions on vectors inside a hand-written function: what a template's holes are filled with, and its elementary functions.

    value = emit(f, lanes, expression, {Read("x", "f32"): x})

computes `expression` on `lanes` elements at once; leaves are looked up in the table, which also remembers what has been computed.
"""

from __future__ import annotations

from typing import Any

from tocha.inductor import jit
from tocha.inductor.codegen_llvm import VALUE, literal
from tocha.inductor.loop_ir import (
    BITS,
    FLOATS,
    HALVES,
    Binary,
    Bitcast,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Select,
    Unary,
)
from tocha.inductor.lower import Unsupported
from tocha.inductor.templates.builder import Function, Value

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SUFFIX = {"float": "f32", "double": "f64"}
Known = dict[Expr, Value]


def vector(lanes: int, type: str) -> str:
    """The LLVM type of `lanes` elements of a loop IR type."""
    return f"<{lanes} x {VALUE[type]}>"


def constant(lanes: int, value: Any, type: str) -> str:
    one = f"{VALUE[type]} {literal(value, type)}"
    return f"<{', '.join([one] * lanes)}>"


def emit(f: Function, lanes: int, x: Expr, known: Known) -> Value:
    """`x` on `lanes` elements; Unsupported for what has no vector form (calls of the C library)."""
    found = known.get(x)
    if found is None:
        found = known[x] = _compute(f, lanes, x, known)
    return found


def _compute(f: Function, n: int, x: Expr, known: Known) -> Value:
    kind = vector(n, x.type)
    if isinstance(x, Const):
        return Value(f, constant(n, x.value, x.type), kind)
    operands = [emit(f, n, child, known) for child in x.children()]  # type: ignore[arg-type]
    names = [o.name for o in operands]
    if isinstance(x, Binary):
        return _binary(f, n, x.op, x.x.type, *operands)
    if isinstance(x, Unary):
        return _unary(f, n, x.op, x.type, operands[0])
    if isinstance(x, Fma):
        return intrinsic(f, n, "fma" if jit.has_fma() else "fmuladd", x.type, *operands)
    if isinstance(x, Compare):
        if x.x.type in FLOATS:
            return f.op(f"fcmp {_COMPARE[x.op]} {operands[0].type} {names[0]}, {names[1]}", kind)
        sign = "" if x.op in ("eq", "ne") else "u" if x.x.type[0] == "u" or x.x.type == "bool" else "s"
        return f.op(f"icmp {sign}{x.op} {operands[0].type} {names[0]}, {names[1]}", kind)
    if isinstance(x, Select):
        return f.op(f"select {operands[0].type} {names[0]}, {kind} {names[1]}, {kind} {names[2]}", kind)
    if isinstance(x, Bitcast):
        return operands[0] if operands[0].type == kind else f.op(f"bitcast {operands[0].type} {names[0]} to {kind}", kind)
    if isinstance(x, Convert):
        return convert(f, n, operands[0], x.x.type, x.type)
    raise Unsupported(f"{x.__class__.__name__} in a template")


def intrinsic(f: Function, n: int, name: str, type: str, *operands: Value) -> Value:
    kind, scalar = vector(n, type), VALUE[type]
    extra = [("i1", "false")] if name == "abs" else []
    return f.call(f"llvm.{name}.v{n}{_SUFFIX.get(scalar, scalar)}", kind, *[(kind, o) for o in operands], *extra, declare=True)


def _unary(f: Function, n: int, op: str, type: str, x: Value) -> Value:
    if op == "not":
        return f.op(f"xor {x.type} {x.name}, {constant(n, True if type == 'bool' else -1, type)}", x.type)
    if type in FLOATS:
        return f.op(f"fneg {x.type} {x.name}", x.type) if op == "neg" else intrinsic(f, n, "fabs" if op == "abs" else op, type, x)
    if op == "neg":
        return f.op(f"sub {x.type} zeroinitializer, {x.name}", x.type)
    return x if type[0] == "u" else intrinsic(f, n, "abs", type, x)


def _binary(f: Function, n: int, op: str, type: str, x: Value, y: Value) -> Value:
    if type in FLOATS:
        if op in _FLOAT_OPS:
            return f.op(f"{_FLOAT_OPS[op]} {x.type} {x.name}, {y.name}", x.type)
        return intrinsic(f, n, {"min": "minimum", "max": "maximum"}.get(op, op), type, x, y)
    unsigned = type[0] == "u"
    if op in ("min", "max"):
        return intrinsic(f, n, ("u" if unsigned else "s") + op, type, x, y)
    spelled = {
        "shr": "lshr" if unsigned else "ashr",
        "div": "udiv" if unsigned else "sdiv",
        "rem": "urem" if unsigned else "srem",
    }
    return f.op(f"{spelled.get(op) or _INT_OPS[op]} {x.type} {x.name}, {y.name}", x.type)


def convert(f: Function, n: int, x: Value, source: str, target: str) -> Value:
    """The values as another type; bfloat16 and float16 by way of float32."""
    if source == target:
        return x
    if (source in HALVES and target != "f32") or (target in HALVES and source != "f32"):
        return convert(f, n, convert(f, n, x, source, "f32"), "f32", target)
    kind, wide = vector(n, target), f"<{n} x i32>"

    def cast(op: str, value: Value, to: str) -> Value:
        return f.op(f"{op} {value.type} {value.name} to {to}", to)

    if source == "bf16":
        shifted = f.op(f"shl {wide} {cast('zext', x, wide).name}, {constant(n, 16, 'i32')}", wide)
        return cast("bitcast", shifted, kind)
    if target == "bf16":
        return _to_bf16(f, n, x)
    if target == "bool":
        op = "fcmp une" if source in FLOATS else "icmp ne"
        return f.op(f"{op} {x.type} {x.name}, zeroinitializer", kind)
    floats = (*FLOATS, "f16")
    if source in floats and target in floats:
        return cast("fpext" if BITS[target] > BITS[source] else "fptrunc", x, kind)
    if target in FLOATS:
        return cast("uitofp" if source[0] == "u" or source == "bool" else "sitofp", x, kind)
    if source in FLOATS:
        number = cast("fptoui" if target[0] == "u" else "fptosi", x, kind)
        return f.op(f"freeze {kind} {number.name}", kind)
    if source == "bool" or BITS[source] < BITS[target]:
        return cast("zext" if source[0] == "u" or source == "bool" else "sext", x, kind)
    return x if BITS[source] == BITS[target] else cast("trunc", x, kind)


def _to_bf16(f: Function, n: int, x: Value) -> Value:
    """Round to nearest even on the bits; NaN stays NaN, quiet."""
    wide, short = f"<{n} x i32>", f"<{n} x i16>"

    def op(name: str, a: Value, b: int) -> Value:
        return f.op(f"{name} {wide} {a.name}, {constant(n, b, 'i32')}", wide)

    bits = f.op(f"bitcast {x.type} {x.name} to {wide}", wide)
    odd = op("and", op("lshr", bits, 16), 1)
    rounded = f.op(f"add {wide} {op('add', bits, 32767).name}, {odd.name}", wide)
    nan = f.op(f"fcmp uno {x.type} {x.name}, {x.name}", f"<{n} x i1>")
    chosen = f.op(f"select {nan.type} {nan.name}, {wide} {op('or', bits, 0x400000).name}, {wide} {rounded.name}", wide)
    return f.op(f"trunc {wide} {op('lshr', chosen, 16).name} to {short}", short)
