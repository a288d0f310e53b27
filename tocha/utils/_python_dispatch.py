"""torch.utils._python_dispatch: modes below autograd."""

from __future__ import annotations

from typing import Any

from tocha.dispatch.interpret import TorchDispatchMode
from tocha.tensor import Tensor

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass", "return_and_correct_aliasing"]


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor is of a subclass that lists its inner tensors (__tensor_flatten__ and __tensor_unflatten__)."""
    return isinstance(t, Tensor) and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The result as it is: views and in-place results already share storage here."""
    return out
