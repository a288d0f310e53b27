"""Pickles that name torch's globals and keep storages outside the pickle."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

from tocha.device import Size, device, layout, memory_format
from tocha.dtypes import dtype
from tocha.serialization import rebuild
from tocha.serialization._names import StorageType, torch_name
from tocha.storage import TypedStorage, UntypedStorage

Storage = TypedStorage | UntypedStorage


_PythonPickler: Any = pickle._Pickler


class Pickler(_PythonPickler):  # type: ignore[misc]
    """Python's own pickler: the C one can't rename globals. `describe` turns a storage into its persistent
    id."""

    dispatch: ClassVar[dict[type, Any]] = dict(_PythonPickler.dispatch)

    def __init__(self, file: Any, protocol: int, describe: Callable[[Storage], Any]) -> None:
        super().__init__(file, protocol)
        self._describe = describe

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, (TypedStorage, UntypedStorage)):
            return self._describe(obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        kind = obj.__class__
        if kind is dtype or kind is StorageType:
            return obj.name
        if kind is Size:
            return Size, (tuple(obj),)
        if kind is memory_format:
            raise TypeError(f"cannot pickle {obj}: save its name and look it up after loading")
        if kind is layout:
            return rebuild._get_layout, (f"torch.{obj.name}",)
        if kind is device:
            return device, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if kind.__module__ == "torch" and kind.__name__ == "Generator":
            return kind, (obj.device,), (obj.initial_seed(), None, obj.get_state())
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        found = torch_name(obj, name)
        if found is None:
            super().save_global(obj, name)
            return
        module, name = found
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch[FunctionType] = save_global


def dump(obj: Any, protocol: int, describe: Callable[[Storage], Any]) -> bytes:
    """The pickle of `obj`, its storages replaced by what `describe` says of them."""
    buffer = io.BytesIO()
    before, rebuild.mode.saving = rebuild.mode.saving, True
    try:
        Pickler(buffer, protocol, describe).dump(obj)
    finally:
        rebuild.mode.saving = before
    return buffer.getvalue()
