"""Numbers that only the graph knows: what `.item()`, `float()` and `int()` give of a tensor where a graph may not break.

A Scalar stands for a Python number; `t` is a tensor without dimensions that holds it in the graph, in the type that Python computes in
(float64, int64 or bool). Arithmetic goes into the graph; whatever else is asked of the number is a break.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tocha import dtypes
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break
from tocha._dynamo.recorder import METHODS, REMEDY
from tocha.tensor import Tensor

_ARITHMETIC = frozenset(
    (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pos, operator.iadd, operator.isub, operator.imul,
     operator.itruediv)
)  # fmt: skip


class Scalar:
    """See the module's text."""

    __slots__ = ("t",)
    of_graph = True

    def __init__(self, t: Tensor) -> None:
        self.t = t

    def __repr__(self) -> str:
        return f"<a number of the graph, {self.t._a.dtype}>"

    def _asked(self, *unused: Any) -> Any:
        raise Break("the value of a number is asked for that exists only when the graph runs", REMEDY)

    __bool__ = __index__ = __int__ = __float__ = __hash__ = __format__ = _asked
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _asked


def scalar_of(vm: Any, t: Tensor) -> Scalar:
    """A one-element tensor's value."""
    if not vm.recorder.scalars:
        raise Break("the value of a tensor is asked for (item), which exists only when the graph runs", REMEDY)
    if t._a.size != 1 or t._a.dtype.kind == "c":
        raise Break(f"item() of a tensor of shape {t._a.shape}, {t._a.dtype}")
    flat = t.detach().reshape(())
    kind = flat._a.dtype.kind
    return Scalar(flat if kind == "b" else flat.to(dtypes.int64 if kind in "iu" else dtypes.float64))


def operate(op: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """An operator on numbers of the graph: with a tensor it gives a tensor, with other numbers a number."""
    if op not in _ARITHMETIC:
        raise Break(f"{op.__name__} of a number that exists only when the graph runs", REMEDY)
    tensors = [x for x in operands if isinstance(x, Tensor)]
    floats = any(isinstance(x, Scalar) and x.t._a.dtype.kind == "f" for x in operands)
    if any(t._a.dtype.itemsize < 4 or (floats and t._a.dtype.kind in "iub") for t in tensors):
        raise Break(f"{op.__name__} of a {tensors[0]._a.dtype} tensor and a number that exists only when the graph runs", REMEDY)
    if not all(isinstance(x, (Tensor, Scalar, int, float)) for x in operands):
        raise Break(f"{op.__name__} of a number that exists only when the graph runs", REMEDY)
    given = [x.t if isinstance(x, Scalar) else x for x in operands]
    if tensors:
        return op(*given)
    if op in (operator.truediv, operator.itruediv) or any(isinstance(x, float) for x in operands):
        given = [x.to(dtypes.float64) if isinstance(x, Tensor) else float(x) for x in given]
    return Scalar(op(*given))


@rule(METHODS.item)
def _item(vm: Any, args: Any, kwargs: Any) -> Any:
    return scalar_of(vm, *args)


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
