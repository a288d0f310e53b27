"""Scaled dot-product attention as one primitive with one fused gradient (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.contract import recording

Shape = tuple[int, ...]


def _infer(query: Any, key: Any, value: Any, bias: Any, keep: Any, *, scale: float, causal: bool) -> list[MetaArray]:
    shape = (*query.shape[:-1], key.shape[-2])
    return [MetaArray((*query.shape[:-1], value.shape[-1]), query.dtype), MetaArray(shape, query.dtype)]


def _vjp(
    g: Any, query: Any, key: Any, value: Any, bias: Any, keep: Any, weights: Any, *, scale: float, causal: bool, needs: Any
) -> Any:
    g, g_weights = g
    if g is None or g_weights is not None or recording(g, query, key, value, bias):
        return _formula(g, g_weights, query, key, value, bias, keep, weights, scale, needs)
    got = attention_backward(g, query, key, value, keep, weights.detach(), scale=scale)
    of_bias = got[3] if needs[3] else None
    if of_bias is not None and of_bias._a.shape != bias._a.shape:
        of_bias = of_bias.sum_to_size(bias._a.shape)
    return got[0] if needs[0] else None, got[1] if needs[1] else None, got[2] if needs[2] else None, of_bias, None


def _formula(g: Any, g_weights: Any, q: Any, k: Any, v: Any, bias: Any, keep: Any, weights: Any, scale: float, needs: Any) -> Any:
    """The gradient in ordinary operators; `weights` is the saved output and carries its own history. `g_weights`, for what is returned
    after dropout, counts as a gradient of the weights."""
    of_value = of_weights = None
    if g is not None:
        dropped = weights if keep is None else weights * keep
        of_value = dropped.mT.matmul(g)
        of_weights = g.matmul(v.mT)
        if keep is not None:
            of_weights = of_weights * keep
    if g_weights is not None:
        of_weights = g_weights if of_weights is None else of_weights + g_weights
    scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
    of_bias = scores.sum_to_size(bias.shape) if needs[3] else None
    return scores.matmul(k) * scale, scores.mT.matmul(q) * scale, of_value, of_bias, None


@prim("attention", "contract", outputs=("out", "weights"), vjp=_vjp, infer=_infer)
def attention(xp: Any, query: Any, key: Any, value: Any, bias: Any, keep: Any, *, scale: float, causal: bool) -> Any:
    """softmax(query @ keyᵀ * scale + bias) @ value over (…, L, E), (…, S, E), (…, S, Ev); and the softmax. A row whose scores are all
    -inf gets weight 0 everywhere. `keep` multiplies the weights (dropout); `causal` hides keys after the query's own place."""
    scores = xp.matmul(query * query.dtype.type(scale), key.swapaxes(-1, -2))
    if bias is not None:
        scores = scores + bias
    if causal:
        rows, columns = scores.shape[-2:]
        scores = xp.where(xp.tri(rows, columns, dtype=bool), scores, -xp.inf).astype(scores.dtype, copy=False)
    if scores.size:
        top = xp.reduce_max(scores, axis=-1, keepdims=True)
        if bias is not None or causal:
            top = xp.where(top == -xp.inf, 0, top)
        scores -= top
        weights = xp.exp(scores, out=scores)
        total = xp.reduce_add(weights, axis=-1, keepdims=True)
        if bias is not None:
            total = xp.where(total == 0, 1, total)
        weights /= total
    else:
        weights = scores
    return xp.matmul(weights if keep is None else weights * keep, value), weights


@prim(
    "attention_backward", "contract", outputs=("query", "key", "value", "bias"),
    infer=lambda g, query, key, value, keep, weights, *, scale: [MetaArray(x.shape, g.dtype) for x in (query, key, value, weights)],
)  # fmt: skip
def attention_backward(xp: Any, g: Any, query: Any, key: Any, value: Any, keep: Any, weights: Any, *, scale: float) -> Any:
    of_weights = xp.matmul(g, value.swapaxes(-1, -2))
    dropped = weights
    if keep is not None:
        dropped = weights * keep
        of_weights *= keep
    of_value = xp.matmul(dropped.swapaxes(-1, -2), g)
    of_weights *= weights
    scores = of_weights
    scores -= weights * xp.reduce_add(of_weights, axis=-1, keepdims=True)
    of_query, of_key = xp.matmul(scores, key), xp.matmul(scores.swapaxes(-1, -2), query)
    of_query *= g.dtype.type(scale)
    of_key *= g.dtype.type(scale)
    return of_query, of_key, of_value, scores
