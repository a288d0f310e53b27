"""Process-wide settings of saving and loading."""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading
from enum import Enum


class LoadEndianness(Enum):
    """Byte order of files that don't record theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Settings:
    endianness: LoadEndianness | None = None
    checksums = True
    mmap_flags: int = getattr(mmap, "MAP_PRIVATE", 2)


settings = _Settings()


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed for files that don't record theirs (None: this machine's)."""
    return settings.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order assumed for files that don't record theirs."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    settings.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` writes checksums."""
    return settings.checksums


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether `save` writes checksums; without them other zip tools may complain about the file."""
    settings.checksums = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """The flag `load(mmap=True)` maps files with: MAP_PRIVATE or MAP_SHARED."""
    return settings.mmap_flags


class set_default_mmap_options(contextlib.AbstractContextManager[None]):
    """Set that flag, for good or as a context manager. With MAP_SHARED changes to tensors reach the file."""

    def __init__(self, flags: int) -> None:
        if sys.platform == "win32":
            raise RuntimeError("Changing the default mmap options is currently not supported for Windows")
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(f"set_default_mmap_options: expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, got {flags}")
        self._before = settings.mmap_flags
        settings.mmap_flags = flags

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        settings.mmap_flags = self._before


class _Skipping(threading.local):
    on = False


skipping = _Skipping()


class skip_data(contextlib.AbstractContextManager[None]):
    """Inside, `save` leaves room for the data of storages without writing any (zeros), and `load` makes storages without reading
    theirs (torch docs: torch.serialization.skip_data). Of this thread; zip files only."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(skipping.on)
        skipping.on = True

    def __exit__(self, *exc: object) -> None:
        skipping.on = self._before.pop()
