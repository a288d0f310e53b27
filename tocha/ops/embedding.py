"""Embedding lookups (torch docs: torch.nn.functional, sparse functions)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import no_grad
from tocha.backends import namespace
from tocha.dispatch.override import elements
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.prims import embedding as prims
from tocha.prims.activation import ON_TENSORS
from tocha.tensor import Tensor, wrap


def _check_indices(name: str, indices: Tensor, rows: int, error: Any = None) -> None:
    if indices.dtype is not dtypes.int64 and indices.dtype is not dtypes.int32:
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"torch.{indices.dtype.name} instead (while checking arguments for {name})"
        )
    a = elements(indices)
    if error is None:
        namespace(a).check_rows(a, name, rows)
    else:
        namespace(a).check_range(a, rows, 0, False, error)


def _padding_index(padding_idx: int | None, rows: int) -> int:
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def _renormalise(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Rows that are used and longer than max_norm are shortened to it, in place."""
    with no_grad():
        used = indices.reshape(-1).unique()
        rows = weight.detach().index_select(0, used)
        length = rows.norm(norm_type, 1, keepdim=True)
        factor = ON_TENSORS.where(length > max_norm, max_norm / (length + 1e-7), 1.0).to(weight.dtype)
        weight.detach().index_copy_(0, used, rows * factor)


@op("F")
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of weight (V, D) at indices (*) -> (*, D); padding_idx gets no gradient (torch docs: torch.nn.functional.embedding).
    Gradients are dense whatever `sparse` says."""
    w = check_tensor(weight, "embedding", "weight", 2)._a
    pad = _padding_index(padding_idx, w.shape[0] if w.ndim else 0) if padding_idx is not None else -1
    if w.ndim != 2:
        raise RuntimeError(f"embedding: 'weight' must be 2-D, got {w.ndim}-D")
    _check_indices("embedding", check_tensor(input, "embedding", "indices"), w.shape[0])
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    return prims.embedding(weight, input, padding_idx=pad, by_frequency=scale_grad_by_freq)


@op("torch", name="embedding")
def _torch_embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`torch.nn.functional.embedding` with the native order of arguments."""
    return embedding(indices, weight, None if padding_idx < 0 else padding_idx, scale_grad_by_freq=scale_grad_by_freq)


@op("torch", name="embedding_renorm_")
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Shorten the indexed rows of `input` to max_norm, in place."""
    _renormalise(input, indices, max_norm, norm_type)
    return input


def _bags(input: Tensor, offsets: Tensor | None, include_last: bool) -> tuple[Tensor, Tensor]:
    """Flat indices, and where each bag of them begins and the last one ends."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences."
            )
        n, length = input._a.shape
        return input.reshape(-1), wrap(np.arange(n + 1) * length).to(input.device)
    if input.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    found = elements(offsets)
    starts, total = namespace(found).to_host(found).astype(np.int64), input._a.shape[0]
    if starts.size and starts[0] != 0:
        raise RuntimeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {starts[0]}"
        )
    if starts.size and starts[-1] > total:
        raise RuntimeError(f"offsets[-1] can not be greater than input's length({total}) but got offsets[-1] of {starts[-1]}")
    if (starts[1:] < starts[:-1]).any():
        raise RuntimeError(f"embedding_bag: offsets must not fall, got {starts.tolist()}")
    if not starts.size:
        starts = np.zeros(1, np.int64)
    elif not include_last:
        starts = np.append(starts, total)
    return input, wrap(starts).to(input.device)


@op("F")
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Sum, mean or maximum of rows of weight over bags of indices: rows of a 2-d input, or parts of a 1-d one that begin at
    `offsets`; padding_idx is left out (torch docs: torch.nn.functional.embedding_bag)."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (scale_grad_by_freq or sparse):
        what = "scaling the gradient by the frequency" if scale_grad_by_freq else "sparse weights"
        raise ValueError(f"max mode does not support {what}")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='"
                + mode
                + "')."
            )
        if per_sample_weights._a.shape != input._a.shape:
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape as the input "
                f"({input.shape})"
            )
    if weight.ndim != 2:
        raise ValueError(f"embedding_bag: weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    indices, starts = _bags(input, offsets, include_last_offset)
    rows = weight._a.shape[0]
    _check_indices("embedding_bag", indices, rows, RuntimeError)
    pad = _padding_index(padding_idx, rows)
    if max_norm is not None:
        _renormalise(weight, indices, max_norm, norm_type)
    if mode != "max":
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1).to(weight.dtype)
        return prims.bag_sum(
            weight, indices, starts, per_sample_weights, padding_idx=pad, mean=mode == "mean", by_frequency=scale_grad_by_freq
        )
    count = starts._a.shape[0] - 1
    bags = prims.bag_numbers(indices, starts, padding_idx=pad)
    if not indices._a.size:
        return weight.new_zeros((count, weight._a.shape[1]))
    rows = prims.embedding(weight.detach(), indices, padding_idx=-1, by_frequency=False)
    place = prims.bag_maximum_place(rows.to(dtypes.float32) if rows.dtype in dtypes.HALF else rows, bags, count=count)
    found = weight.gather(0, indices.index_select(0, place.clamp(min=0).reshape(-1)).reshape(place.shape).long())
    return ON_TENSORS.where(place >= 0, found, found.new_zeros(()))


@op("F")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at each index's class, 0 elsewhere, in a new last dimension (torch docs: torch.nn.functional.one_hot)."""
    if check_tensor(tensor, "one_hot").dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {tensor.dtype.name}.")
    if tensor.is_meta and num_classes == -1:
        raise NotImplementedError("one_hot: num_classes can't be inferred from a meta tensor")
    if not tensor._a.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return tensor.new_zeros((*tensor._a.shape, num_classes))
    if not tensor.is_meta:
        values = elements(tensor)
        low, high = int(values.min()), int(values.max())
        if low < 0:
            raise RuntimeError(f"Class values must be non-negative, got {low}.")
        if num_classes == -1:
            num_classes = high + 1
        elif num_classes < 1:
            raise RuntimeError("num_classes should be positive")
        elif high >= num_classes:
            raise RuntimeError(f"Class values must be smaller than num_classes, got {high} for {num_classes}.")
    return (tensor.unsqueeze(-1) == tensor.new_tensor(list(range(num_classes)))).to(dtypes.int64)
