"""Files from before torch 1.6: a few pickles in a row, then the storages' bytes, little-endian."""

from __future__ import annotations

import pickle
import struct
import sys
from typing import Any, BinaryIO

import numpy as np

from tocha import dtypes
from tocha.dtypes import dtype
from tocha.serialization._save import MAGIC_NUMBER, PROTOCOL_VERSION
from tocha.serialization._unpickle import Source
from tocha.storage import TypedStorage, UntypedStorage


def load(file: BinaryIO, request: Any) -> Any:
    """The object in a file without a zip archive. `request` is the loader's Request."""
    start = file.tell()
    data = file.read()
    if not data:
        raise EOFError("Ran out of input: the file is empty")
    if data[257:262] == b"ustar":
        raise RuntimeError("this file is in the tar format of torch 0.1, which is not supported: save it again in torch")
    if data[:1] != b"\x80":
        raise pickle.UnpicklingError("Invalid magic number; corrupt file? It is not a file written by torch.save")
    source = Source(data)
    magic = request.unpickle(source)
    if magic != MAGIC_NUMBER:
        raise RuntimeError("Invalid magic number; corrupt file? It is not a file written by torch.save")
    version = request.unpickle(source)
    if version != PROTOCOL_VERSION:
        raise RuntimeError(f"Invalid protocol version: {version}")
    request.unpickle(source)
    storages = _Storages(request, len(data))
    result = request.unpickle(source, storages)
    keys = request.unpickle(source)
    end = storages.fill(source, keys)
    file.seek(start + end)
    return result


class _Storages:
    """Makes storages while the pickle is read, and fills them from the bytes behind it."""

    def __init__(self, request: Any, limit: int) -> None:
        self._request = request
        self._left = limit
        self._made: dict[str, tuple[UntypedStorage, dtype, int]] = {}
        self._views: dict[str, UntypedStorage] = {}

    def __call__(self, pid: Any) -> Any:
        from tocha.serialization._load import check_storage_id

        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] in ("module", b"module"):
            return pid[1]
        kind, key, location, count = check_storage_id(pid, 5)
        element = kind.dtype or dtypes.uint8
        if key not in self._made:
            size = count * element.itemsize
            self._left -= size
            if self._left < 0:
                raise RuntimeError(f"storage {key!r} claims {size} bytes, more than the file has: it is truncated or corrupted")
            made = UntypedStorage(size, device="meta" if self._request.to_meta else "cpu")
            self._made[key] = (self._request.restore(made, location), element, count)
        storage = self._made[key][0]
        if len(storage) < count * element.itemsize:
            raise RuntimeError(f"storage {key!r} has {len(storage)} bytes, {count} elements of {element} are named")
        view = pid[5] if len(pid) > 5 else None
        if view is not None:
            storage = self._view(storage, element, view)
        return TypedStorage(wrap_storage=storage, dtype=element)

    def _view(self, storage: UntypedStorage, element: dtype, view: Any) -> UntypedStorage:
        """A part of a storage that had a name of its own."""
        if not isinstance(view, tuple) or len(view) != 3 or not all(isinstance(n, int) for n in view[1:]):
            raise pickle.UnpicklingError("the description of a storage view is damaged")
        key, first, count = view
        lower, upper = first * element.itemsize, (first + count) * element.itemsize
        if not 0 <= lower <= upper <= len(storage):
            raise RuntimeError(f"storage view {key!r} lies outside its storage")
        if key not in self._views:
            self._views[key] = storage if upper - lower == len(storage) else storage[lower:upper]
        return self._views[key]

    def fill(self, source: Source, keys: Any) -> int:
        """Read the storages in the order of `keys`; returns where they end."""
        if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(self._made):
            raise RuntimeError("the storages in the file are not those its pickle names: it is truncated or corrupted")
        data, at = source.data, source.at
        for key in keys:
            storage, element, count = self._made[str(key)]
            if at + 8 > len(data):
                raise RuntimeError("unexpected end of file: the storages are truncated")
            (held,) = struct.unpack_from("<q", data, at)
            at += 8
            size = count * element.itemsize
            if held != count or at + size > len(data):
                raise RuntimeError(f"storage {key!r} should have {count} elements, the file has {held} or ends early")
            self._copy(storage, element, data[at : at + size])
            at += size
        return at

    def _copy(self, storage: UntypedStorage, element: dtype, raw: memoryview) -> None:
        if storage.device.type == "meta" or not len(raw):
            return
        host = UntypedStorage._on(np.frombuffer(raw, np.uint8))
        if sys.byteorder == "big" and element.itemsize > 1:
            host = host.clone()
            host.byteswap(element)
        storage.copy_(host)
