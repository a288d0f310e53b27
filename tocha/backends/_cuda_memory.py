"""CUDA memory: CuPy's caching pool, with torch's error when it is exhausted, and the numbers torch.cuda reports."""

from __future__ import annotations

from typing import Any

from tocha.backends._cpu_memory import readable
from tocha.errors import OutOfMemoryError

cupy: Any = None
_exhausted: Any = ()
_pool: Any = None
_take: Any = None
_peaks: dict[int, int] = {}


def install(module: Any) -> None:
    """Make `allocate` the allocator of CuPy, the module."""
    global cupy, _exhausted, _pool, _take
    cupy, _exhausted, _pool = module, module.cuda.memory.OutOfMemoryError, module.get_default_memory_pool()
    _take = _pool.malloc
    cupy.cuda.set_allocator(allocate)


def allocate(size: int) -> Any:
    """Memory from the pool; OutOfMemoryError in torch's words."""
    try:
        taken = _take(size)
    except _exhausted as error:
        raise OutOfMemoryError(_words(size)) from error
    if _peaks:
        _note()
    return taken


def _words(size: int) -> str:
    free, total = cupy.cuda.runtime.memGetInfo()
    held = _pool.used_bytes()
    return (
        f"CUDA out of memory. Tried to allocate {readable(size)}. GPU {cupy.cuda.runtime.getDevice()} has a total capacity of "
        f"{readable(total)} of which {readable(free)} is free; tensors hold {readable(held)}"
    )


def start_peak(device_id: int) -> None:
    """Take the memory in use now as the device's peak and follow it from here on. Each allocation then asks the pool
    how much is in use, which costs a microsecond or more."""
    with cupy.cuda.Device(device_id):
        _peaks[device_id] = int(_pool.used_bytes())


def peak(device_id: int) -> int:
    """The highest number of bytes in use since `start_peak`, which the first question starts. Until then nobody
    counted: what the pool has taken from the device, never less than the peak, is the answer."""
    with cupy.cuda.Device(device_id):
        if device_id not in _peaks:
            start_peak(device_id)
            _peaks[device_id] = int(_pool.total_bytes())
        return max(_peaks[device_id], int(_pool.used_bytes()))


def _note() -> None:
    device_id = cupy.cuda.runtime.getDevice()
    if device_id in _peaks:
        _peaks[device_id] = max(_peaks[device_id], int(_pool.used_bytes()))
