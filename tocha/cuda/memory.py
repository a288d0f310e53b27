"""How much memory CUDA tensors take, from CuPy's pool (torch docs: torch.cuda, "Memory management")."""

from __future__ import annotations

from typing import Any

from tocha.backends import cuda as _backend

__all__ = [
    "empty_cache", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated", "reset_peak_memory_stats",
]  # fmt: skip


def _index(device: Any) -> int:
    from tocha.cuda import _index as index

    return index(device)


def _pool(figure: str, device: Any) -> int:
    if not _backend.device_count():
        return 0
    with _backend.on(_index(device)):
        return int(getattr(_backend.cupy.get_default_memory_pool(), figure)())


def empty_cache() -> None:
    """Give memory that the pool keeps and nobody uses back to the device."""
    if _backend.device_count():
        _backend.cupy.get_default_memory_pool().free_all_blocks()


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors on `device` hold; 0 without a device."""
    return _pool("used_bytes", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has taken from `device`; 0 without a device."""
    return _pool("total_bytes", device)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors on `device` held since the last `reset_peak_memory_stats`. Without one before nobody has
    counted: then it is what the pool has taken from the device, which is no less."""
    if not _backend.device_count():
        return 0
    return _backend._cuda_memory.peak(_index(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count the peak from the present use on."""
    if _backend.device_count():
        _backend._cuda_memory.start_peak(_index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    with _backend.on(_index(device)):
        free, total = _backend.cupy.cuda.runtime.memGetInfo()
    return int(free), int(total)


def memory_stats(device: Any = None) -> dict[str, int]:
    """The figures above under torch's keys."""
    return {
        "allocated_bytes.all.current": memory_allocated(device), "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device), "reserved_bytes.all.peak": memory_reserved(device),
    }  # fmt: skip


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures as text."""
    return "\n".join(f"{key:32}{value:>16,}" for key, value in memory_stats(device).items())


# The pool only grows between calls of empty_cache.
max_memory_reserved = memory_reserved
reset_max_memory_allocated = reset_peak_memory_stats
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
