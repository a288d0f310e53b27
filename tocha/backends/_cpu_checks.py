"""Checks of values, on the CPU at once. (A GPU's are not waited for; a traced graph does them when it runs.)"""

from __future__ import annotations

from typing import Any

import numpy as np

_UINT64, _INT64 = np.dtype(np.uint64), np.dtype(np.int64)
_largest = np.maximum.reduce


def check_classes(target: Any, count: int) -> None:
    """IndexError unless every target is one of `count` classes."""
    if target.size:
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= count:
            raise IndexError(f"Target {high if high >= count else low} is out of bounds (there are {count} classes).")


def require(holds: Any, error: type[Exception], text: str) -> None:
    """`error` unless every element of a condition is true."""
    if not bool(holds.all()):
        raise error(text)


def check_rows(indices: Any, name: str, rows: int) -> None:
    """IndexError unless every index is one of `rows` rows."""
    if indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= rows:
            raise IndexError(
                f"index out of range in self: {name} got index {high if high >= rows else low} for a weight of {rows} rows"
            )


def check_range(index: Any, size: int, dim: int, negative: bool, error: type[Exception]) -> None:
    """`error` unless every index lies in a dimension of `size` elements; `negative` ones may count from its end."""
    if not index.size:
        return
    if not negative and index.dtype is _INT64 and _largest(index.view(_UINT64), None) < size:
        return  # negative values would look huge
    low, high = int(index.min()), int(index.max())
    if high >= size or low < (-size if negative else 0):
        raise error(f"index {high if high >= size else low} is out of bounds for dimension {dim} with size {size}")
