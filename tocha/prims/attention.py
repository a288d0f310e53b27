"""Scaled dot-product attention (Vaswani et al. 2017) as two primitives, each with one fused gradient: `attention`, which also returns the
weights, and `flash_attention`, which need not keep them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray, dense_strides
from tocha.dispatch.prim import prim
from tocha.dtypes import HALF_NP
from tocha.prims.activation import ON_TENSORS
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


# ---- without the matrix of weights

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def additive_mask(mask: Any, dtype: Any) -> Any:
    """A mask (a tensor) to add to scores: a boolean one (True: take part) as 0 and -inf."""
    if mask._a.dtype.kind == "b":
        return ON_TENSORS.where(mask, 0.0, -math.inf).to(dtype)
    return mask if mask.dtype is dtype else mask.to(dtype)


def _flash_infer(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> list[MetaArray]:
    wide = _FLOAT64 if query.dtype == _FLOAT64 else _FLOAT32
    return [_like(query, (*query.shape[:-1], value.shape[-1]), query.dtype), MetaArray(query.shape[:-1], wide)]


def _like(x: Any, shape: tuple[int, ...], dtype: Any) -> MetaArray:
    """What the kernels make: memory in x's order if that is its shape and its rows are dense."""
    if x.shape == shape and x.size:
        strides = dense_strides(x.shape, x.strides, dtype.itemsize)
        if strides[-1] == dtype.itemsize:
            return MetaArray(shape, dtype, strides)
    return MetaArray(shape, dtype)


def _flash_vjp(
    g: Any, query: Any, key: Any, value: Any, mask: Any, out: Any, lse: Any, *, scale: float, causal: bool, needs: Any
) -> Any:
    g = g[0]
    if g is None:
        return None, None, None, None
    if needs[3] or recording(g, query, key, value, mask):
        return _flash_formula(g, query, key, value, mask, scale, causal, needs)
    got = flash_attention_backward(g, query, key, value, mask, out.detach(), lse.detach(), scale=scale, causal=causal)
    return got[0] if needs[0] else None, got[1] if needs[1] else None, got[2] if needs[2] else None, None


def _flash_formula(g: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, needs: Any) -> Any:
    """The gradient in ordinary operators, of weights computed again."""
    heads, group = key._a.shape, 1
    if query._a.ndim > 2 and query._a.shape[-3] != heads[-3]:
        group = query._a.shape[-3] // heads[-3]
        key, value = key.repeat_interleave(group, -3), value.repeat_interleave(group, -3)
    bias = None if mask is None else additive_mask(mask, query.dtype)
    _, weights = attention(query, key, value, bias, None, scale=scale, causal=causal)
    wanted = [False, False, False, needs[3], False]
    of_query, of_key, of_value, of_mask, _ = _formula(g, None, query, key, value, bias, None, weights, scale, wanted)
    if group > 1:
        of_key, of_value = (x.reshape(*heads[:-2], group, *x._a.shape[-2:]).sum(-3) for x in (of_key, of_value))
    if of_mask is not None and of_mask.dtype is not mask.dtype:
        of_mask = of_mask.to(mask.dtype)
    return of_query, of_key, of_value, of_mask


@prim("flash_attention", "contract", outputs=("out", "lse"), vjp=_flash_vjp, infer=_flash_infer, half="native")
def flash_attention(xp: Any, query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> Any:
    """softmax(query @ keyᵀ * scale, masked) @ value over (…, H, L, E), (…, K, S, E), (…, K, S, Ev), where each of K heads serves H / K
    of the query's; and for each query the logarithm of the sum of exponentials, +inf where it sees no key (the result is 0 there).
    `mask` is boolean (True: take part) or added to the scores, and broadcasts to (…, H, L, S)."""
    half = query.dtype if query.dtype in HALF_NP else None
    query, key, value = (xp.cast(x, _FLOAT32) if half is not None else x for x in (query, key, value))
    key, value = _for_every_head(xp, query, key), _for_every_head(xp, query, value)
    scores = _scores(xp, query, key, mask, scale, causal)
    if not scores.size:
        return xp.zeros((*query.shape[:-1], value.shape[-1]), half or query.dtype), xp.full(query.shape[:-1], xp.inf, query.dtype)
    top = xp.reduce_max(scores, axis=-1, keepdims=True)
    top = xp.where(top == -xp.inf, query.dtype.type(0), top)
    scores -= top
    weights = xp.exp(scores, out=scores)
    total = xp.reduce_add(weights, axis=-1, keepdims=True)
    none = total == 0
    out = xp.matmul(weights, value) / xp.where(none, query.dtype.type(1), total)
    lse = xp.where(none, query.dtype.type(xp.inf), top + xp.log(total))[..., 0]
    return out if half is None else xp.cast(out, half), lse


def _for_every_head(xp: Any, query: Any, x: Any) -> Any:
    """Heads repeated until there are as many as of the query (Ainslie et al. 2023)."""
    if x.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    return xp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def _scores(xp: Any, query: Any, key: Any, mask: Any, scale: float, causal: bool) -> Any:
    scores = xp.matmul(query * query.dtype.type(scale), key.swapaxes(-1, -2))
    hidden = query.dtype.type(-xp.inf)
    if mask is not None:
        scores = xp.where(mask, scores, hidden) if mask.dtype.kind == "b" else scores + xp.cast(mask, scores.dtype)
    if causal:
        scores = xp.where(xp.tri(*scores.shape[-2:], dtype=bool), scores, hidden)
    return scores


@prim(
    "flash_attention_backward", "contract", outputs=("query", "key", "value"), half="native",
    infer=lambda g, query, key, value, mask, out, lse, *, scale, causal: [_like(x, x.shape, g.dtype) for x in (query, key, value)],
)  # fmt: skip
def flash_attention_backward(
    xp: Any, g: Any, query: Any, key: Any, value: Any, mask: Any, out: Any, lse: Any, *, scale: float, causal: bool
) -> Any:
    """Gradients of flash_attention, which makes the weights again."""
    half = query.dtype if query.dtype in HALF_NP else None
    if half is not None:
        g, query, key, value, out = (xp.cast(x, _FLOAT32) for x in (g, query, key, value, out))
    every_key, every_value = _for_every_head(xp, query, key), _for_every_head(xp, query, value)
    weights = xp.exp(_scores(xp, query, every_key, mask, scale, causal) - lse[..., None])
    of_value = xp.matmul(weights.swapaxes(-1, -2), g)
    of_scores = xp.matmul(g, every_value.swapaxes(-1, -2))
    of_scores -= xp.reduce_add(g * out, axis=-1, keepdims=True)
    of_scores *= weights
    factor = query.dtype.type(scale)
    of_query, of_key = xp.matmul(of_scores, every_key) * factor, xp.matmul(of_scores.swapaxes(-1, -2), query) * factor
    if every_key is not key:
        of_key, of_value = (
            xp.reduce_add(x.reshape(*key.shape[:-2], -1, *x.shape[-2:]), axis=-3, keepdims=False) for x in (of_key, of_value)
        )
    found = (of_query, of_key, of_value)
    return found if half is None else tuple([xp.cast(x, half) for x in found])
