"""Modules as functions (torch docs: torch.func.functional_call, stack_module_state, replace_all_batch_norm_modules_)."""

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
    """(parameters, buffers) of several equal models stacked along a new first dimension, for vmap over an ensemble.

    A parameter that no model trains isn't trained as part of the stack either.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return {k: _stacked(k, params) for k in params[0]}, {k: _stacked(k, buffers) for k in buffers[0]}


def _stacked(name: str, tables: list[dict[str, Tensor]]) -> Tensor:
    """The leaf that the tensors of this name make."""
    tensors = [t[name] for t in tables]
    if len({t.requires_grad for t in tensors}) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return stack([t.detach() for t in tensors]).requires_grad_(tensors[0].requires_grad)


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Take the running statistics from every batch norm in `root`, which is returned: vmap can't write them in place."""
    from tocha.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
