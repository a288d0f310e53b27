"""Gradients of convolutions by themselves (torch docs: torch.nn.grad)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tocha
from tocha.nn import functional as F

_CONVOLUTIONS: dict[int, Callable[..., Any]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _gradient(
    n: int,
    wanted: int,
    input: Any,
    weight: Any,
    grad_output: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    """The gradient of the n-d convolution with respect to its input (0) or weight (1)."""
    with tocha.enable_grad():
        arguments = [input.detach(), weight.detach()]
        arguments[wanted].requires_grad_()
        out = _CONVOLUTIONS[n](*arguments, None, stride, padding, dilation, groups)
        return tocha.autograd.grad(out, arguments[wanted], grad_output)[0]


def _of_input(n: int) -> Callable[..., Any]:
    def conv_input(
        input_size: Any,
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        input = grad_output.new_zeros(tuple(input_size))
        return _gradient(n, 0, input, weight, grad_output, stride, padding, dilation, groups)

    conv_input.__name__ = f"conv{n}d_input"
    conv_input.__doc__ = f"The gradient of `conv{n}d` with respect to its input of size `input_size`."
    return conv_input


def _of_weight(n: int) -> Callable[..., Any]:
    def conv_weight(
        input: Any,
        weight_size: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        weight = grad_output.new_zeros(tuple(weight_size))
        return _gradient(n, 1, input, weight, grad_output, stride, padding, dilation, groups)

    conv_weight.__name__ = f"conv{n}d_weight"
    conv_weight.__doc__ = f"The gradient of `conv{n}d` with respect to its weight of size `weight_size`."
    return conv_weight


conv1d_input, conv2d_input, conv3d_input = (_of_input(n) for n in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_of_weight(n) for n in (1, 2, 3))
