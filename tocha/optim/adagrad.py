"""Adagrad. Source: torch docs, torch.optim.Adagrad; Duchi et al. 2011."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    as_number,
    check_call,
    check_fused,
    check_lr,
    check_non_negative,
    new_step,
    scalars,
    unscaled_grads,
)
from ._rule import OnTensors, Rule, update
from .optimizer import ParamsT

__all__ = ["Adagrad", "adagrad"]


class Adagrad(RuleOptimizer):
    """Adagrad. State, made with the optimizer: "step" and "sum"."""

    _late_options: ClassVar[dict[str, Any]] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "fused": None,
    }
    _sparse_advice = ": call .to_dense() on them first"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_non_negative(
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(self._new_state(p, group))

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        value = complex(start, start) if p.is_complex() else start
        return {
            "step": new_step(p, group),
            "sum": tocha.full_like(p, value, memory_format=tocha.preserve_format),
        }

    def share_memory(self) -> None:
        """Move the sums to shared memory, for training by several processes."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _functional(self) -> Callable[..., None]:
        return adagrad

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "sum", "step"


def adagrad(
    params: list[Any],
    grads: list[Any],
    state_sums: list[Any],
    state_steps: list[Any],
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """The Adagrad update of each parameter, in place on parameters, sums and steps."""
    check_call("adagrad", params, state_steps, foreach=foreach, fused=fused, differentiable=differentiable)
    unscaled = unscaled_grads(grads, grad_scale, found_inf)
    if unscaled is None:
        return
    (lr,) = scalars(differentiable, lr)

    def numbers(step: Any) -> dict[str, Any]:
        descent = -(lr / (1 + (as_number(step) - 1) * lr_decay))
        return {"weight_decay": weight_decay, "maximize": maximize, "eps": eps, "descent": descent}

    columns = {"param": params, "grad": unscaled, "sum": state_sums}
    update(_RULE, columns, numbers, [state_steps], OnTensors(differentiable), keep=differentiable, has_complex=has_complex)


def _apply(
    o: Any, param: Any, grad: Any, total: Any, *, weight_decay: Any, maximize: bool, eps: Any, descent: Any
) -> tuple[Any, ...]:
    grad = o.regularised(param, grad, weight_decay, maximize)
    total = o.add_product(total, grad, grad, 1)
    denominator = o.plus(o.root(total), eps)
    return o.add_quotient(param, grad, denominator, descent), total


_RULE = Rule("adagrad", _apply, read=("grad",))
