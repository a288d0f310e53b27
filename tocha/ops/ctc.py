"""Connectionist temporal classification loss (torch docs: torch.nn.functional.ctc_loss)."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.loss import REDUCTIONS, read_reduction
from tocha.prims.ctc import ctc
from tocha.tensor import Tensor


def _lengths(name: str, value: Any, batch: int) -> list[int]:
    found = (
        value.reshape(-1).tolist()
        if isinstance(value, Tensor)
        else [int(v) for v in value]
        if isinstance(value, (tuple, list))
        else [int(value)]
    )
    if len(found) != batch:
        raise RuntimeError(f"{name} must be of size batch_size ({batch}), got {len(found)} (ctc_loss)")
    if found and min(found) < 0:
        raise RuntimeError(f"{name} must be non-negative, got {min(found)} (ctc_loss)")
    return [int(n) for n in found]


def _padded(targets: Tensor, lengths: list[int], classes: int, blank: int) -> Tensor:
    """Targets (N, S), from that or from all of them in one dimension; unused places hold the blank."""
    longest = max(lengths, default=0)
    rows = targets.to(dtypes.int64).tolist()
    if targets.ndim == 1:
        if sum(lengths) != len(rows):
            raise RuntimeError(
                f"Expected tensor to have size {sum(lengths)} at dimension 0, but got size {len(rows)} for argument #2 'targets' (ctc_loss)"
            )
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        rows = [rows[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    elif targets._a.shape[1] < longest:
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size {targets.shape[1]} for argument #2 'targets' (ctc_loss)"
        )
    used = [[row[i] if i < n else blank for i in range(longest)] for row, n in zip(rows, lengths, strict=True)]
    for row, n in zip(used, lengths, strict=True):
        for label in row[:n]:
            if not 0 <= label < classes:
                raise RuntimeError(f"ctc_loss: target {label} is not a label in [0, {classes - 1}]")
    return targets.new_tensor(used, dtype=dtypes.int64).reshape(len(lengths), longest)


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int, reduction: str, zero_infinity: bool
) -> Tensor:
    if check_tensor(log_probs, "ctc_loss").dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f"\"ctc_loss\" not implemented for '{log_probs.dtype.name}' tensors")
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(f"ctc_loss: log_probs must be (T, N, C) or (T, C), got {list(log_probs.shape)}")
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
    steps, batch, classes = log_probs._a.shape
    if check_tensor(targets, "ctc_loss", "targets", 2).ndim not in (1, 2):
        raise RuntimeError(f"ctc_loss: targets must be (N, S) or one-dimensional, got {list(targets.shape)}")
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range [0, {classes - 1}], got {blank} (ctc_loss)")
    inputs, wanted = _lengths("input_lengths", input_lengths, batch), _lengths("target_lengths", target_lengths, batch)
    if inputs and max(inputs) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(inputs)} (ctc_loss)")
    padded = _padded(targets.reshape(1, -1) if single and targets.ndim == 1 else targets, wanted, classes, blank)
    sizes = [padded.new_tensor(n, dtype=dtypes.int64) for n in (inputs, wanted)]
    losses = ctc(log_probs, padded, *sizes, blank=blank, zero_infinity=bool(zero_infinity))
    if reduction == "none":
        return losses.squeeze(0) if single else losses
    if reduction == "sum":
        return losses.sum()
    return (losses / sizes[1].clamp(min=1).to(losses.dtype)).mean()


@op("F")
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the log-likelihood of label sequences under log-probabilities (T, N, C) or (T, C) over time; the mean divides each by its
    target's length first (Graves et al. 2006; torch docs: torch.nn.functional.ctc_loss)."""
    return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, read_reduction(reduction), zero_infinity)


@op("torch", name="ctc_loss")
def _torch_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`torch.nn.functional.ctc_loss` with a numbered reduction."""
    return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, REDUCTIONS[reduction], zero_infinity)
