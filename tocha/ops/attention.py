"""Scaled dot-product attention and the multi-head attention function (torch docs: torch.nn.functional)."""

from __future__ import annotations

import math
import warnings
from typing import Any

from tocha import dtypes
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.arguments import check_tensor
from tocha.ops.matmul import linear
from tocha.prims.activation import ON_TENSORS
from tocha.prims.attention import additive_mask, attention, flash_attention
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    name = "scaled_dot_product_attention"
    for i, (label, x) in enumerate((("query", query), ("key", key), ("value", value))):
        if check_tensor(x, name, label, i + 1)._a.ndim < 2:
            raise RuntimeError(
                f"{name}: Expected query, key, and value to all be at least 2 dimensional, but got {label} with {x.ndim} dimensions"
            )
        if x._a.dtype is not query._a.dtype:
            raise RuntimeError(
                f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype.name} key.dtype: {key.dtype.name} and "
                f"value.dtype: {value.dtype.name} instead."
            )
    if query._a.dtype not in dtypes.FLOAT_NP:
        raise RuntimeError(f"{name}: Expected query, key and value to be floating point, got {query.dtype.name}")
    if query._a.shape[-1] != key._a.shape[-1] or key._a.shape[-2] != value._a.shape[-2]:
        raise RuntimeError(
            f"{name}: shapes do not fit: query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)}"
        )
    if attn_mask is not None:
        if is_causal:
            raise RuntimeError(f"{name}: Explicit attn_mask should not be set when is_causal=True")
        if attn_mask._a.dtype.kind != "b" and attn_mask.dtype is not query.dtype and attn_mask.dtype is not dtypes.float32:
            raise RuntimeError(
                f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {attn_mask.dtype.name} and "
                f"query.dtype: {query.dtype.name} instead."
            )


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Key and value whose heads serve several of the query each (Ainslie et al. 2023), and whether they do so still: where there are
    no elements any numbers of heads fit."""
    if query.ndim < 3:
        raise RuntimeError("scaled_dot_product_attention: enable_gqa needs at least 3 dimensions, with heads third from last")
    heads = query._a.shape[-3]
    if not (query._a.size and key._a.size and value._a.size) and key._a.ndim > 2 < value._a.ndim:
        key, value = (x.sum(-3, True).expand(*x._a.shape[:-3], heads, -1, -1) for x in (key, value))
        return key, value, False
    for x in (key, value):
        n = x._a.shape[-3] if x._a.ndim > 2 else 0
        if n == 0 or heads % n:
            raise RuntimeError(
                f"Number of heads in key and value must divide the number of heads in query, got {n} and {heads} (enable_gqa)"
            )
    return key, value, True


@op("F")
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query keyᵀ scale + mask) value over (…, L, E), (…, S, E), (…, S, Ev) (torch docs:
    torch.nn.functional.scaled_dot_product_attention). Rows that the mask hides entirely give 0. Memory is linear in L and S unless
    there is dropout."""
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        key, value, enable_gqa = _grouped(query, key, value)
        if enable_gqa and (dropout_p > 0.0 or key._a.shape[-3] != value._a.shape[-3]):
            key, value = (x.repeat_interleave(query._a.shape[-3] // x._a.shape[-3], -3) for x in (key, value))
    if dropout_p > 0.0:
        return _attend(query, key, value, attn_mask, dropout_p, is_causal, scale)[0]
    return _flash(query, key, value, attn_mask, is_causal, scale, grouped=enable_gqa)


def _flash(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float | None, grouped: bool = False
) -> Tensor:
    """The result alone, made without the weights."""
    query, key, value, shape = _broadcast(query, key, value, grouped)
    _check_mask(mask, shape)
    return flash_attention(query, key, value, mask, scale=_factor(query, scale), causal=bool(causal))[0]


_NAME = "scaled_dot_product_attention"


def _broadcast(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
    """The three with equal leading dimensions, but for their numbers of heads if `grouped`, and the scores' shape."""
    own = 3 if grouped else 2  # dimensions that stay as they are
    leads = [x._a.shape[:-own] for x in (query, key, value)]
    lead = leads[0]
    if not leads[0] == leads[1] == leads[2]:
        lead = broadcast_shapes(_NAME, *leads)
        query, key, value = (x.expand((*lead, *x._a.shape[-own:])) for x in (query, key, value))
    return query, key, value, (*query._a.shape[:-1], key._a.shape[-2])


def _check_mask(mask: Tensor | None, shape: tuple[int, ...]) -> None:
    if mask is not None and broadcast_shapes(_NAME, mask._a.shape, shape) != shape:
        raise RuntimeError(f"{_NAME}: attn_mask of shape {list(mask.shape)} doesn't broadcast to the scores' shape {list(shape)}")


def _factor(query: Tensor, scale: float | None) -> float:
    if scale is not None:
        return float(scale)
    return 1.0 / math.sqrt(query._a.shape[-1]) if query._a.shape[-1] else 1.0


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The result and the weights it was made with, so after dropout."""
    query, key, value, shape = _broadcast(query, key, value, False)
    _check_mask(mask, shape)
    bias = None if mask is None else additive_mask(mask, query.dtype)
    keep = None
    if dropout_p > 0.0:
        keep = NAMESPACES["F"]["dropout"](query.detach().new_ones(shape), dropout_p, True)
    out, weights = attention(query, key, value, bias, keep, scale=_factor(query, scale), causal=bool(causal))
    return out, weights if keep is None else weights * keep


# ---- multi-head attention


@op("F")
def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor, None for None."""
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


@op("F")
def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: Any, other_name: str, target_type: Any, check_other: bool = True
) -> Tensor | None:
    """A boolean mask (True: hidden) as -inf and 0 of `target_type`; floating masks as they are; other types are refused."""
    if mask is None:
        return None
    kind, floating = mask.dtype, mask.dtype.is_floating_point
    if kind is not dtypes.bool_ and not floating:
        raise RuntimeError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and kind is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.", stacklevel=3
        )
    if not floating:
        return ON_TENSORS.where(mask, -math.inf, 0.0).to(target_type)
    return mask


def _project(
    query: Tensor, key: Tensor, value: Tensor, in_proj_weight: Tensor | None, in_proj_bias: Tensor | None,
    separate: tuple[Any, Any, Any] | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The three input projections, packed in one weight (one product for self-attention) or separate."""
    if separate is not None:
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        projected = [linear(x, w, b) for x, w, b in zip((query, key, value), separate, biases, strict=True)]
        return projected[0], projected[1], projected[2]
    assert in_proj_weight is not None
    if query is key and key is value:
        q, k, v = linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
        return q, k, v
    weights = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    projected = [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
    return projected[0], projected[1], projected[2]


def _check_heads(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, padding: Tensor | None, heads: int) -> bool:
    """Whether the input is batched; AssertionError-like RuntimeErrors for ranks that don't fit together."""
    if query.ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor")
    n = query.ndim
    if key.ndim != n or value.ndim != n:
        raise AssertionError(
            f"For {n}-D `query`, expected `key` and `value` to be {n}-D but found {key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if padding is not None and padding.ndim != n - 1:
        raise AssertionError(
            f"For {n}-D `query`, expected `key_padding_mask` to be `None` or {n - 1}-D but found {padding.ndim}-D tensor instead"
        )
    if mask is not None and mask.ndim not in (2, 3):
        raise AssertionError(f"expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead")
    if n == 2 and mask is not None and mask.ndim == 3 and mask._a.shape != (heads, query._a.shape[0], key._a.shape[0]):
        raise AssertionError(
            f"Expected `attn_mask` shape to be {(heads, query._a.shape[0], key._a.shape[0])} but got {tuple(mask.shape)}"
        )
    return n == 3


@op("F")
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of several heads with input and output projections; sequence first (L, N, E), or unbatched (L, E) (torch docs:
    torch.nn.functional.multi_head_attention_forward). Fully masked rows have weight 0 with and without `need_weights`,
    where torch gives NaN or 0 by the kernel that it takes."""
    batched = _check_heads(query, key, value, attn_mask, key_padding_mask, num_heads)
    if not batched:
        same_kv, same_qk = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        key_padding_mask = key_padding_mask.unsqueeze(0) if key_padding_mask is not None else None
    length, batch, embed = query._a.shape
    source = key._a.shape[0]
    if embed != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed}")
    head = embed // num_heads
    if head * num_heads != embed:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight and key._a.shape[:2] != value._a.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not use_separate_proj_weight and key._a.shape != value._a.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    kind = query.dtype
    key_padding_mask = _canonical_mask(key_padding_mask, "key_padding_mask", _none_or_dtype(attn_mask), "attn_mask", kind)
    causal = is_causal and key_padding_mask is None and not need_weights
    if causal:
        attn_mask = None
    else:
        attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", kind, False)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias, separate)
    mask = _head_mask(attn_mask, batch, num_heads, length, source)
    if bias_k is not None and bias_v is not None:
        k, v = (NAMESPACES["torch"]["cat"]([x, b.expand((1, batch, embed))]) for x, b in ((k, bias_k), (v, bias_v)))
        mask, key_padding_mask = _widen(mask), _widen(key_padding_mask)
    q = q.reshape(length, batch * num_heads, head).transpose(0, 1)
    k = k.reshape(k._a.shape[0], batch * num_heads, head).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v._a.shape[0], batch * num_heads, head).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        zeros = k.new_zeros((batch * num_heads, 1, head))
        k, v = NAMESPACES["torch"]["cat"]([k, zeros], 1), NAMESPACES["torch"]["cat"]([v, zeros], 1)
        mask, key_padding_mask = _widen(mask), _widen(key_padding_mask)
    source = k._a.shape[1]
    q, k, v = (x.reshape(batch, num_heads, x._a.shape[1], head) for x in (q, k, v))
    if key_padding_mask is not None:
        if key_padding_mask._a.shape != (batch, source):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, source)}, but got {tuple(key_padding_mask.shape)}"
            )
        padding = key_padding_mask.reshape(batch, 1, 1, source)
        mask = padding if mask is None else mask + padding
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights or dropout_p > 0.0:
        out, weights = _attend(q, k, v, mask, dropout_p, causal, None)
    else:
        out = _flash(q, k, v, mask, causal, None)
    out = out.permute(2, 0, 1, 3).reshape(length * batch, embed)
    out = linear(out, out_proj_weight, out_proj_bias).reshape(length, batch, out_proj_weight._a.shape[0])
    if not batched:
        out = out.squeeze(1)
    if not need_weights or weights is None:
        return out, None
    if average_attn_weights:
        weights = weights.mean(1)
    return out, weights if batched else weights.squeeze(0)


def _head_mask(mask: Tensor | None, batch: int, heads: int, length: int, source: int) -> Tensor | None:
    """The mask as it broadcasts to (N, heads, L, S)."""
    if mask is None:
        return None
    wanted = (length, source) if mask.ndim == 2 else (batch * heads, length, source)
    if mask._a.shape != wanted:
        raise RuntimeError(f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be {wanted}.")
    return mask.reshape(1, 1, length, source) if mask.ndim == 2 else mask.reshape(batch, heads, length, source)


def _widen(mask: Tensor | None) -> Tensor | None:
    """One more key, seen by all."""
    if mask is None:
        return None
    return NAMESPACES["torch"]["cat"]([mask, mask.new_zeros((*mask._a.shape[:-1], 1))], -1)
