"""Whether a written tensor and an operand share elements, as torch judges it: by the bytes that dense tensors span."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tocha.backends import device_of, geometry, namespace
from tocha.backends.lazy import Lazy
from tocha.backends.meta import is_dense
from tocha.tensor import Tensor

_ndarray = np.ndarray
#: Operators that read their first argument while they write, so that torch forbids even writing over the whole of it.
_APART = frozenset(("cat", "concat", "concatenate", "gather", "index_select", "masked_select", "stack", "take"))
#: Operators (beside the pointwise primitives) that may write over an operand, but not over a part of it.
_IN_STEP = frozenset((
    "addcdiv", "addcmul", "clamp", "clamp_max", "clamp_min", "cumprod", "cumsum", "div", "divide", "index_add", "index_copy", "lerp", "pow",
    "scatter", "scatter_add", "std", "var", "where",
))  # fmt: skip
_ERROR = (
    "{}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def check_out(name: str, function: Any, outs: Sequence[Tensor], operands: Iterable[Any]) -> None:
    """RuntimeError if an operator can't write to `outs` because of where its operands lie."""
    apart = name in _APART
    if not apart and name not in _IN_STEP and getattr(function, "family", "") != "pointwise":
        return
    for position, operand in enumerate(operands):
        for x in operand if operand.__class__ in (list, tuple) else (operand,):
            for out in outs:
                if isinstance(x, Tensor) and (kind := shared(x, out)) and ((apart and not position) or kind == "partly"):
                    raise RuntimeError(_ERROR.format(name))


#: Operators that in place don't write over an operand at all.
_APART_IN_PLACE = frozenset((
    "addr", "index_add", "index_copy", "index_put", "index_reduce", "put", "scatter", "scatter_add", "scatter_reduce",
))  # fmt: skip


def in_place_rule(name: str, function: Any) -> bool | None:
    """Which operands an in-place form refuses: those it writes over in part (False), even wholly (True), or none (None)."""
    if name in _APART_IN_PLACE:
        return True
    return False if name in _IN_STEP or getattr(function, "family", "") == "pointwise" else None


def check_in_place(name: str, target: Tensor, operands: Iterable[Any], apart: bool = False) -> None:
    """RuntimeError if an operator can't write to `target` because of where its operands lie."""
    for x in operands:
        if isinstance(x, Tensor) and (x is not target or apart) and one_memory(x._a, target._a):
            kind = shared(x, target)
            if kind == "partly" or (apart and kind):
                raise RuntimeError(_ERROR.format(name))


def has_history(input: Tensor) -> bool:
    """Whether a change in place must be recorded, or refused (a view made under no_grad doesn't require grad itself)."""
    return bool(input._rg) or (input._view is not None and bool(input._view.base._rg))


def one_memory(a: Any, b: Any) -> bool:
    """Whether two arrays may lie on one owner's memory: the quick question before `shared`."""
    if a.__class__ is _ndarray and b.__class__ is _ndarray:
        return (a if a.base is None else a.base) is (b if b.base is None else b.base)
    return True


def shared(x: Tensor, y: Tensor) -> str:
    """'wholly', 'partly' or '' (also where strides leave gaps: torch doesn't look closer)."""
    if x is y:
        return "wholly"
    a, b = (t._a.raw if t._a.__class__ is Lazy else t._a for t in (x, y))
    if a.__class__ is not b.__class__ or not a.size or not b.size or not (is_dense(a) and is_dense(b)):
        return ""
    xp = namespace(a)
    if device_of(a) != device_of(b) or not xp.may_share_memory(a, b):
        return ""
    same = xp.data_ptr(a) == xp.data_ptr(b) and a.nbytes == b.nbytes and geometry(a)[1] == geometry(b)[1]
    return "wholly" if same else "partly"
