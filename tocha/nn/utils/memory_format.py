"""Memory formats of convolution weights (torch docs: torch.nn.utils.convert_conv2d_weight_memory_format)."""

from __future__ import annotations

from typing import Any, TypeVar

from tocha.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from tocha.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

M = TypeVar("M", bound=Module)


def _convert(module: M, classes: tuple[type, ...], memory_format: Any) -> M:
    for layer in module.modules():
        if isinstance(layer, classes):
            layer.weight.data = layer.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Put the weights of all 2-d convolutions below `module` into a memory format."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Put the weights of all 3-d convolutions below `module` into a memory format."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
