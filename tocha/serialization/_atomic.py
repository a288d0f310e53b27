"""Files that appear whole or not at all: written beside the target, flushed to disk, then renamed over it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends well; on any exception the old file stays as it
    was.

    Symbolic links are followed and an existing file keeps its permissions. Devices and pipes, and files in a
    folder that can't be written, are written in place.
    """
    target = os.path.realpath(os.fspath(path))
    try:
        old: os.stat_result | None = os.stat(target)
    except FileNotFoundError:
        old = None
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(f"can't save to {target}: it is a folder")
    opened = None if old is not None and not stat.S_ISREG(old.st_mode) else _temporary(target, old is not None)
    if opened is None:
        with open(target, "wb") as file:
            yield file
        return
    descriptor, name = opened
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
            if old is not None:
                _copy_owner(descriptor, old)
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(os.path.dirname(target))


def _temporary(target: str, exists: bool) -> tuple[int, str] | None:
    folder, base = os.path.split(target)
    if exists and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    name = os.path.join(folder, f".{base[:80]}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(name, flags, 0o666), name
    except PermissionError:
        if exists and os.access(target, os.W_OK):
            return None
        raise


def _copy_owner(descriptor: int, old: os.stat_result) -> None:
    if not hasattr(os, "fchmod"):
        return
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: str) -> None:
    """Make the rename durable where the platform can (best effort: the data itself is already on disk)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
