"""torch.cuda: devices, memory and seeds of the CUDA backend, in CuPy's terms (torch docs: torch.cuda).

A machine without a GPU may ask too: `is_available` is False there; what needs a device raises a RuntimeError
that says what is missing.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from tocha import random as _random
from tocha.backends import cuda as _backend
from tocha.backends.cuda import device_count as device_count
from tocha.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)  # fmt: skip
from tocha.cuda.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from tocha.device import device as _device
from tocha.errors import AcceleratorError, OutOfMemoryError

__all__ = [
    "AcceleratorError", "Event", "OutOfMemoryError", "Stream", "StreamContext", "amp", "can_device_access_peer", "current_device",
    "current_stream", "default_stream", "device", "device_count", "device_of", "empty_cache", "get_arch_list", "get_device_capability",
    "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed", "ipc_collect",
    "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "is_tf32_supported", "manual_seed",
    "manual_seed_all", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated", "reset_peak_memory_stats",
    "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "set_stream", "stream", "synchronize",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("tocha.cuda.amp")
    if name.endswith("Tensor"):
        from tocha.legacy import tensor_type

        found = globals()[name] = tensor_type(name, "torch.cuda")
        return found
    raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")


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
    _backend.require_device(_device("cuda"))


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
    _backend.require_device(found)
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


def get_rng_state_all() -> list[Any]:
    """The states of all devices' generators."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Take over what `get_rng_state_all` gave."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def seed() -> None:
    """Seed the current device's generator from the operating system's randomness; harmless without a device."""
    if is_available():
        _random.default_for(_device("cuda", current_device())).seed()


def seed_all() -> None:
    """`seed` for all devices."""
    for i in range(device_count()):
        _random.default_for(_device("cuda", i)).seed()


# ---- what else programs ask


class device_of(device):
    """A context in which 'cuda' means the device of a tensor; one on the CPU changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def get_arch_list() -> list[str]:
    """Architectures that kernels are compiled for: those of the devices here, since they are compiled when first used."""
    return sorted({"sm_{}{}".format(*get_device_capability(i)) for i in range(device_count())})


def is_tf32_supported() -> bool:
    """Whether a product of float32 matrices can be made in TF32: from capability 8.0 on."""
    return is_available() and get_device_capability() >= (8, 0)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device can read the memory of another directly."""
    return bool(_runtime().deviceCanAccessPeer(_index(device), _index(peer_device)))


def is_current_stream_capturing() -> bool:
    """Whether the current stream records a graph."""
    return is_available() and bool(_backend.cupy.cuda.get_current_stream().is_capturing())


def ipc_collect() -> None:
    """Nothing to do: memory isn't shared between processes."""
