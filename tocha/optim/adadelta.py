"""Adadelta. Source: torch docs, torch.optim.Adadelta; Zeiler 2012."""

from __future__ import annotations

from typing import Any, ClassVar

from ._common import (
    RuleOptimizer,
    any_complex,
    check_call,
    check_lr,
    check_non_negative,
    column,
    new_step,
    real_views,
    scalars,
    zeros_like,
)
from ._rule import OnTensors, Rule, fused_update
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
    keep = capturable or differentiable
    (lr,) = scalars(keep, lr)
    fixed = {"maximize": maximize, "penalty": weight_decay, "rho": rho, "share": 1 - rho, "eps": eps, "descent": -lr}
    columns = {"param": params, "grad": grads, "square_avg": square_avgs, "acc_delta": acc_deltas}
    operations = OnTensors(differentiable)
    for i in range(len(params)) if keep else fused_update(_RULE, columns, lambda step: fixed, state_steps):
        row = [column[i] for column in columns.values()]
        state_steps[i].add_(1)
        _RULE.apply(operations, *(real_views(*row) if has_complex else row), **fixed)


def _apply(
    o: Any,
    param: Any,
    grad: Any,
    square_avg: Any,
    acc_delta: Any,
    *,
    maximize: bool,
    penalty: Any,
    rho: Any,
    share: Any,
    eps: Any,
    descent: Any,
) -> tuple[Any, ...]:
    grad = o.regularised(param, grad, penalty, maximize)
    square_avg = o.mean_square(square_avg, grad, rho, share)
    delta = o.quotient(o.root(o.shifted(acc_delta, eps)), o.root(o.shifted(square_avg, eps)))
    delta = o.times(delta, grad)
    acc_delta = o.mean_square(acc_delta, delta, rho, share)
    return o.add_scaled(param, o.kept(delta), descent), square_avg, acc_delta


_RULE = Rule("adadelta", _apply, read=("grad",))
