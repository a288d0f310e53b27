"""Averaged SGD. Source: torch docs, torch.optim.ASGD; Polyak & Juditsky 1992."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    add_scaled_,
    any_complex,
    check_call,
    check_lr,
    check_non_negative,
    column,
    new_step,
    real_views,
    regularised,
    scalars,
    scale_,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["ASGD", "asgd"]


class ASGD(RuleOptimizer):
    """Averaged stochastic gradient descent. State: "step", "eta", "mu" and the average "ax"."""

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
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_non_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for p in group["params"]:
                own = self.state.get(p, {})
                for key in ("eta", "mu") if own else ():
                    if not isinstance(own[key], tocha.Tensor):
                        own[key] = tocha.zeros_like(own["step"]) + own[key]

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        step = new_step(p, group)
        eta = tocha.as_tensor(group["lr"], device=step.device, dtype=step.dtype).clone().detach().reshape(())
        return {"step": step, "eta": eta, "mu": tocha.ones_like(step), "ax": zeros_like(p)}

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        asgd(
            params,
            grads,
            column(states, "ax"),
            column(states, "mu"),
            column(states, "eta"),
            column(states, "step"),
            foreach=group["foreach"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            capturable=group["capturable"],
            has_complex=any_complex(params),
            lambd=group["lambd"],
            lr=group["lr"],
            t0=group["t0"],
            alpha=group["alpha"],
            weight_decay=group["weight_decay"],
        )


def asgd(
    params: list[Any],
    grads: list[Any],
    axs: list[Any],
    mus: list[Any],
    etas: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: Any,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """The ASGD update of each parameter, in place on parameters, averages, rates and steps."""
    check_call(
        "asgd",
        params,
        state_steps,
        foreach=foreach,
        capturable=capturable,
        differentiable=differentiable,
    )
    keep = capturable or differentiable
    (lr,) = scalars(keep, lr)
    for i, param in enumerate(params):
        grad, average, mu, eta = grads[i], axs[i], mus[i], etas[i]
        if has_complex:
            param, grad, average = real_views(param, grad, average)
        state_steps[i].add_(1)
        step = state_steps[i].clone() if keep else state_steps[i].item()
        grad = regularised(param, grad, weight_decay, maximize)
        rate = eta.clone() if keep else eta.item()
        scale_(param, 1 - lambd * rate)
        add_scaled_(param, grad, -rate)
        if capturable or mu.item() != 1:
            average.add_(param.sub(average).mul_(mu))
        else:
            average.copy_(param)
        new_rate = lr / ((1 + lambd * lr * step) ** alpha)
        if keep:
            eta.copy_(new_rate)
            mu.copy_(1 / (step - t0).clamp(min=1))
        else:
            eta.fill_(new_rate)
            mu.fill_(1 / max(1, step - t0))
