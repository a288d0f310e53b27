"""Helpers of distributions: broadcasting of parameters, probabilities and logits, lazily computed attributes."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import tocha
from tocha.nn import functional as F
from tocha.overrides import is_tensor_like

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the type and device of the first tensor. ValueError for others."""
    if not all(is_tensor_like(v) or isinstance(v, Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    if not all(is_tensor_like(v) for v in values):
        options: dict[str, Any] = {"dtype": tocha.get_default_dtype()}
        for v in values:
            if isinstance(v, tocha.Tensor):
                options = {"dtype": v.dtype, "device": v.device}
                break
        values = tuple(v if is_tensor_like(v) else tocha.tensor(v, **options) for v in values)  # type: ignore[operator]
    return tuple(tocha.broadcast_tensors(*values))


def standard_normal(shape: Any, like: Any) -> Any:
    """Numbers from N(0, 1) of the type and device of a tensor."""
    return tocha.normal(
        tocha.zeros(shape, dtype=like.dtype, device=like.device), tocha.ones(shape, dtype=like.dtype, device=like.device)
    )


def sum_rightmost(value: Any, count: int) -> Any:
    """Summed over the last `count` dimensions."""
    if count == 0:
        return value
    return value.reshape((*value.shape[:-count], -1)).sum(-1)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities for log odds (binary), or for log probabilities that needn't be normalised."""
    return tocha.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities kept off 0 and 1 by the type's epsilon, for use in logarithms."""
    eps = tocha.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Log odds (binary) or logarithms of probabilities."""
    kept = clamp_probs(probs)
    return tocha.log(kept) - tocha.log1p(-kept) if is_binary else tocha.log(kept)


class lazy_property:
    """An attribute computed when first asked for, with gradients, and kept. Asked of a class it is a property, for documentation."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _LazyAndProperty(self.wrapped)
        with tocha.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyAndProperty(lazy_property, property):
    """What a class answers for a `lazy_property`."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The lower triangles of matrices (…, n, n), row by row, as vectors; ValueError where the diagonal is outside."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    places = tocha.arange(n, device=mat.device)
    return mat[..., places < places.view(-1, 1) + (diag + 1)]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Lower-triangular matrices from vectors of their elements, row by row; ValueError for a length that fits no matrix."""
    length = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > tocha.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as the lower triangular part of a square D x D matrix."
        )
    size = round(n)
    mat = vec.new_zeros((*vec.shape[:-1], size, size))
    places = tocha.arange(size, device=vec.device)
    mat[..., places < places.view(-1, 1) + (diag + 1)] = vec
    return mat
