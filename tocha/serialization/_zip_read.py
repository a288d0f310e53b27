"""Read zip archives without trusting them: every size and offset is checked against the file before it is
used.

Records are stored or deflated. An archive whose entries overlap, repeat a name, or inflate out of proportion
is refused. Source: PKWARE APPNOTE 6.3.10.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_U32 = 0xFFFFFFFF
_U16 = 0xFFFF
_MAX_ENTRIES = 1 << 24
_BLOCK = 1 << 20
# Deflate reaches 1032:1. Checkpoints don't; an archive that claims more than this is a bomb.
_MAX_RATIO = 200
_RATIO_FREE = 1 << 24


class Entry(NamedTuple):
    """One record of the directory."""

    name: str
    header: int
    stored: int
    size: int
    crc: int
    method: int


def broken(why: str) -> RuntimeError:
    """The error for an archive that can't be right."""
    return RuntimeError(f"failed reading zip archive: {why}. The file is truncated, corrupted or was not saved completely")


class ZipReader:
    """The records of the archive that fills `file` from its present position to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()
        file.seek(0, 2)
        self.size = file.tell() - self._start
        self._entries: dict[str, Entry] = {}
        for entry in self._directory():
            if entry.name in self._entries:
                raise broken(f"two records are named {entry.name!r}")
            self._entries[entry.name] = entry
        self._data_at = self._check_layout()
        self.root = self._find_root()

    # ---- access

    def names(self) -> list[str]:
        """Record names without the archive's folder."""
        prefix = len(self.root) + 1
        return [name[prefix:] for name in self._entries]

    def __contains__(self, name: str) -> bool:
        return f"{self.root}/{name}" in self._entries

    def size_of(self, name: str) -> int:
        """The uncompressed size of a record; RuntimeError if there is none."""
        return self._entry(name).size

    def offset_of(self, name: str) -> int:
        """Where the data of an uncompressed record starts in the file."""
        entry = self._entry(name)
        if entry.method:
            raise RuntimeError(f"record {name!r} is compressed, so it can't be mapped; load without mmap=True")
        return self._start + self._data_at[entry.name]

    def read(self, name: str, limit: int | None = None) -> Any:
        """A record as a writable uint8 array, its checksum verified. At most `limit` bytes are accepted."""
        entry = self._entry(name)
        if limit is not None and entry.size > limit:
            raise broken(f"record {name!r} has {entry.size} bytes, expected at most {limit}")
        self._file.seek(self._start + self._data_at[entry.name])
        out = np.empty(entry.size, np.uint8)
        crc = self._inflate(entry, out) if entry.method else self._copy(entry, out)
        # torch writes 0 where the user switched checksums off.
        if entry.crc and crc != entry.crc:
            raise broken(f"the checksum of record {name!r} is {crc:#010x}, expected {entry.crc:#010x}")
        return out

    def _entry(self, name: str) -> Entry:
        found = self._entries.get(f"{self.root}/{name}")
        if found is None:
            raise broken(f"record {name!r} is missing")
        return found

    def _copy(self, entry: Entry, out: Any) -> int:
        crc = 0
        for at in range(0, entry.size, _BLOCK):
            part = out[at : at + _BLOCK]
            self._fill(part)
            crc = zlib.crc32(part, crc)
        return crc

    def _inflate(self, entry: Entry, out: Any) -> int:
        engine = zlib.decompressobj(-15)
        left, done = entry.stored, 0
        try:
            while not engine.eof:
                data = engine.unconsumed_tail
                if not data:
                    data = self._take(min(left, 1 << 16))
                    left -= len(data)
                    if not data:
                        raise broken(f"record {entry.name!r} ends early")
                part = engine.decompress(data, min(_BLOCK, entry.size - done + 1))
                if done + len(part) > entry.size:
                    raise broken(f"record {entry.name!r} inflates to more than its {entry.size} bytes")
                out[done : done + len(part)] = np.frombuffer(part, np.uint8)
                done += len(part)
        except zlib.error as error:
            raise broken(f"record {entry.name!r}: {error}") from None
        if done != entry.size:
            raise broken(f"record {entry.name!r} inflates to {done} bytes, expected {entry.size}")
        return zlib.crc32(out)

    # ---- structure

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        return data if isinstance(data, bytes) else bytes(data)

    def _fill(self, target: Any) -> None:
        view, done = memoryview(target), 0
        readinto = getattr(self._file, "readinto", None)
        while done < len(view):
            if readinto is not None:
                count = readinto(view[done:])
            else:
                data = self._take(len(view) - done)
                count = len(data)
                view[done : done + count] = data
            if not count:
                raise broken("unexpected end of file")
            done += count

    def _at(self, offset: int, count: int) -> bytes:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise broken(f"{count} bytes at {offset} lie outside the file of {self.size} bytes")
        self._file.seek(self._start + offset)
        data = self._take(count)
        if len(data) != count:
            raise broken("unexpected end of file")
        return data

    def _end_record(self) -> tuple[int, int, int]:
        """Entry count, size and offset of the directory."""
        span = min(self.size, 22 + _U16)
        tail = self._at(self.size - span, span)
        at = tail.rfind(b"PK\5\6")
        if at < 0 or len(tail) - at < 22:
            raise broken("failed finding central directory")
        disk, _, _, count, size, offset, _ = struct.unpack("<HHHHIIH", tail[at + 4 : at + 22])
        where = self.size - span + at
        if where >= 20:
            mark, _, far, _ = struct.unpack("<IIQI", self._at(where - 20, 20))
            if mark == 0x07064B50:
                mark, *_, count, size, offset = struct.unpack("<IQHHIIQQQQ", self._at(far, 56))
                if mark != 0x06064B50:
                    raise broken("the zip64 end record is missing")
                where = far
        if disk not in (0, _U16):
            raise broken("archives in several parts are not supported")
        if offset + size > where or count > _MAX_ENTRIES or count * 46 > size:
            raise broken(f"a directory of {count} entries in {size} bytes at {offset} does not fit")
        return count, size, offset

    def _directory(self) -> list[Entry]:
        count, size, offset = self._end_record()
        data, at, total = self._at(offset, size), 0, 0
        found: list[Entry] = []
        for _ in range(count):
            if at + 46 > size:
                raise broken("the directory ends early")
            mark, _, _, flags, method, _, _, crc, stored, full, n, e, c, _, _, _, header = struct.unpack_from(
                "<IHHHHHHIIIHHHHHII", data, at
            )
            if mark != 0x02014B50 or at + 46 + n + e + c > size:
                raise broken("the directory is damaged")
            name = data[at + 46 : at + 46 + n].decode("utf-8", "surrogateescape")
            wide = _wide_fields(data[at + 46 + n : at + 46 + n + e])
            full, stored, header = (wide.pop(0) if v == _U32 and wide else v for v in (full, stored, header))
            if flags & 1:
                raise broken(f"record {name!r} is encrypted")
            if method not in (0, 8):
                raise broken(f"record {name!r} uses compression method {method}; only deflate is supported")
            if method == 0 and stored != full:
                raise broken(f"record {name!r} is stored in {stored} bytes but claims {full}")
            total += full
            if total > _RATIO_FREE and total > self.size * _MAX_RATIO:
                raise broken(f"its records claim to inflate to more than {_MAX_RATIO} times the file's {self.size} bytes")
            found.append(Entry(name, header, stored, full, crc, method))
            at += 46 + n + e + c
        return found

    def _check_layout(self) -> dict[str, int]:
        """Where each record's data starts; no two records may share bytes."""
        starts, end = {}, 0
        for entry in sorted(self._entries.values(), key=lambda e: e.header):
            header = self._at(entry.header, 30)
            mark, n, e = struct.unpack("<I22xHH", header)
            start = entry.header + 30 + n + e
            if mark != 0x04034B50 or start + entry.stored > self.size:
                raise broken(f"record {entry.name!r} lies outside the file")
            if entry.header < end:
                raise broken(f"record {entry.name!r} overlaps another")
            end = start + entry.stored
            starts[entry.name] = start
        return starts

    def _find_root(self) -> str:
        for name in self._entries:
            folder, slash, rest = name.partition("/")
            if slash and rest:
                return folder
        raise broken("it has no records in a folder, as torch.save writes them")


def _wide_fields(extra: bytes) -> list[int]:
    """The 64-bit values of a zip64 extra field, in order."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            usable = extra[at + 4 : at + 4 + size]
            return [v for (v,) in struct.iter_unpack("<Q", usable[: len(usable) // 8 * 8])]
        at += 4 + size
    return []
