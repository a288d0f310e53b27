"""Losses that are worth one kernel: cross entropy, negative log likelihood, mean squared error, binary cross entropy.

`reduction` is 'none', 'mean' or 'sum'. Class dimension is 1; targets (N, *rest) hold class indices.
"""

from __future__ import annotations

import math
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.backends.strides import settled, uneven
from tocha.dispatch.prim import prim
from tocha.prims.contract import constant, recording
from tocha.prims.pointwise import pointwise

Shape = tuple[int, ...]


def _classes(xp: Any, input: Any, target: Any, weight: Any, ignore_index: int) -> tuple[Any, Any, Any, Any]:
    """input as (N, C, L), a valid class for each target (N, L), whether it counts, and its weight, 0 where it doesn't."""
    length = math.prod(input.shape[2:])
    x = input.reshape(*input.shape[:2], length)
    t = target.reshape(input.shape[0], length)
    keep = t != ignore_index
    t = xp.where(keep, t, 0)
    xp.check_classes(t, x.shape[1])
    scale = keep.astype(x.dtype) if weight is None else xp.where(keep, weight[t], 0)
    return x, t, keep, scale


def _reduce(xp: Any, losses: Any, total: Any, reduction: str, shape: Shape) -> Any:
    if reduction == "none":
        return losses.reshape(shape)
    value = losses.sum()
    return value / total if reduction == "mean" else value


# ---- negative log likelihood


def _nll_infer(input: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int) -> list[MetaArray]:
    return [MetaArray(target.shape if reduction == "none" else (), input.dtype), MetaArray((), input.dtype)]


def _nll_vjp(g: Any, input_shape: Shape, target: Any, weight: Any, total: Any, *, reduction: str, ignore_index: int) -> Any:
    if g[0] is None:
        return None, None, None
    params = {"reduction": reduction, "ignore_index": ignore_index}
    return nll_backward(g[0], target, weight, total.detach(), shape=input_shape, **params), None, None


@prim("nll", "loss", outputs=("out", "total"), vjp=_nll_vjp, infer=_nll_infer, tags=("raises",))
def nll(xp: Any, input: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int) -> Any:
    """-weight[target] * input[target] from log-probabilities (N, C, *rest), and the sum of weights."""
    x, t, _, scale = _classes(xp, input, target, weight, ignore_index)
    picked = xp.take_along_axis(x, t[:, None], axis=1)[:, 0]
    losses = xp.where(scale != 0, -picked * scale, 0).astype(x.dtype, copy=False)
    total = scale.sum()
    return _reduce(xp, losses, total, reduction, target.shape), total


nll.tied()


@prim(
    "nll_backward", "loss", infer=lambda g, target, weight, total, *, shape, reduction, ignore_index: MetaArray(shape, g.dtype),
    vjp=lambda h, target, weight, *, reduction, ignore_index: (
        nll(h, target, weight, reduction=reduction, ignore_index=ignore_index)[0], None, None, None,
    ),
)  # fmt: skip
def nll_backward(
    xp: Any, g: Any, target: Any, weight: Any, total: Any, *, shape: Shape, reduction: str, ignore_index: int
) -> Any:
    out = xp.zeros(shape, g.dtype)
    x, t, keep, scale = _classes(xp, out, target, weight, ignore_index)
    if reduction == "mean":
        scale = scale / total
    value = xp.where(keep, -scale * (g.reshape(t.shape) if reduction == "none" else g), 0)
    xp.put_along_axis(x, t[:, None], value.astype(g.dtype, copy=False)[:, None], axis=1)
    return out


# ---- cross entropy


def _ce_infer(input: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int, smoothing: float) -> list[MetaArray]:
    loss = MetaArray(target.shape if reduction == "none" else (), input.dtype)
    return [loss, MetaArray(input.shape, input.dtype), MetaArray((), input.dtype)]


def _ce_vjp(
    g: Any, target: Any, weight: Any, probability: Any, total: Any, *, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    """From the loss and, once gradients were taken of gradients, from the probabilities: the logits need not be kept."""
    of_loss, of_probability, found = g[0], g[1], None
    params = {"reduction": reduction, "ignore_index": ignore_index, "smoothing": smoothing}
    if of_loss is not None and not recording(of_loss, probability):
        found = cross_entropy_backward(constant(probability), of_loss, target, weight, constant(total), **params)
    elif of_loss is not None:
        wanted = class_weights(probability.detach(), target, weight, total.detach(), **params)
        of_loss = of_loss.unsqueeze(1) if reduction == "none" else of_loss
        found = of_loss * (probability * wanted.sum(1, keepdim=True) - wanted)
    if of_probability is not None:
        weighted = of_probability * probability
        inner = weighted - probability * weighted.sum(1, keepdim=True)
        found = inner if found is None else found + inner
    return found, None, None


@prim("cross_entropy", "loss", outputs=("out", "probability", "total"), vjp=_ce_vjp, infer=_ce_infer, tags=("raises",))
def cross_entropy(xp: Any, input: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int, smoothing: float) -> Any:
    """Negative log likelihood of softmax(input) (N, C, *rest) at the target classes, with label smoothing; softmax(input); and the sum
    of weights that the mean divides by."""
    if weight is None and not smoothing:
        found = xp.cross_entropy(input, target, reduction, ignore_index)
        if found is not None:
            return found
    x, t, keep, scale = _classes(xp, input, target, weight, ignore_index)
    log_p = x - xp.reduce_max(x, axis=1, keepdims=True) if x.size else x.copy()
    p = xp.exp(log_p)
    norm = xp.reduce_add(p, axis=1, keepdims=True)
    p /= norm
    log_p -= xp.log(norm)
    losses = -xp.take_along_axis(log_p, t[:, None], axis=1)[:, 0]
    losses = xp.where(scale != 0, losses * scale, 0)
    if smoothing:
        spread = log_p if weight is None else xp.where(weight.reshape(-1, 1) != 0, log_p * weight.reshape(-1, 1), 0)
        losses = losses * (1 - smoothing) - xp.where(keep, xp.reduce_add(spread, axis=1), 0) * (smoothing / x.shape[1])
    total = scale.sum()
    losses = losses.astype(x.dtype, copy=False)
    return _reduce(xp, losses, total, reduction, target.shape), p.reshape(input.shape), total


@prim("cross_entropy_backward", "loss", infer=lambda input, *rest, **params: MetaArray(input.shape, input.dtype))
def cross_entropy_backward(
    xp: Any, probability: Any, g: Any, target: Any, weight: Any, total: Any, *, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    if weight is None and not smoothing:
        found = xp.cross_entropy_backward(probability, g, target, total, reduction)
        if found is not None:
            return found
    p, t, keep, scale = _classes(xp, probability, target, weight, ignore_index)
    factor = g.reshape(t.shape) if reduction == "none" else g
    if reduction == "mean":
        factor = factor / total
    factor = xp.where(keep, factor if smoothing else scale * factor, 0).astype(p.dtype, copy=False)  # a mean of none counts 0
    if smoothing:
        wanted = _wanted(xp, p, t, scale, keep, weight, smoothing)
        out = p * xp.reduce_add(wanted, axis=1, keepdims=True) - wanted
        out *= factor[:, None]
        return out.astype(p.dtype, copy=False).reshape(probability.shape)
    out = p * factor[:, None]
    rows, columns = xp.arange(t.shape[0])[:, None], xp.arange(t.shape[1])
    out[rows, t, columns] -= factor
    return out.reshape(probability.shape)


def _wanted(xp: Any, x: Any, t: Any, scale: Any, keep: Any, weight: Any, smoothing: float) -> Any:
    """How much each class's -log p counts: its share of the target and of the smoothing, times its weight."""
    each = smoothing / x.shape[1] * (1 if weight is None else weight.reshape(-1, 1))
    wanted = xp.where(keep[:, None], xp.zeros(x.shape, x.dtype) + xp.asarray(each, x.dtype), 0)
    at = xp.take_along_axis(wanted, t[:, None], axis=1)
    xp.put_along_axis(wanted, t[:, None], at + ((1 - smoothing) * scale)[:, None].astype(x.dtype, copy=False), axis=1)
    return wanted


@prim("class_weights", "loss", infer=lambda input, *rest, **params: MetaArray(input.shape, input.dtype))
def class_weights(
    xp: Any, input: Any, target: Any, weight: Any, total: Any, *, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    """The coefficients of -log p in the cross entropy, shaped as the input."""
    x, t, keep, scale = _classes(xp, input, target, weight, ignore_index)
    wanted = _wanted(xp, x, t, scale, keep, weight, smoothing)
    return (xp.where(keep[:, None], wanted / total, 0) if reduction == "mean" else wanted).reshape(input.shape)


# ---- mean squared error


def _mse_vjp(g: Any, input: Any, target: Any, *, reduction: str, needs: Any) -> Any:
    if recording(g, input, target):
        of_input = g * (input - target) * (2 / max(input.numel(), 1) if reduction == "mean" else 2)
    else:
        of_input = mse_backward(g, input, target, reduction=reduction).contiguous()  # whatever the input's order
    return of_input if needs[0] else None, -of_input if needs[1] else None


@prim(
    "mse", "loss", vjp=_mse_vjp,
    infer=lambda input, target, *, reduction: MetaArray(input.shape if reduction == "none" else (), input.dtype),
)  # fmt: skip
def mse(xp: Any, input: Any, target: Any, *, reduction: str) -> Any:
    """Squared difference of tensors of one shape."""
    d = input - target
    d *= d
    if reduction == "none":
        return settled(d, (input, target), xp) if uneven((input, target)) else d
    return d.mean() if reduction == "mean" else d.sum()


@prim("mse_backward", "loss", infer=lambda g, input, target, *, reduction: MetaArray(input.shape, input.dtype))
def mse_backward(xp: Any, g: Any, input: Any, target: Any, *, reduction: str) -> Any:
    d = input - target
    d *= g * d.dtype.type(2 / max(d.size, 1) if reduction == "mean" else 2)
    return d


# ---- binary cross entropy


def _bce_logits_input(g: Any, x: Any, y: Any) -> Any:
    return g * (x.sigmoid() - y)




def _smooth_l1(o: Any, x: Any, y: Any, *, beta: float) -> Any:
    d = o.abs(o.sub(x, y))
    return o.where(o.lt(d, beta), o.mul(o.mul(d, d), 0.5 / beta), o.sub(d, 0.5 * beta))


def _huber(o: Any, x: Any, y: Any, *, delta: float) -> Any:
    d = o.abs(o.sub(x, y))
    return o.where(o.le(d, delta), o.mul(o.mul(d, d), 0.5), o.mul(o.sub(d, 0.5 * delta), delta))


_REAL = ("bool", "integral", "complex")
smooth_l1 = pointwise("smooth_l1", _smooth_l1, refuse=_REAL, spell="", vjp=(
    lambda g, x, y, *, beta: g * ((x - y) / beta).clamp(-1.0, 1.0), lambda g, x, y, *, beta: g * ((y - x) / beta).clamp(-1.0, 1.0),
))  # fmt: skip
huber = pointwise("huber", _huber, refuse=_REAL, spell="", vjp=(
    lambda g, x, y, *, delta: g * (x - y).clamp(-delta, delta), lambda g, x, y, *, delta: g * (y - x).clamp(-delta, delta),
))  # fmt: skip
bce_logits = pointwise(
    "bce_logits", lambda o, y, x: o.add(o.sub(o.maximum(x, 0.0), o.mul(x, y)), o.log1p(o.exp(o.neg(o.abs(x))))), spell="",
    vjp=(lambda g, x: -g * x, _bce_logits_input),
)  # fmt: skip
bce = pointwise(
    "bce", lambda o, p, y: o.neg(o.add(
        o.mul(y, o.maximum(o.log(p), -100.0)), o.mul(o.sub(1.0, y), o.maximum(o.log1p(o.neg(p)), -100.0))
    )), spell="", domain=(0.05, 0.95),
    vjp=(
        lambda g, p, y: g * (p - y) / (p * (1 - p)).clamp(min=1e-12),
        lambda g, p: g * ((-p).log1p().clamp(min=-100) - p.log().clamp(min=-100)),
    ),
)  # fmt: skip
