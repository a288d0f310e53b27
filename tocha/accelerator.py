"""torch.accelerator: the accelerator of this machine, CUDA if there is one (torch docs: torch.accelerator)."""

from __future__ import annotations

from typing import Any

from tocha import cuda
from tocha.device import device

__all__ = ["current_accelerator", "current_device_index", "device_count", "is_available", "set_device_index", "synchronize"]


def is_available() -> bool:
    """Whether there is an accelerator to use."""
    return bool(cuda.is_available())


def device_count() -> int:
    """How many there are."""
    return int(cuda.device_count())


def current_accelerator(check_available: bool = False) -> device | None:
    """The accelerator's device without an index, None without one."""
    return device("cuda") if is_available() else None


def current_device_index() -> int:
    """The index of the one in use."""
    return int(cuda.current_device())


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Use the one of this index."""
    cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device: Any = None, /) -> None:
    """Wait for its work."""
    if is_available():
        cuda.synchronize(device)
