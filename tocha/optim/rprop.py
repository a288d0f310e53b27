"""Resilient backpropagation. Source: torch docs, torch.optim.Rprop; Riedmiller & Braun 1993."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    as_number,
    check_call,
    check_lr,
    new_step,
    zeros_like,
)
from ._rule import OnTensors, Rule, update
from .optimizer import ParamsT

__all__ = ["Rprop", "rprop"]


class Rprop(RuleOptimizer):
    """Resilient backpropagation. State: "step", the last gradient "prev", and "step_size" per element."""

    _late_options: ClassVar[dict[str, Any]] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        lr = as_number(group["lr"])
        size = complex(lr, lr) if p.is_complex() else lr
        return {"step": new_step(p, group), "prev": zeros_like(p), "step_size": tocha.full_like(p, size)}

    def _functional(self) -> Callable[..., None]:
        return rprop

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "prev", "step_size", "step"

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        (etaminus, etaplus), (least, most) = group["etas"], group["step_sizes"]
        return {"etaminus": etaminus, "etaplus": etaplus, "step_size_min": least, "step_size_max": most}


def rprop(
    params: list[Any],
    grads: list[Any],
    prevs: list[Any],
    step_sizes: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    step_size_min: float,
    step_size_max: float,
    etaminus: float,
    etaplus: float,
) -> None:
    """The Rprop update of each parameter, in place on parameters, last gradients, step sizes and steps."""
    check_call(
        "rprop",
        params,
        state_steps,
        foreach=foreach,
        capturable=capturable,
        differentiable=differentiable,
    )
    fixed = {"maximize": maximize, "down": etaminus, "up": etaplus, "least": step_size_min, "most": step_size_max}
    columns = {"param": params, "grad": grads, "prev": prevs, "step_size": step_sizes}
    keep = capturable or differentiable
    update(_RULE, columns, lambda step: fixed, [state_steps], OnTensors(differentiable), keep=keep, has_complex=has_complex)


def _apply(
    o: Any, param: Any, grad: Any, prev: Any, step_size: Any, *, maximize: bool, down: Any, up: Any, least: Any, most: Any
) -> tuple[Any, ...]:
    grad = o.regularised(param, grad, 0.0, maximize)
    agreement = o.product(grad, o.kept(prev))
    step_size = o.clamp(o.scale_by_sign(step_size, agreement, up, down), least, most)
    # Where the sign turned the last step overshot: no step now, and no comparison at the next one.
    grad = o.zero_below(grad, agreement)
    return o.add_product(param, o.sign(grad), o.kept(step_size), -1), o.replace(prev, grad), step_size


_RULE = Rule("rprop", _apply, read=("grad",))
