"""Raw arrays: one namespace per device with the same function names, so that primitives are written once.

`namespace(array)` answers with the module (cpu, cuda or meta) whose functions work on it. Everything above this
folder sees arrays only through `shape`, `dtype`, `strides` (bytes), `transpose`, basic indexing and these modules.
"""

from __future__ import annotations

import functools
import importlib
from threading import get_ident
from typing import Any

import numpy as np

from tocha.backends import cpu, meta
from tocha.backends.lazy import Lazy
from tocha.device import CPU, META, device

Array = Any
NAMESPACES: dict[type, Any] = {np.ndarray: cpu, meta.MetaArray: meta, meta.WrapperArray: meta}


# What torch.backends has under this name; each loads when first touched.
_PUBLIC = frozenset(("cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"))


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'torch.backends' has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def namespace(array: Array) -> Any:
    """The backend module of an array."""
    found = NAMESPACES.get(array.__class__)
    if found is None:
        if array.__class__ is Lazy:
            return namespace(array.raw)
        from tocha.backends import cuda

        NAMESPACES[array.__class__] = found = cuda
    return found


def device_of(array: Array) -> device:
    """The device an array lives on."""
    kind = array.__class__
    if kind is np.ndarray:
        return CPU
    if kind is meta.MetaArray:
        return META
    if kind is meta.WrapperArray:
        return array.device
    if kind is Lazy:
        return device_of(array.raw)
    where = array.device
    return where if where.__class__ is device else _cuda(where.id)


@functools.cache
def _cuda(index: int) -> device:
    return device("cuda", index)


_traced: Any = None  # the namespace that stands in for the CPU's while a program is traced (tocha.aot.trace)
_tracer = 0  # the thread that traces


def trace_into(stand_in: Any) -> None:
    """Have `stand_in` make the arrays of the CPU in this thread from now on; None ends it."""
    global _traced, _tracer
    _traced, _tracer = stand_in, get_ident()


def while_traced(arrays: list[Any]) -> list[Any]:
    """The arrays, of which those with data become constants of the program while one is traced."""
    if _traced is None or _tracer != get_ident():
        return arrays
    return [_traced.lift(a) if a.__class__ is np.ndarray else a for a in arrays]


def for_device(where: device) -> Any:
    """The backend module that makes arrays on `where`; RuntimeError says what is missing for it."""
    if where.type == "cpu":
        return cpu if _traced is None or _tracer != get_ident() else _traced
    if where.type == "meta":
        return meta
    if where.type == "cuda":
        from tocha.backends import cuda

        cuda.require_device(where)
        return cuda
    raise RuntimeError(f"device '{where}' is not supported: tocha has cpu, cuda and meta")


def geometry(array: Array) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Shape, strides, offset and length of the memory below, all in elements."""
    array = array.raw if array.__class__ is Lazy else array
    xp = namespace(array)
    item = array.dtype.itemsize
    root = xp.root(array)
    offset = array.offset if xp is meta else xp.data_ptr(array) - xp.data_ptr(root)
    length = root.size * root.dtype.itemsize
    return tuple(array.shape), tuple(s // item for s in array.strides), offset // item, length // item
