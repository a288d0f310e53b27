"""RMSprop, plain, centred and with momentum.

Source: torch docs, torch.optim.RMSprop; Hinton's lecture 6e; Graves 2013.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ._common import (
    RuleOptimizer,
    add_quotient_,
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
    snapshot,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(RuleOptimizer):
    """RMSprop. State: "step", "square_avg", and "momentum_buffer" and "grad_avg" where used."""

    _late_options: ClassVar[dict[str, Any]] = {
        "momentum": 0,
        "centered": False,
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_non_negative(eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": new_step(p, group), "square_avg": zeros_like(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)
        return state

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]
    ) -> None:
        rmsprop(
            params,
            grads,
            column(states, "square_avg"),
            column(states, "grad_avg") if group["centered"] else [],
            column(states, "momentum_buffer") if group["momentum"] > 0 else [],
            column(states, "step"),
            foreach=group["foreach"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            capturable=group["capturable"],
            has_complex=any_complex(params),
            lr=group["lr"],
            alpha=group["alpha"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            centered=group["centered"],
        )


def rmsprop(
    params: list[Any],
    grads: list[Any],
    square_avgs: list[Any],
    grad_avgs: list[Any],
    momentum_buffer_list: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
) -> None:
    """The RMSprop update of each parameter, in place on parameters, averages and steps."""
    check_call(
        "rmsprop",
        params,
        state_steps,
        foreach=foreach,
        capturable=capturable,
        differentiable=differentiable,
    )
    (lr,) = scalars(capturable or differentiable, lr)
    for i, param in enumerate(params):
        grad, square_avg = grads[i], square_avgs[i]
        grad_avg: Any = grad_avgs[i] if centered else None
        buffer: Any = momentum_buffer_list[i] if momentum > 0 else None
        if has_complex:
            param, grad, square_avg, grad_avg, buffer = real_views(param, grad, square_avg, grad_avg, buffer)
        state_steps[i].add_(1)
        grad = regularised(param, grad, weight_decay, maximize)
        square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if centered:
            grad_avg.lerp_(grad, 1 - alpha)
            mean = snapshot(grad_avg, differentiable)
            root = square_avg.addcmul(mean, mean, value=-1).sqrt()
        else:
            root = square_avg.sqrt()
        denominator = root.add(eps) if differentiable else root.add_(eps)
        if momentum > 0:
            buffer.mul_(momentum).addcdiv_(grad, denominator)
            add_scaled_(param, snapshot(buffer, differentiable), -lr)
        else:
            add_quotient_(param, grad, denominator, -lr)
