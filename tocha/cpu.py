"""torch.cpu: the CPU through the functions that devices share (torch docs: torch.cpu), and its memory through those of torch.cuda."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from tocha.backends import _cpu_memory

__all__ = [
    "Stream", "StreamContext", "current_device", "current_stream", "device_count", "empty_cache", "is_available", "is_initialized",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "memory_summary",
    "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device", "set_memory_limit", "stream", "synchronize",
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


# ---- memory: torch.cuda's functions for it, which torch doesn't have for the CPU


def memory_allocated(device: Any = None) -> int:
    """Bytes that arrays hold. Counted from the first native kernel or the first of these calls on, with what tensors held before."""
    return _cpu_memory.figures()["allocated"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays held at a time since `reset_peak_memory_stats`, or since they are counted."""
    return _cpu_memory.figures()["allocated_peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes taken for arrays: what they hold and what is kept for the next ones."""
    return _cpu_memory.figures()["reserved"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken for arrays at a time since `reset_peak_memory_stats`."""
    return _cpu_memory.figures()["reserved_peak"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count peaks from the present use on."""
    _cpu_memory.reset_peaks()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Count allocations and refusals from 0 on."""
    _cpu_memory.reset_counts()


def empty_cache() -> None:
    """Give memory that is kept and nobody uses back to the system."""
    _cpu_memory.release()


def memory_stats(device: Any = None) -> dict[str, int]:
    """The figures under the keys of torch.cuda.memory_stats."""
    now = _cpu_memory.figures()
    return {
        "allocated_bytes.all.current": now["allocated"], "allocated_bytes.all.peak": now["allocated_peak"],
        "reserved_bytes.all.current": now["reserved"], "reserved_bytes.all.peak": now["reserved_peak"],
        "inactive_split_bytes.all.current": now["kept"], "allocation.all.current": now["blocks"],
        "allocation.all.allocated": now["blocks_made"], "num_ooms": now["refused"],
    }  # fmt: skip


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures as text."""
    return "\n".join(f"{key:32}{value:>20,}" for key, value in memory_stats(device).items())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes of the machine's memory that are free, and all of them."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def set_memory_limit(size: int | None, device: Any = None) -> None:
    """Refuse allocations of arrays with which they would hold more than `size` bytes (None: no limit): RuntimeError, saying who holds memory.

    ValueError for a negative size.
    """
    if size is not None and size < 0:
        raise ValueError(f"set_memory_limit: size must be None or at least 0, got {size}")
    _cpu_memory.set_limit(size)
