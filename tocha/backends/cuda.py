"""The CUDA namespace: CuPy under the names primitives use. Loaded when a CUDA tensor is first made.

A name is looked up in this module, then in `_cuda_functions` (what CuPy lacks or means differently), then in CuPy under
the spelling of `_SPELLING`, then among CuPy's special functions. Nothing here needs a GPU to be imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ml_dtypes
import numpy as np

from tocha.backends.lazy import resolved
from tocha.device import device
from tocha.errors import AcceleratorError

name = "cuda"
try:
    import cupy
except Exception as error:  # a broken CUDA installation raises more than ImportError
    cupy = None
    _why = str(error)

_SPELLING = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "pow": "power",
    "floor_div": "floor_divide", "rem": "remainder", "as_array": "asarray",
}  # fmt: skip

# CuPy has no arithmetic for these: arrays of them are containers of bytes, which move and are cast.
BYTES = {
    np.dtype(getattr(ml_dtypes, kind)): np.dtype(np.uint8)
    for kind in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
}
_BITS = {**BYTES, np.dtype(ml_dtypes.bfloat16): np.dtype(np.uint16)}


def require_device(where: device) -> None:
    """An error in words when `where` can't be used on this machine: AssertionError without CuPy, as a torch built without CUDA."""
    if cupy is None:
        raise AssertionError(
            f"Torch not compiled with CUDA enabled: it needs CuPy, which could not be imported ({_why}): pip install 'tocha[cuda]'"
        )
    count = device_count()
    if count == 0:
        raise RuntimeError("no CUDA device was found (cupy.cuda.runtime.getDeviceCount() is 0)")
    if (where.index or 0) >= count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: {where} was asked for, {count} device(s) exist")


_count: int | None = None


def device_count() -> int:
    """How many CUDA devices can be used."""
    global _count
    if _count is None:
        if cupy is None:
            return 0
        try:
            _count = int(cupy.cuda.runtime.getDeviceCount())
        except cupy.cuda.runtime.CUDARuntimeError:
            return 0
    return _count


def __getattr__(attribute: str) -> Any:
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    from tocha.backends import _cuda_flags, _cuda_functions

    if attribute in vars(_cuda_functions):
        found = getattr(_cuda_functions, attribute)
    elif attribute in vars(_cuda_flags):
        found = getattr(_cuda_flags, attribute)
    elif cupy is None:
        raise AttributeError(attribute)
    elif hasattr(cupy, spelled := _SPELLING.get(attribute, attribute)):
        found = getattr(cupy, spelled)
    else:
        import cupyx.scipy.special

        found = getattr(cupyx.scipy.special, attribute)
    globals()[attribute] = found
    return found


# ---- running kernels


def run(function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Call a function of arrays on their device (kernels run on the current one)."""
    if device_count() > 1:
        for a in args:
            if a.__class__ is cupy.ndarray:
                index = a.device.id
                if index != cupy.cuda.runtime.getDevice():
                    with cupy.cuda.Device(index):
                        return function(*args, **params)
                break
    return function(*args, **params)


def bits(a: Any) -> Any:
    """An array of a type from ml_dtypes as unsigned integers of its size; other arrays as they are."""
    seen = _BITS.get(a.dtype)
    return a if seen is None else a.view(seen)


def store(target: Any, value: Any) -> None:
    """`target[...] = value`, on any type."""
    if target.dtype in _BITS and getattr(value, "dtype", None) == target.dtype:
        value = value.view(_BITS[target.dtype])
        target = bits(target)
    run(target.__setitem__, ..., value)


# ---- memory


def restride(a: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Any:
    """A view of a's memory; strides and offset in bytes."""
    return cupy.ndarray(shape, a.dtype, a.data + offset, strides)


def root(a: Any) -> Any:
    """The array that owns a's memory. A view made by `restride` does not know it: the whole allocation (whole
    blocks of 512 bytes) as bytes then."""
    owner = a if a.base is None else a.base
    memory = owner.data.mem
    if owner.data.ptr == memory.ptr and memory.size - owner.nbytes < 512:
        return owner
    return cupy.ndarray((memory.size,), "uint8", cupy.cuda.MemoryPointer(memory, 0))


def memory_id(a: Any) -> int:
    """The same for arrays on the same memory, while one of them lives."""
    return id(a.data.mem)


_sole: tuple[int, int] | None = None


def _references(a: Any) -> tuple[int, int]:
    return sys.getrefcount(a.data), sys.getrefcount(a.data.mem)


def owns_memory(a: Any) -> bool:
    """Whether no other array looks at a's memory: `base` doesn't tell, since views made by `restride` have none."""
    global _sole
    if _sole is None:
        _sole = _references(cupy.empty(1, "uint8"))
    pointer, memory = _references(a)
    return a.base is None and pointer <= _sole[0] and memory <= _sole[1]


def data_ptr(a: Any) -> int:
    """The address of a's first element."""
    return int(a.data.ptr)


def on(index: int | None) -> AbstractContextManager[Any]:
    """A context in which new arrays are made on device `index` (None: the current one)."""
    return nullcontext() if index is None else cupy.cuda.Device(index)


def from_host(a: Any, index: int | None = None) -> Any:
    """Copy a NumPy array to device `index`."""
    with on(index):
        return cupy.asarray(bits(a)).view(a.dtype) if a.dtype in _BITS else cupy.asarray(a)


def to_host(a: Any) -> Any:
    """Copy to a NumPy array, once everything queued before is done; RuntimeError if a kernel met a bad index."""
    a = resolved(a)
    got = cupy.asnumpy(bits(a)).view(a.dtype)
    from tocha.backends._cuda_functions import FAULTS

    if FAULTS.pending:
        FAULTS.report()
    return got


def to_device(a: Any, index: int | None) -> Any:
    """Copy to device `index`."""
    with cupy.cuda.Device(a.device.id):
        dense = cupy.ascontiguousarray(bits(a))
    with on(index):
        return dense.copy().view(a.dtype)


def current() -> device:
    """The device new arrays are made on."""
    return device("cuda", int(cupy.cuda.runtime.getDevice()))


def synchronize() -> None:
    """Wait for everything queued on the current device."""
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise AcceleratorError(f"CUDA error: {error}") from error
    from tocha.backends._cuda_functions import FAULTS

    if FAULTS.pending:
        FAULTS.report()


if cupy is not None:
    from tocha.backends import _cuda_memory

    _cuda_memory.install(cupy)
