"""torch._dynamo._trace_wrapped_higher_order_op: a mode that lets mask functions index with tensors under vmap."""

from __future__ import annotations

from typing import Any

from tocha.overrides import BaseTorchFunctionMode

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(BaseTorchFunctionMode):
    """Inside, `x[i]` with one-element tensors i doesn't read their values: indices are tensors under vmap anyway."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
