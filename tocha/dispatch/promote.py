"""Type promotion of operands: dimensioned tensors outrank 0-d tensors, which outrank Python numbers, within a category.

Source: torch docs, torch.result_type and "Tensor Attributes".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.dtypes import FROM_NP, dtype, promote_types
from tocha.tensor import Tensor

_BEYOND = 1 << 64  # where torch's numbers end: integers from 2**63 on are taken as unsigned
SMALL = 1 << 24  # Python integers up to this are exact in float32
REAL_NP = frozenset(np.dtype(t) for t in (np.float32, np.float64))
WEAK = REAL_NP | {np.dtype(np.int32), np.dtype(np.int64)}  # types that a small Python number leaves as they are


def result_type(operands: Iterable[Any]) -> dtype:
    """The type that tensors and numbers promote to together."""
    dimensioned: dtype | None = None
    zero_dim: dtype | None = None
    number: dtype | None = None
    for x in operands:
        if isinstance(x, Tensor):
            d = FROM_NP[x._a.dtype]
            if x._a.ndim:
                dimensioned = d if dimensioned is None else promote_types(dimensioned, d)
            else:
                zero_dim = d if zero_dim is None else promote_types(zero_dim, d)
        elif x is not None:
            d = number_type(x)
            number = d if number is None else promote_types(number, d)
    result = dimensioned
    for lower in (zero_dim, number):
        if lower is None:
            continue
        if result is None:
            result = lower
        elif lower.category > result.category:
            result = _raise(result, lower)
    if result is None:
        raise TypeError("result_type: no operand was given")
    return result


def number_type(x: Any) -> dtype:
    """The type of a Python number among operands; OverflowError for integers that 64 bits don't hold."""
    if x.__class__ is int and not -(_BEYOND >> 1) <= x < _BEYOND >> 1:
        if x < 0 or x >= _BEYOND:
            raise OverflowError(f"int too big to convert: {x} is no 64-bit integer")
        return dtypes.uint64
    return dtypes.of_scalar(x)


def _raise(result: dtype, lower: dtype) -> dtype:
    """A higher category from a lower-ranked operand; the width of a floating type stays when it becomes complex."""
    if lower is dtypes.uint64:
        return promote_types(result, lower)
    return result.to_complex() if lower.category == dtypes.COMPLEX and result.category == dtypes.FLOATING else lower


def common_dtype(operands: Iterable[Any], kind: str) -> dtype:
    """The type a pointwise operator computes in. `kind`: 'same', 'number' (bools become int64)
    or 'float' (integers become the default float)."""
    found = result_type(operands)
    if kind == "float" and found.category < dtypes.FLOATING:
        return dtypes.get_default_dtype()
    if kind == "number" and found is dtypes.bool_:
        return dtypes.int64
    return found
