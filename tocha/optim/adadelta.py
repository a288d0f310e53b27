"""Adadelta. Source: torch docs, torch.optim.Adadelta; Zeiler 2012."""

from __future__ import annotations

from typing import Any, ClassVar

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
    snapshot,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["Adadelta", "adadelta"]


class Adadelta(RuleOptimizer):
    """Adadelta. State: "step", "square_avg", "acc_delta"."""

    _late_options: ClassVar[dict[str, Any]] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_non_negative(eps=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": new_step(p, group), "square_avg": zeros_like(p), "acc_delta": zeros_like(p)}

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        adadelta(
            params,
            grads,
            column(states, "square_avg"),
            column(states, "acc_delta"),
            column(states, "step"),
            capturable=group["capturable"],
            foreach=group["foreach"],
            differentiable=group["differentiable"],
            has_complex=any_complex(params),
            lr=group["lr"],
            rho=group["rho"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
        )


def adadelta(
    params: list[Any],
    grads: list[Any],
    square_avgs: list[Any],
    acc_deltas: list[Any],
    state_steps: list[Any],
    capturable: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """The Adadelta update of each parameter, in place on parameters, averages and steps."""
    check_call(
        "adadelta",
        params,
        state_steps,
        foreach=foreach,
        capturable=capturable,
        differentiable=differentiable,
    )
    (lr,) = scalars(capturable or differentiable, lr)
    for i, param in enumerate(params):
        grad, square_avg, acc_delta = grads[i], square_avgs[i], acc_deltas[i]
        state_steps[i].add_(1)
        grad = regularised(param, grad, weight_decay, maximize)
        if has_complex:
            param, grad, square_avg, acc_delta = real_views(param, grad, square_avg, acc_delta)
        square_avg.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        root = square_avg.add(eps).sqrt_()
        delta = acc_delta.add(eps).sqrt_()
        delta = delta / root * grad if differentiable else delta.div_(root).mul_(grad)
        acc_delta.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        add_scaled_(param, snapshot(delta, differentiable), -lr)
