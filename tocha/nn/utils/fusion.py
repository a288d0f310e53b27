"""Batch normalisation folded into the layer before it (torch docs: torch.nn.utils.fuse_conv_bn_eval)."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import tocha
from tocha.nn.modules.module import Module
from tocha.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

M = TypeVar("M", bound=Module)


def _check_eval(layer: Module, bn: Module) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")


def _fold(w: Any, b: Any, mean: Any, var: Any, eps: float, bn_w: Any, bn_b: Any, shape: list[int]) -> tuple[Any, ...]:
    """Weight and bias of the layer followed by the normalisation; `shape` lines up channels."""
    bias = tocha.zeros_like(mean) if b is None else b
    scale = tocha.rsqrt(var + eps)
    if bn_w is not None:
        scale = scale * bn_w
    shift = (bias - mean) * scale
    if bn_b is not None:
        shift = shift + bn_b
    new_w = (w * scale.reshape(shape)).to(w.dtype)
    keep = w.requires_grad
    return Parameter(new_w, keep), Parameter(shift.to(bias.dtype), keep if b is None else b.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a (transposed) convolution that includes the batch normalisation after it."""
    shape = [1, -1] if transpose else [-1, 1]
    return _fold(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape + [1] * (conv_w.dim() - 2))


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that includes the batch normalisation after it."""
    return _fold(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def fuse_conv_bn_eval(conv: M, bn: Any, transpose: bool = False) -> M:
    """A copy of `conv` that includes `bn`; both must be in evaluation mode and statistics tracked."""
    _check_eval(conv, bn)
    fused = copy.deepcopy(conv)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("fuse_conv_bn_eval: the batch normalisation tracks no running statistics")
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: M, bn: Any) -> M:
    """A copy of `linear` that includes `bn`; both must be in evaluation mode and statistics tracked."""
    _check_eval(linear, bn)
    fused = copy.deepcopy(linear)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("fuse_linear_bn_eval: the batch normalisation tracks no running statistics")
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
