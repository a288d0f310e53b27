"""torch.cuda: devices, memory and seeds of the CUDA backend, in CuPy's terms (torch docs: torch.cuda).

A machine without a GPU may ask too: `is_available` is False there; what needs a device raises a RuntimeError
that says what is missing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tocha import random as _random
from tocha.backends import cuda as _backend
from tocha.backends.cuda import device_count as device_count
from tocha.device import device as _device

__all__ = [
    "current_device", "device", "device_count", "empty_cache", "get_device_capability",
    "get_device_name", "get_device_properties", "get_rng_state", "init", "initial_seed", "is_available",
    "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "mem_get_info",
    "memory_allocated", "memory_reserved", "set_device", "set_rng_state", "synchronize",
]  # fmt: skip

class DeviceProperties(NamedTuple):
    """What a device is (torch docs: torch.cuda.get_device_properties)."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int


def is_available() -> bool:
    """Whether CuPy is installed and finds a device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether the CUDA backend has been loaded and found a device."""
    return is_available()


def init() -> None:
    """Load the backend; RuntimeError says what is missing."""
    _backend.require(_device("cuda"))


def _runtime() -> Any:
    init()
    return _backend.cupy.cuda.runtime


def _index(where: Any) -> int:
    """Number of the device meant by None (the current one), an int, a string or a device."""
    if where is None or (isinstance(where, int) and where < 0):
        return current_device()
    found = _device(where)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    if found.index is None:
        return current_device()
    _backend.require(found)
    return found.index


def current_device() -> int:
    """Number of the device that 'cuda' means."""
    return int(_runtime().getDevice())


def set_device(device: Any) -> None:
    """Make `device` the one that 'cuda' means; a negative number changes nothing."""
    _runtime().setDevice(_index(device))


class device:
    """A context in which 'cuda' means this device; None or a negative number changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        if self.idx >= 0:
            set_device(self.prev_idx)


def synchronize(device: Any = None) -> None:
    """Wait until everything queued on `device` is done."""
    with _backend.on(_index(device)):
        _backend.synchronize()


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, compute capability, memory and multiprocessors of a device."""
    found = _runtime().getDeviceProperties(_index(device))
    return DeviceProperties(
        found["name"].decode(),
        found["major"],
        found["minor"],
        found["totalGlobalMem"],
        found["multiProcessorCount"],
        found["warpSize"],
    )


def get_device_name(device: Any = None) -> str:
    """The device's name, as 'NVIDIA H200'."""
    return str(get_device_properties(device).name)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Compute capability as (major, minor)."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be used: in hardware from capability 8.0 on, by conversion before."""
    return is_available() and (including_emulation or get_device_capability() >= (8, 0))


def empty_cache() -> None:
    """Give memory that the pool keeps and nobody uses back to the device."""
    if is_available():
        _backend.cupy.get_default_memory_pool().free_all_blocks()


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors on `device` hold; 0 without a device."""
    return _pool("used_bytes", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has taken from `device`; 0 without a device."""
    return _pool("total_bytes", device)


def _pool(figure: str, device: Any) -> int:
    if not is_available():
        return 0
    with _backend.on(_index(device)):
        return int(getattr(_backend.cupy.get_default_memory_pool(), figure)())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    with _backend.on(_index(device)):
        free, total = _runtime().memGetInfo()
    return int(free), int(total)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; harmless without a device."""
    if is_available():
        _random.default_for(_device("cuda", current_device())).manual_seed(int(seed))
    else:
        manual_seed_all(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; harmless without a device."""
    _random.manual_seed_cuda(int(seed))


def initial_seed() -> int:
    """The seed that the current device's generator started from."""
    return _random.default_for(_device("cuda", current_device())).initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """State of a device's generator, as a uint8 tensor on the CPU."""
    return _random.default_for(_device("cuda", _index(device))).get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Take over a state that `get_rng_state` gave."""
    _random.default_for(_device("cuda", _index(device))).set_state(new_state)
