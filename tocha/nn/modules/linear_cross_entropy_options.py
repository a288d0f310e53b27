"""Options of the fused linear layer and cross entropy (torch docs: torch.nn.LinearCrossEntropyLoss)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LinearCrossEntropyOptions"]


@dataclass
class LinearCrossEntropyOptions:
    """How torch may split the work to save memory; values don't depend on it, and here neither does
    anything."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None
