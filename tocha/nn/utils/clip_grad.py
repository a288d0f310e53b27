"""Limits on the gradients of parameters (Pascanu et al. 2013; torch docs: torch.nn.utils.clip_grad_norm_)."""

from __future__ import annotations

import math
import types
import warnings
from typing import Any

import tocha
from tocha.nn.parameter import gradients
from tocha.ops.linalg_norm import norms
from tocha.prims.native_rows import SCALE, Rule, fused_update

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def _as_list(parameters: Any) -> list[Any]:
    """The parameters as a list; an exhausted generator is warned about, since nothing would be clipped."""
    if isinstance(parameters, tocha.Tensor):
        return [parameters]
    generator = isinstance(parameters, types.GeneratorType)
    found = list(parameters)
    if generator and not found:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    return found


def _on(tensor: Any, device: Any) -> Any:
    return tensor if tensor.device == device else tensor.to(device)


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Any:
    """The norm of all elements of `tensors` together, a 0-d tensor; 0 for none.

    RuntimeError if it isn't finite and `error_if_nonfinite`.
    """
    tensors = [tensors] if isinstance(tensors, tocha.Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return tocha.tensor(0.0)  # type: ignore[operator]
    # an empty tensor has no largest element, and adds nothing to any norm
    filled = [t for t in tensors if t.numel()]
    if filled:
        total = tocha.linalg.vector_norm(norms(filled, norm_type), norm_type)
    else:
        total = tocha.linalg.vector_norm(tensors[0].new_zeros(1))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
            "cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Scale the gradients in place by `max_norm / (total_norm + 1e-6)` if that is below 1."""
    _scale([g for g in gradients(_as_list(parameters)) if g is not None], max_norm, total_norm)


def _scale(grads: list[Any], max_norm: float, total_norm: Any) -> None:
    if not grads:
        return
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    with tocha.no_grad():
        on_cpu = isinstance(factor, tocha.Tensor) and factor.is_cpu
        for i in fused_update(SCALE, {"grad": grads}, lambda _: {"factor": factor.item() if on_cpu else factor}):
            grads[i].mul_(_on(factor, grads[i].device))


_CLAMP = Rule("clamp_", lambda o, grad, *, low, high: (o.clamp(grad, low, high),))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scale gradients in place so that their joint norm is at most `max_norm`; returns the one they had."""
    grads = [g for g in gradients(_as_list(parameters)) if g is not None]
    with tocha.no_grad():
        total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
        _scale(grads, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Deprecated name of :func:`clip_grad_norm_`."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each gradient element in place to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with tocha.no_grad():
        grads = [g for g in gradients(_as_list(parameters)) if g is not None]
        for i in fused_update(_CLAMP, {"grad": grads}, lambda _: {"low": -clip_value, "high": clip_value}):
            grads[i].clamp_(min=-clip_value, max=clip_value)
