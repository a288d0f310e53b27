"""Numbers that only the graph knows: what `.item()`, `float()` and `int()` give of a tensor where a graph may not break.

A Scalar stands for a Python number; `t` is a tensor without dimensions that holds it in the graph, in the type that Python computes in
(float64, int64 or bool). Arithmetic goes into the graph; comparisons are decided by an example, as integers are that are given to functions
(`examples.py`); whatever else is asked of the number is a break. So do floats from before whose values differ from call to call: they
are inputs of the graph, and comparing one is a guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha._dynamo import examples
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break
from tocha._dynamo.recorder import METHODS, REMEDY
from tocha._dynamo.source import Source
from tocha.dispatch.override import DisableTorchFunction
from tocha.dtypes import FROM_NP
from tocha.tensor import Tensor, wrap

_ARITHMETIC = frozenset(
    (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pos, operator.iadd, operator.isub, operator.imul,
     operator.itruediv)
)  # fmt: skip

_SYMBOLS = {operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">="}
#: Functions and methods of a tensor and a number that are what the operator is.
_FUNCTIONS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "add_": operator.iadd, "sub_": operator.isub,
    "mul_": operator.imul, "div_": operator.itruediv,
}  # fmt: skip


def spelled(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """The operator that a call of a tensor and a number of the graph is, if it is one."""
    op = _FUNCTIONS.get(getattr(fn, "__name__", ""))
    return op if len(args) == 2 and not kwargs and args[1].__class__ is Scalar and isinstance(args[0], Tensor) else None


class Scalar:
    """See the module's text."""

    __slots__ = ("from_before", "size", "t")
    of_graph = True

    def __init__(self, t: Tensor, from_before: tuple[float, Source] | None = None) -> None:
        self.t, self.from_before = t, from_before
        self.size: Any = None  # once it served as one

    @property
    def kind(self) -> type:
        """The class of the number."""
        return {"f": float, "b": bool}.get(self.t._a.dtype.kind, int)

    @property
    def whole(self) -> bool:
        """Whether it is an integer that isn't from before."""
        return self.kind is int and self.from_before is None

    def __repr__(self) -> str:
        return f"<a number of the graph, {self.t._a.dtype}>"

    def _asked(self, *unused: Any) -> Any:
        raise Break("the value of a number is asked for that exists only when the graph runs", REMEDY)

    __bool__ = __index__ = __int__ = __float__ = __hash__ = __format__ = _asked
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __abs__ = __round__ = __trunc__ = __floor__ = __ceil__ = __complex__ = _asked
    __divmod__ = __rdivmod__ = __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __len__ = __iter__ = _asked


def scalar_of(vm: Any, t: Tensor) -> Scalar:
    """A one-element tensor's value."""
    if not vm.recorder.scalars:
        raise Break("the value of a tensor is asked for (item), which exists only when the graph runs", REMEDY)
    if t._a.size != 1 or t._a.dtype.kind == "c":
        raise Break(f"item() of a tensor of shape {t._a.shape}, {t._a.dtype}")
    flat = t.detach().reshape(())
    kind = flat._a.dtype.kind
    return Scalar(flat if kind == "b" else flat.to(dtypes.int64 if kind in "iu" else dtypes.float64))


def tensor_of(number: float) -> Tensor:
    """A float as an input of graphs."""
    return wrap(np.array(number))


def from_before(world: Any, number: float, source: Source) -> Scalar:
    """A float from before the trace."""
    source.check("is a float", "type({v}) is {c0}", float)
    real = tensor_of(number)
    with DisableTorchFunction():
        fake = world.recorder.fake(real, source.label)
    world.remember(real, fake, source.child("{0}({})", "{}", tensor_of))
    made = Scalar(fake, (number, source))
    world.remember(made, made, source)
    return made


def _compared(vm: Any, op: Callable[..., Any], operands: tuple[Any, ...]) -> bool | None:
    """The outcome of a comparison of floats from before with each other or numbers, which becomes a guard; None if it isn't one."""
    symbol = _SYMBOLS.get(op)
    found = [(x.from_before or (None,))[0] if x.__class__ is Scalar else x if type(x) in (int, float) else None for x in operands]
    if symbol is None or None in found:
        return None
    outcome = bool(op(*found))
    sources = [x.from_before[1] for x in operands if x.__class__ is Scalar and x.from_before]
    words = ["{}" if x.__class__ is Scalar else f"float({str(x)!r})" if isinstance(x, float) else f"({x})" for x in operands]
    text = f"({words[0]} {symbol} {words[1]}) is {outcome}"
    vm.world.guards.late.append((text.format(*[s.label for s in sources]), text, tuple(sources)))
    return outcome


def operate(vm: Any, op: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """An operator on numbers of the graph: with a tensor it gives a tensor, with other numbers a number."""
    outcome = _compared(vm, op, operands)
    if outcome is not None:
        return outcome
    if op in _SYMBOLS and vm.recorder.examples and all(isinstance(x, (Scalar, int, float)) for x in operands):
        return examples.decided(vm, op, tuple([x.t if isinstance(x, Scalar) else x for x in operands]), REMEDY)
    if op not in _ARITHMETIC:
        raise Break(f"{op.__name__} of a number that exists only when the graph runs", REMEDY)
    tensors = [x for x in operands if isinstance(x, Tensor)]
    floats = any(isinstance(x, Scalar) and x.t._a.dtype.kind == "f" for x in operands)
    if any(t._a.dtype.itemsize < 4 or (floats and t._a.dtype.kind in "iub") for t in tensors):
        raise Break(f"{op.__name__} of a {tensors[0]._a.dtype} tensor and a number that exists only when the graph runs", REMEDY)
    if not all(isinstance(x, (Tensor, Scalar, int, float)) for x in operands):
        raise Break(f"{op.__name__} of a number that exists only when the graph runs", REMEDY)
    if not tensors and op in (operator.truediv, operator.itruediv) and isinstance(operands[1], Scalar):
        raise Break("division by a number that exists only when the graph runs, which may be 0", REMEDY)
    given = [as_operand(x, tensors) for x in operands]
    if tensors:
        if op is operator.truediv and tensors[0] is operands[1]:  # as eager mode divides a number
            return tensors[0].reciprocal() * given[0]
        return op(*given)
    if op in (operator.truediv, operator.itruediv) or any(isinstance(x, float) for x in operands):
        given = [x.to(dtypes.float64) if isinstance(x, Tensor) else float(x) for x in given]
    return Scalar(op(*given))


def as_operand(x: Any, tensors: list[Tensor]) -> Any:
    """A number as an operand beside tensors: in their type, since numbers don't promote within a category."""
    if x.__class__ is not Scalar:
        return x
    for t in tensors:
        if t._a.dtype.kind == "f" or (t._a.ndim == 0 and t._a.dtype != x.t._a.dtype):
            if t._a.dtype.kind != "f":
                raise Break(f"a {t._a.dtype} tensor without dimensions and a number that exists only when the graph runs", REMEDY)
            return x.t.to(FROM_NP[t._a.dtype])  # asked for without the recorder
    return x.t


@rule(METHODS.item)
def _item(vm: Any, args: Any, kwargs: Any) -> Any:
    return scalar_of(vm, *args)


@rule(METHODS.tolist)
def _tolist(vm: Any, args: Any, kwargs: Any) -> Any:
    (t,) = args
    if not vm.recorder.examples or t._a.size > _MOST_LISTED:
        raise Break("Tensor.tolist() reaches outside the graph")
    return _listed(vm, t)


_MOST_LISTED = 64


def _listed(vm: Any, t: Tensor) -> Any:
    return [_listed(vm, part) for part in t.unbind()] if t._a.ndim else scalar_of(vm, t)


@rule(float)
def _float(vm: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Tensor):
        made = scalar_of(vm, args[0])
        return Scalar(made.t.to(dtypes.float64))
    if len(args) == 1 and isinstance(args[0], Scalar):
        return Scalar(args[0].t.to(dtypes.float64))
    return _converted(vm, float, args, kwargs)


@rule(int)
def _int(vm: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Tensor):
        args = (scalar_of(vm, args[0]),)
    if len(args) == 1 and isinstance(args[0], Scalar):
        if args[0].t._a.dtype.kind == "f":
            raise Break("int() of a float that exists only when the graph runs", REMEDY)
        return Scalar(args[0].t.to(dtypes.int64))
    return _converted(vm, int, args, kwargs)


def _converted(vm: Any, kind: type, args: Any, kwargs: Any) -> Any:
    method = vm.special(args[0], f"__{kind.__name__}__") if len(args) == 1 else None
    return vm.call_native(kind, args, kwargs) if method is None else vm.nested(method, args)
