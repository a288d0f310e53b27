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
