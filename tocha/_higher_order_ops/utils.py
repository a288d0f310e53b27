"""What the operators check alike."""

from __future__ import annotations

from typing import Any

from tocha.tensor import Tensor


def uncaptured(text: str) -> Exception:
    """The error for a function that an operator can't take."""
    from tocha._dynamo.exc import UncapturedHigherOrderOpError

    return UncapturedHigherOrderOpError(text)


def check_alike(found: list[Any], expected: list[Any], found_name: str, expected_name: str) -> None:
    """UncapturedHigherOrderOpError unless leaves agree in number, and tensors in shape and dtype."""
    if len(found) != len(expected):
        raise uncaptured(
            f"Expected {found_name} and {expected_name} to have same number of outputs but got {found_name}: {len(found)} "
            f"and {expected_name}: {len(expected)}"
        )
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and (a.shape != b.shape or a.dtype != b.dtype):
            what = [f"{n}: {x} vs {y}" for n, x, y in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)) if x != y]
            raise uncaptured(
                f"Expected {found_name} and {expected_name} to have same metadata but found:\npair[{i}] differ in {', '.join(what)}"
            )
