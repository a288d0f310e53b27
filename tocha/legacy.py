"""torch's old tensor types (`torch.FloatTensor(2, 3)`, `isinstance(x, torch.LongTensor)`)."""

from __future__ import annotations

from typing import Any

from tocha.dtypes import dtype
from tocha.ops.convert import _LEGACY_TYPES
from tocha.ops.creation import legacy_tensor
from tocha.tensor import Tensor


class _TensorType(type):
    """Makes `isinstance(x, FloatTensor)` a question about x's dtype and device."""

    dtype: dtype
    place: str

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device.type == cls.place

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        where = cls.place if device is None and cls.place == "cuda" else device
        return legacy_tensor(Tensor, *args, device=where, dtype=cls.dtype)


def tensor_type(name: str, module: str = "torch") -> Any:
    """The legacy type called `name` of torch or torch.cuda; AttributeError if there is none."""
    if name not in _LEGACY_TYPES:
        raise AttributeError(f"module '{module}' has no attribute {name!r}")
    where = "cuda" if module.endswith("cuda") else "cpu"
    return _TensorType(name, (), {"dtype": _LEGACY_TYPES[name], "place": where, "__module__": module})
