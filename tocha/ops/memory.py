"""The memory under a tensor: its storage, and changing the part of it that is looked at (resize_, set_)."""

from __future__ import annotations

import math
from typing import Any

from tocha.autograd.graph import version_of
from tocha.autograd.mode import state
from tocha.backends import device_of, namespace
from tocha.backends.lent import check_resizable
from tocha.backends.meta import contiguous_strides
from tocha.device import preserve_format
from tocha.dispatch.inplace import check_history, store
from tocha.dispatch.override import check_own_memory
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_sizes, shape_of
from tocha.ops.creation import make
from tocha.ops.inspect import is_conj, is_neg
from tocha.ops.shape import storage_nbytes, storage_offset_of
from tocha.storage import TypedStorage, UntypedStorage, storage_of, view_bytes
from tocha.tensor import Tensor


@op("method")
def resize_(input: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Another shape over the same memory, or over new memory if it is too small (torch docs: Tensor.resize_).

    New memory keeps the old elements in front and is uninitialised behind them.
    """
    if input._rg and state.grad:
        raise RuntimeError("cannot resize variables that require grad")
    check_history(input, "resize_", False)
    shape = check_sizes(shape_of(sizes, "resize_"), "resize_")
    _reshape_memory(input, shape)
    if memory_format is not None and memory_format.name.startswith("channels_last"):
        order = (0, *range(2, len(shape)), 1)
        dense = contiguous_strides(tuple(shape[i] for i in order), input.itemsize)
        strides = tuple(dense[order.index(i)] for i in range(len(shape)))
        input._a = namespace(input._a).restride(input._a, shape, strides)
    book(input, "resize_")
    return input


def _reshape_memory(input: Tensor, shape: tuple[int, ...]) -> None:
    a = input._a
    if a.shape == shape:
        return
    check_own_memory(input, "resize_")
    item = a.dtype.itemsize
    strides = contiguous_strides(shape, item)
    needed = math.prod(shape) * item
    xp = namespace(a)
    if needed == 0 or storage_offset_of(input) * item + needed <= storage_nbytes(input):
        input._a = xp.restride(a, shape, strides)
    else:
        check_resizable(a)
        grown = make(shape, input.dtype, device_of(a))._a
        kept = storage_nbytes(input) // item - storage_offset_of(input)
        if a.size and kept > 0:
            flat = xp.restride(grown, (grown.size,), (item,))
            store(flat[:kept], xp.restride(a, (kept,), (item,)))
        input._a = grown


@op("method torch")
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the template's shape (torch docs: Tensor.resize_as_)."""
    resize_(input, tuple(the_template.shape))
    if memory_format is preserve_format and the_template._a.size:
        xp = namespace(input._a)
        scale = input.itemsize
        strides = tuple(s // the_template.itemsize * scale for s in the_template._a.strides)
        input._a = xp.restride(input._a, input._a.shape, strides)
    return input


@op("method")
def set_(input: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Look at the memory of another tensor or storage from now on (torch docs: Tensor.set_)."""
    if input._rg and state.grad:
        raise RuntimeError("set_: a tensor that requires grad is being used in an in-place operation; detach() it first")
    check_history(input, "set_", False)
    check_own_memory(input, "set_")
    if source is None:
        input._a = make((0,), input.dtype, input.device)._a
    elif isinstance(source, Tensor):
        _check_kind(input, source.dtype, source.device)
        if size is None:
            input._a = source._a
        else:
            input._a = _on_storage(input, storage_of(source._a), storage_offset, size, stride)
    elif isinstance(source, (UntypedStorage, TypedStorage)):
        if isinstance(source, TypedStorage):
            _check_kind(input, source.dtype, source.device)
        memory = source.untyped()
        count = memory.nbytes() // input.itemsize
        input._a = _on_storage(input, memory, storage_offset, (count,) if size is None else size, stride)
    else:
        raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    book(input, "set_")
    return input


def book(input: Tensor, name: str) -> None:
    """Count a change of which part of memory a tensor looks at."""
    version = version_of(input)
    version.reshaped = True
    version.bump(name)


def _check_kind(input: Tensor, dtype: Any, device: Any) -> None:
    if dtype is not input.dtype:
        raise RuntimeError(f"Could not set tensor of type {dtype.name} to a tensor of type {input.dtype.name}")
    if device != input.device:
        raise RuntimeError(f'Attempted to set the storage of a tensor on device "{input.device}" to one on "{device}"')


def _on_storage(input: Tensor, memory: UntypedStorage, offset: int, size: Any, stride: Any) -> Any:
    shape = shape_of((size,) if isinstance(size, int) else (tuple(size),), "set_")
    item = input.itemsize
    steps = tuple(s // item for s in contiguous_strides(shape, item)) if stride is None else tuple(stride)
    return view_bytes(memory, input.dtype, offset, shape, steps)


# ---- asking about memory


@op("method")
def untyped_storage(input: Tensor) -> UntypedStorage:
    """The bytes this tensor is a view of; one object for all tensors on the same memory."""
    return storage_of(input._a)


@op("method", alias=("_typed_storage",))
def storage(input: Tensor) -> TypedStorage:
    """The memory as elements of the tensor's type."""
    return TypedStorage(wrap_storage=storage_of(input._a), dtype=input.dtype)


@op("method")
def storage_offset(input: Tensor) -> int:
    """Elements between the start of the storage and the first element."""
    return storage_offset_of(input)


@op("method")
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both look at the same memory with the same geometry."""
    a, b = input._a, tensor._a
    same = (is_conj(input), is_neg(input)) == (is_conj(tensor), is_neg(tensor))
    same = same and a.dtype is b.dtype and a.shape == b.shape and a.strides == b.strides
    return same and input.data_ptr() == tensor.data_ptr() and storage_of(a) is storage_of(b)


@op("method")
def is_pinned(input: Tensor, device: Any = None) -> bool:
    """Whether the memory is page-locked: never, since NumPy allocates it."""
    return False


@op("method")
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """Page-locked memory for faster copies to a GPU; without one this is an error, as in torch."""
    if input.is_cuda:
        raise RuntimeError(f"cannot pin '{input.type()}' only dense CPU tensors can be pinned")
    from tocha.backends import cuda

    if not cuda.device_count():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return input


@op("method")
def get_device(input: Tensor) -> int:
    """The GPU's number; -1 on the CPU."""
    return input.device.index if input.is_cuda and input.device.index is not None else -1


op("torch")(get_device)
