"""Other parameters and state for an optimizer, for a while (torch docs: torch.optim)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .optimizer import Optimizer


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Any], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Within the block the optimizer works on `swapin_parameters`, in the order of its own, with the state and options of
    `swapin_optim_state`, which is like `state_dict()`. State tensors are used as they are; other changes end with the block."""
    name = "swap_in_optimizer_params_and_state"
    if not optimizer.state:
        raise RuntimeError(f"{name} requires initialized optimizer state: take a step, or load a state, first")
    groups, found = optimizer.param_groups, swapin_optim_state.get("param_groups")
    if not isinstance(found, list):
        raise RuntimeError(
            f"{name} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, got {type(found).__name__}."
        )
    if len(found) != len(groups):
        raise RuntimeError(
            f"swapin_optim_state has a different number of parameter groups ({len(found)}) than the optimizer ({len(groups)})."
        )
    given = list(swapin_parameters.values())
    if len(given) != sum(len(g["params"]) for g in groups) or any(
        len(f["params"]) != len(g["params"]) for f, g in zip(found, groups, strict=True)
    ):
        raise RuntimeError(f"{name} requires the explicit parameter state to match optimizer.param_groups ordering.")
    kept_state, state = optimizer.state, defaultdict(dict)  # type: ignore[var-annotated]
    order, new_groups = iter(given), []
    for group in found:
        params = [next(order) for _ in group["params"]]
        new_groups.append({**group, "params": params})
        for number, p in zip(group["params"], params, strict=True):
            state[p] = dict(swapin_optim_state["state"].get(number, {}))
    optimizer.param_groups, optimizer.state = new_groups, state
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, kept_state
