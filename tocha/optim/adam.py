"""Adam, with AMSGrad and decoupled weight decay.

Source: torch docs, torch.optim.Adam; Kingma & Ba 2015; Reddi et al. 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    as_number,
    as_scalar,
    check_betas,
    check_call,
    check_fused,
    check_lr,
    check_non_negative,
    new_step,
    scalars,
    square_root,
    unscaled_grads,
    zeros_like,
)
from ._rule import OnTensors, Rule, update
from .optimizer import ParamsT

__all__ = ["Adam", "adam"]


class Adam(RuleOptimizer):
    """Adam. State: "step", "exp_avg", "exp_avg_sq" and, with amsgrad, "max_exp_avg_sq"."""

    _late_options: ClassVar[dict[str, Any]] = {
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "fused": None,
    }
    _sparse_advice = ", please consider SparseAdam instead"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        eager_foreach = foreach and not capturable
        if isinstance(lr, tocha.Tensor) and lr.numel() == 1 and eager_foreach:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check_lr(lr)
        check_non_negative(eps=eps)
        check_betas(betas)
        check_non_negative(weight_decay=weight_decay)
        tensor_betas = [isinstance(beta, tocha.Tensor) for beta in betas]
        if tensor_betas[0] != tensor_betas[1]:
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            if tensor_betas[i] and eager_foreach:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
            if tensor_betas[i] and beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def _sparse_name(self) -> str:
        return "Adam"

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": new_step(p, group), "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def _functional(self) -> Callable[..., None]:
        return adam

    def _columns(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None, "step"

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(("beta1", "beta2"), group["betas"], strict=True))


def adam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    max_exp_avg_sqs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """The Adam update of each parameter, in place on parameters, moments and steps."""
    check_call(
        "adam",
        params,
        state_steps,
        foreach=foreach,
        fused=fused,
        capturable=capturable,
        differentiable=differentiable,
    )
    unscaled = unscaled_grads(grads, grad_scale, found_inf)
    if unscaled is None:
        return
    keep = capturable or differentiable
    beta1, beta2 = scalars(keep, beta1, beta2)
    # A tensor rate rounds in its own dtype before it becomes a number, as it does in torch.
    number = as_scalar if keep else as_number
    lr = as_scalar(lr)
    fixed = {
        "maximize": maximize,
        "decay": weight_decay != 0 and decoupled_weight_decay,
        "penalty": 0.0 if decoupled_weight_decay else weight_decay,
        "shrink": number(1 - lr * weight_decay),
        "share1": 1 - beta1,
        "beta2": beta2,
        "share2": 1 - beta2,
        "eps": eps,
    }

    def numbers(step: Any) -> dict[str, Any]:
        correction2 = square_root(1 - beta2**step)
        return {**fixed, "correction2": correction2, "descent": -number(lr / (1 - beta1**step))}

    columns = {"param": params, "grad": unscaled, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs}
    if amsgrad:
        columns["max_exp_avg_sq"] = max_exp_avg_sqs
    update(_RULE, columns, numbers, [state_steps], OnTensors(differentiable), keep=keep, has_complex=has_complex)


def _apply(
    o: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, largest: Any = None, *, maximize: bool, decay: bool, penalty: Any,
    shrink: Any, share1: Any, beta2: Any, share2: Any, eps: Any, correction2: Any, descent: Any,
) -> tuple[Any, ...]:  # fmt: skip
    grad = o.regularised(param, grad, penalty, maximize)
    if decay:
        param = o.scale(param, shrink)
    exp_avg = o.lerp(exp_avg, grad, share1)
    exp_avg_sq = o.mean_square(exp_avg_sq, grad, beta2, share2)
    if largest is not None:
        largest = o.maximum(largest, exp_avg_sq)
    root = o.root(exp_avg_sq if largest is None else largest)
    denominator = o.plus(o.over(root, correction2), eps)
    param = o.add_quotient(param, o.kept(exp_avg), denominator, descent)
    return (param, exp_avg, exp_avg_sq) if largest is None else (param, exp_avg, exp_avg_sq, largest)


_RULE = Rule("adam", _apply, read=("grad",))
