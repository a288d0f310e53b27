"""Modules as functions (torch docs: torch.func.functional_call, torch.func.stack_module_state)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocha.nn.utils.stateless import _functional_call
from tocha.ops.shape import stack
from tocha.tensor import Tensor


def functional_call(
    module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True,
    strict: bool = False,
) -> Any:  # fmt: skip
    """Call `module` with these parameters and buffers (one dict, or several that don't overlap) in place of its own."""
    return _functional_call(module, parameter_and_buffer_dicts, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of several equal models stacked along a new first dimension, for vmap over an ensemble."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    tables = [dict(m.named_parameters()) for m in models]
    params = {k: stack([t[k].detach() for t in tables]).requires_grad_() for k in tables[0]}
    held = [dict(m.named_buffers()) for m in models]
    return params, {k: stack([t[k] for t in held]) for k in held[0]}
