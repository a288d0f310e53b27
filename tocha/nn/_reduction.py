"""Names of loss reductions, their numbers, and the deprecated `size_average` and `reduce` arguments."""

from __future__ import annotations

import warnings

_ENUM = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """0 for none, 1 for mean, 2 for sum; ValueError for another name."""
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=3,
        )
    if reduction not in _ENUM:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _ENUM[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that the deprecated arguments stand for, with a warning."""
    averaged = size_average is None or size_average
    reduced = reduce is None or reduce
    name = "none" if not reduced else "mean" if averaged else "sum"
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.",
            stacklevel=3,
        )
    return name


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """As :func:`legacy_get_string`, as a number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
