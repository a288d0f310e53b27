"""What the CPU and CUDA namespaces have in common."""

from __future__ import annotations

from typing import Any


def cut(count: int, bytes_each: int, limit: int) -> list[slice]:
    """`range(count)` in pieces of at most `limit` bytes."""
    step = max(1, min(count, limit // max(bytes_each, 1)))
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def no_kernel(*arrays: Any, **params: Any) -> Any:
    """The answer of a backend without a kernel of its own: None, the primitive's plain way is taken."""
    return None
