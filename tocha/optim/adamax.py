"""Adamax: Adam with the infinity norm.

Source: torch docs, torch.optim.Adamax; Kingma & Ba 2015, section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ._common import (
    RuleOptimizer,
    check_betas,
    check_call,
    check_lr,
    check_non_negative,
    new_step,
    scalars,
    zeros_like,
)
from ._rule import OnTensors, Rule, update
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

    def _functional(self) -> Callable[..., None]:
        return adamax

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_inf", "step"

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(("beta1", "beta2"), group["betas"], strict=True))


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
    fixed = {"maximize": maximize, "penalty": weight_decay, "share1": 1 - beta1, "beta2": beta2, "eps": eps}

    def numbers(step: Any) -> dict[str, Any]:
        return {**fixed, "descent": -(lr / (1 - beta1**step))}

    columns = {"param": params, "grad": grads, "exp_avg": exp_avgs, "exp_inf": exp_infs}
    update(_RULE, columns, numbers, [state_steps], OnTensors(differentiable), keep=keep, has_complex=has_complex)


def _apply(
    o: Any,
    param: Any,
    grad: Any,
    exp_avg: Any,
    exp_inf: Any,
    *,
    maximize: bool,
    penalty: Any,
    share1: Any,
    beta2: Any,
    eps: Any,
    descent: Any,
) -> tuple[Any, ...]:
    grad = o.regularised(param, grad, penalty, maximize)
    exp_avg = o.lerp(exp_avg, grad, share1)
    exp_inf = o.maximum(o.scale(exp_inf, beta2), o.plus(o.magnitude(grad), eps))
    return o.add_quotient(param, o.kept(exp_avg), o.kept(exp_inf), descent), exp_avg, exp_inf


_RULE = Rule("adamax", _apply, read=("grad",))
