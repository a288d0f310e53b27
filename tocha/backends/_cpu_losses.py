"""Cross entropy of the commonest kind, (N, C) logits with class indices that all count, in few NumPy calls: on small inputs their
number is the time."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tocha.backends import _cpu_sums as sums

_largest = np.maximum.reduce
_INT64 = np.dtype(np.int64)


@functools.lru_cache(maxsize=64)
def _rows(count: int, width: int) -> Any:
    """Where each row of a (count, width) array starts in memory."""
    return np.arange(count) * width


def _within(target: Any, count: int) -> bool:
    """Whether all classes are among the first `count`."""
    if len(target) <= 32:  # Python compares a few numbers in the time NumPy takes to start
        numbers = target.tolist()
        return min(numbers) >= 0 and max(numbers) < count
    return bool(_largest(target.view(np.uint64)) < count)  # as unsigned numbers, negative ones are large


def cross_entropy(x: Any, target: Any, reduction: str, ignore_index: int) -> tuple[Any, Any, Any] | None:
    """Loss, probabilities and the number of targets; None for other inputs."""
    if x.ndim != 2 or not x.size or target.dtype != _INT64 or 0 <= ignore_index < x.shape[1]:
        return None
    if not _within(target, x.shape[1]):
        return None
    log_p = np.subtract(x, _largest(x, axis=1, keepdims=True), order="C")
    p = np.exp(log_p)
    norm = sums.total(p, (1,), False)[:, None]
    p /= norm
    losses = np.log(norm[:, 0]) - log_p.reshape(-1).take(_rows(*x.shape) + target)
    total = x.dtype.type(len(target))
    if reduction == "none":
        return losses, p, total
    value = sums.total(losses, (0,), False)
    return value / total if reduction == "mean" else value, p, total


def cross_entropy_backward(probability: Any, g: Any, target: Any, total: Any, reduction: str) -> Any:
    """The gradient of the logits; None for other inputs."""
    if probability.ndim != 2 or total.item() != len(target):
        return None
    factor = g / total if reduction == "mean" else g[:, None] if reduction == "none" else g
    out = np.multiply(probability, factor, order="C")
    flat, places = out.reshape(-1), _rows(*out.shape) + target
    flat[places] = flat.take(places) - (g if reduction == "none" else factor)
    return out
