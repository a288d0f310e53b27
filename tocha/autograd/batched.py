"""Gradients for a batch of cotangents at once (`is_grads_batched`), by vmap over the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocha.tensor import Tensor


def grad_of_batch(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Any], retain: bool, create_graph: bool
) -> list[Tensor | None]:
    """One gradient for each row of `grads` (leading dimension), stacked."""
    from tocha.autograd.engine import grad
    from tocha.ops.shape import stack

    sizes = {g.shape[0] for g in grads if g is not None}
    if len(sizes) != 1:
        raise RuntimeError(f"grad: with is_grads_batched=True all grad_outputs need the same leading size, got {sorted(sizes)}")
    size = sizes.pop()
    rows = []
    for i in range(size):
        last = i == size - 1
        row = [None if g is None else g.select(0, i) for g in grads]
        rows.append(grad(outputs, inputs, row, retain or not last, create_graph, allow_unused=True))
    return [None if column[0] is None else stack(list(column)) for column in zip(*rows, strict=True)]
