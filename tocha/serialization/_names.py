"""Global names in pickles: torch's on disk, tocha's in memory. One table answers both directions."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from typing import Any

from tocha import dtypes
from tocha.device import Size, device
from tocha.dtypes import dtype
from tocha.serialization import rebuild
from tocha.storage import LEGACY_CLASSES, STORAGE_NAMES, TypedStorage, UntypedStorage
from tocha.tensor import Tensor


class StorageType:
    """What `torch.FloatStorage` means in a file: the dtype of the bytes that follow (None: untyped)."""

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, kind: dtype | None) -> None:
        self.name = name
        self.dtype = kind

    def __repr__(self) -> str:
        return f"StorageType({self.name})"


_DTYPE_OF = {name: kind for kind, name in STORAGE_NAMES.items()}
STORAGE_TYPES: dict[tuple[str, str], StorageType] = {
    (module, name): StorageType(name, kind) for name, kind in _DTYPE_OF.items() for module in ("torch", "torch.cuda")
} | {
    ("torch.storage", "UntypedStorage"): StorageType("UntypedStorage", None),
    ("torch", "UntypedStorage"): StorageType("UntypedStorage", None),
}

_REBUILD: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", f.__name__): f
    for f in (
        rebuild._rebuild_tensor, rebuild._rebuild_tensor_v2, rebuild._rebuild_tensor_v3,
        rebuild._rebuild_parameter, rebuild._rebuild_parameter_with_state,
        rebuild._rebuild_meta_tensor_no_storage,
    )
}  # fmt: skip
_REBUILD |= {("torch._utils", name): f for name, f in rebuild.REFUSED.items()}
_REBUILD |= {
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild._rebuild_from_type_v2,
    ("torch.serialization", "_get_layout"): rebuild._get_layout,
    ("torch.storage", "_load_from_bytes"): rebuild._load_from_bytes,
}
_CLASSES: dict[tuple[str, str], Any] = {("torch", kind.__name__): kind for kind in (Size, device, Tensor)}
_CLASSES |= {("torch", name): kind for name, kind in LEGACY_CLASSES.items()}
_FUNCTION_NAMES = {f: key for key, f in _REBUILD.items()}
# Where torch's module differs from the place the same object has here.
_MOVED = {("torch._C", "Generator"): ("tocha.random", "Generator")}
_MOVED_BACK = {("torch", "Generator"): ("torch._C", "Generator")}
# Each dtype by its own name and by torch's aliases (torch.float, torch.long).
DTYPES: dict[tuple[str, str], dtype] = {("torch", name): kind for name, kind in dtypes.BY_NAME.items()}


def is_torch(module: str) -> bool:
    return module == "torch" or module.startswith("torch.")


def is_tocha(module: str) -> bool:
    return module == "tocha" or module.startswith("tocha.")


def rebuilders() -> dict[tuple[str, str], Callable[..., Any]]:
    """The functions that put tensors together, by the names files use."""
    return _REBUILD


def resolve(module: str, name: str, *, storages_as_types: bool = True) -> Any:
    """The tocha object that a file calls `module.name`; AttributeError says what is missing."""
    key = (module, name)
    if storages_as_types and key in STORAGE_TYPES:
        return STORAGE_TYPES[key]
    for table in (_REBUILD, DTYPES, _CLASSES):
        if key in table:
            return table[key]
    if key in (("torch.storage", "UntypedStorage"), ("torch.storage", "TypedStorage")):
        return UntypedStorage if name == "UntypedStorage" else TypedStorage
    home, name = _MOVED.get(key, ("tocha" + module[5:], name))
    try:
        found: Any = importlib.import_module(home)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise AttributeError(f"the file needs {module}.{name}, which tocha does not have ({error})") from None
    return found


def torch_name(obj: Any, name: str | None = None) -> tuple[str, str] | None:
    """The (module, name) under which a file calls a tocha object, or None for objects that aren't tocha's.

    PicklingError if a reader would not find the same object under that name.
    """
    if isinstance(obj, dtype):
        return "torch", obj.name
    if isinstance(obj, StorageType):
        return "torch" if obj.dtype else "torch.storage", obj.name
    try:
        known = _FUNCTION_NAMES.get(obj)
    except TypeError:
        known = None
    if known is not None:
        return known
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or not (is_torch(module) or is_tocha(module)):
        return None
    name = name or getattr(obj, "__qualname__", None) or obj.__name__
    key = ("torch" + module[5:], name)
    key = _MOVED_BACK.get(key, key)
    try:
        same = resolve(*key, storages_as_types=False) is obj
    except AttributeError:
        same = False
    if not same:
        raise pickle.PicklingError(f"can't save {obj!r}: it is not found as {key[0]}.{key[1]}")
    return key
