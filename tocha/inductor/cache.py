"""Compiled kernels on disk, shared between processes: one file a kernel, `~/.cache/tocha/kernels` or `$TOCHA_CACHE_DIR/kernels`.

A file is written elsewhere and renamed, so it is there whole or not at all; it starts with a digest of its key and content, so what is
damaged, or another kernel's, is compiled again. A directory that is full, read-only, missing or not ours costs time, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

LIMIT = 256 * 2**20  # bytes kept; the files not used for longest go first
_DIGEST = hashlib.sha256().digest_size
_SUFFIX = ".o"
#: Keys of what this process read or wrote.
touched: dict[str, None] = {}


def directory() -> Path:
    """Where compiled kernels are kept."""
    root = os.environ.get("TOCHA_CACHE_DIR")
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME")
        try:
            root = os.path.join(base or os.path.join(Path.home(), ".cache"), "tocha")
        except RuntimeError:  # no home directory
            root = os.path.join(tempfile.gettempdir(), f"tocha-{os.getuid() if hasattr(os, 'getuid') else 'cache'}")
    return Path(root) / "kernels"


def key_of(*parts: str) -> str:
    """A file name for what `parts` determine."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:40]


def has(key: str) -> bool:
    """Whether something is stored under `key`, damaged or not."""
    return (directory() / (key + _SUFFIX)).exists()


def read(key: str) -> bytes | None:
    """The object file stored under `key`, None if there is none or it is damaged."""
    path = directory() / (key + _SUFFIX)
    try:
        if not _trusted(path.parent):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if not data or _digest(key, data) != digest:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    touched[key] = None
    return data


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def _trusted(folder: Path) -> bool:
    """Whether nobody else can write machine code for us to run."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022


def write(key: str, data: bytes) -> None:
    """Store an object file, if the directory lets us."""
    folder = directory()
    temporary = None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _trusted(folder):
            return
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(_digest(key, data) + data)
        os.replace(temporary, folder / (key + _SUFFIX))
        touched[key] = None
        temporary = None
        if key.startswith("00"):  # now and then
            _evict(folder)
    except OSError:
        pass
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _entries(folder: Path) -> list[tuple[float, int, Path]]:
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
    return found


def _evict(folder: Path) -> None:
    entries = sorted(_entries(folder))
    total = sum(size for _, size, _ in entries)
    excess = total - LIMIT * 3 // 4 if total > LIMIT else 0  # room for a while: looking at all files takes long
    for _, size, path in entries:
        if excess <= 0:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            excess -= size


def usage() -> tuple[int, int]:
    """Number of kernels stored and their bytes."""
    entries = [e for e in _entries(directory()) if e[2].suffix == _SUFFIX]
    return len(entries), sum(size for _, size, _ in entries)


_MAGIC = b"tocha kernels 1\n"


def pack() -> tuple[bytes, list[str]] | None:
    """What this process read or wrote, as one string of bytes, and its keys; None if that is nothing."""
    kept = {key: data for key in list(touched) if (data := read(key)) is not None}
    if not kept:
        return None
    body = b"".join(key.encode() + len(data).to_bytes(8, "little") + data for key, data in kept.items())
    return _MAGIC + hashlib.sha256(body).digest() + body, list(kept)


def unpack(packed: bytes) -> list[str] | None:
    """Store what `pack` gave; the keys. None, and nothing stored, if it is damaged."""
    start = len(_MAGIC) + _DIGEST
    body = packed[start:]
    if packed[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != packed[len(_MAGIC) : start]:
        return None
    keys, at = [], 0
    while at < len(body):
        key, size = body[at : at + 40].decode(), int.from_bytes(body[at + 40 : at + 48], "little")
        write(key, body[at + 48 : at + 48 + size])
        keys.append(key)
        at += 48 + size
    return keys
