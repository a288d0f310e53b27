"""Random number generators and the default ones (torch docs: torch.random, torch.Generator).

A CUDA generator runs the same stream as a CPU one: its numbers are drawn on the host and copied, so that one
seed gives the same tensor on every device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from tocha import dtypes
from tocha.device import CPU
from tocha.device import device as Device
from tocha.rng.mt19937 import DEFAULT_SEED, MT19937, nondeterministic_seed
from tocha.tensor import Tensor, wrap

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

_INT64_MIN, _UINT64_MAX = -(1 << 63), (1 << 64) - 1


def _as_seed(seed: int) -> int:
    """A seed as torch keeps it: 64 bits unsigned, negative ones wrapped; ValueError outside that."""
    if not _INT64_MIN <= seed <= _UINT64_MAX:
        raise ValueError(f"Overflow when unpacking long long: seed {seed} is outside [-2**63, 2**64)")
    return seed & _UINT64_MAX


class Generator:
    """A stream of random numbers with a seed and a state of its own (torch docs: torch.Generator)."""

    __slots__ = ("__weakref__", "device", "engine")
    device: Device
    engine: MT19937

    def __init__(self, device: Any = None) -> None:
        where = CPU if device is None else Device(device)
        if where.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{where.type.upper()} device type not an accelerator: Generator takes cpu or cuda")
        if where.type == "cuda":
            from tocha.backends import for_device

            for_device(where)
            where = Device("cuda", where.index or 0)
        self.device = where
        self.engine = MT19937(DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Restart the stream from `seed`, in [-2**63, 2**64)."""
        if seed.__class__ is not int:
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        self.engine.reseed(_as_seed(seed))
        return self

    def seed(self) -> int:
        """Restart from a seed of the operating system's and return it."""
        fresh = nondeterministic_seed()
        self.engine.reseed(fresh)
        return fresh

    def initial_seed(self) -> int:
        """The seed the stream started from."""
        return self.engine.seed

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor with torch's layout (5056 bytes)."""
        return wrap(self.engine.get_state())

    def set_state(self, new_state: Tensor) -> Generator:
        """Take over a state from `get_state`; TypeError or RuntimeError, and no change, if it is none."""
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if new_state.dtype is not dtypes.uint8 or new_state.device != CPU:
            raise TypeError("RNG state must be a torch.ByteTensor")
        self.engine.set_state(new_state._a)
        return self

    def clone_state(self) -> Generator:
        """A new generator that continues this stream independently."""
        clone = Generator(self.device)
        clone.engine.set_state(self.engine.get_state())
        return clone

    def get_offset(self) -> int:
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> Generator:
        raise RuntimeError("CPU Generator does not use offset")

    def graphsafe_get_state(self) -> Generator:
        raise NotImplementedError("graphsafe_get_state is not supported in this Generator")

    def graphsafe_set_state(self, state: Generator) -> Generator:
        raise NotImplementedError("graphsafe_set_state is not supported in this Generator")

    def __reduce__(self) -> Any:
        return _generator_from, (self.device.type, self.device.index, self.get_state())

    def __setstate__(self, state: tuple[int, int | None, Tensor]) -> None:
        """Take over the (seed, offset, state) of a generator in a file of torch's."""
        self.set_state(state[2])


def _generator_from(device_type: str, index: int | None, state: Tensor) -> Generator:
    return Generator(Device(device_type, index)).set_state(state)


Generator.__module__ = "torch"

default_generator = Generator()
default_generator.engine.reseed(nondeterministic_seed())
_cuda_defaults: dict[int, Generator] = {}
_cuda_seed: int | None = None


def default_for(device: Device) -> Generator:
    """The generator that random operators on `device` draw from when none is given."""
    if device.type != "cuda":
        return default_generator
    index = device.index or 0
    found = _cuda_defaults.get(index)
    if found is None:
        found = _cuda_defaults[index] = Generator(device)
        found.engine.reseed(DEFAULT_SEED if _cuda_seed is None else _cuda_seed)
    return found


def engine_for(generator: Generator | None, device: Device, operator: str) -> MT19937:
    """The stream for an operator on `device`; RuntimeError if `generator` is for another type of device."""
    if generator is None:
        return default_for(device).engine
    if not isinstance(generator, Generator):
        raise TypeError(f"{operator}(): argument 'generator' must be Generator, not {type(generator).__name__}")
    if generator.device.type != device.type:
        raise RuntimeError(
            f"{operator}: Expected a '{device.type}' device type for generator but found '{generator.device.type}'"
        )
    return generator.engine


def manual_seed_cuda(seed: int) -> None:
    """Seed every CUDA generator, also those of devices not used yet."""
    global _cuda_seed
    _cuda_seed = _as_seed(int(seed))
    for generator in _cuda_defaults.values():
        generator.engine.reseed(_cuda_seed)


def manual_seed(seed: Any) -> Generator:
    """Seed the default generators of all devices; returns the CPU one (torch docs: torch.manual_seed)."""
    value = _as_seed(int(seed))
    manual_seed_cuda(value)
    default_generator.engine.reseed(value)
    return default_generator


def seed() -> int:
    """Seed the default generators from the operating system; returns the 64-bit seed."""
    fresh = default_generator.seed()
    manual_seed_cuda(fresh)
    return fresh


def initial_seed() -> int:
    """The seed of the default CPU generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default CPU generator as a uint8 tensor; torch's set_rng_state reads it too."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the default CPU generator's state, from here or from torch."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Run the block and then put the generators back as they were (torch docs: torch.random.fork_rng).

    `devices`: CUDA devices whose generators are kept too; None means all that have been used.
    """
    if not enabled:
        yield
        return
    kept = [default_generator]
    if devices is None:
        kept += _cuda_defaults.values()
    else:
        kept += [default_for(Device(d)) for d in devices]
    states = [generator.get_state() for generator in kept]
    try:
        yield
    finally:
        for generator, state in zip(kept, states, strict=True):
            generator.set_state(state)
