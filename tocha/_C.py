"""torch._C: the few names of torch's native module that Python libraries use and that mean something here."""

from __future__ import annotations

from tocha.device import Size, device, layout, memory_format
from tocha.dispatch.override import DisableTorchFunction, DisableTorchFunctionSubclass
from tocha.dispatch.override import disabled_torch_function as _disabled_torch_function_impl  # noqa: F401
from tocha.dtypes import dtype
from tocha.random import Generator
from tocha.tensor import Tensor as TensorBase

_TensorBase = TensorBase

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size", "TensorBase", "device", "dtype", "layout",
    "memory_format",
]  # fmt: skip


class DispatchKey:
    """The type of torch's dispatch keys; there is no dispatcher to have any."""


class DispatchKeySet:
    """The type of sets of dispatch keys; there is no dispatcher to have any."""


class Graph:
    """The type of TorchScript graphs, of which there are none."""


class Value:
    """The type of values in TorchScript graphs, of which there are none."""


def _get_tracing_state() -> None:
    """None: nothing is ever traced to TorchScript."""


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged."""
