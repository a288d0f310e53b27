"""Adadelta. Source: torch docs, torch.optim.Adadelta; Zeiler 2012."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ._common import (
    RuleOptimizer,
    check_call,
    check_lr,
    check_non_negative,
    new_step,
    scalars,
    zeros_like,
)
from ._rule import OnTensors, Rule, update
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

    def _functional(self) -> Callable[..., None]:
        return adadelta

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "square_avg", "acc_delta", "step"


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
    update(_RULE, columns, lambda step: fixed, [state_steps], OnTensors(differentiable), keep=keep, has_complex=has_complex)


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
