"""torch.accelerator: the accelerator of this machine, CUDA if there is one (torch docs: torch.accelerator)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tocha import cuda
from tocha.device import device

__all__ = [
    "current_accelerator", "current_device_index", "device_count", "empty_cache", "get_memory_info", "is_available", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats", "reset_peak_memory_stats", "set_device_index", "synchronize",
]  # fmt: skip


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


def _figure(name: str, doc: str, convert: Callable[[Any], Any] = lambda found: found) -> Callable[..., Any]:
    """tocha.cuda's function `name`, which must have a device."""

    def call(*device_index: Any) -> Any:
        if not is_available():
            raise RuntimeError("Cannot access accelerator device when none is available.")
        return convert(getattr(cuda, name)(*device_index))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


memory_allocated = _figure("memory_allocated", "Bytes that tensors hold.")
max_memory_allocated = _figure("max_memory_allocated", "The most bytes that tensors held.")
memory_reserved = _figure("memory_reserved", "Bytes taken from the device.")
max_memory_reserved = _figure("max_memory_reserved", "The most bytes taken from the device.")
memory_stats = _figure("memory_stats", "The figures above under torch's keys.", OrderedDict)
get_memory_info = _figure("mem_get_info", "Free and total bytes of the device.")
empty_cache = _figure("empty_cache", "Give memory that nobody uses back to the device.")
reset_peak_memory_stats = _figure("reset_peak_memory_stats", "Count peaks from the present use on.")
