"""Losses that compare scores or distances with a margin (torch docs: torch.nn.functional, loss functions)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha import dtypes
from tocha.dispatch.override import require
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.distance import pairwise_distance
from tocha.ops.loss import REDUCTIONS, read_reduction, reduced
from tocha.ops.whole import whole
from tocha.prims.activation import ON_TENSORS
from tocha.tensor import Tensor


def _reduction(reduction: Any, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """torch's native functions take numbers, F's take names."""
    return read_reduction(REDUCTIONS[reduction] if isinstance(reduction, int) else reduction, size_average, reduce)


@op("F torch")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: Any = "mean",
) -> Tensor:  # fmt: skip
    """input where target is 1, max(0, margin - input) where it is -1 (torch docs: torch.nn.functional.hinge_embedding_loss)."""
    how = _reduction(reduction, size_average, reduce)
    zero = input.new_zeros(())
    negative = ON_TENSORS.where(target == 1, zero, (margin - input).clamp(min=0))
    return reduced(negative + ON_TENSORS.where(target == -1, zero, input), how)


@op("F torch")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: Any = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target * (input1 - input2) + margin) (torch docs: torch.nn.functional.margin_ranking_loss)."""
    how = _reduction(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {input1.shape}, input2: {input2.shape}, "
            f"target: {target.shape} "
        )
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), how)


@op("F torch")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: Any = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos where target is 1, max(0, cos - margin) where it is -1, of (N, D) or (D) pairs (torch docs:
    torch.nn.functional.cosine_embedding_loss)."""
    how = _reduction(reduction, size_average, reduce)
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and (input1.ndim != 2 or input2.ndim != 2):
        raise RuntimeError(
            f"1D target tensor expects 2D input tensors, but found inputs with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    if target.ndim == 0 and (input1.ndim != 1 or input2.ndim != 1):
        raise RuntimeError(
            f"0D target tensor expects 1D input tensors, but found inputs with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    eps = 1e-12
    dim = target.ndim
    product = (input1 * input2).sum(dim)
    length1, length2 = (input1 * input1).sum(dim) + eps, (input2 * input2).sum(dim) + eps
    cosine = product / (length1 * length2).sqrt()
    zero = cosine.new_zeros(())
    positive = ON_TENSORS.where(target == 1, 1 - cosine, zero)
    return reduced(positive + ON_TENSORS.where(target == -1, (cosine - margin).clamp(min=0), zero), how)


@op("F torch")
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: Any = "mean"
) -> Tensor:
    """log(1 + e^(-target * input)) (torch docs: torch.nn.functional.soft_margin_loss)."""
    how = _reduction(reduction, size_average, reduce)
    return reduced((input * -target).exp().log1p(), how)


@op("F")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over classes of the binary cross entropy of each (torch docs: torch.nn.functional.multilabel_soft_margin_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    positive = ON_TENSORS.logsigmoid(input)
    losses = -(target * positive + (1 - target) * ON_TENSORS.logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    dim = input.ndim - 1
    return reduced(losses.sum(dim) / input._a.shape[dim] if input.ndim else losses, how)


def _rows(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """input as (N, C) and target with the batch dimension too."""
    if input.ndim not in (0, 1, 2) or (input._a.size == 0 and input.ndim == 2 and input._a.shape[1] == 0):
        raise RuntimeError(
            f"{name}: Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )
    x = input if input.ndim == 2 else input.reshape(1, -1)
    return x, target


@op("F")
@whole("MultiMarginLoss")
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over classes of max(0, margin - input[target] + input)^p, without the target's own (torch docs:
    torch.nn.functional.multi_margin_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    x, t = _rows("multi_margin_loss", input, target)
    t = t.reshape(-1)
    n, classes = x._a.shape
    if t._a.shape[0] != n or (input.ndim == 2 and target.ndim != 1):
        raise RuntimeError(f"multi_margin_loss: inconsistent target size, expected {n} but got {list(target.shape)}")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight must be one-dimensional, got {list(weight.shape)} (multi_margin_loss)")
    if weight is not None and weight._a.shape != (classes,):
        raise RuntimeError(f"multi_margin_loss: inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"multi_margin_loss: expected scalar type Long but found {target.dtype.name}")
    require((t >= 0) & (t < classes), RuntimeError, "multi_margin_loss: target out of range")
    gap = (margin - x.gather(1, t.unsqueeze(1)) + x).clamp(min=0)
    if p == 2:
        gap = gap * gap
    if weight is not None:
        gap = gap * weight.index_select(0, t).unsqueeze(1)
    own = t.unsqueeze(1) == t.new_tensor(list(range(classes)))
    losses = ON_TENSORS.where(own, gap.new_zeros(()), gap).sum(1) / classes
    return reduced(losses.reshape(target.shape) if how == "none" else losses, how)


@op("F")
@whole("MultilabelMarginLoss")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """Hinge between the scores of labelled classes (target (N, C) or (C), ended by -1) and all others (torch docs:
    torch.nn.functional.multilabel_margin_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    x, t = _rows("multilabel_margin_loss", input, target)
    if target._a.shape != input._a.shape:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"multilabel_margin_loss: expected scalar type Long but found {target.dtype.name}")
    t = t.reshape(x.shape)
    _n, classes = x._a.shape
    require((t >= -1) & (t < classes), RuntimeError, "multilabel_margin_loss: target is out of range")
    listed = ((t < 0).to(dtypes.int64).cumsum(1) == 0) if t._a.size else t >= 0
    index = ON_TENSORS.where(listed, t, 0)
    is_target = x.new_zeros(x.shape).scatter_add(1, index, listed.to(x.dtype)) > 0
    scores = x.gather(1, index)
    gap = (1 - scores.unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)
    counted = listed.unsqueeze(2) & ~is_target.unsqueeze(1)
    losses = ON_TENSORS.where(counted, gap, gap.new_zeros(())).sum((1, 2)) / classes
    return reduced(losses.reshape(input.shape[:-1]) if how == "none" else losses, how)


def _check_triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor {anchor.ndim}D, "
            f"positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )


def _triplet(near: Tensor, far: Tensor, between: Tensor | None, margin: float, reduction: str) -> Tensor:
    if between is not None:
        far = ON_TENSORS.minimum(far, between)
    return reduced((near - far + margin).clamp(min=0), reduction)


@op("F torch")
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
    size_average: bool | None = None, reduce: bool | None = None, reduction: Any = "mean",
) -> Tensor:  # fmt: skip
    """max(0, |anchor - positive| - |anchor - negative| + margin) in the p-norm (Balntas et al. 2016; torch docs:
    torch.nn.functional.triplet_margin_loss)."""
    how = _reduction(reduction, size_average, reduce)
    _check_triplet(anchor, positive, negative, margin)
    between = pairwise_distance(positive, negative, p, eps) if swap else None
    return _triplet(
        pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps), between, margin, how
    )


@op("F")
def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: Any = 1.0, swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """triplet_margin_loss with a distance of the caller's (torch docs: torch.nn.functional.triplet_margin_with_distance_loss)."""
    how = read_reduction(reduction)
    distance = pairwise_distance if distance_function is None else distance_function
    _check_triplet(check_tensor(anchor, "triplet_margin_with_distance_loss"), positive, negative, margin)
    between = distance(positive, negative) if swap else None
    return _triplet(distance(anchor, positive), distance(anchor, negative), between, margin, how)
