"""torch.cond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.tensor import Tensor
from tocha.utils._pytree import tree_leaves


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`true_fn(*operands)` if pred (a bool or one-element tensor), else `false_fn(*operands)`; operands: a tuple of nested containers
    of tensors (torch docs: torch.cond)."""
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(isinstance(x, (Tensor, int)) for x in tree_leaves(operands)):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got "
            f"{operands}."
        )
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)
