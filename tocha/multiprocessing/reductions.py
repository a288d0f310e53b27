"""How tensors and storages are pickled for another process: as a descriptor of the memory and a geometry."""

from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import numpy as np

from tocha import sharing
from tocha.nn.parameter import Parameter
from tocha.storage import UntypedStorage
from tocha.tensor import Tensor, wrap


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """A CPU tensor moves to shared memory, and what is sent is where it lies: both processes see later changes.

    RuntimeError for non-leaf tensors that require grad (their graph can't be sent) and for tensors on a GPU.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing process "
            "boundaries. If you just want to transfer the data, call detach() on the tensor before serializing (e.g., putting it on "
            "the queue)."
        )
    if type(tensor) is not Tensor and type(tensor) is not Parameter:
        return tensor.__reduce_ex__(2)
    if tensor.is_cuda:
        raise RuntimeError("a tensor on a GPU can't be sent to another process: send tensor.cpu()")
    kind = (type(tensor) is Parameter, tensor.dtype, tuple(tensor.shape), tensor.requires_grad)
    if tensor.is_meta or not tensor._a.size:
        return _rebuild_empty, (*kind, str(tensor.device))
    sharing.share(tensor)
    shared = sharing.map_of(tensor._a)
    if shared is None:  # memory of a fork, which has no descriptor to send
        return _rebuild_values, (*kind, tensor.detach().contiguous().numpy().tobytes())
    start = tensor.data_ptr() - np.frombuffer(shared, np.uint8).ctypes.data
    return _rebuild, (*kind, DupFd(shared.descriptor), len(shared), start, tensor._a.strides)


def _rebuild(
    is_parameter: bool,
    dtype: Any,
    shape: tuple[int, ...],
    requires_grad: bool,
    descriptor: Any,
    nbytes: int,
    start: int,
    strides: tuple[int, ...],
) -> Tensor:
    memory = np.frombuffer(sharing.SharedMap.of(descriptor.detach(), nbytes), np.uint8)
    return _finish(is_parameter, wrap(np.ndarray(shape, dtype.np, memory, start, strides)), requires_grad)


def _rebuild_empty(is_parameter: bool, dtype: Any, shape: tuple[int, ...], requires_grad: bool, device: str) -> Tensor:
    from tocha.ops.arguments import to_device
    from tocha.ops.creation import make

    return _finish(is_parameter, make(shape, dtype, to_device(device)), requires_grad)


def _rebuild_values(is_parameter: bool, dtype: Any, shape: tuple[int, ...], requires_grad: bool, data: bytes) -> Tensor:
    return _finish(is_parameter, wrap(np.frombuffer(bytearray(data), dtype.np).reshape(shape)), requires_grad)


def _finish(is_parameter: bool, value: Tensor, requires_grad: bool) -> Tensor:
    return Parameter(value, requires_grad) if is_parameter else value.requires_grad_(requires_grad)


def reduce_storage(storage: UntypedStorage) -> tuple[Any, ...]:
    """As `reduce_tensor`."""
    if storage.is_cuda:
        raise RuntimeError("a storage on a GPU can't be sent to another process: send storage.cpu()")
    return _rebuild_storage, (wrap(storage.share_memory_()._array),)


def _rebuild_storage(data: Tensor) -> UntypedStorage:
    return data.untyped_storage()


def init_reductions() -> None:
    """Register the reducers with the pickler that queues, pipes and process arguments use."""
    ForkingPickler.register(Tensor, reduce_tensor)
    ForkingPickler.register(Parameter, reduce_tensor)
    ForkingPickler.register(UntypedStorage, reduce_storage)
