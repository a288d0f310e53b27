"""Neural network layers, losses, initialisers and utilities (torch docs: torch.nn)."""

from __future__ import annotations

from typing import Any

from tocha.nn import attention, common_types, functional, grad, init, utils
from tocha.nn.modules import *
from tocha.nn.modules.module import Module
from tocha.nn.parallel import DataParallel
from tocha.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The device, dtype and memory_format among a layer's arguments, also inside "factory_kwargs"."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    unexpected = kwargs.keys() - simple - {"factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for key in simple & kwargs.keys():
        if key in result:
            raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
        result[key] = kwargs[key]
    return result
