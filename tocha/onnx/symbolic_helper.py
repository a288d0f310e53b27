"""torch.onnx.symbolic_helper: what modules that define symbolics import; the functions they make are never called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["parse_args"]


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """Declare the kinds of a symbolic's arguments; for an exporter to read."""

    def note(fn: F) -> F:
        fn._arg_descriptors = arg_descriptors  # type: ignore[attr-defined]
        return fn

    return note
