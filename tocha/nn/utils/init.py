"""Modules without initialised parameters (torch docs: torch.nn.utils.skip_init)."""

from __future__ import annotations

import inspect
from typing import Any

from tocha.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """`module_cls(*args, **kwargs)` with parameters in uninitialised memory; no random numbers are drawn.

    RuntimeError unless the class is a module's and takes `device`.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, **kwargs, device="meta").to_empty(device=device)
