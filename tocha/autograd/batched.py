"""Gradients for a batch of cotangents at once (`is_grads_batched`): the backward pass under vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocha.tensor import Tensor


def grad_of_batch(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Any], retain: bool, create_graph: bool
) -> list[Tensor | None]:
    """One gradient for each row of `grads` (leading dimension), stacked."""
    from tocha.autograd.engine import grad
    from tocha.dispatch.vmap import Batched, batched, enter, leave

    sizes = {g.shape[0] for g in grads if g is not None}
    if len(sizes) != 1:
        raise RuntimeError(f"grad: with is_grads_batched=True all grad_outputs need the same leading size, got {sorted(sizes)}")
    level = enter(sizes.pop(), "error")
    try:
        given = [None if g is None else batched(g, level.level) for g in grads]
        found = grad(outputs, inputs, given, retain, create_graph, allow_unused=True)
    finally:
        leave()
    results: list[Tensor | None] = []
    for g in found:
        if isinstance(g, Batched) and g.level == level.level:
            results.append(g.value)
        else:  # depends on no cotangent: the same for every row
            results.append(None if g is None else g.unsqueeze(0).expand(level.size, *g.shape).clone())
    return results
