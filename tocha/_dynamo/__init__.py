"""torch._dynamo: names that libraries take from the compiler's front."""

from __future__ import annotations

from tocha._dynamo.eval_frame import OptimizedModule
from tocha.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    reset,
    substitute_in_graph,
)

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "is_compiling",
    "reset",
    "substitute_in_graph",
]
