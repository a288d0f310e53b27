"""Scalar rules become loop IR: the handler under which a rule computes on expressions instead of arrays.

    value, run = trace(rule, operands, params)

A rule is the same lambda that NumPy interprets; it sees `Value`s, which have a dtype and take Python numbers as
operands. Numbers among its parameters become arguments of the kernel, so that another number needs no other kernel;
where the rule branches on one (`if exponent == 2`), the outcome is noted as a guard, and the kernel serves calls for
which it comes out the same. What a rule does that has no meaning here (looking at shapes, asking whether any element
…) raises Unsupported, and NumPy serves it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.inductor import elementary
from tocha.inductor.loop_ir import (
    BITS,
    FLOATS,
    INTEGERS,
    Binary,
    Bitcast,
    Expr,
    Param,
    Select,
    Unary,
    compare,
    const,
    convert,
    fma,
    select,
)

NP_TYPES: dict[Any, str] = {np.dtype(t): n for t, n in (
    (np.bool_, "bool"), (np.int8, "i8"), (np.int16, "i16"), (np.int32, "i32"), (np.int64, "i64"), (np.uint8, "u8"), (np.uint16, "u16"),
    (np.uint32, "u32"), (np.uint64, "u64"), (np.float16, "f16"), (np.float32, "f32"), (np.float64, "f64"),
)}  # fmt: skip
DTYPES = {name: dtype for dtype, name in NP_TYPES.items()}


def add_bfloat16(dtype: Any) -> None:
    """Tell the table NumPy's dtype for bfloat16, which is ml_dtypes'."""
    NP_TYPES[dtype] = "bf16"
    DTYPES["bf16"] = dtype


class Unsupported(Exception):
    """A rule that has no native kernel."""


Guard = tuple[str, Callable[[Any, Any], Any], Any, Any]  # parameter, comparison, with what, outcome


class Trace:
    """One run of a rule on symbols: the guards it depends on, and what it computes only approximately."""

    def __init__(self, params: dict[str, Any], exact: bool = False) -> None:
        self.params = params
        self.guards: dict[Guard, None] = {}
        self.hard: list[Expr] = []
        self.exact = exact

    def note_hard(self, condition: Expr) -> None:
        self.hard.append(condition)


class Value:
    """An element of an operand or what a rule makes of it. `weak` ones are Python numbers and take the other operand's type."""

    __slots__ = ("expr", "name", "names", "number", "trace", "weak")

    def __init__(
        self,
        trace: Trace,
        expr: Expr,
        number: Any = None,
        names: tuple[str, ...] = (),
        name: str | None = None,
        weak: bool = False,
    ) -> None:
        self.trace, self.expr, self.number = trace, expr, number
        self.names, self.name = names, name  # the parameters it is made of; the one it is
        self.weak = weak or bool(names)

    @property
    def dtype(self) -> Any:
        if self.names:  # rules tell numbers from arrays by it
            raise AttributeError("a number has no dtype")
        return DTYPES[self.expr.type]

    @property
    def real(self) -> Value:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def astype(self, dtype: Any, copy: bool = True) -> Value:
        return Value(self.trace, convert(self.expr, NP_TYPES[np.dtype(dtype)]))

    # ---- Python's arithmetic on parameters of a rule

    def _with(self, op: Callable[[Any, Any], Any], other: Any, swapped: bool) -> Any:
        theirs = other.number if isinstance(other, Value) else other
        if not self.weak or self.expr.type != "f64" or not isinstance(theirs, (int, float)) or isinstance(theirs, bool):
            raise Unsupported(f"Python's {op.__name__} of {self.expr.type}")
        mine = self.expr
        exact, names = (other.expr, other.names) if isinstance(other, Value) else (const(theirs, "f64"), ())
        number = op(theirs, self.number) if swapped else op(self.number, theirs)
        return Value(self.trace, op(exact, mine) if swapped else op(mine, exact), number, (*self.names, *names))

    def __add__(self, other: Any) -> Any:
        return self._with(operator.add, other, False)

    def __radd__(self, other: Any) -> Any:
        return self._with(operator.add, other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, other, False)

    def __rsub__(self, other: Any) -> Any:
        return self._with(operator.sub, other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with(operator.mul, other, False)

    def __rmul__(self, other: Any) -> Any:
        return self._with(operator.mul, other, True)

    def __truediv__(self, other: Any) -> Any:
        if (other.number if isinstance(other, Value) else other) == 0:
            raise ZeroDivisionError("float division by zero")
        return self._with(operator.truediv, other, False)

    def __rtruediv__(self, other: Any) -> Any:
        if self == 0:  # a guard: other calls of the kernel don't divide by zero either
            raise ZeroDivisionError("float division by zero")
        return self._with(operator.truediv, other, True)

    def __neg__(self) -> Any:
        return Value(self.trace, -self.expr, None if self.number is None else -self.number, self.names)

    def __abs__(self) -> Any:
        if self.name is None:
            raise Unsupported("abs() of what is no parameter")
        return Value(self.trace, abs(self.expr), abs(self.number), self.names, "|" + self.name)

    def _decide(self, op: Callable[[Any, Any], Any], other: Any) -> bool:
        """The outcome of a comparison that the rule branches on, noted as a guard."""
        if isinstance(other, Value) or self.name is None:
            return bool(op(float(self), float(other)))
        outcome = op(self.number, other)
        self.trace.guards[(self.name, op, other, outcome)] = None
        return bool(outcome)

    def __eq__(self, other: Any) -> bool:
        return self._decide(operator.eq, other)

    def __ne__(self, other: Any) -> bool:
        return self._decide(operator.ne, other)

    def __lt__(self, other: Any) -> bool:
        return self._decide(operator.lt, other)

    def __le__(self, other: Any) -> bool:
        return self._decide(operator.le, other)

    def __gt__(self, other: Any) -> bool:
        return self._decide(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        return self._decide(operator.ge, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self._decide(operator.ne, 0)

    def __float__(self) -> float:
        """A parameter used as a plain number: the kernel serves this number only."""
        if not self.names:
            raise Unsupported("a rule branches on an element, or takes it for a number")
        for name in self.names:
            self.trace.guards[(name, operator.eq, self.trace.params[name], True)] = None
        return float(self.number)

    def __int__(self) -> int:
        return int(float(self))


def holds(guards: Any, params: dict[str, Any]) -> bool:
    """Whether a kernel traced under `guards` serves these parameters."""
    for name, op, other, outcome in guards:
        value = abs(params[name[1:]]) if name[0] == "|" else params[name]
        if op(value, other) is not outcome:
            return False
    return True


class Handler:
    """`o` of a scalar rule: NumPy's names on Values."""

    name = "native"
    pi, inf, nan = math.pi, math.inf, math.nan

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._plus_one: dict[Expr, Callable[[], Expr]] = {}  # 1 + a value, in which its own small digits are lost

    # ---- operands

    def _value(self, x: Any, type: str) -> Expr:
        """x as an expression of `type`; numbers convert as NumPy converts them."""
        if isinstance(x, Value):
            if x.expr.type == type:
                return x.expr
            if x.weak:
                if x.expr.type in FLOATS and type not in FLOATS:
                    raise Unsupported(f"a float among {type}")
                return convert(x.expr, type)
            if x.expr.type == "bool":
                return convert(x.expr, type)
            raise Unsupported(f"{x.expr.type} among {type}")
        if isinstance(x, np.generic):
            if NP_TYPES.get(x.dtype) not in (type, "bool"):
                raise Unsupported(f"{x.dtype} among {type}")
            return const(x.item(), type)
        if not isinstance(x, (bool, int, float)):
            raise Unsupported(f"{x.__class__.__name__} as an operand")
        if (type == "bool" and x.__class__ is not bool) or (type in INTEGERS and x.__class__ is float):
            raise Unsupported(f"{x!r} among {type}")
        if type in INTEGERS:
            low = 0 if type[0] == "u" else -(1 << (BITS[type] - 1))
            if not low <= x < low + (1 << BITS[type]):
                raise Unsupported(f"{x!r} doesn't fit {type}")
        return const(x, type)

    def _type(self, *operands: Any) -> str:
        """The type of strong operands; bools give way."""
        found = "bool"
        seen = False
        for x in operands:
            type = (
                x.expr.type
                if isinstance(x, Value) and not x.weak
                else NP_TYPES.get(x.dtype)
                if isinstance(x, np.generic)
                else None
            )
            if type is None:
                continue
            seen = True
            if found == "bool":
                found = type
            elif type not in ("bool", found):
                raise Unsupported(f"{found} with {type}")
        if not seen:
            raise Unsupported("numbers only")
        return found

    def _same(self, *operands: Any) -> list[Expr]:
        type = self._type(*operands)
        return [self._value(x, type) for x in operands]

    def _wrap(self, expr: Expr) -> Value:
        return Value(self.trace, expr)

    of = _wrap  # for rules made of expressions

    def _arithmetic(self, op: str, x: Any, y: Any) -> Value:
        a, b = self._same(x, y)
        if a.type == "bool":
            if op not in ("add", "mul", "max", "min"):
                raise Unsupported(f"{op} of bool")
            return self._wrap(Binary("or" if op in ("add", "max") else "and", a, b))
        return self._wrap(Binary(op, a, b))

    # ---- arithmetic

    def add(self, x: Any, y: Any) -> Value:
        """x + y; in 1 + erf and 1 + exp, the digits of small values are lost anyway."""
        if x.__class__ is float:
            x, y = y, x
        if isinstance(x, Value) and y.__class__ is float and y == 1.0 and x.expr in self._plus_one:
            return self._wrap(self._plus_one[x.expr]())
        return self._arithmetic("add", x, y)

    def erf(self, x: Any) -> Value:
        found = self._function("erf", x)
        if found.expr.type == "f32":
            self._plus_one[found.expr] = lambda: elementary.erf_absolute(*self._floats(x)) + 1.0
        return found

    def exp(self, x: Any) -> Value:
        found = self._function("exp", x)
        self._plus_one[found.expr] = lambda: elementary.exp_plus_one(*self._floats(x))
        return found

    def sub(self, x: Any, y: Any) -> Value:
        return self._arithmetic("sub", x, y)

    def mul(self, x: Any, y: Any) -> Value:
        return self._arithmetic("mul", x, y)

    def maximum(self, x: Any, y: Any) -> Value:
        return self._arithmetic("max", x, y)

    def minimum(self, x: Any, y: Any) -> Value:
        return self._arithmetic("min", x, y)

    def fma(self, x: Any, y: Any, z: Any) -> Value:
        """x * y + z, rounded once in float32, as in tocha.backends.cpu."""
        operands = self._same(x, y, z)
        return self._wrap(fma(*operands)) if operands[0].type == "f32" else self.add(self.mul(x, y), z)

    subtract, multiply = sub, mul

    def div(self, x: Any, y: Any) -> Value:
        a, b = self._same(x, y)
        if a.type not in FLOATS:
            raise Unsupported(f"true division of {a.type}")
        return self._wrap(a / b)

    divide = true_divide = div

    def neg(self, x: Any) -> Value:
        if x.expr.type == "bool":
            raise Unsupported("neg of bool")
        return self._wrap(-x.expr)

    def abs(self, x: Any) -> Value:
        return x if x.expr.type == "bool" else self._wrap(abs(x.expr))

    def square(self, x: Any) -> Value:
        return self.mul(x, x)

    def fmax(self, x: Any, y: Any) -> Value:
        return self._ignoring_nan("max", x, y)

    def fmin(self, x: Any, y: Any) -> Value:
        return self._ignoring_nan("min", x, y)

    def _ignoring_nan(self, op: str, x: Any, y: Any) -> Value:
        a, b = self._same(x, y)
        if a.type not in FLOATS:
            return self._arithmetic(op, x, y)
        both = Binary(op, a, b)
        return self._wrap(select(compare("ne", a, a), b, select(compare("ne", b, b), a, both)))

    # ---- comparison and choice

    def _compare(self, op: str, x: Any, y: Any) -> Value:
        return self._wrap(compare(op, *self._same(x, y)))

    def eq(self, x: Any, y: Any) -> Value:
        return self._compare("eq", x, y)

    def ne(self, x: Any, y: Any) -> Value:
        return self._compare("ne", x, y)

    def lt(self, x: Any, y: Any) -> Value:
        return self._compare("lt", x, y)

    def le(self, x: Any, y: Any) -> Value:
        return self._compare("le", x, y)

    def gt(self, x: Any, y: Any) -> Value:
        return self._compare("gt", x, y)

    def ge(self, x: Any, y: Any) -> Value:
        return self._compare("ge", x, y)

    def where(self, condition: Any, x: Any, y: Any) -> Value:
        chosen = self._truth(condition)
        try:
            a, b = self._same(x, y)
        except Unsupported:
            if not all(isinstance(v, (int, float)) or (isinstance(v, Value) and v.weak) for v in (x, y)):
                raise
            # Two Python numbers: a float64 in NumPy, which the next operand of the rule decides the type of.
            a, b = self._value(x, "f64"), self._value(y, "f64")
            return Value(self.trace, Select(chosen, a, b), weak=True)
        return self._wrap(Select(chosen, a, b))

    def _truth(self, x: Any) -> Expr:
        if not isinstance(x, Value) or x.weak:
            raise Unsupported("a number as condition")
        return convert(x.expr, "bool")

    def logical_and(self, x: Any, y: Any) -> Value:
        return self._wrap(self._truth(x) & self._truth(y))

    def logical_or(self, x: Any, y: Any) -> Value:
        return self._wrap(self._truth(x) | self._truth(y))

    def logical_xor(self, x: Any, y: Any) -> Value:
        return self._wrap(self._truth(x) ^ self._truth(y))

    def logical_not(self, x: Any) -> Value:
        return self._wrap(Unary("not", self._truth(x)))

    def isnan(self, x: Any) -> Value:
        return self._wrap(compare("ne", x.expr, x.expr))

    def isinf(self, x: Any) -> Value:
        return self._wrap(compare("eq", abs(x.expr), math.inf))

    def isfinite(self, x: Any) -> Value:
        return self._wrap(compare("lt", abs(x.expr), math.inf))

    def signbit(self, x: Any) -> Value:
        return self._wrap(compare("lt", Bitcast(x.expr, "i32" if x.expr.type == "f32" else "i64"), 0))

    def zeros(self, shape: Any, dtype: Any) -> Value:
        return self._wrap(const(0, NP_TYPES[np.dtype(dtype)]))

    def ones(self, shape: Any, dtype: Any) -> Value:
        return self._wrap(const(1, NP_TYPES[np.dtype(dtype)]))

    def zeros_like(self, x: Any, dtype: Any = None) -> Value:
        return self.zeros((), x.dtype if dtype is None else dtype)

    def ones_like(self, x: Any, dtype: Any = None) -> Value:
        return self.ones((), x.dtype if dtype is None else dtype)

    def nan_to_num(self, x: Any, *, nan: Any, posinf: Any, neginf: Any) -> Value:
        e = x.expr
        largest = float(np.finfo(x.dtype).max)
        high = const(largest, e.type) if posinf is None else self._value(posinf, e.type)
        low = const(-largest, e.type) if neginf is None else self._value(neginf, e.type)
        finite = select(compare("eq", e, math.inf), high, select(compare("eq", e, -math.inf), low, e))
        return self._wrap(select(compare("ne", e, e), self._value(nan, e.type), finite))

    # ---- bits

    def _bits(self, op: str, x: Any, y: Any) -> Value:
        return self._wrap(Binary(op, *self._same(x, y)))

    def bitwise_and(self, x: Any, y: Any) -> Value:
        return self._bits("and", x, y)

    def bitwise_or(self, x: Any, y: Any) -> Value:
        return self._bits("or", x, y)

    def bitwise_xor(self, x: Any, y: Any) -> Value:
        return self._bits("xor", x, y)

    def left_shift(self, x: Any, y: Any) -> Value:
        return self._bits("shl", x, y)

    def right_shift(self, x: Any, y: Any) -> Value:
        return self._bits("shr", x, y)

    def invert(self, x: Any) -> Value:
        return self._wrap(Unary("not", x.expr))

    # ---- functions

    def copysign(self, x: Any, y: Any) -> Value:
        return self._wrap(Binary("copysign", *self._same(x, y)))

    def fmod(self, x: Any, y: Any) -> Value:
        return self._function("fmod", x, y)

    def rem(self, x: Any, y: Any) -> Value:
        """fmod brought to y's sign; a zero has y's sign."""
        a, b = self._floats(x, y)
        m, other = self._fmod(a, b)
        return self._wrap(select(compare("eq", m, 0.0), Binary("copysign", const(0.0, a.type), b), select(other, m + b, m)))

    def floor_div(self, x: Any, y: Any) -> Value:
        """As NumPy does: from the remainder, so that the quotient is exact."""
        a, b = self._floats(x, y)
        m, other = self._fmod(a, b)
        quotient = (a - m) / b
        quotient = select(other, quotient - 1.0, quotient)
        down: Expr = Unary("floor", quotient)
        down = select(compare("gt", quotient - down, 0.5), down + 1.0, down)
        down = select(compare("eq", quotient, 0.0), Binary("copysign", const(0.0, a.type), a / b), down)
        return self._wrap(select(compare("eq", b, 0.0), a / b, down))

    def _fmod(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """C's remainder, and whether it has the wrong sign for Python's."""
        m = elementary.elementary("fmod", a, b, hard=None)
        return m, compare("ne", m, 0.0) & compare("ne", compare("lt", b, 0.0), compare("lt", m, 0.0))

    def _floats(self, *operands: Any) -> list[Expr]:
        exprs = self._same(*operands)
        if exprs[0].type not in FLOATS:
            raise Unsupported(f"a float function of {exprs[0].type}")
        return exprs

    def _function(self, name: str, *operands: Any) -> Value:
        try:
            return self._wrap(
                elementary.elementary(name, *self._floats(*operands), hard=None if self.trace.exact else self.trace.note_hard)
            )
        except NotImplementedError as error:
            raise Unsupported(str(error)) from None

    def __getattr__(self, name: str) -> Any:
        spelled = _SPELLED.get(name, name)
        if spelled in ("sqrt", "floor", "ceil", "rint", "trunc"):
            return lambda x: self._wrap(Unary(spelled, *self._floats(x)))
        if spelled in elementary.NAMES:
            return lambda *x: self._function(spelled, *x)
        if name in ("float32", "float64"):
            return getattr(np, name)
        raise Unsupported(f"no native {name}")


_SPELLED = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2",
    "absolute": "abs",
}  # fmt: skip


def trace(rule: Callable[..., Any], operands: list[Expr], params: dict[str, Any], exact: bool = False) -> tuple[Expr, Trace]:
    """The expression a rule computes from `operands` and parameters. `exact`: with libm where polynomials stop short."""
    run = Trace(params, exact)
    values = [Value(run, e) for e in operands]
    symbols: dict[str, Any] = {}
    for name, value in params.items():
        symbols[name] = Value(run, Param(name, "f64"), value, (name,), name) if value.__class__ is float else value
    try:
        found = rule(Handler(run), *values, **symbols)
    except (TypeError, AttributeError, NotImplementedError, KeyError) as error:  # the rule treats a value as an array
        raise Unsupported(f"{error.__class__.__name__}: {error}") from error
    if not isinstance(found, Value):
        raise Unsupported("a rule that returns a plain number")
    return found.expr, run
