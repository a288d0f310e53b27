"""RAdam: Adam with a rectified adaptive rate. Source: torch docs, torch.optim.RAdam; Liu et al. 2020."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
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
    scale_,
    snapshot,
    square_root,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["RAdam", "radam"]


class RAdam(RuleOptimizer):
    """RAdam. State: "step", "exp_avg", "exp_avg_sq"."""

    _late_options: ClassVar[dict[str, Any]] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
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
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": new_step(p, group), "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        beta1, beta2 = group["betas"]
        radam(
            params,
            grads,
            column(states, "exp_avg"),
            column(states, "exp_avg_sq"),
            column(states, "step"),
            decoupled_weight_decay=group["decoupled_weight_decay"],
            foreach=group["foreach"],
            differentiable=group["differentiable"],
            capturable=group["capturable"],
            has_complex=any_complex(params),
            maximize=group["maximize"],
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )


def radam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    state_steps: list[Any],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    eps: float,
) -> None:
    """The RAdam update of each parameter, in place on parameters, moments and steps."""
    check_call(
        "radam",
        params,
        state_steps,
        foreach=foreach,
        capturable=capturable,
        differentiable=differentiable,
    )
    keep = capturable or differentiable
    lr, beta1, beta2 = scalars(keep, lr, beta1, beta2)
    penalty = 0 if decoupled_weight_decay else weight_decay
    for i, param in enumerate(params):
        grad, exp_avg, exp_avg_sq = grads[i], exp_avgs[i], exp_avg_sqs[i]
        if has_complex:
            param, grad, exp_avg, exp_avg_sq = real_views(param, grad, exp_avg, exp_avg_sq)
        state_steps[i].add_(1)
        step = state_steps[i].clone() if keep else state_steps[i].item()
        grad = regularised(param, grad, penalty, maximize)
        if weight_decay != 0 and decoupled_weight_decay:
            scale_(param, 1 - lr * weight_decay)
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        direction = snapshot(exp_avg, differentiable) / (1 - beta1**step) * lr
        correction2 = 1 - beta2**step
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * step * (beta2**step) / correction2
        if capturable:
            # The branch has to be data, not control flow, to be captured.
            factor = _rectification(rho.clamp(min=5.0), rho_inf) * square_root(correction2)
            factor = tocha.where(rho > 5.0, factor / (exp_avg_sq.sqrt() + eps), tocha.ones_like(exp_avg_sq))
            param.sub_(direction * factor)
        elif rho > 5.0:
            root = exp_avg_sq.sqrt()
            denominator = root.add(eps) if differentiable else root.add_(eps)
            adaptive = square_root(correction2) / denominator
            param.add_(direction * adaptive * _rectification(rho, rho_inf), alpha=-1.0)
        else:
            param.add_(direction, alpha=-1.0)


def _rectification(rho: Any, rho_inf: float) -> Any:
    """The variance rectification term r_t of the paper, for an approximated length `rho` of the moving
    average.
    """
    return square_root((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
