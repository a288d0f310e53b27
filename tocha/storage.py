"""Storages: the flat memory behind tensors.

A tensor's array is a view of a *root* array, and a storage is that root seen as bytes. Two tensors share a
storage when their arrays have the same root; asking either for its storage gives the same object.
Source: torch docs, "torch.Storage".
"""

from __future__ import annotations

import copyreg
import math
import mmap
import operator
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from tocha import dtypes
from tocha.backends import device_of, for_device, meta, namespace
from tocha.device import device
from tocha.dtypes import dtype

_KNOWN: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()


class UntypedStorage:
    """A run of bytes on one device: `UntypedStorage(n)`, `UntypedStorage([1, 2])` (torch docs:
    torch.UntypedStorage)."""

    __slots__ = ("__weakref__", "_array", "_shared", "filename")
    _array: Any
    is_sparse = is_sparse_csr = False
    is_hpu = False

    def __init__(self, content: int | Sequence[int] | UntypedStorage = 0, *, device: Any = None) -> None:
        self.filename: str | None = None
        self._shared = False
        if isinstance(content, UntypedStorage):
            self._array = content._array
        elif isinstance(content, (bytes, bytearray, memoryview, list, tuple)):
            self._array = np.array(list(content), np.uint8)
            if device is not None:
                self._array = move_bytes(self._array, as_device(device))
        else:
            size = operator.index(content)  # type: ignore[arg-type]
            if size < 0:
                raise RuntimeError(f"UntypedStorage: size must not be negative, got {size}")
            self._array = empty_bytes(size, device)

    @classmethod
    def _on(cls, array: Any) -> UntypedStorage:
        self = object.__new__(cls)
        self._array, self.filename, self._shared = array, None, False
        return self

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """Map `nbytes` of a file (0: all of it) into memory. `shared=True` writes changes back and grows the
        file to `nbytes`; otherwise changes stay private. RuntimeError if the file is too small."""
        path = os.fspath(filename)
        with open(path, ("r+b" if os.path.exists(path) else "w+b") if shared else "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if nbytes > size:
                if not shared:
                    raise RuntimeError(f"from_file: {path} has {size} bytes, {nbytes} were asked for")
                file.truncate(nbytes)
            nbytes = nbytes or size
            access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
            mapped = mmap.mmap(file.fileno(), nbytes, access=access) if nbytes else bytearray()
        self = cls._on(np.frombuffer(mapped, np.uint8))
        self.filename, self._shared = path, shared
        return self

    @classmethod
    def from_buffer(cls, buffer: Any) -> UntypedStorage:
        """The same memory as an object with the buffer protocol (a copy where it is read-only)."""
        array = np.frombuffer(buffer, np.uint8)
        return cls._on(array if array.flags.writeable else array.copy())

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """Memory that child processes made by fork see too."""
        self = cls._on(np.frombuffer(mmap.mmap(-1, size) if size else bytearray(), np.uint8))
        self._shared = True
        return self

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes, and all tensors on them, to memory that other processes can map."""
        from tocha import sharing
        from tocha.tensor import wrap

        sharing.share(wrap(self._array))
        return self

    def _move_to(self, array: Any) -> None:
        """The bytes are now those of another array."""
        old = self._cdata
        self._array, self._shared = _flat_bytes(array), True
        if _KNOWN.get(old) is self:
            del _KNOWN[old]
            _KNOWN[self._cdata] = self

    # ---- what it is

    def nbytes(self) -> int:
        return int(self._array.size)

    def size(self) -> int:
        return int(self._array.size)

    def __len__(self) -> int:
        return int(self._array.size)

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        """The address of the first byte (0 for empty and meta storages)."""
        return int(namespace(self._array).data_ptr(self._array)) if self._array.size else 0

    @property
    def _cdata(self) -> int:
        return int(namespace(self._array).memory_id(self._array))

    @property
    def device(self) -> device:
        return device_of(self._array)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def get_device(self) -> int:
        index = self.device.index
        return -1 if index is None else index

    def is_shared(self) -> bool:
        return self._shared or self.is_cuda

    def is_pinned(self, device: Any = "cuda") -> bool:
        return False

    def resizable(self) -> bool:
        return self._array.base is None

    def untyped(self) -> UntypedStorage:
        return self

    def type(self) -> str:
        return "torch.storage.UntypedStorage" if self.device.type == "cpu" else f"torch.{self.device.type}.UntypedStorage"

    # ---- values

    def tolist(self) -> list[int]:
        return list(namespace(self._array).to_host(self._array).tolist())

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, index: int | slice) -> Any:
        """A byte as an int, or a slice as a storage on the same memory."""
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
            return UntypedStorage._on(self._array[index])
        return int(self._array[_checked_index(index, len(self))])

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if not isinstance(index, slice):
            index = _checked_index(index, len(self))
        self._array[index] = value._array if isinstance(value, UntypedStorage) else operator.index(value)

    def fill_(self, value: int) -> UntypedStorage:
        self._array[...] = operator.index(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        """Overwrite with the bytes of a storage of the same length, on any device."""
        other = source.untyped()
        if len(other) != len(self):
            raise RuntimeError(f"copy_: the storages have {len(self)} and {len(other)} bytes")
        if self.device.type != "meta":
            self._array[...] = move_bytes(other._array, self.device)
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage._on(self._array if self.device.type == "meta" else self._array.copy())

    def to(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """This storage, or a copy on another device."""
        where = as_device(device)
        return self if where == self.device else UntypedStorage._on(move_bytes(self._array, where))

    def cpu(self) -> UntypedStorage:
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        return self.to("cuda" if device is None else device)

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Change the length, keeping the leading bytes. Tensors keep the memory they were made on, so a
        storage that tensors use can't grow or shrink: RuntimeError."""
        size = operator.index(nbytes)
        if size == len(self):
            return self
        if _KNOWN.get(self._cdata) is self:
            raise RuntimeError(
                f"resize_: a tensor uses this storage of {len(self)} bytes; make a new tensor of the wanted size instead"
            )
        grown = empty_bytes(size, self.device)
        if self.device.type != "meta":
            kept = min(size, len(self))
            grown[:kept] = self._array[:kept]
        self._array = grown
        return self

    def byteswap(self, dtype: dtype) -> None:
        """Reverse the byte order of every element, in place."""
        part = dtype.to_real()
        self._array.view(f"u{part.itemsize}").byteswap(inplace=True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = namespace(self._array).to_host(self._array)
        return array if dtype is None and not copy else np.array(array, dtype, copy=copy)

    def __repr__(self) -> str:
        body = "\n".join(f" {v}" for v in self.tolist()) + "\n" if self.device.type != "meta" else "...\n"
        return f"{body}[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        """One copy per memory and `copy.deepcopy` call, so that views still share afterwards."""
        copies = memo.setdefault("torch", {})
        key = self._cdata, self.data_ptr(), len(self)
        if key not in copies:
            copies[key] = self.clone()
        found: UntypedStorage = copies[key]
        return found


def _of_untyped(name: str) -> Any:
    """An attribute, or a method, that is the untyped storage's."""
    return property(operator.attrgetter(f"_untyped_storage.{name}"))


class TypedStorage:
    """A storage read as elements of one dtype (torch docs: torch.TypedStorage)."""

    __slots__ = ("__weakref__", "_untyped_storage", "dtype")
    is_sparse = False

    def __init__(
        self, content: int | Sequence[Any] | None = None, *, wrap_storage: UntypedStorage | None = None, dtype: dtype | None = None,
        device: Any = None, _internal: bool = False,
    ) -> None:  # fmt: skip
        self.dtype = dtypes.get_default_dtype() if dtype is None else dtype
        if wrap_storage is not None:
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"wrap_storage must be an UntypedStorage, got {type(wrap_storage).__name__}")
            self._untyped_storage = wrap_storage
        elif content is None or isinstance(content, int):
            self._untyped_storage = UntypedStorage((content or 0) * self.dtype.itemsize, device=device)
        else:
            values = np.array(content).astype(self.dtype.np).reshape(-1).view(np.uint8)
            self._untyped_storage = UntypedStorage._on(values).to(device)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0, *, dtype: dtype | None = None) -> TypedStorage:
        """Map `size` elements of a file (torch docs: torch.TypedStorage.from_file)."""
        kind = getattr(cls, "dtype", None) if dtype is None else dtype
        kind = kind if isinstance(kind, dtypes.dtype) else dtypes.get_default_dtype()
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * kind.itemsize), dtype=kind)

    @property
    def _values(self) -> Any:
        used = len(self) * self.dtype.itemsize
        return self._untyped_storage._array[:used].view(self.dtype.np)

    _cdata, device, is_cuda, filename, nbytes, data_ptr, get_device, is_shared, resizable = map(
        _of_untyped, "_cdata device is_cuda filename nbytes data_ptr get_device is_shared resizable".split()
    )

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def size(self) -> int:
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def is_pinned(self) -> bool:
        return False

    def pickle_storage_type(self) -> str:
        """The legacy class name under which files name this dtype, e.g. 'FloatStorage'."""
        name = STORAGE_NAMES.get(self.dtype)
        if name is None:
            raise KeyError(f"dtype {self.dtype} is not recognized: it has no legacy storage class")
        return name

    def type(self, dtype: Any = None) -> Any:
        if dtype is None:
            prefix = "torch" if self.device.type == "cpu" else f"torch.{self.device.type}"
            return f"{prefix}.{self.pickle_storage_type()}"
        return self._as(dtype)

    def _as(self, kind: dtype) -> TypedStorage:
        if kind is self.dtype:
            return self
        return TypedStorage(wrap_storage=UntypedStorage._on(self._values.astype(kind.np).view(np.uint8)), dtype=kind)

    def tolist(self) -> list[Any]:
        values = namespace(self._values).to_host(self._values)
        return list(values.tolist())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._values[_checked_index(index, len(self))].item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._values[index if isinstance(index, slice) else _checked_index(index, len(self))] = value

    def fill_(self, value: Any) -> TypedStorage:
        self._values[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        if isinstance(source, TypedStorage):
            source = source._as(self.dtype)
        self._untyped_storage.copy_(source)
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.to(device), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        return self.to(device="cuda" if device is None else device)

    def resize_(self, size: int) -> None:
        self._untyped_storage.resize_(operator.index(size) * self.dtype.itemsize)

    def __repr__(self) -> str:
        body = "\n".join(f" {v}" for v in self.tolist()) + "\n" if self.device.type != "meta" else "...\n"
        about = f"dtype={self.dtype}, device={self.device}"
        return f"{body}[torch.storage.TypedStorage({about}) of size {len(self)}]"

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.__deepcopy__(memo), dtype=self.dtype)


def _add_casts() -> None:
    casts = (
        ("double", "float64"), ("float", "float32"), ("half", "float16"), ("bfloat16", "bfloat16"),
        ("long", "int64"), ("int", "int32"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"),
        ("bool", "bool"), ("complex_double", "complex128"), ("complex_float", "complex64"),
    )  # fmt: skip
    for method, target in casts:
        kind = dtypes.BY_NAME[target]
        setattr(TypedStorage, method, lambda self, kind=kind: self._as(kind))


_add_casts()


class _LegacyMeta(type):
    dtype: dtype

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is LegacyStorage:
            return isinstance(instance, TypedStorage)
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype and instance.device.type == "cpu"


class LegacyStorage(metaclass=_LegacyMeta):
    """What `torch.FloatStorage` and its kin are: names that make a TypedStorage of their dtype."""

    dtype: ClassVar[dtype]

    def __new__(cls, *args: Any, wrap_storage: UntypedStorage | None = None, **kwargs: Any) -> Any:
        content = args[0] if len(args) == 1 else (args or None)
        return TypedStorage(content, wrap_storage=wrap_storage, dtype=cls.dtype, **kwargs)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """Map `size` elements of a file."""
        return TypedStorage.from_file(filename, shared, size, dtype=cls.dtype)


STORAGE_NAMES: dict[dtype, str] = {
    dtypes.BY_NAME[name]: f"{prefix}Storage"
    for name, prefix in (
        ("float64", "Double"), ("float32", "Float"), ("float16", "Half"), ("bfloat16", "BFloat16"),
        ("int64", "Long"), ("int32", "Int"), ("int16", "Short"), ("int8", "Char"), ("uint8", "Byte"),
        ("bool", "Bool"),
        ("complex128", "ComplexDouble"), ("complex64", "ComplexFloat"),
    )
}  # fmt: skip
LEGACY_CLASSES: dict[str, type] = {
    name: _LegacyMeta(name, (LegacyStorage,), {"dtype": kind, "__module__": "torch", "__slots__": ()})
    for kind, name in STORAGE_NAMES.items()
}

UntypedStorage.__module__ = TypedStorage.__module__ = "torch.storage"


def as_device(where: Any) -> device:
    """`where` (None: the CPU) with an explicit index for CUDA."""
    found = device("cpu" if where is None else where)
    return device("cuda", 0) if found.type == "cuda" and found.index is None else found


def empty_bytes(size: int, where: Any = None) -> Any:
    """A flat uint8 array of `size` uninitialised bytes on a device."""
    target = as_device(where)
    if target.type == "cuda":
        return for_device(target).from_host(np.empty(size, np.uint8), target.index)
    return for_device(target).empty((size,), np.uint8)


def move_bytes(array: Any, where: device) -> Any:
    """The array itself where it is on `where`, else a copy there."""
    if device_of(array) == where:
        return array
    if where.type == "meta":
        return meta.MetaArray((array.size,), np.uint8)
    return for_device(where).from_host(namespace(array).to_host(array), where.index)


def storage_of(array: Any) -> UntypedStorage:
    """The storage an array is a view of: the same object for every view while one is alive."""
    if array.__class__ is meta.MetaArray:
        return UntypedStorage._on(meta.MetaArray((array.offset + _reach(array),), np.uint8))
    xp = namespace(array)
    key = xp.memory_id(array)
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = UntypedStorage._on(_flat_bytes(xp.root(array)))
    elif xp.name == "cuda" and xp.data_ptr(array) + _reach(array) > xp.data_ptr(found._array) + len(found):
        # The first view that asked showed only a part of the memory.
        found._array = _flat_bytes(xp.root(array))
    return found


def known_storage(array: Any) -> UntypedStorage | None:
    """The storage of an array's memory, if someone holds one."""
    return _KNOWN.get(namespace(array).memory_id(array))


def _reach(array: Any) -> int:
    """Bytes from the first element of an array to the end of its last one."""
    return sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize if array.size else 0


def view_bytes(storage: UntypedStorage, kind: dtype, offset: int, size: Sequence[int], stride: Sequence[int]) -> Any:
    """The strided array of `kind` at `offset` (in elements) in a storage.

    RuntimeError if it would reach outside the storage or if a size, stride or the offset is negative.
    """
    size, stride = tuple(map(operator.index, size)), tuple(map(operator.index, stride))
    offset = operator.index(offset)
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(size)}, stride {list(stride)}")
    if offset < 0 or min(size, default=0) < 0 or min(stride, default=0) < 0:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)} and storage offset {offset} must not be negative"
        )
    width = kind.itemsize
    reach = (offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1) * width if math.prod(size) else 0
    if reach > len(storage):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {width} requiring a storage size of {reach} are out of bounds for storage of size "
            f"{len(storage)}"
        )
    steps = tuple(s * width for s in stride)
    if storage.device.type == "meta":
        return meta.MetaArray(size, kind.np, steps, offset * width)
    if storage._array.base is None:
        _KNOWN.setdefault(storage._cdata, storage)
    try:
        start = offset * width
        return _strided(storage._array, kind, size, steps, start if start <= len(storage) else 0)
    except (ValueError, OverflowError) as error:
        raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(stride)}: {error}") from None


def _strided(flat: Any, kind: dtype, size: tuple[int, ...], steps: tuple[int, ...], start: int) -> Any:
    if isinstance(flat, np.ndarray):
        return np.ndarray(size, kind.np, flat, start, steps)
    from cupy.lib.stride_tricks import as_strided

    width = kind.itemsize
    usable = len(flat) - (len(flat) - start) % width
    return as_strided(flat[start:usable].view(kind.np), size, steps)


def _flat_bytes(root: Any) -> Any:
    if isinstance(root, np.ndarray):
        root = root.view(np.ndarray)
    dense = root.transpose(sorted(range(root.ndim), key=lambda axis: -root.strides[axis]))
    if not dense.flags.c_contiguous:
        raise RuntimeError(
            f"untyped_storage(): the array of shape {root.shape} and strides {root.strides} this tensor "
            "was made from has gaps between its elements; clone() the tensor first"
        )
    return dense.reshape(-1).view(np.uint8)


def _checked_index(index: Any, length: int) -> int:
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexError(f"index {i} is out of range for storage of size {length}")
    return i


# ---- plain pickles: the classes go by torch's names, under which `pickle` would look for them


def _restore_untyped(data: bytes | bytearray, location: str, size: int) -> UntypedStorage:
    if location == "meta":
        return UntypedStorage(size, device=location)
    return UntypedStorage.from_buffer(data if isinstance(data, bytearray) else bytearray(data)).to(location)


def _restore_typed(storage: UntypedStorage, kind: str) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtypes.BY_NAME[kind])


def _reduce_untyped(storage: UntypedStorage) -> tuple[Any, ...]:
    where = str(storage.device)
    data = b"" if where == "meta" else bytearray(storage.__array__())
    return _restore_untyped, (data, where, len(storage))


copyreg.pickle(UntypedStorage, _reduce_untyped)
copyreg.pickle(TypedStorage, lambda storage: (_restore_typed, (storage.untyped(), storage.dtype.name)))
