"""Where loaded storages go: location tags ('cpu', 'cuda:0') and `map_location`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.device import device
from tocha.storage import UntypedStorage, as_device

Restore = Callable[[UntypedStorage, str], UntypedStorage]
Tagger = Callable[[Any], str | None]
Deserializer = Callable[[UntypedStorage, str], UntypedStorage | None]


def _own_tag(storage: Any) -> str | None:
    where = storage.device
    return "cpu" if where.type == "cpu" else str(where)


def _own_restore(storage: UntypedStorage, location: str) -> UntypedStorage | None:
    kind = location.partition(":")[0]
    if kind in ("cpu", "meta"):
        return storage.to(kind)
    if kind == "cuda":
        where = as_device(location)
        _require_cuda(where)
        return storage.to(where)
    return None


def _require_cuda(where: device) -> None:
    """RuntimeError, saying what to do, unless storages can be placed on `where`."""
    from tocha.backends import cuda

    count = cuda.device_count()
    if not count:
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. To have its storages "
            "on the CPU, call torch.load with map_location=torch.device('cpu')."
        )
    if (where.index or 0) >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {where.index} but torch.cuda.device_count() is {count}. Choose a "
            "device that exists by torch.load's map_location."
        )


_registry: list[tuple[int, Tagger, Deserializer]] = [(10, _own_tag, _own_restore)]


def register_package(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Add a pair that tags storages when saving and restores them when loading; lower priorities are asked
    first."""
    _registry.append((priority, tagger, deserializer))
    _registry.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The tag a storage is saved under."""
    for _, tagger, _ in _registry:
        tag = tagger(storage)
        if tag:
            return tag
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")


def default_restore_location(storage: UntypedStorage, location: str) -> UntypedStorage:
    """The storage on the device that `location` names; RuntimeError if there is none."""
    for _, _, deserializer in _registry:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})")


def restore_function(map_location: Any) -> Restore:
    """What `map_location` (None, a device or its name, a dict of tags, a function) does to a storage and its
    tag."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        table = {str(k): v for k, v in map_location.items()}
        return lambda storage, tag: default_restore_location(storage, str(table.get(tag, tag)))
    if isinstance(map_location, (str, bytes, device)):
        target = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, tag: default_restore_location(storage, target)
    if not callable(map_location):
        raise TypeError(f"map_location must be a device, str, dict or function, got {type(map_location).__name__}")

    def restore(storage: UntypedStorage, tag: str) -> UntypedStorage:
        found = map_location(storage, tag)
        if found is None:
            return default_restore_location(storage, tag)
        untyped: UntypedStorage = found.untyped()
        return untyped

    return restore


def goes_to_meta(map_location: Any) -> bool:
    """Whether every storage ends on meta, so that no data need be read."""
    return isinstance(map_location, (str, device)) and str(map_location) == "meta"
