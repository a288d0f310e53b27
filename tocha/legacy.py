"""torch's old tensor types (`torch.FloatTensor(2, 3)`, `isinstance(x, torch.LongTensor)`)."""

from __future__ import annotations

from typing import Any

from tocha.dtypes import dtype
from tocha.ops.convert import _LEGACY_TYPES
from tocha.ops.creation import legacy_tensor
from tocha.tensor import Tensor


class _TensorType(type):
    """Makes `isinstance(x, FloatTensor)` a question about x's dtype."""

    dtype: dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        return legacy_tensor(Tensor, *args, device=device, dtype=cls.dtype)


def tensor_type(name: str) -> Any:
    """The legacy type called `name`; AttributeError if torch has none."""
    if name not in _LEGACY_TYPES:
        raise AttributeError(f"module 'torch' has no attribute {name!r}")
    return _TensorType(name, (), {"dtype": _LEGACY_TYPES[name], "__module__": "torch"})
