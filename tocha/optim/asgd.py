"""Averaged SGD. Source: torch docs, torch.optim.ASGD; Polyak & Juditsky 1992."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tocha

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

    def _functional(self) -> Callable[..., None]:
        return asgd

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "ax", "mu", "eta", "step"


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
    flags = {"maximize": maximize, "penalty": weight_decay}

    def numbers(step: Any, mu: Any, eta: Any) -> dict[str, Any]:
        averaging = capturable or bool(mu != 1)
        return {**flags, "shrink": 1 - lambd * eta, "descent": -eta, "averaging": averaging, "share": mu if averaging else 1.0}

    columns = {"param": params, "grad": grads, "ax": axs}
    update(_RULE, columns, numbers, [state_steps, mus, etas], OnTensors(differentiable), keep=keep, has_complex=has_complex)
    for step, mu, eta in zip(state_steps, mus, etas, strict=True):
        if keep:
            eta.copy_(lr / ((1 + lambd * lr * step.clone()) ** alpha))
            mu.copy_(1 / (step - t0).clamp(min=1))
        else:
            eta.fill_(lr / ((1 + lambd * lr * step.item()) ** alpha))
            mu.fill_(1 / max(1, step.item() - t0))


def _apply(
    o: Any,
    param: Any,
    grad: Any,
    ax: Any,
    *,
    maximize: bool,
    penalty: Any,
    shrink: Any,
    descent: Any,
    averaging: bool,
    share: Any,
) -> tuple[Any, ...]:
    grad = o.regularised(param, grad, penalty, maximize)
    param = o.add_scaled(o.scale(param, shrink), grad, descent)
    return param, o.toward(ax, param, share) if averaging else o.replace(ax, param)


_RULE = Rule("asgd", _apply, read=("grad",))
