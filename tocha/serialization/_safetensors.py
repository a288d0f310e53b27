"""The safetensors file format: a JSON header, then the tensors' bytes.

Files go both ways between this and the safetensors package, which isn't needed here. Loading maps the file:
data is read when it is first touched, and changes stay private. Every number of the header is checked
against the file. Source: safetensors' format description (github.com/huggingface/safetensors).
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.dtypes import dtype
from tocha.serialization._atomic import replacing
from tocha.serialization.rebuild import geometry
from tocha.storage import UntypedStorage, view_bytes
from tocha.tensor import Tensor, wrap

_MAX_HEADER = 100_000_000
# In the format's order of rising alignment: files hold the last kind first.
_KINDS: dict[str, dtype] = {
    code: dtypes.BY_NAME[name]
    for code, name in (
        ("BOOL", "bool"), ("U8", "uint8"), ("I8", "int8"), ("F8_E5M2", "float8_e5m2"),
        ("F8_E4M3", "float8_e4m3fn"), ("F8_E8M0", "float8_e8m0fnu"), ("F8_E4M3FNUZ", "float8_e4m3fnuz"),
        ("F8_E5M2FNUZ", "float8_e5m2fnuz"),
        ("I16", "int16"), ("U16", "uint16"), ("F16", "float16"), ("BF16", "bfloat16"), ("I32", "int32"),
        ("U32", "uint32"), ("F32", "float32"), ("C64", "complex64"), ("F64", "float64"), ("I64", "int64"),
        ("U64", "uint64"),
    )
}  # fmt: skip
_CODES = {kind: code for code, kind in _KINDS.items()}
_RANK = {code: rank for rank, code in enumerate(_KINDS)}


# ---- writing


def save_safetensors(tensors: Mapping[str, Tensor], file: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors (and string metadata) to a path, which is replaced whole, or to a binary file.

    ValueError for tensors that aren't contiguous, RuntimeError for tensors that share memory.
    """
    found = _checked(tensors)
    header: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise TypeError("save_safetensors: metadata must map str to str")
        header["__metadata__"] = dict(metadata)
    end = 0
    for name, (code, tensor) in found.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    def write(target: Any) -> None:
        target.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in found.values():
            target.write(_raw(tensor))

    if hasattr(file, "write"):
        write(file)
    else:
        with replacing(file) as target:
            write(target)


def _checked(tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, Tensor]]:
    """Name to (dtype code, tensor), in the order of the file."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors).__name__}")
    found = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"save_safetensors: {name!r} can't be the name of a tensor")
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor).__name__}")
        code = _CODES.get(tensor.dtype)
        if code is None:
            raise ValueError(f"save_safetensors: `{name}` has dtype {tensor.dtype}, which the format does not have")
        if tensor.device.type == "meta":
            raise RuntimeError(f"save_safetensors: `{name}` is on meta and has no data")
        if not tensor._a.flags.c_contiguous:
            raise ValueError(f"save_safetensors: `{name}` is not contiguous; call .contiguous() on it before saving")
        found[name] = (code, tensor)
    _refuse_sharing(found)
    return dict(sorted(found.items(), key=lambda item: (-_RANK[item[1][0]], item[0])))


def _refuse_sharing(found: dict[str, tuple[str, Tensor]]) -> None:
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes, name) for name, (_, t) in found.items() if t.nbytes)
    for (_, end, first), (start, _, second) in itertools.pairwise(spans):
        if start < end:
            raise RuntimeError(
                f"Some tensors share memory, which would be stored twice and no longer shared after loading: "
                f"{first!r} and {second!r}; save one of them, or clone() the other"
            )


def _raw(tensor: Tensor) -> Any:
    storage, offset, _, _ = geometry(tensor)
    width = tensor.dtype.itemsize
    start = offset * width
    part = storage[start : start + tensor.nbytes].cpu()
    if sys.byteorder == "big":
        part = part.clone()
        part.byteswap(tensor.dtype)
    return memoryview(part.__array__())


# ---- reading


class SafeTensors:
    """An open safetensors file: `keys()`, `metadata()`, `get_tensor(name)`; also a context manager.

    `source` is a path, which is mapped, or the file's bytes. RuntimeError if the header is wrong.
    """

    def __init__(self, source: Any, device: Any = "cpu") -> None:
        self._device = device
        self._data: Any = source if isinstance(source, (bytes, bytearray, memoryview)) else _mapped(source)
        self._start, header = _header(self._data)
        self._metadata = _metadata(header.pop("__metadata__", None))
        self._entries = _entries(header, len(self._data) - self._start)

    def __enter__(self) -> SafeTensors:
        return self

    def __exit__(self, *exc: object) -> None:
        """Tensors that were loaded keep the file mapped; there is nothing else to close."""

    def keys(self) -> list[str]:
        """The tensors' names, in the order of their data."""
        return list(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def metadata(self) -> dict[str, str] | None:
        """The header's metadata, None where it has none."""
        return self._metadata

    def get_tensor(self, name: str) -> Tensor:
        """One tensor, in a storage of its own."""
        if name not in self._entries:
            raise KeyError(f"the file has no tensor {name!r}")
        kind, shape, start, end = self._entries[name]
        if start == end:
            storage = UntypedStorage(0)
        else:
            array = np.frombuffer(self._data, np.uint8, end - start, self._start + start)
            aligned = array.__array_interface__["data"][0] % kind.itemsize == 0
            storage = UntypedStorage._on(array if aligned and array.flags.writeable else array.copy())
        if sys.byteorder == "big":
            storage.byteswap(kind)
        stride = tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))
        return wrap(view_bytes(storage.to(self._device), kind, 0, shape, stride))


def load_safetensors(file: Any, device: Any = "cpu") -> dict[str, Tensor]:
    """All tensors of a safetensors file (path or bytes), by name."""
    opened = SafeTensors(file, device)
    return {name: opened.get_tensor(name) for name in opened}


def _mapped(path: Any) -> Any:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 8:
            raise _wrong("header too small")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def _wrong(why: str) -> RuntimeError:
    return RuntimeError(f"this is not a valid safetensors file: {why}")


def _header(data: Any) -> tuple[int, dict[str, Any]]:
    if len(data) < 8:
        raise _wrong("header too small")
    (size,) = struct.unpack("<Q", data[:8])
    if size > _MAX_HEADER or size + 8 > len(data):
        raise _wrong(f"a header of {size} bytes does not fit a file of {len(data)}")
    try:
        header = json.loads(bytes(data[8 : 8 + size]).decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"invalid JSON in header: {error}") from None
    if not isinstance(header, dict):
        raise _wrong("the header is not a JSON object")
    return size + 8, header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name appears twice")
    return out


def _metadata(found: Any) -> dict[str, str] | None:
    if found is not None and not (isinstance(found, dict) and all(isinstance(v, str) for v in found.values())):
        raise _wrong("__metadata__ must map strings to strings")
    return found


def _entries(header: dict[str, Any], size: int) -> dict[str, tuple[dtype, tuple[int, ...], int, int]]:
    """Name to (dtype, shape, start, end), in the order of the data, which must cover the file without
    gaps."""
    found = {}
    for name, info in header.items():
        try:
            code, shape, (start, end) = info["dtype"], info["shape"], info["data_offsets"]
            numbers_ok = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in (*shape, start, end))
        except (KeyError, TypeError, ValueError):
            raise _wrong(f"the entry of tensor {name!r} is damaged") from None
        kind = _KINDS.get(code) if isinstance(code, str) else None
        if kind is None:
            raise _wrong(f"tensor {name!r} has dtype {code!r}; known are {', '.join(_KINDS)}")
        if not numbers_ok or len(shape) > 64:
            raise _wrong(f"tensor {name!r} has an invalid shape or offset")
        if math.prod(shape) * kind.itemsize != end - start:
            raise _wrong(f"tensor {name!r} of shape {shape} and dtype {code} does not fill its {end - start} bytes")
        found[name] = (kind, tuple(shape), start, end)
    ordered = dict(sorted(found.items(), key=lambda item: item[1][2:]))
    at = 0
    for name, (_, _, start, end) in ordered.items():
        if start != at:
            raise _wrong(f"the data of tensor {name!r} starts at {start}, expected {at}")
        at = end
    if at != size:
        raise _wrong(f"the tensors cover {at} bytes, the file has {size}")
    return ordered
