"""Adamax: Adam with the infinity norm.

Source: torch docs, torch.optim.Adamax; Kingma & Ba 2015, section 7.1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    add_quotient_,
    any_complex,
    check_betas,
    check_call,
    check_lr,
    check_non_negative,
    column,
    new_step,
    real_views,
    regularised,
    scalars,
    snapshot,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["Adamax", "adamax"]


class Adamax(RuleOptimizer):
    """Adamax. State: "step", "exp_avg", "exp_inf"."""

    _late_options: ClassVar[dict[str, Any]] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_non_negative(eps=eps)
        check_betas(betas)
        check_non_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": new_step(p, group), "exp_avg": zeros_like(p), "exp_inf": zeros_like(p)}

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        beta1, beta2 = group["betas"]
        adamax(
            params,
            grads,
            column(states, "exp_avg"),
            column(states, "exp_inf"),
            column(states, "step"),
            foreach=group["foreach"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            capturable=group["capturable"],
            has_complex=any_complex(params),
            eps=group["eps"],
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
        )


def adamax(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_infs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
) -> None:
    """The Adamax update of each parameter, in place on parameters, moments and steps."""
    check_call(
        "adamax",
        params,
        state_steps,
        foreach=foreach,
        capturable=capturable,
        differentiable=differentiable,
    )
    keep = capturable or differentiable
    lr, beta1, beta2 = scalars(keep, lr, beta1, beta2)
    for i, param in enumerate(params):
        grad, exp_avg, exp_inf = grads[i], exp_avgs[i], exp_infs[i]
        state_steps[i].add_(1)
        step = state_steps[i].clone() if keep else state_steps[i].item()
        grad = regularised(param, grad, weight_decay, maximize)
        if has_complex:
            param, grad, exp_avg, exp_inf = real_views(param, grad, exp_avg, exp_inf)
        exp_avg.lerp_(grad, 1 - beta1)
        exp_inf.copy_(tocha.maximum(exp_inf * beta2, grad.abs() + eps))
        size = lr / (1 - beta1**step)
        add_quotient_(param, snapshot(exp_avg, differentiable), snapshot(exp_inf, differentiable), -size)
