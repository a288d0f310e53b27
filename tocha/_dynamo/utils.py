"""torch._dynamo.utils: what libraries ask of it."""

from __future__ import annotations

from typing import Any

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether code for this kind of device can be compiled: not yet."""
    return False
