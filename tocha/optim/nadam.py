"""NAdam: Adam with Nesterov momentum. Source: torch docs, torch.optim.NAdam; Dozat 2016."""

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
    zeros_like,
)
from ._rule import OnTensors, Rule, update
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

    def _functional(self) -> Callable[..., None]:
        return nadam

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq", "mu_product", "step"

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(("beta1", "beta2"), group["betas"], strict=True))


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
    fixed = {
        "maximize": maximize,
        "decay": weight_decay != 0 and decoupled_weight_decay,
        "penalty": 0.0 if decoupled_weight_decay else weight_decay,
        "shrink": 1 - lr * weight_decay,
        "share1": 1 - beta1,
        "beta2": beta2,
        "share2": 1 - beta2,
        "eps": eps,
    }

    def mu(step: Any) -> Any:
        return beta1 * (1.0 - 0.5 * (0.96 ** (step * momentum_decay)))

    def numbers(step: Any, product: Any) -> dict[str, Any]:
        follow = mu(step + 1)
        return {
            **fixed,
            "correction2": 1 - beta2**step,
            "descent": -lr * (1.0 - mu(step)) / (1.0 - product),
            "momentum": -lr * follow / (1.0 - product * follow),
        }

    for step, product in zip(state_steps, mu_products, strict=True):
        product.mul_(mu(step + 1 if keep else step.item() + 1))
    columns = {"param": params, "grad": grads, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs}
    update(_RULE, columns, numbers, [state_steps, mu_products], OnTensors(differentiable), keep=keep, has_complex=has_complex)


def _apply(
    o: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, *, maximize: bool, decay: bool, penalty: Any, shrink: Any, share1: Any,
    beta2: Any, share2: Any, eps: Any, correction2: Any, descent: Any, momentum: Any,
) -> tuple[Any, ...]:  # fmt: skip
    grad = o.regularised(param, grad, penalty, maximize)
    if decay:
        param = o.scale(param, shrink)
    exp_avg = o.lerp(exp_avg, grad, share1)
    exp_avg_sq = o.mean_square(exp_avg_sq, grad, beta2, share2)
    denominator = o.plus(o.root(o.divided(exp_avg_sq, correction2)), eps)
    param = o.add_quotient(param, grad, denominator, descent)
    return o.add_quotient(param, o.kept(exp_avg), denominator, momentum), exp_avg, exp_avg_sq


_RULE = Rule("nadam", _apply, read=("grad",))
