"""torch.while_loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha._higher_order_ops.utils import check_alike, uncaptured
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_leaves, tree_map


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """Apply `body_fn` to the carried values (tensors or ints, whose shapes and dtypes stay) as long as `cond_fn` of them holds
    (torch docs: torch._higher_order_ops.while_loop)."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)) or not all(
        isinstance(x, (Tensor, int)) for x in tree_leaves(carried_inputs)
    ):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of tensor or int leaves, but "
            f"got {carried_inputs}."
        )
    carried = first = tuple(carried_inputs)
    while _holds(cond_fn(*carried)):
        got = body_fn(*carried)
        got = tuple(got) if isinstance(got, (tuple, list)) else (got,)
        check_alike(tree_leaves(got), tree_leaves(carried), "body_fn_output", "carried_inputs")
        carried = got
    given = set(map(id, tree_leaves(first)))
    return tree_map(lambda x: x.clone() if id(x) in given and isinstance(x, Tensor) else x, carried)


def _holds(going_on: Any) -> Any:
    if isinstance(going_on, Tensor):
        if going_on.numel() != 1:
            raise uncaptured(f"torch.while_loop: Expected cond_fn to return a scalar tensor or a bool but got {going_on.shape}.")
    elif not isinstance(going_on, bool):
        raise uncaptured(f"torch.while_loop: Expected cond_fn to return a scalar tensor or a bool but got {going_on}.")
    return going_on
