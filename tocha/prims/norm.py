"""Normalisation: layer, group, batch and instance normalisation are one primitive over different dimensions, with one fused
gradient; root-mean-square normalisation and batch normalisation with given statistics are their own.

Half-precision inputs are computed in float32; statistics keep that precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.dtypes import HALF_NP
from tocha.prims.contract import recording

Shape = tuple[int, ...]
_FLOAT32 = np.dtype(np.float32)


def _wide(a: Any) -> Any:
    """Half precision as float32, anything else (None too) as it is."""
    return a.astype(_FLOAT32) if a is not None and a.dtype in HALF_NP else a


def _wide_dtype(dtype: Any) -> Any:
    return _FLOAT32 if dtype in HALF_NP else dtype


def _count(shape: Shape, axes: Shape) -> int:
    return math.prod([shape[i] for i in axes])


def _moments_shape(shape: Shape, axes: Shape) -> Shape:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _infer(input: Any, weight: Any, bias: Any, *, shape: Shape, axes: Shape, affine: Shape, eps: float) -> list[MetaArray]:
    moments = MetaArray(_moments_shape(shape, axes), _wide_dtype(input.dtype))
    return [MetaArray(input.shape, input.dtype), moments, moments]


def _vjp(
    g: Any, input: Any, weight: Any, bias_shape: Any, bias_dtype: Any, mean: Any, var: Any, *, shape: Any, axes: Any, affine: Any, eps: Any,
    needs: Any,
) -> Any:  # fmt: skip
    g, *of_moments = g
    bias = None if bias_shape is None else (bias_shape, bias_dtype)
    if of_moments[0] is not None or of_moments[1] is not None:
        return _with_moments(g, of_moments, input, weight, bias, shape, axes, affine, eps)
    if g is None:
        return None, None, None
    if recording(g, input, weight):
        return _vjp_formula(g, input, weight, bias, shape, axes, affine, eps)
    got = standardize_backward(g, input, weight, mean.detach(), var.detach(), shape=shape, axes=axes, affine=affine, eps=eps)
    if weight is None and bias is None:
        return got[0], None, None
    of_bias = got[2].reshape(bias_shape).to(bias_dtype) if needs[2] else None
    return got[0], got[1].to(weight.dtype) if needs[1] else None, of_bias


def _with_moments(
    g: Any, of_moments: Any, input: Any, weight: Any, bias: Any, shape: Any, axes: Any, affine: Any, eps: float
) -> Any:
    """The gradient when the mean or variance was used too (native_group_norm and its like)."""
    found = (None, None, None) if g is None else _vjp_formula(g, input, weight, bias, shape, axes, affine, eps)
    x, n = input.reshape(shape), _count(shape, axes)
    total: Any = 0 if of_moments[0] is None else of_moments[0] / n
    if of_moments[1] is not None:
        total = total + (x - x.sum(axes, keepdim=True) / n) * (of_moments[1] * (2 / n))
    extra = total.expand(shape).reshape(input.shape).to(input.dtype)
    return extra if found[0] is None else found[0] + extra, *found[1:]


def _vjp_formula(g: Any, input: Any, weight: Any, bias: Any, shape: Shape, axes: Shape, affine: Shape, eps: float) -> Any:
    """The gradient in ordinary operators, from the input alone, so that it can be differentiated."""
    from tocha.dtypes import HALF, float32

    kind = float32 if input.dtype in HALF else input.dtype
    x, grad = input.to(kind).reshape(shape), g.to(kind).reshape(shape)
    n = _count(shape, axes)
    centered = x - x.sum(axes, keepdim=True) / n
    rstd = ((centered * centered).sum(axes, keepdim=True) / n + eps).rsqrt()
    normal = centered * rstd
    inner = grad if weight is None else grad * weight.to(kind).reshape(affine)
    of_input = rstd * (inner - inner.sum(axes, keepdim=True) / n - normal * ((inner * normal).sum(axes, keepdim=True) / n))
    of_weight = None if weight is None else (grad * normal).sum_to_size(affine).reshape(weight.shape).to(weight.dtype)
    of_bias = None if bias is None else grad.sum_to_size(affine).reshape(bias[0]).to(bias[1])
    return of_input.reshape(input.shape).to(input.dtype), of_weight, of_bias


@prim("standardize", "norm", outputs=("out", "mean", "var"), vjp=_vjp, infer=_infer, half="native")
def standardize(xp: Any, input: Any, weight: Any, bias: Any, *, shape: Shape, axes: Shape, affine: Shape, eps: float) -> Any:
    """(input - mean) / sqrt(var + eps) * weight + bias, moments over `axes` of input seen as `shape`; weight and bias are seen as
    `affine`, which broadcasts against `shape`. The variance is the biased one."""
    x = _wide(input).reshape(shape)
    n = _count(shape, axes)
    mean = xp.reduce_add(x, axis=axes, keepdims=True)
    mean /= n
    out = x - mean
    var = xp.reduce_add(out * out, axis=axes, keepdims=True)
    var /= n
    out *= 1 / xp.sqrt(var + x.dtype.type(eps))
    if weight is not None:
        out *= _wide(weight).reshape(affine)
    if bias is not None:
        out += _wide(bias).reshape(affine)
    return out.reshape(input.shape).astype(input.dtype, copy=False), mean, var


def _backward_infer(g: Any, input: Any, weight: Any, mean: Any, var: Any, *, shape: Any, axes: Any, affine: Any, eps: Any) -> Any:
    size = math.prod(affine)
    flat = MetaArray((size,) if weight is None else weight.shape, _wide_dtype(input.dtype))
    return [MetaArray(input.shape, input.dtype), flat, flat]


@prim("standardize_backward", "norm", outputs=("input", "weight", "bias"), infer=_backward_infer, half="native")
def standardize_backward(
    xp: Any, g: Any, input: Any, weight: Any, mean: Any, var: Any, *, shape: Shape, axes: Shape, affine: Shape, eps: float
) -> Any:
    """Gradients of `standardize` with respect to input, weight and bias."""
    x, grad = _wide(input).reshape(shape), _wide(g).reshape(shape)
    n = _count(shape, axes)
    rstd = 1 / xp.sqrt(var + x.dtype.type(eps))
    normal = x - mean
    normal *= rstd
    lead = len(shape) - len(affine)
    summed = (*range(lead), *(lead + i for i, s in enumerate(affine) if s == 1 and shape[lead + i] != 1))
    product = grad * normal
    of_weight, of_bias = xp.reduce_add(product, axis=summed, keepdims=True), xp.reduce_add(grad, axis=summed, keepdims=True)
    if weight is not None:
        scale = _wide(weight).reshape(affine)
        grad = grad * scale
        product *= scale
    total = xp.reduce_add(grad, axis=axes, keepdims=True)
    total /= n
    along = xp.reduce_add(product, axis=axes, keepdims=True)
    along /= n
    normal *= along
    xp.subtract(grad, normal, out=normal)
    normal -= total
    normal *= rstd
    flat = of_weight.shape if weight is None else weight.shape
    flat = (of_weight.size,) if weight is None else flat
    return normal.reshape(input.shape).astype(input.dtype, copy=False), of_weight.reshape(flat), of_bias.reshape(flat)


# ---- batch normalisation with given statistics


def _given_vjp(g: Any, input: Any, weight: Any, bias_dtype: Any, mean: Any, var: Any, *, eps: float, needs: Any) -> Any:
    if needs[1] and not recording(g, input, weight):
        found = batch_norm_given_backward(g, input, weight, mean, var, eps=eps)
        of_bias = found[2].to(bias_dtype) if needs[2] else None
        return found[0] if needs[0] else None, found[1].to(weight.dtype), of_bias, None, None
    shape, dims = (1, -1) + (1,) * (input.ndim - 2), (0, *range(2, g.ndim))
    rstd = (var + eps).rsqrt().reshape(shape)
    of_input = None
    if needs[0]:
        of_input = (g * rstd if weight is None else g * (rstd * weight.reshape(shape))).to(input.dtype)
    of_weight = (g * ((input - mean.reshape(shape)) * rstd)).sum(dims).to(weight.dtype) if needs[1] else None
    return of_input, of_weight, g.sum(dims).to(bias_dtype) if needs[2] else None, None, None


@prim(
    "batch_norm_given", "norm", vjp=_given_vjp, infer=lambda input, *rest, eps: MetaArray(input.shape, input.dtype), half="native"
)
def batch_norm_given(xp: Any, input: Any, weight: Any, bias: Any, mean: Any, var: Any, *, eps: float) -> Any:
    """(input - mean) / sqrt(var + eps) * weight + bias with one mean and variance for each channel (dimension 1)."""
    x = _wide(input)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale = 1 / xp.sqrt(_wide(var) + x.dtype.type(eps))
    if weight is not None:
        scale = scale * _wide(weight)
    out = x * scale.reshape(shape).astype(x.dtype, copy=False)
    shift = -_wide(mean) * scale
    if bias is not None:
        shift = shift + _wide(bias)
    out += shift.reshape(shape).astype(x.dtype, copy=False)
    return out.astype(input.dtype, copy=False)


def _given_backward_infer(g: Any, input: Any, weight: Any, mean: Any, var: Any, *, eps: float) -> list[MetaArray]:
    flat = MetaArray(weight.shape, _wide_dtype(input.dtype))
    return [MetaArray(input.shape, input.dtype), flat, flat]


@prim("batch_norm_given_backward", "norm", outputs=("input", "weight", "bias"), infer=_given_backward_infer, half="native")
def batch_norm_given_backward(xp: Any, g: Any, input: Any, weight: Any, mean: Any, var: Any, *, eps: float) -> Any:
    """Gradients of `batch_norm_given` with respect to input, weight and bias."""
    x, grad, shape = _wide(input), _wide(g), (1, -1) + (1,) * (input.ndim - 2)
    dims = (0, *range(2, x.ndim))
    mean, scale, weight = (
        v.astype(x.dtype, copy=False).reshape(shape) for v in (mean, 1 / xp.sqrt(_wide(var) + x.dtype.type(eps)), _wide(weight))
    )
    of_weight, of_bias = xp.reduce_add(grad * ((x - mean) * scale), axis=dims), xp.reduce_add(grad, axis=dims)
    return (grad * (scale * weight)).astype(input.dtype, copy=False), of_weight, of_bias


# ---- root mean square


def _rms_vjp(g: Any, input: Any, weight: Any, *, dims: int, eps: float, needs: Any) -> Any:
    if recording(g, input, weight):
        from tocha.dtypes import HALF, float32

        kind = float32 if input.dtype in HALF else input.dtype
        axes = tuple(range(input.ndim - dims, input.ndim))
        x, grad = input.to(kind), g.to(kind)
        n = _count(tuple(input.shape), axes)
        rstd = ((x * x).sum(axes, keepdim=True) / n + eps).rsqrt()
        normal = x * rstd
        inner = grad if weight is None else grad * weight.to(kind)
        of_input = rstd * (inner - normal * ((inner * normal).sum(axes, keepdim=True) / n))
        of_weight = (grad * normal).sum_to_size(weight.shape).to(weight.dtype) if needs[1] else None
        return of_input.to(input.dtype), of_weight
    of_input, of_weight = rms_norm_backward(g, input, weight, dims=dims, eps=eps)
    return of_input, of_weight.to(weight.dtype) if needs[1] else None


@prim(
    "rms_norm", "norm", vjp=_rms_vjp, infer=lambda input, weight, *, dims, eps: MetaArray(input.shape, input.dtype), half="native"
)
def rms_norm(xp: Any, input: Any, weight: Any, *, dims: int, eps: float) -> Any:
    """input / sqrt(mean of squares + eps) * weight over the last `dims` dimensions."""
    x = _wide(input)
    axes = tuple(range(x.ndim - dims, x.ndim))
    out = x * x
    square = xp.reduce_add(out, axis=axes, keepdims=True)
    square /= _count(x.shape, axes)
    out = xp.multiply(x, 1 / xp.sqrt(square + x.dtype.type(eps)), out=out)
    if weight is not None:
        out *= _wide(weight)
    return out.astype(input.dtype, copy=False)


@prim("rms_norm_backward", "norm", outputs=("input", "weight"), half="native")
def rms_norm_backward(xp: Any, g: Any, input: Any, weight: Any, *, dims: int, eps: float) -> Any:
    x, grad = _wide(input), _wide(g)
    axes = tuple(range(x.ndim - dims, x.ndim))
    n = _count(x.shape, axes)
    square = xp.reduce_add(x * x, axis=axes, keepdims=True)
    square /= n
    rstd = 1 / xp.sqrt(square + x.dtype.type(eps))
    normal = x * rstd
    of_weight = xp.reduce_add(grad * normal, axis=tuple(range(x.ndim - dims)))
    if weight is not None:
        grad = grad * _wide(weight)
    along = xp.reduce_add(grad * normal, axis=axes, keepdims=True)
    along /= n
    normal *= along
    xp.subtract(grad, normal, out=normal)
    normal *= rstd
    return normal.astype(input.dtype, copy=False), of_weight
