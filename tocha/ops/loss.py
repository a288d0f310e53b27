"""Losses against targets with torch's signatures (torch docs: torch.nn.functional, loss functions): regression, likelihood and
cross-entropy losses. Margin and metric losses are in ops.margin_loss, CTC in ops.ctc."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.dispatch.override import require
from tocha.dispatch.promote import result_type
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.whole import whole
from tocha.prims import loss as prims
from tocha.prims.activation import ON_TENSORS
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor

REDUCTIONS = ("none", "mean", "sum")

_REAL_NP = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_INT64 = np.dtype(np.int64)


def read_reduction(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """The reduction's name, honouring the deprecated flags; ValueError for an unknown one."""
    if size_average is not None or reduce is not None:
        averaged = size_average is None or size_average
        reduction = "none" if reduce is not None and not reduce else "mean" if averaged else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", stacklevel=3
        )
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """All losses, their mean or their sum."""
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


# ---- class targets


def _check_classes(name: str, input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    shape, wanted = input._a.shape, target._a.shape
    if input._a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}' tensors")
    if target.dtype is not dtypes.int64 and target.dtype is not dtypes.uint8:
        raise RuntimeError(f"{name}: expected target dtype to be Long or Byte, but got {target.dtype.name}")
    if shape[0] != wanted[0]:
        raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({wanted[0]}).")
    if shape[0:1] + shape[2:] != wanted:
        if len(shape) == 2:
            raise RuntimeError(
                f"{name}: 0D or 1D target tensor expected, multi-target not supported (target has shape {list(wanted)})"
            )
        raise RuntimeError(f"{name}: size mismatch (got input: {list(shape)} , target: {list(wanted)})")
    if weight is not None and weight._a.shape != (shape[1],):
        raise RuntimeError(
            f"weight tensor should be defined either for all {shape[1]} classes or no classes but got weight tensor of shape: "
            f"{list(weight.shape)} ({name})"
        )
    if weight is not None and weight._a.dtype is not input._a.dtype:
        raise RuntimeError(f"{name}: expected scalar type {input.dtype.name} but found {weight.dtype.name} for weight")


@op("F")
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the log-probability (N, C, *) or (C) of the target class (N, *) or (), weighted by class; the mean is over weights (torch
    docs: torch.nn.functional.nll_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    if check_tensor(input, "nll_loss").ndim == 0:
        raise RuntimeError("nll_loss: input tensor should be 1D or more, got a 0-d tensor")
    single = input.ndim == 1
    x, t = (input.unsqueeze(0), target.reshape(1)) if single else (input, target)
    _check_classes("nll_loss", x, t, weight)
    out = prims.nll(x, t, weight, reduction=how, ignore_index=ignore_index)[0]
    return out.reshape(()) if single and how == "none" else out


def short_cross_entropy(input: Any, target: Any, *rest: Any) -> Tensor | None:
    """Float logits (N, C) and int64 classes (N) with all defaults, in the fewest steps; None when it takes more care."""
    if rest or input.__class__ is not Tensor or target.__class__ is not Tensor:
        return None
    x, t = input._a, target._a
    if x.ndim != 2 or t.ndim != 1 or x.dtype not in _REAL_NP or t.dtype is not _INT64 or x.shape[0] != t.shape[0]:
        return None
    return prims.cross_entropy(input, target, None, reduction="mean", ignore_index=-100, smoothing=0.0)[0]


@op("F", short=short_cross_entropy)
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross entropy between logits (N, C, *) or (C) and class indices (N, *) or (), or class probabilities shaped as the logits
    (torch docs: torch.nn.functional.cross_entropy)."""
    how = read_reduction(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if check_tensor(input, "cross_entropy")._a.ndim == 0:
        raise RuntimeError("cross_entropy: input tensor should be 1D or more, got a 0-d tensor")
    if check_tensor(target, "cross_entropy", "target", 2)._a.shape == input._a.shape and target._a.dtype.kind not in "biu":
        return _soft_cross_entropy(input, target, weight, how, label_smoothing)
    single = input._a.ndim == 1
    x, t = (input.unsqueeze(0), target.reshape(1)) if single else (input, target)
    if target.ndim != x.ndim - 1 and not single and target.ndim == 0:
        raise ValueError(f"Expected input batch_size ({x._a.shape[0]}) to match target batch_size (0-d target).")
    _check_classes("cross_entropy", x, t, weight)
    out = prims.cross_entropy(x, t, weight, reduction=how, ignore_index=ignore_index, smoothing=label_smoothing)[0]
    return out.reshape(()) if single and how == "none" else out


def _soft_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float) -> Tensor:
    if input._a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(f"\"cross_entropy\" not implemented for '{input.dtype.name}' tensors")
    dim = 0 if input.ndim == 1 else 1
    classes = input._a.shape[dim]
    if weight is not None and weight._a.shape != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: "
            f"{list(weight.shape)}"
        )
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    losses = input.log_softmax(dim) * target
    if weight is not None:
        losses = losses * weight.reshape((-1,) + (1,) * (input.ndim - 1 - dim))
    if reduction == "none":
        return -losses.sum(dim)
    total = -losses.sum()
    return total / (max(input._a.size // max(classes, 1), 0) or math.nan) if reduction == "mean" else total


@op("F")
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:  # fmt: skip
    """cross_entropy(linear(input, linear_weight, linear_bias), target) for a weight (C, *rest, in) (torch docs:
    torch.nn.functional.linear_cross_entropy). Chunking `options` change memory use in torch, never values; they are accepted."""
    from tocha.ops.matmul import linear

    classes = linear_weight._a.shape[:-1]
    logits = linear(input, linear_weight.reshape(-1, linear_weight._a.shape[-1])).reshape((*input._a.shape[:-1], *classes))
    if linear_bias is not None:
        logits = logits + linear_bias.reshape((*linear_bias._a.shape, *(1,) * (len(classes) - linear_bias.ndim)))
    return cross_entropy(
        logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip


# ---- regression


def _pair(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands, promoted; a warning where they only broadcast."""
    check_tensor(input, name)
    check_tensor(target, name, "target", 2)
    if input._a.shape != target._a.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead to incorrect "
            "results due to broadcasting. Please ensure they have the same size.",
            stacklevel=4,
        )
        broadcast_shapes(name, input._a.shape, target._a.shape)
    if input._a.dtype is not target._a.dtype:
        kind = result_type((input, target))
        input, target = input.to(kind), target.to(kind)
    return input, target


def weighted(losses: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Losses times weights; the mean divides by the sum of weights."""
    if weight is None:
        return reduced(losses, reduction)
    if weight._a.shape != losses._a.shape:
        raise ValueError("Inputs and weights must have the same size.")
    losses = losses * weight
    return losses.sum() / weight.sum() if reduction == "mean" else reduced(losses, reduction)


@op("F")
def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Squared difference (torch docs: torch.nn.functional.mse_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    input, target = _pair("mse_loss", input, target)
    if input._a.dtype.kind in "biu":
        raise NotImplementedError(f"\"mse_loss\" not implemented for '{input.dtype.name}' tensors")
    if input._a.shape != target._a.shape:
        shape = broadcast_shapes("mse_loss", input._a.shape, target._a.shape)
        input, target = input.expand(shape), target.expand(shape)
    if weight is not None:
        return weighted(prims.mse(input, target, reduction="none"), weight, how)
    return prims.mse(input, target, reduction=how)


@op("F")
def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Absolute difference (torch docs: torch.nn.functional.l1_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    input, target = _pair("l1_loss", input, target)
    return weighted((input - target).abs(), weight, how)


@op("F")
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """Squared below `beta`, absolute above (Girshick 2015; torch docs: torch.nn.functional.smooth_l1_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    input, target = _pair("smooth_l1_loss", input, target)
    if beta == 0:
        return reduced((input - target).abs(), how)
    return reduced(prims.smooth_l1(input, target, beta=float(beta)), how)


@op("F")
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the square below `delta`, linear above (Huber 1964; torch docs: torch.nn.functional.huber_loss)."""
    how = read_reduction(reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    input, target = _pair("huber_loss", input, target)
    return weighted(prims.huber(input, target, delta=float(delta)), weight, how)


# ---- likelihoods


@op("F")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Cross entropy of probabilities in [0, 1] against targets of the same shape; logarithms are clipped at -100 (torch docs:
    torch.nn.functional.binary_cross_entropy)."""
    how = read_reduction(reduction, size_average, reduce)
    if check_tensor(target, "binary_cross_entropy", "target", 2)._a.shape != check_tensor(input, "binary_cross_entropy")._a.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. Please ensure they have "
            "the same size."
        )
    if input._a.dtype is not target._a.dtype:
        raise RuntimeError(f"binary_cross_entropy: Found dtype {target.dtype.name} but expected {input.dtype.name}")
    text = "binary_cross_entropy: all elements of {} should be between 0 and 1"
    require(~((input < 0) | (input > 1)), RuntimeError, text.format("input"))
    require((target >= 0) & (target <= 1), RuntimeError, text.format("target"))
    losses = prims.bce(input, target)
    if weight is not None:
        broadcast_shapes("binary_cross_entropy", weight._a.shape, input._a.shape)
        losses = losses * weight
    return reduced(losses, how)


@op("F")
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """binary_cross_entropy of sigmoid(input), computed stably; `pos_weight` scales positive targets (torch docs:
    torch.nn.functional.binary_cross_entropy_with_logits)."""
    how = read_reduction(reduction, size_average, reduce)
    if check_tensor(target, "binary_cross_entropy_with_logits", "target", 2)._a.shape != input._a.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    if pos_weight is None:
        losses = prims.bce_logits(target, input)
    else:
        losses = _weighted_logits(input, target, pos_weight)
    return reduced(losses if weight is None else losses * weight, how)


@whole("BinaryCrossEntropyWithLogits")
def _weighted_logits(input: Tensor, target: Tensor, pos_weight: Tensor) -> Tensor:
    return (1 - target) * input + ((pos_weight - 1) * target + 1) * _softplus(-input)


def _softplus(x: Tensor) -> Tensor:
    return x.clamp(min=0) + (-x.abs()).exp().log1p()


@op("F torch")
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: Any = "mean",
    log_target: bool = False,
) -> Tensor:  # fmt: skip
    """target * (log target - input) for log-probabilities `input`; 'batchmean' divides by the batch size (torch docs:
    torch.nn.functional.kl_div)."""
    if isinstance(reduction, int):
        reduction = REDUCTIONS[reduction]
    batch = reduction == "batchmean"
    if reduction == "mean" and size_average is None and reduce is None:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides only by the batch "
            "size, and aligns with the KL div math definition.",
            stacklevel=3,
        )
    how = read_reduction("sum" if batch else reduction, size_average, reduce)
    losses = target.exp() * (target - input) if log_target else ON_TENSORS.xlogy(target, target) - target * input
    out = reduced(losses, how)
    return out / input._a.shape[0] if batch and input.ndim else out


@op("F")
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Negative log likelihood of Poisson counts; `full` adds Stirling's term (torch docs: torch.nn.functional.poisson_nll_loss)."""
    how = read_reduction(reduction, size_average, reduce)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        safe = ON_TENSORS.where(target > 1, target, 2.0)
        stirling = target * safe.log() - target + 0.5 * (safe * (2 * math.pi)).log()
        losses = losses + ON_TENSORS.where(target > 1, stirling, 0.0)
    return reduced(losses, how)


@op("torch", name="poisson_nll_loss")
def _torch_poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """`torch.nn.functional.poisson_nll_loss` with the native order of arguments."""
    return poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=REDUCTIONS[reduction])


@op("F")
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Negative log likelihood of a normal distribution with mean `input` and variance `var`, counted as at least `eps` (without
    gradient where it is raised) (torch docs: torch.nn.functional.gaussian_nll_loss)."""
    variance: Tensor = var if isinstance(var, Tensor) else input.new_full(input.shape, float(var))
    if variance._a.shape != input._a.shape:
        if tuple(input._a.shape[:-1]) == variance._a.shape:
            variance = variance.unsqueeze(-1)
        elif not (variance.ndim == input.ndim and variance._a.shape[:-1] == input._a.shape[:-1] and variance._a.shape[-1] == 1):
            try:
                broadcast_shapes("gaussian_nll_loss", variance._a.shape, input._a.shape)
            except RuntimeError:
                raise ValueError(
                    f"var is of incorrect size: {list(variance.shape)} for input of size {list(input.shape)}"
                ) from None
    how = read_reduction(reduction) if reduction in REDUCTIONS else None
    if how is None:
        raise ValueError(reduction + " is not valid")
    require(~(variance < 0), ValueError, "var has negative entry/entries")
    raised = variance + (variance.detach().clamp(min=eps) - variance.detach())
    losses = 0.5 * (raised.log() + (input - target) ** 2 / raised)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, how)
