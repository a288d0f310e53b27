"""The Mersenne Twister behind torch's CPU generator, with its state layout and its cached normal samples.

Matsumoto & Nishimura, "Mersenne Twister" (1998). The words come from NumPy's bit generator, whose stream is
the same once seeded with Knuth's recurrence; `numpy.random` is imported at the first draw.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.random import MT19937 as BitGenerator
    from numpy.random import RandomState

DEFAULT_SEED: Final = 67280421310721
_WORDS: Final = 624
_SMALL: Final = 64
_CHUNK: Final = 1 << 16

STATE_DTYPE: Final = np.dtype(
    [
        ("seed", np.uint64),
        ("left", np.int32),
        ("seeded", np.int32),
        ("next", np.uint64),
        ("words", np.uint64, _WORDS),
        ("normal_x", np.float64),
        ("normal_y", np.float64),
        ("normal_rho", np.float64),
        ("normal_valid", np.int32),
        ("pad0", np.int32),
        ("float_normal", np.float32),
        ("float_valid", np.bool_),
        ("pad1", np.uint8, 3),
    ]
)
STATE_SIZE: Final = STATE_DTYPE.itemsize


def nondeterministic_seed() -> int:
    """A fresh 64-bit seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little")


class MT19937:
    """One random stream: 32- and 64-bit draws, the Box–Muller spare, and torch's 5056-byte state."""

    __slots__ = ("_bits", "_fresh", "_legacy", "_words", "next_double", "next_float", "seed")

    seed: int
    next_double: float | None
    next_float: float | None
    _bits: BitGenerator | None
    _legacy: RandomState | None
    _fresh: bool
    _words: np.ndarray

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        self._bits = None
        self._legacy = None
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Restart from a seed in [0, 2**64); as in torch, only its low 32 bits reach the twister."""
        self.seed = seed
        self.next_double = None
        self.next_float = None
        self._fresh = True
        if self._legacy is not None:
            self._legacy.seed(seed & 0xFFFF_FFFF)

    def _start(self) -> BitGenerator:
        from numpy.random import MT19937 as BitGenerator
        from numpy.random import RandomState

        self._bits = BitGenerator(0)
        self._legacy = RandomState(self._bits)
        self._legacy.seed(self.seed & 0xFFFF_FFFF)
        words = (ctypes.c_uint32 * (_WORDS + 1)).from_address(self._bits.ctypes.state_address)
        self._words = np.frombuffer(memoryview(words), np.uint32)
        return self._bits

    def memory(self) -> np.ndarray:
        """The state for a kernel that draws: NumPy's own memory of the 624 words and the position in them."""
        if self._bits is None:
            self._start()
        self._fresh = False
        return self._words

    def draw32(self, count: int) -> np.ndarray:
        """The next `count` 32-bit words as uint32."""
        bits = self._bits or self._start()
        if count:
            self._fresh = False
        if count < _SMALL:
            return bits.random_raw(count).astype(np.uint32)
        assert self._legacy is not None
        return self._legacy.randint(0, 1 << 32, size=count, dtype=np.uint32)

    def draw64(self, count: int) -> np.ndarray:
        """The next `count` 64-bit words as uint64; the first of two 32-bit draws is the high half."""
        pairs = self.draw32(2 * count).view(np.dtype("<u8"))
        swapped = pairs >> np.uint64(32)
        pairs <<= np.uint64(32)
        swapped |= pairs
        return swapped

    def chunks32(self, count: int) -> Iterator[tuple[slice, np.ndarray]]:
        """`draw32(count)` in pieces that fit in cache, each with its slice."""
        for start in range(0, count, _CHUNK):
            stop = min(start + _CHUNK, count)
            yield slice(start, stop), self.draw32(stop - start)

    def chunks64(self, count: int) -> Iterator[tuple[slice, np.ndarray]]:
        """`draw64(count)` in pieces that fit in cache, each with its slice."""
        for start in range(0, count, _CHUNK // 2):
            stop = min(start + _CHUNK // 2, count)
            yield slice(start, stop), self.draw64(stop - start)

    def next64(self) -> int:
        """One 64-bit word as an int."""
        raw = (self._bits or self._start()).random_raw
        self._fresh = False
        return (raw() << 32) | raw()

    def next_uniform(self) -> float:
        """One double in [0, 1) of 53 random bits."""
        return (self.next64() & 0x1F_FFFF_FFFF_FFFF) * 2.0**-53

    def get_state(self) -> np.ndarray:
        """The state as the 5056 bytes that torch.get_rng_state() gives for the same stream."""
        bits = self._bits or self._start()
        inner = bits.state["state"]
        position = 0 if self._fresh else int(inner["pos"])
        record = np.zeros(1, STATE_DTYPE)
        record["seed"] = self.seed
        record["left"] = 1 if self._fresh else _WORDS + 1 - position
        record["seeded"] = 1
        record["next"] = position
        record["words"] = inner["key"]
        if self.next_double is not None:
            record["normal_y"] = self.next_double
            record["normal_valid"] = 1
        if self.next_float is not None:
            record["float_normal"] = self.next_float
            record["float_valid"] = True
        return record.view(np.uint8)

    def set_state(self, state: np.ndarray) -> None:
        """Take over a state made by `get_state` or by torch; RuntimeError when it is not one."""
        if state.size != STATE_SIZE:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {STATE_SIZE} but found the input RNG state size to be {state.size}"
            )
        record = np.frombuffer(state.tobytes(), STATE_DTYPE)[0]
        left, following = int(record["left"]), int(record["next"]) & 0xFFFF_FFFF
        if not (record["seeded"] and 0 < left <= _WORDS and following <= _WORDS):
            raise RuntimeError("Invalid mt19937 state")
        bits = self._bits or self._start()
        bits.state = {
            "bit_generator": "MT19937",
            "state": {"key": record["words"].astype(np.uint32), "pos": _WORDS if left == 1 else following},
        }
        self.seed = int(record["seed"])
        self._fresh = following == 0
        self.next_double = float(record["normal_y"]) if record["normal_valid"] else None
        self.next_float = float(record["float_normal"]) if record["float_valid"] else None
