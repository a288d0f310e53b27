"""Gradient rules of pointwise primitives as kernels.

A rule such as `lambda g, out: g * (1 - out * out)` is written with tensor operators, one pass over memory each. Run on symbols, whose
operators are the scalar rules of the primitives they name, it is a scalar rule itself, and a large gradient is one pass (tocha.backends.native).
What a symbol has no meaning for (another primitive, a branch on values) leaves the rule as it is; so does recording (create_graph).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.autograd.mode import state
from tocha.backends import native
from tocha.dispatch.override import INTERPRETERS
from tocha.dispatch.prim import REGISTRY
from tocha.dtypes import HALF_NP
from tocha.tensor import Tensor, wrap

_ndarray = np.ndarray
_FLOAT32 = np.dtype(np.float32)
_TYPES = frozenset((_FLOAT32, np.dtype(np.float64), *(d for d in HALF_NP if d.itemsize == 2)))


def _operator(name: str, swapped: bool = False) -> Callable[[Symbol, Any], Symbol]:
    def run(self: Symbol, other: Any) -> Symbol:
        a, b = (other, self) if swapped else (self, other)
        return Symbol(self.o, getattr(self.o, name)(_value(a), _value(b)))

    return run


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Symbol) else x


class Symbol:
    """An operand of a gradient rule, or what the rule makes of it: a handler `o` and a value of that handler's."""

    __slots__ = ("o", "value")

    def __init__(self, o: Any, value: Any) -> None:
        self.o, self.value = o, value

    def apply(self, name: str, *operands: Any, **params: Any) -> Symbol:
        """The pointwise primitive called `name`."""
        rule = REGISTRY[name].scalar if name in REGISTRY else getattr(self.o, "undefined", None)
        if rule is None:
            raise AttributeError(f"no pointwise {name}")
        return Symbol(self.o, rule(self.o, *map(_value, operands), **params))

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", True)

    def __neg__(self) -> Symbol:
        return Symbol(self.o, self.o.neg(self.value))

    def __pow__(self, exponent: Any) -> Symbol:
        return self.apply("pow_scalar", self, exponent=exponent)

    def clamp(self, min: Any = None, max: Any = None) -> Symbol:
        return self.apply("clamp_scalar", self, min=min, max=max)

    def is_complex(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        if name[0] == "_":
            raise AttributeError(name)
        return lambda *operands: self.apply(name, self, *operands)


class _Count:
    """A handler that counts what it is asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*operands: Any) -> Any:
            self.calls += 1
            return _ANY

        return call

    def undefined(self, o: Any, *operands: Any, **params: Any) -> Any:
        """Stands for a primitive that the module being loaded defines further down."""
        self.calls += 1
        return _ANY


class _Any:
    """A value that stands for any."""

    dtype = _FLOAT32


_ANY = _Any()


class Fused:
    """A gradient rule that computes large gradients of plain CPU tensors as one kernel, and everything else as it is written."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def impl(self, o: Any, *operands: Any, **params: Any) -> Any:
        """The rule as a scalar rule."""
        return self.function(*[Symbol(o, x) for x in operands], **params).value

    def __call__(self, g: Any, *values: Any, **params: Any) -> Any:
        found = self._by_kernel(g, values, params) if g._a.size >= native.LEAST["rule"] else None
        return self.function(g, *values, **params) if found is None else found

    def _by_kernel(self, g: Any, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        arrays = _plain_arrays((g, *values))
        if arrays is None:
            return None
        dtype = g._a.dtype
        compute = _FLOAT32 if dtype in HALF_NP else dtype
        got = native.pointwise(self, arrays, compute, dtype, params, lambda shapes: np.broadcast_shapes(*shapes), "rule")
        return None if got is None else wrap(got)

    def total(self, shape: tuple[int, ...], g: Any, values: list[Any]) -> Any:
        """The rule's gradient summed to `shape`, to which it was broadcast, in the kernel that computes it; None for that to be two steps."""
        arrays = _plain_arrays((g, *values)) if g._a.size >= native.LEAST["reduce"] else None
        got = None if arrays is None else native.total(self.name, self.impl, arrays, shape)
        return None if got is None else wrap(got)


def _plain_arrays(operands: tuple[Any, ...]) -> list[Any] | None:
    """The arrays of plain CPU tensors of one float type where nothing is recorded or interpreted; None otherwise."""
    dtype = operands[0]._a.dtype
    if state.grad or INTERPRETERS or dtype not in _TYPES:
        return None
    arrays = []
    for x in operands:
        if x.__class__ is not Tensor or x._a.__class__ is not _ndarray or x._a.dtype is not dtype:
            return None
        arrays.append(x._a)
    return arrays


def fused(name: str, function: Callable[..., Any], operands: int, params: tuple[str, ...]) -> Callable[..., Any]:
    """The gradient rule `function` of the primitive called `name`, as a kernel if it is several operations and can be one."""
    rule, calls = _scalar_rule(name, function, operands, params)
    return function if rule is None or calls < 2 else rule


def total(name: str, function: Callable[..., Any], operands: int, params: tuple[str, ...]) -> Callable[..., Any] | None:
    """What sums that gradient while it is computed, as `Fused.total`; None if it can't be one kernel."""
    rule = None if params else _scalar_rule(name, function, operands, params)[0]
    return None if rule is None else rule.total


def _scalar_rule(name: str, function: Callable[..., Any], operands: int, params: tuple[str, ...]) -> tuple[Fused | None, int]:
    """The gradient rule as a scalar rule and how many operations it is; None if it is no scalar rule."""
    count = _Count()
    rule = Fused(f"{name}_gradient", function)
    try:
        rule.impl(count, *[_ANY] * (operands + 1), **dict.fromkeys(params, 1.5))
    except Exception:  # a rule may raise anything on what isn't a tensor
        return None, 0
    return rule, count.calls
