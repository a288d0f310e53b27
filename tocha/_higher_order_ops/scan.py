"""scan: a loop that carries state over a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tocha
from tocha._higher_order_ops.utils import check_alike
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """`carry, y = combine_fn(carry, x)` over the slices x of `xs` along `dim`: the last carry, and the ys stacked along
    the same dimension. Trees of tensors throughout (torch docs: torch._higher_order_ops.scan)."""
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise RuntimeError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    leaves, spec = tree_flatten(xs)
    if not leaves:
        return init, []
    if not tree_leaves(init):
        raise RuntimeError("scan() operator requires init leaves.")
    if not all(isinstance(x, Tensor) for x in (*leaves, *tree_leaves(init))):
        raise RuntimeError("All init and xs leaves must be a Tensor")
    if any(not -x.dim() <= dim < x.dim() for x in leaves):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-leaves[0].dim()}, {leaves[0].dim() - 1}], but got {dim})"
        )
    length = leaves[0].shape[dim]
    if length == 0 or any(x.shape[dim] != length for x in leaves):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    slices = [x.unbind(dim) for x in leaves]
    carry, ys = init, []
    for i in reversed(range(length)) if reverse else range(length):
        got, y = combine_fn(carry, tree_unflatten([s[i] for s in slices], spec))
        check_alike(tree_leaves(got), tree_leaves(carry), "carry", "init")
        carry = got
        ys.append(y)
    if reverse:
        ys.reverse()
    rows = [tree_flatten(y) for y in ys]
    return carry, tree_unflatten([tocha.stack(column, dim) for column in zip(*[r[0] for r in rows], strict=True)], rows[0][1])
