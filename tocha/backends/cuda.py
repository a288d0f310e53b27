"""The CUDA namespace: CuPy under the names primitives use. Loaded when a CUDA tensor is first made."""

from __future__ import annotations

from typing import Any

from tocha.device import device

name = "cuda"
try:
    import cupy
except ImportError as error:
    cupy = None
    _why = str(error)

_SPELLING = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "pow": "power",
    "floor_div": "floor_divide", "rem": "remainder", "as_array": "asarray", "add_reduce": "sum", "max_reduce": "max", "min_reduce": "min",
}  # fmt: skip


def require(where: device) -> None:
    """RuntimeError in words when `where` can't be used on this machine."""
    if cupy is None:
        raise RuntimeError(f"CUDA needs CuPy, which could not be imported ({_why}): pip install 'tocha[cuda]'")
    count = device_count()
    if count == 0:
        raise RuntimeError("no CUDA device was found (cupy.cuda.runtime.getDeviceCount() is 0)")
    if (where.index or 0) >= count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: {where} was asked for, {count} device(s) exist")


def device_count() -> int:
    """How many CUDA devices can be used."""
    if cupy is None:
        return 0
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def __getattr__(attribute: str) -> Any:
    if attribute.startswith("__") or cupy is None:
        raise AttributeError(attribute)
    spelled = _SPELLING.get(attribute, attribute)
    if hasattr(cupy, spelled):
        found = getattr(cupy, spelled)
    else:
        import cupyx.scipy.special

        found = getattr(cupyx.scipy.special, attribute)
    globals()[attribute] = found
    return found


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


def data_ptr(a: Any) -> int:
    return int(a.data.ptr)


def to_host(a: Any) -> Any:
    """Copy to a NumPy array."""
    return cupy.asnumpy(a)


def on(index: int | None) -> Any:
    """A context in which new arrays are made on device `index`."""
    return cupy.cuda.Device(index or 0)


def from_host(a: Any, index: int | None = None) -> Any:
    """Copy a NumPy array to device `index`."""
    with on(index):
        return cupy.asarray(a)


def synchronize() -> None:
    """Wait for everything queued on the current device."""
    cupy.cuda.runtime.deviceSynchronize()
