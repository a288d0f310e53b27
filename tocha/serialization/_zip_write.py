"""Write torch's zip archives: uncompressed records, each starting on a 64-byte boundary, in one forward pass.

Only `write` of the target is used, so pipes work. Source: PKWARE APPNOTE 6.3.10 (zip, zip64); torch docs,
"Serialization semantics", for the alignment of records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

ALIGNMENT = 64
_FLAGS = 0x0808  # UTF-8 names, sizes in a descriptor after the data
_FLAGS_EMPTY = 0x0800
_U32 = 0xFFFFFFFF
_U16 = 0xFFFF
_BLOCK = 1 << 20


class ZipWriter:
    """Appends records under the folder `root` of a zip archive; `finish` writes the directory."""

    def __init__(self, write: Callable[[Any], Any], root: str, *, checksums: bool = True) -> None:
        self._write = write
        self._root = root
        self._checksums = checksums
        self._offset = 0
        self._entries: list[tuple[bytes, int, int, int]] = []
        self._sum = 0

    def _put(self, data: Any) -> None:
        self._write(data)
        self._offset += len(data)

    def record(self, name: str, data: Any) -> None:
        """Append one record: bytes, or a contiguous uint8 array."""
        encoded = f"{self._root}/{name}".encode()
        view = memoryview(data)
        size, start = view.nbytes, self._offset
        large = size >= _U32
        zip64 = struct.pack("<HHQQ", 1, 16, 0, 0) if large else b""
        fixed = start + 30 + len(encoded) + len(zip64) + 4
        padding = -fixed % ALIGNMENT
        extra = zip64 + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        placeholder = _U32 if large else 0
        flags = _FLAGS if size else _FLAGS_EMPTY
        fields = (0x04034B50, 0, flags, 0, 0, 0, 0, placeholder, placeholder, len(encoded), len(extra))
        self._put(struct.pack("<IHHHHHIIIHH", *fields) + encoded + extra)
        crc = 0
        for at in range(0, size, _BLOCK):
            block = view[at : at + _BLOCK]
            if self._checksums:
                crc = zlib.crc32(block, crc)
            self._put(block)
        if size:
            self._put(struct.pack("<IIQQ" if large else "<IIII", 0x08074B50, crc, size, size))
        self._sum = zlib.crc32(struct.pack("<IQ", crc, size) + encoded, self._sum)
        self._entries.append((encoded, start, size, crc))

    def checksum(self) -> int:
        """A number that depends on every record so far."""
        return self._sum

    def finish(self) -> None:
        """Write the central directory."""
        start = self._offset
        for name, offset, size, crc in self._entries:
            wide = [v for v in (size, size, offset) if v >= _U32]
            extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
            flags = _FLAGS if size else _FLAGS_EMPTY
            fields = (
                0x02014B50,
                0,
                0,
                flags,
                0,
                0,
                0,
                crc,
                min(size, _U32),
                min(size, _U32),
                len(name),
                len(extra),
            )
            self._put(struct.pack("<IHHHHHHIIIHHHHHII", *fields, 0, 0, 0, 0, min(offset, _U32)) + name + extra)
        end, count = self._offset, len(self._entries)
        self._put(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x031E, 45, 0, 0, count, count, end - start, start))
        self._put(struct.pack("<IIQI", 0x07064B50, 0, end, 1))
        short = min(count, _U16)
        self._put(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, short, short, min(end - start, _U32), min(start, _U32), 0))
