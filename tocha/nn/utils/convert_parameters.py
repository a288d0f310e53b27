"""Parameters as one vector and back (torch docs: torch.nn.utils.parameters_to_vector)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tocha

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_device(device: Any, param: Any) -> Any:
    if device is not None and param.device != device:
        raise TypeError(
            f"Found two parameters on different devices, this is currently not supported: {device} and {param.device}"
        )
    return param.device


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All elements of all parameters, 1-d; TypeError if they are on several devices."""
    device, parts = None, []
    for param in parameters:
        device = _check_device(device, param)
        parts.append(param.view(-1))
    return tocha.cat(parts)


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Make the parameters views of consecutive parts of `vec`."""
    if not isinstance(vec, tocha.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {tocha.typename(vec)}")
    device, start = None, 0
    for param in parameters:
        device = _check_device(device, param)
        end = start + param.numel()
        param.data = vec[start:end].view_as(param).data
        start = end
