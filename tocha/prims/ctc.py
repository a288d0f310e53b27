"""Connectionist temporal classification: forward and backward variables over all samples at once (Graves et al. 2006).

The gradient is the one torch uses: with respect to log-probabilities that are a log_softmax, exp(log_probs) minus the posterior.
"""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim


def _log_sum(xp: Any, *terms: Any) -> Any:
    top = terms[0]
    for t in terms[1:]:
        top = xp.maximum(top, t)
    safe = xp.where(top == -xp.inf, 0, top)
    total = xp.exp(terms[0] - safe)
    for t in terms[1:]:
        total = total + xp.exp(t - safe)
    return xp.log(total) + safe


def _extended(xp: Any, targets: Any, blank: int) -> tuple[Any, Any]:
    """Labels with blanks between (N, 2S + 1), and where a label may follow the one before last directly."""
    n, s = targets.shape
    labels = xp.full((n, 2 * s + 1), blank, xp.int64)
    labels[:, 1::2] = targets
    skip = xp.zeros(labels.shape, bool)
    skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return labels, skip


def _shift(xp: Any, x: Any, by: int) -> Any:
    """x moved along its last dimension, -inf where nothing comes from."""
    out = xp.full(x.shape, -xp.inf, x.dtype)
    if by > 0:
        out[:, by:] = x[:, :-by]
    else:
        out[:, :by] = x[:, -by:]
    return out


def _alphas(xp: Any, emitted: Any, skip: Any, target_lengths: Any) -> Any:
    alpha = xp.full(emitted.shape, -xp.inf, emitted.dtype)
    if not emitted.size:
        return alpha
    alpha[0, :, 0] = emitted[0, :, 0]
    if emitted.shape[2] > 1:
        alpha[0, :, 1] = xp.where(target_lengths > 0, emitted[0, :, 1], -xp.inf)
    for t in range(1, emitted.shape[0]):
        before = alpha[t - 1]
        two = xp.where(skip, _shift(xp, before, 2), -xp.inf)
        alpha[t] = _log_sum(xp, before, _shift(xp, before, 1), two) + emitted[t]
    return alpha


def _emitted(xp: Any, log_probs: Any, labels: Any) -> Any:
    """Log-probabilities of the extended labels, (T, N, 2S + 1)."""
    return xp.take_along_axis(log_probs, xp.broadcast_to(labels, (log_probs.shape[0], *labels.shape)), axis=2)


def _loss(xp: Any, alpha: Any, input_lengths: Any, target_lengths: Any) -> Any:
    n = alpha.shape[1]
    rows = xp.arange(n)
    if alpha.shape[0] == 0:
        return xp.where(target_lengths == 0, 0, xp.inf).astype(alpha.dtype)
    last = alpha[xp.maximum(input_lengths - 1, 0), rows]
    end = 2 * target_lengths
    final = last[rows, end]
    label = xp.where(end > 0, last[rows, xp.maximum(end - 1, 0)], -xp.inf)
    loss = -_log_sum(xp, final, label)
    return xp.where(input_lengths == 0, xp.where(target_lengths == 0, 0, xp.inf), loss).astype(alpha.dtype)


def _vjp(
    g: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int, zero_infinity: bool
) -> Any:
    found = ctc_backward(g, log_probs, targets, input_lengths, target_lengths, blank=blank, zero_infinity=zero_infinity)
    return found, None, None, None


@prim(
    "ctc", "loss", vjp=_vjp,
    infer=lambda log_probs, targets, input_lengths, target_lengths, **params: MetaArray(target_lengths.shape, log_probs.dtype),
)  # fmt: skip
def ctc(
    xp: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int, zero_infinity: bool
) -> Any:
    """Minus the log-probability of targets (N, S), padded, under log_probs (T, N, C): (N)."""
    labels, skip = _extended(xp, targets, blank)
    alpha = _alphas(xp, _emitted(xp, log_probs, labels), skip, target_lengths)
    loss = _loss(xp, alpha, input_lengths, target_lengths)
    return xp.where(loss == xp.inf, 0, loss).astype(loss.dtype) if zero_infinity else loss


def _once(g: Any) -> Any:
    raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented: ctc_loss can be differentiated once")


@prim("ctc_backward", "loss", vjp=_once, infer=lambda g, log_probs, *rest, **params: MetaArray(log_probs.shape, log_probs.dtype))
def ctc_backward(
    xp: Any, g: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int, zero_infinity: bool
) -> Any:
    steps, n, classes = log_probs.shape
    labels, skip = _extended(xp, targets, blank)
    emitted = _emitted(xp, log_probs, labels)
    alpha = _alphas(xp, emitted, skip, target_lengths)
    loss = _loss(xp, alpha, input_lengths, target_lengths)
    ahead = xp.zeros(skip.shape, bool)  # whether the label two on may follow directly
    ahead[:, :-2] = skip[:, 2:]
    places = xp.arange(labels.shape[1])
    ending = (places == 2 * target_lengths[:, None]) | (places == 2 * target_lengths[:, None] - 1)
    beta = xp.full(emitted.shape, -xp.inf, emitted.dtype)
    after = xp.full(labels.shape, -xp.inf, emitted.dtype)
    for t in range(steps - 1, -1, -1):
        two = xp.where(ahead, _shift(xp, after, -2), -xp.inf)
        going = _log_sum(xp, after, _shift(xp, after, -1), two) + emitted[t]
        last = (t == input_lengths - 1)[:, None]
        after = xp.where(last, xp.where(ending, emitted[t], -xp.inf), xp.where((t < input_lengths)[:, None], going, -xp.inf))
        beta[t] = after
    posterior = xp.exp(alpha + beta - emitted + loss[None, :, None])
    occupied = xp.zeros((steps, n, classes), log_probs.dtype)
    rows = xp.arange(n)
    for s in range(labels.shape[1]):  # several places may carry one label
        occupied[:, rows, labels[:, s]] += posterior[:, :, s]
    out = (xp.exp(log_probs) - occupied) * g[None, :, None]
    inside = xp.arange(steps)[:, None, None] < input_lengths[None, :, None]
    if zero_infinity:
        inside = inside & (loss != xp.inf)[None, :, None]
    else:
        out = xp.where((loss == xp.inf)[None, :, None], xp.nan, out)
    return xp.where(inside, out, 0).astype(log_probs.dtype, copy=False)
