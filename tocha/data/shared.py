"""Batches between processes: pickled objects whose tensors travel in shared memory.

All tensors of a message lie in one anonymous file (memfd, or an unlinked temporary file) whose descriptor
is sent along. A file without a name can't be left behind: it is gone with the last process or tensor that
holds it, however those end.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import socket
import sys
import tempfile
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import tocha
from tocha.tensor import Tensor

#: Messages with fewer tensor bytes carry them in the pickle: cheaper than a file and a mapping.
INLINE_BYTES = 32 * 1024
_ALIGNMENT = 64
#: Whether descriptors can be sent; where not, tensors are copied through the socket.
HAS_DESCRIPTORS = hasattr(socket, "send_fds")


class _TensorPickler(ForkingPickler):
    """A pickler that puts the bytes of tensors aside, in `buffers`, and remembers where each starts."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.buffers: list[Any] = []
        self.total = 0

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._reduce_tensor(obj)
        return NotImplemented

    def _reduce_tensor(self, tensor: Any) -> Any:
        is_parameter = isinstance(tensor, tocha.nn.Parameter)
        if type(tensor) is not Tensor and not is_parameter:
            return NotImplemented
        if tensor.device.type != "cpu":
            raise RuntimeError(
                f"a worker process can't send a tensor on {tensor.device}: return CPU tensors from "
                "the data set "
                "and move batches in the main process"
            )
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(
                "a worker process can't send a non-leaf tensor that requires grad, because its "
                "graph stays behind: "
                "call detach() on it first"
            )
        value = tensor.detach()
        order = None
        if not value.is_contiguous():
            # Memory order is kept, so that a channels-last batch arrives as one.
            order = sorted(range(value.dim()), key=lambda d: -value.stride(d))
            value = value.permute(order).contiguous()
        start = self.total
        if value.numel():
            data = value.reshape(-1).view(tocha.uint8).numpy()
            self.buffers.append((start, data))
            self.total = -(-(start + data.nbytes) // _ALIGNMENT) * _ALIGNMENT
        return _tensor_at, (
            start,
            tuple(value.shape),
            value.dtype,
            order,
            tensor.requires_grad,
            is_parameter,
        )


#: The memory of the message that this thread is unpickling.
_unpickling = threading.local()


def _tensor_at(
    start: int,
    shape: tuple[int, ...],
    dtype: Any,
    order: list[int] | None,
    requires_grad: bool,
    is_parameter: bool,
) -> Any:
    """The tensor whose bytes begin at `start` of the message's memory."""
    count = math.prod(shape)
    if count:
        tensor = tocha.frombuffer(_unpickling.memory, dtype=dtype, count=count, offset=start).reshape(shape)
    else:
        tensor = tocha.empty(shape, dtype=dtype)
    if order is not None:
        tensor = tensor.permute(sorted(range(len(order)), key=order.__getitem__))
    if is_parameter:
        return tocha.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def dumps(obj: Any) -> tuple[bytes, int | None]:
    """`obj` as bytes and, when its tensors are large, the descriptor of the file that holds them.

    The caller closes the descriptor after sending it.
    """
    file = io.BytesIO()
    pickler = _TensorPickler(file)
    pickler.dump(obj)
    body = file.getvalue()
    if pickler.total >= INLINE_BYTES and HAS_DESCRIPTORS:
        return pickle.dumps((body, pickler.total, None)), _filled_file(pickler.buffers, pickler.total)
    inline = bytearray(pickler.total)
    for start, data in pickler.buffers:
        inline[start : start + data.nbytes] = memoryview(data)
    return pickle.dumps((body, pickler.total, inline)), None


def loads(payload: Any, descriptor: int | None = None) -> Any:
    """The object that `dumps` was given. Its tensors share the file's memory; the descriptor is closed."""
    try:
        body, total, inline = pickle.loads(payload)
        memory: Any = inline
        if descriptor is not None:
            memory = _memory_of(descriptor, total)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    _unpickling.memory = memory
    try:
        return pickle.loads(body)
    finally:
        _unpickling.memory = None


#: Map all pages at once where the system can: one call instead of one page fault each.
_MAP_FLAGS: dict[str, Any] = {"flags": mmap.MAP_SHARED | mmap.MAP_POPULATE} if hasattr(mmap, "MAP_POPULATE") else {}
if sys.version_info >= (3, 13):
    _MAP_FLAGS["trackfd"] = False


def _memory_of(descriptor: int, total: int) -> Any:
    """The file's memory, mapped, or copied where mappings would use up the descriptors of this process."""
    if sys.version_info >= (3, 13) or descriptor < _descriptor_limit() // 2:
        return mmap.mmap(descriptor, total, **_MAP_FLAGS)
    # Before Python 3.13 each mapping holds a descriptor for as long as its tensors live.
    memory = bytearray(total)
    view, done = memoryview(memory), 0
    while done < total:
        done += os.preadv(descriptor, [view[done:]], done)
    return memory


def _descriptor_limit() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _filled_file(buffers: list[tuple[int, Any]], total: int) -> int:
    """The descriptor of a nameless file of `total` bytes with the buffers at their places."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tocha-batch", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, total)
        for start, data in buffers:
            view = memoryview(data)
            done = 0
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], start + done)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
