"""NAdam: Adam with Nesterov momentum. Source: torch docs, torch.optim.NAdam; Dozat 2016."""

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
    scale_,
    snapshot,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["NAdam", "nadam"]


class NAdam(RuleOptimizer):
    """NAdam. State: "step", "mu_product", "exp_avg", "exp_avg_sq"."""

    _late_options: ClassVar[dict[str, Any]] = {
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_non_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for p in group["params"]:
                own = self.state.get(p)
                if own and not isinstance(own["mu_product"], tocha.Tensor):
                    own["mu_product"] = tocha.full_like(own["step"], own["mu_product"])

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        step = new_step(p, group)
        return {
            "step": step,
            "mu_product": tocha.ones_like(step),
            "exp_avg": zeros_like(p),
            "exp_avg_sq": zeros_like(p),
        }

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        beta1, beta2 = group["betas"]
        nadam(
            params,
            grads,
            column(states, "exp_avg"),
            column(states, "exp_avg_sq"),
            column(states, "mu_product"),
            column(states, "step"),
            decoupled_weight_decay=group["decoupled_weight_decay"],
            foreach=group["foreach"],
            capturable=group["capturable"],
            differentiable=group["differentiable"],
            has_complex=any_complex(params),
            maximize=group["maximize"],
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            momentum_decay=group["momentum_decay"],
            eps=group["eps"],
        )


def nadam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    mu_products: list[Any],
    state_steps: list[Any],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    momentum_decay: float,
    eps: float,
) -> None:
    """The NAdam update of each parameter, in place on parameters, moments, momentum products and steps."""
    check_call(
        "nadam",
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
        mu = beta1 * (1.0 - 0.5 * (0.96 ** (step * momentum_decay)))
        mu_next = beta1 * (1.0 - 0.5 * (0.96 ** ((step + 1) * momentum_decay)))
        mu_products[i].mul_(mu)
        product = mu_products[i].clone() if keep else mu_products[i].item()
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = exp_avg_sq.div(1 - beta2**step).sqrt()
        denominator = root.add(eps) if differentiable else root.add_(eps)
        add_quotient_(param, grad, denominator, -lr * (1.0 - mu) / (1.0 - product))
        momentum = snapshot(exp_avg, differentiable)
        add_quotient_(param, momentum, denominator, -lr * mu_next / (1.0 - product * mu_next))
