"""torch.cpu: the CPU through the functions that devices share (torch docs: torch.cpu)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = [
    "Stream", "StreamContext", "current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device",
    "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """'cpu'."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is only one."""


def synchronize(device: Any = None) -> None:
    """Work on the CPU is done when a call returns."""


class Stream:
    """The one order in which work on the CPU runs."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Everything before is done."""

    def record_event(self) -> None:
        """Everything before is done."""

    def wait_event(self, event: Any) -> None:
        """Everything before is done."""


_STREAM = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _STREAM


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """There is only one."""
    yield


StreamContext = stream
