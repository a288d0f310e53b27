"""map: a function of each slice along the first dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tocha
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_unflatten


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for each slice x of the leaves of `xs` along their first dimension, results stacked (torch's control-flow map)."""
    leaves, spec = tree_flatten(xs)
    if not all(isinstance(x, Tensor) for x in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    length = leaves[0].shape[0]
    if length == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(x.shape[0] != length for x in leaves):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {[x.shape for x in leaves]}.")
    slices = [x.unbind(0) for x in leaves]
    rows = [tree_flatten(f(tree_unflatten([s[i] for s in slices], spec), *args)) for i in range(length)]
    return tree_unflatten([tocha.stack(column) for column in zip(*[r[0] for r in rows], strict=True)], rows[0][1])
