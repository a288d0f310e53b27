"""In-place operators that are no other operator's in-place form: detach_, fill_diagonal_, apply_, map_."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.autograd.mode import state
from tocha.dispatch.inplace import check_writable, mutated, store
from tocha.dispatch.override import in_memory
from tocha.dispatch.registry import op
from tocha.ops.creation import legacy_tensor
from tocha.tensor import Tensor


@op("torch")
def detach(input: Tensor) -> Tensor:
    """The same memory without history (torch docs: torch.detach)."""
    return input.detach()


@op("torch method")
def detach_(input: Tensor) -> Tensor:
    """Forget the history of this very tensor (torch docs: Tensor.detach_)."""
    if state.inference:
        return input  # histories are left alone, as in torch
    if input._view is not None:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and "
            "gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called."
        )
    input._node, input._nr = None, 0
    input._rg = input._rg_when_off()
    return input


@op("method torch")
def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Fill the main diagonal; `wrap` goes on below square parts of tall matrices (torch docs: Tensor.fill_diagonal_)."""
    shape = input._a.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    check_writable(input, "fill_diagonal_", one_value=True)
    step = sum(input.stride())
    count = min(shape)
    view = input.as_strided((count,), (step,), input.storage_offset())
    view.fill_(fill_value)
    if wrap and len(shape) == 2 and shape[0] > shape[1] + 1:
        for start in range(shape[1] + 1, shape[0], shape[1] + 1):
            fill_diagonal_(input[start:], fill_value)
    return input


def _elementwise(input: Tensor, function: Callable[..., Any], name: str, others: tuple[Tensor, ...]) -> Tensor:
    if not input.is_cpu:
        raise TypeError(f"{name} is only implemented on CPU tensors")
    if any(t.requires_grad for t in (input, *others)):
        raise RuntimeError(f"Can't call {name} on Variable that requires grad. Use var.detach().{name} instead.")
    for other in others:
        if other.dtype is not input.dtype:
            raise TypeError(f"{name}: expected tensors of type {input.type()} but got {other.type()}")
    columns = [t.expand(input.shape).reshape(-1).tolist() for t in (input, *others)]
    found = [function(*row) for row in zip(*columns, strict=True)]
    values = np.array(found, dtype=input._a.dtype).reshape(input._a.shape)
    if not in_memory(input):
        raise RuntimeError(f"{name} can't be used inside vmap or forward-mode differentiation, or on wrapper tensors")
    check_writable(input, name)
    store(input._a, values)
    mutated(input, None, name)
    return input


@op("method")
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element by a Python function's value: slow (torch docs: Tensor.apply_)."""
    return _elementwise(input, callable, "apply_", ())


@op("method")
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element by `callable(own, other)` (torch docs: Tensor.map_)."""
    return _elementwise(input, callable, "map_", (tensor,))


@op("method")
def map2_(input: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace every element by `callable(own, x's, y's)`."""
    return _elementwise(input, callable, "map2_", (x, y))


@op("method")
def new(input: Tensor, *args: Any, device: Any = None) -> Tensor:
    """The legacy constructor, of input's type: `x.new(2, 3)`, `x.new([1, 2])`."""
    return legacy_tensor(Tensor, *args, device=device or input.device, dtype=input.dtype)


@op("method")
def share_memory_(input: Tensor) -> Tensor:
    """Move the tensor's memory, and all that lies on it, to memory that processes can share (torch docs:
    Tensor.share_memory_)."""
    from tocha import sharing

    return sharing.share(input)
