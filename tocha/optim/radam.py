"""RAdam: Adam with a rectified adaptive rate. Source: torch docs, torch.optim.RAdam; Liu et al. 2020."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    check_betas,
    check_call,
    check_lr,
    check_non_negative,
    new_step,
    scalars,
    square_root,
    zeros_like,
)
from ._rule import OnTensors, Rule, update
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

    def _functional(self) -> Callable[..., None]:
        return radam

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq", "step"

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(("beta1", "beta2"), group["betas"], strict=True))


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
    rho_inf = 2 / (1 - beta2) - 1
    fixed = {
        "maximize": maximize,
        "decay": weight_decay != 0 and decoupled_weight_decay,
        "penalty": 0.0 if decoupled_weight_decay else weight_decay,
        "shrink": 1 - lr * weight_decay,
        "share1": 1 - beta1,
        "beta2": beta2,
        "share2": 1 - beta2,
        "lr": lr,
        "eps": eps,
    }

    def numbers(step: Any) -> dict[str, Any]:
        correction2 = 1 - beta2**step
        rho = rho_inf - 2 * step * (beta2**step) / correction2
        found = {**fixed, "correction1": 1 - beta1**step, "rectified": True}
        if capturable:  # the branch has to be data, not control flow, to be captured
            factor = _rectification(rho.clamp(min=5.0), rho_inf) * square_root(correction2)
            return {**found, "root2": factor, "rectification": rho > 5.0}
        rectified = bool(rho > 5.0)
        if not rectified:
            return {**found, "rectified": False, "root2": 0.0, "rectification": 0.0}
        return {**found, "root2": square_root(correction2), "rectification": _rectification(rho, rho_inf)}

    columns = {"param": params, "grad": grads, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs}
    operations = _Captured(differentiable) if capturable else OnTensors(differentiable)
    update(_RULE, columns, numbers, [state_steps], operations, keep=keep, has_complex=has_complex)


def _apply(
    o: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, *, maximize: bool, decay: bool, penalty: Any, shrink: Any, share1: Any,
    beta2: Any, share2: Any, lr: Any, eps: Any, correction1: Any, rectified: bool, root2: Any, rectification: Any,
) -> tuple[Any, ...]:  # fmt: skip
    grad = o.regularised(param, grad, penalty, maximize)
    if decay:
        param = o.scale(param, shrink)
    exp_avg = o.lerp(exp_avg, grad, share1)
    exp_avg_sq = o.mean_square(exp_avg_sq, grad, beta2, share2)
    direction = o.scaled(o.divided(o.kept(exp_avg), correction1), lr)
    if rectified:
        adaptive = o.inverse(root2, o.plus(o.root(exp_avg_sq), eps))
        direction = o.scaled(o.product(direction, adaptive), rectification)
    return o.add_scaled(param, direction, -1.0), exp_avg, exp_avg_sq


_RULE = Rule("radam", _apply, read=("grad",))


class _Captured(OnTensors):
    """The operations where whether to rectify is a tensor: the last factor is a condition, and 1 is taken where it doesn't hold."""

    def product(self, x: Any, y: Any) -> Any:
        return x, y

    def scaled(self, x: Any, number: Any) -> Any:
        if isinstance(x, tuple):
            direction, adaptive = x
            return direction * tocha.where(number, adaptive, tocha.ones_like(adaptive))
        return super().scaled(x, number)


def _rectification(rho: Any, rho_inf: float) -> Any:
    """The variance rectification term r_t of the paper, for an approximated length `rho` of the moving
    average.
    """
    return square_root((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
