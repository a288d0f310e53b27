"""RMSprop, plain, centred and with momentum.

Source: torch docs, torch.optim.RMSprop; Hinton's lecture 6e; Graves 2013.
"""

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

    def _functional(self) -> Callable[..., None]:
        return rmsprop

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return (
            "square_avg",
            "grad_avg" if group["centered"] else None,
            "momentum_buffer" if group["momentum"] > 0 else None,
            "step",
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
    keep = capturable or differentiable
    (lr,) = scalars(keep, lr)
    numbers = {
        "alpha": alpha, "share": 1 - alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered,
        "maximize": maximize, "descent": -lr,
    }  # fmt: skip
    columns = {"param": params, "grad": grads, "square_avg": square_avgs}
    if centered:
        columns["grad_avg"] = grad_avgs
    if momentum > 0:
        columns["buffer"] = momentum_buffer_list
    update(_RULE, columns, lambda step: numbers, [state_steps], OnTensors(differentiable), keep=keep, has_complex=has_complex)


def _apply(
    o: Any, param: Any, grad: Any, square_avg: Any, *others: Any, alpha: Any, share: Any, eps: Any, weight_decay: Any, momentum: Any,
    centered: bool, maximize: bool, descent: Any,
) -> tuple[Any, ...]:  # fmt: skip
    grad = o.regularised(param, grad, weight_decay, maximize)
    square_avg = o.mean_square(square_avg, grad, alpha, share)
    new: list[Any] = []
    if centered:
        new.append(o.lerp(others[0], grad, share))
        root = o.deviation(square_avg, o.kept(new[0]))
    else:
        root = o.root(square_avg)
    denominator = o.plus(root, eps)
    if momentum > 0:
        new.append(o.add_quotient(o.scale(others[-1], momentum), grad, denominator, 1))
        param = o.add_scaled(param, o.kept(new[-1]), descent)
    else:
        param = o.add_quotient(param, grad, denominator, descent)
    return param, square_avg, *new


_RULE = Rule("rmsprop", _apply, read=("grad",))
