"""Choice of the attention implementation (torch docs: torch.nn.attention)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

__all__ = ["SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """Implementations of scaled dot-product attention, by torch's names and numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __repr__(self) -> str:
        return f"<SDPBackend.{self.name}: {self.value}>"


_enabled: list[SDPBackend] = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
]


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The implementations allowed now."""
    return list(_enabled)


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """While inside, allow only the given implementations (one or a list).

    All of them compute the same here, so the choice has no effect on results; at least one must be allowed.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {type(backends)}")
    global _enabled
    before = _enabled
    _enabled = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends))
    try:
        yield
    finally:
        _enabled = before
