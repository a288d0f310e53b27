"""`save`: objects to torch's zip archives, or to the format before 1.6."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import warnings
from typing import Any

import numpy as np

from tocha.dtypes import dtype, uint8
from tocha.serialization._atomic import replacing
from tocha.serialization._config import settings, skipping
from tocha.serialization._locations import location_tag
from tocha.serialization._names import STORAGE_TYPES
from tocha.serialization._pickler import Storage, dump
from tocha.serialization._zip_write import ALIGNMENT, ZipWriter
from tocha.storage import TypedStorage, UntypedStorage

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
DEFAULT_PROTOCOL = 2


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Save an object to a path or a binary file (torch docs: torch.save).

    torch opens the file and the reverse. Tensors that share memory still share it after loading. A path is
    replaced only once everything is on disk. RuntimeError if one memory is viewed as two dtypes, or the
    folder doesn't exist.
    """
    if not (isinstance(f, (str, os.PathLike)) or hasattr(f, "write")):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    if pickle_module is not pickle and pickle_module is not None:
        warnings.warn("save: pickle_module has no effect, objects are always pickled as torch names them", stacklevel=2)
    if skipping.on and not _use_new_zipfile_serialization:
        raise RuntimeError("save: skip_data leaves room in zip files only, not with _use_new_zipfile_serialization=False")
    storages = Storages(legacy=not _use_new_zipfile_serialization)
    data = dump(obj, pickle_protocol, storages.describe)

    def write(file: Any, root: str) -> None:
        if _use_new_zipfile_serialization:
            _write_zip(file, root, data, storages, byteorder=not _disable_byteorder_record)
        else:
            _write_legacy(file, data, storages, pickle_protocol)

    if hasattr(f, "write"):
        write(f, "archive")
        return
    name = os.path.splitext(os.path.basename(os.fsdecode(f)))[0]
    with replacing(os.fsdecode(f)) as file:
        write(file, name if name and name.isascii() else "archive")


class Storages:
    """The storages met while pickling, each once, under the keys by which the pickle names them."""

    def __init__(self, *, legacy: bool) -> None:
        self.legacy = legacy
        self.found: dict[str, tuple[UntypedStorage, int, int]] = {}
        self._keys: dict[tuple[int, int, int], tuple[str, dtype]] = {}

    def describe(self, storage: Storage) -> tuple[Any, ...]:
        """The persistent id of a storage."""
        if isinstance(storage, TypedStorage):
            kind, tag = storage.dtype, STORAGE_TYPES["torch", storage.pickle_storage_type()]
        else:
            kind, tag = uint8, STORAGE_TYPES["torch.storage", "UntypedStorage"]
        untyped = storage.untyped()
        identity = (untyped._cdata, untyped.data_ptr(), len(untyped))
        key, first = self._keys.setdefault(identity, (str(len(self._keys)), kind))
        if first is not kind and len(untyped):
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different types "
                f"({first} and {kind}); clone() one of them"
            )
        count = len(untyped) // kind.itemsize
        self.found[key] = (untyped, count * kind.itemsize, count)
        described = ("storage", tag, key, location_tag(untyped), count)
        return (*described, None) if self.legacy else described


def _write_zip(file: Any, root: str, data: bytes, storages: Storages, *, byteorder: bool) -> None:
    archive = ZipWriter(file.write, root, checksums=settings.checksums)
    archive.record("data.pkl", data)
    archive.record(".format_version", b"1")
    archive.record(".storage_alignment", str(ALIGNMENT).encode())
    if byteorder:
        archive.record("byteorder", sys.byteorder.encode())
    for key, (storage, *_) in storages.found.items():
        archive.record(f"data/{key}", np.zeros(len(storage), np.uint8) if skipping.on else _host_bytes(storage))
    archive.record("version", b"3\n")
    archive.record(".data/serialization_id", b"%020d%020d" % (len(storages.found), archive.checksum()))
    archive.finish()


def _write_legacy(file: Any, data: bytes, storages: Storages, protocol: int) -> None:
    system = {"protocol_version": PROTOCOL_VERSION, "little_endian": sys.byteorder == "little",
              "type_sizes": {"short": 2, "int": 4, "long": 4}}  # fmt: skip
    for header in (MAGIC_NUMBER, PROTOCOL_VERSION, system):
        pickle.dump(header, file, protocol=protocol)
    file.write(data)
    pickle.dump(sorted(storages.found), file, protocol=protocol)
    for key in sorted(storages.found):
        storage, used, count = storages.found[key]
        file.write(struct.pack("<q", count))
        file.write(memoryview(_host_bytes(storage)[:used]))


def _host_bytes(storage: UntypedStorage) -> Any:
    if storage.device.type == "meta":
        raise RuntimeError("save: a storage on meta has no data to save")
    return storage.__array__()
