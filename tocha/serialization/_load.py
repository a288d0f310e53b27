"""`load`: torch's zip archives and older files to objects."""

from __future__ import annotations

import io
import mmap as _mmap
import os
import pickle
import sys
from typing import Any, BinaryIO

import numpy as np

from tocha import dtypes
from tocha.dtypes import dtype
from tocha.serialization import _legacy
from tocha.serialization._config import LoadEndianness, settings, skipping
from tocha.serialization._locations import Restore, goes_to_meta, restore_function
from tocha.serialization._names import StorageType
from tocha.serialization._unpickle import Source
from tocha.serialization._zip_read import ZipReader, broken
from tocha.storage import TypedStorage, UntypedStorage


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load what `save` (torch's or tocha's) wrote, from a path or a binary file (torch docs: torch.load).

    By default only tensors and plain data are made, and a file that would call anything else is refused with
    `pickle.UnpicklingError`; `weights_only=False` runs what the file says. `mmap=True` reads storages when
    they are first touched. Damaged files raise RuntimeError or UnpicklingError.
    """
    if weights_only is None:
        weights_only = pickle_module is None and not _forced("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if _forced("TORCH_FORCE_WEIGHTS_ONLY_LOAD"):
        weights_only = True
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    request = Request(map_location, pickle_module or pickle, weights_only, pickle_load_args)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load_file(file, request, os.fspath(f) if mmap else None)
    if mmap:
        raise ValueError("f must be a file path in order to use the mmap argument")
    return _load_file(_seekable(f), request, None)


def _forced(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "y", "yes", "true")


class Request:
    """How to load: where to, and whether the file is trusted."""

    def __init__(self, map_location: Any, pickle_module: Any, weights_only: bool, options: dict[str, Any]) -> None:
        self.restore: Restore = restore_function(map_location)
        self.to_meta = goes_to_meta(map_location)
        self.pickle_module = pickle_module
        self.weights_only = weights_only
        self.options = options

    def unpickle(self, source: Source, persistent: Any = None) -> Any:
        """The next pickle of `source`."""
        return source.next(persistent, weights_only=self.weights_only, pickle_module=self.pickle_module, options=self.options)


def _seekable(f: Any) -> Any:
    for method in ("seek", "tell", "read"):
        if not hasattr(f, method):
            raise AttributeError(
                f"'{type(f).__name__}' object has no attribute '{method}'. You can only torch.load from a "
                "file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try "
                "to load from it instead."
            )
    try:
        f.seek(f.tell())
    except (io.UnsupportedOperation, AttributeError) as error:
        raise type(error)(
            f"{error}. You can only torch.load from a file that is seekable. Please pre-load the data "
            "into a buffer like io.BytesIO and try to load from it instead."
        ) from None
    return f


def _load_file(file: BinaryIO, request: Request, mapped_path: Any) -> Any:
    start = file.tell()
    magic = file.read(4)
    file.seek(start)
    if magic == b"PK\3\4":
        return _load_zip(ZipReader(file), request, mapped_path)
    if magic[:2] == b"PK":
        raise broken("it holds no records")
    if mapped_path is not None:
        raise RuntimeError(
            "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True)`, "
            f"please torch.save {mapped_path!r} with this option in order to use mmap."
        )
    return _legacy.load(file, request)


# ---- zip archives


def _load_zip(archive: ZipReader, request: Request, mapped_path: Any) -> Any:
    if "constants.pkl" in archive:
        raise RuntimeError(
            "this is a TorchScript archive (torch.jit.save), whose code tocha does not run: load it in "
            "torch with torch.jit.load and save its state_dict() with torch.save"
        )
    if "data.pkl" not in archive:
        if any(name.startswith("models/") or name == "archive_format" for name in archive.names()):
            raise RuntimeError("this is an exported program (torch.export.save), not a file written by torch.save")
        raise broken("record 'data.pkl' is missing")
    storages = _ZipStorages(archive, request, mapped_path)
    return request.unpickle(Source(archive.read("data.pkl")), storages)


class _ZipStorages:
    """Answers persistent ids with the storages of an archive, each read once."""

    def __init__(self, archive: ZipReader, request: Request, mapped_path: Any) -> None:
        self._archive = archive
        self._request = request
        self._swap = self._byte_order() != sys.byteorder
        self._known: dict[str, UntypedStorage] = {}
        self._map: Any = None
        if mapped_path is not None:
            self._map = _map_file(mapped_path)

    def _byte_order(self) -> str:
        if "byteorder" in self._archive:
            order = bytes(self._archive.read("byteorder", limit=16)).decode("latin-1")
            if order not in ("little", "big"):
                raise broken(f"the byte order is {order!r}, neither little nor big")
            return order
        if settings.endianness in (LoadEndianness.LITTLE, LoadEndianness.BIG):
            return settings.endianness.name.lower()
        return sys.byteorder

    def __call__(self, pid: Any) -> TypedStorage:
        kind, key, location, count = check_storage_id(pid, 5)
        element = kind.dtype or dtypes.uint8
        storage = self._known.get(key)
        if storage is None:
            storage = self._known[key] = self._request.restore(self._read(key, element, count), location)
        elif len(storage) < count * element.itemsize:
            raise RuntimeError(f"storage {key!r} has {len(storage)} bytes, {count} elements of {element} are named")
        return TypedStorage(wrap_storage=storage, dtype=element)

    def _read(self, key: str, element: dtype, count: int) -> UntypedStorage:
        name, needed = f"data/{key}", count * element.itemsize
        held = self._archive.size_of(name)
        if held < needed:
            raise RuntimeError(f"storage {key!r} has {held} bytes, {count} elements of {element} take {needed}")
        if self._request.to_meta:
            return UntypedStorage(held, device="meta")
        if skipping.on:
            return UntypedStorage(held)
        if self._map is None:
            storage = UntypedStorage._on(self._archive.read(name))
        else:
            storage = UntypedStorage._on(
                np.frombuffer(self._map, np.uint8, held, self._archive.offset_of(name)) if held else np.empty(0, np.uint8)
            )
        if self._swap and element.itemsize > 1:
            storage.byteswap(element)
        return storage


def _map_file(path: Any) -> Any:
    private = settings.mmap_flags == getattr(_mmap, "MAP_PRIVATE", settings.mmap_flags)
    with open(path, "rb" if private else "r+b") as file:
        return _mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_COPY if private else _mmap.ACCESS_WRITE)


def check_storage_id(pid: Any, length: int) -> tuple[StorageType, str, str, int]:
    """The parts of a storage's persistent id; UnpicklingError if it isn't one."""
    if not isinstance(pid, tuple) or len(pid) < length or _text(pid[0]) != "storage":
        raise pickle.UnpicklingError(f"unknown persistent id of type {type(pid).__name__}: only storages are stored outside")
    _, kind, key, location, count = pid[:5]
    if not isinstance(kind, StorageType) or isinstance(count, bool) or not isinstance(count, int):
        raise pickle.UnpicklingError("a storage's persistent id is damaged")
    key, location = _text(key), _text(location)
    if count < 0 or not isinstance(key, str) or not isinstance(location, str):
        raise pickle.UnpicklingError("a storage's persistent id is damaged")
    return kind, key, location, count


def _text(value: Any) -> Any:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


# ---- looking without loading


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a zip file that a restricted load would refuse (torch docs, same name). Nothing is run."""
    from tocha.serialization._restricted import scan_globals

    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    if _seekable(f).read(4) != b"PK\3\4":
        raise ValueError("Expected input to be a checkpoint returned by torch.save.")
    f.seek(-4, 1)
    return scan_globals(ZipReader(f).read("data.pkl"))
