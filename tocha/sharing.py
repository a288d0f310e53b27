"""Memory shared between processes: anonymous files mapped into each, found again from the arrays that lie in them.

A tensor's memory moves as a whole: every live tensor and storage on it follows, so that views still alias. The file has
no name; it is gone with the last process that maps it.
"""

from __future__ import annotations

import gc
import mmap
import os
import sys
import tempfile
from typing import Any

import numpy as np

from tocha.backends import cpu
from tocha.storage import UntypedStorage, known_storage
from tocha.tensor import Tensor


class SharedMap(mmap.mmap):
    """A mapping that keeps its descriptor, by which other processes can map the same memory."""

    descriptor: int

    @classmethod
    def of(cls, descriptor: int, nbytes: int) -> SharedMap:
        """Map a descriptor, which the mapping then owns."""
        self = cls(descriptor, nbytes, mmap.MAP_SHARED) if hasattr(mmap, "MAP_SHARED") else cls(descriptor, nbytes)
        self.descriptor = descriptor
        return self

    def __del__(self) -> None:
        descriptor = self.__dict__.pop("descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


def new_map(nbytes: int) -> SharedMap:
    """Fresh shared memory, of zeros."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tocha", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return SharedMap.of(descriptor, nbytes)


def map_of(array: Any) -> SharedMap | None:
    """The mapping an array lies in, if it is shared by descriptor."""
    if not isinstance(array, np.ndarray):
        return None
    base = cpu.root(array).base
    owner = base.obj if isinstance(base, memoryview) else base
    return owner if isinstance(owner, SharedMap) else None


def is_shared(tensor: Tensor) -> bool:
    """Whether other processes see changes: memory mapped to be shared, or on a GPU."""
    return (
        tensor.is_cuda or map_of(tensor._a) is not None or (tensor.is_cpu and UntypedStorage.is_shared(tensor.untyped_storage()))
    )


def share(tensor: Tensor) -> Tensor:
    """Move the tensor's memory, with every tensor and storage on it, to shared memory. Returns the tensor."""
    if not tensor.is_cpu or not tensor._a.size or is_shared(tensor):
        return tensor
    root = cpu.root(tensor._a)
    array = np.ndarray(root.shape, root.dtype, np.frombuffer(new_map(root.nbytes), np.uint8), 0, root.strides)
    array[...] = root
    # One holder of a root that is the tensor's own array (its slot; this variable; the argument of the count): no views.
    alone = tensor._a is root and sys.getrefcount(root) <= 3
    for other in (tensor,) if alone else _on_memory(root):
        other._a = _moved(other._a, root, array)
    storage = known_storage(root)
    if storage is not None:
        storage._move_to(array)
    return tensor


def _on_memory(root: Any) -> list[Tensor]:
    return [
        t
        for t in gc.get_objects()
        if isinstance(t, Tensor) and isinstance(getattr(t, "_a", None), np.ndarray) and cpu.root(t._a) is root
    ]


def _moved(old: Any, root: Any, new: Any) -> Any:
    """The same view of `new` as `old` is of `root`."""
    start = old.ctypes.data - root.ctypes.data
    return np.ndarray(old.shape, old.dtype, new.reshape(-1).view(np.uint8) if new.flags.c_contiguous else new, start, old.strides)
