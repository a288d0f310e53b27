"""Adafactor: a second moment kept as row and column factors.

Source: torch docs, torch.optim.Adafactor; Shazeer & Stern 2018.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tocha

from ._common import (
    RuleOptimizer,
    any_complex,
    as_number,
    check_call,
    check_lr,
    column,
    new_step,
    unscaled_grads,
)
from .optimizer import ParamsT

__all__ = ["Adafactor", "adafactor"]


class Adafactor(RuleOptimizer):
    """Adafactor. State: "step", and "row_var" and "col_var" of matrices or "variance" of vectors."""

    _late_options: ClassVar[dict[str, Any]] = {"foreach": None}

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_lr(lr, "Learning rate should be >= 0 but is: {}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = {"step": tocha.zeros((), dtype=new_step(p, group).dtype)}
        grad = p.grad
        if grad.dim() > 1:
            row, col = list(grad.shape), list(grad.shape)
            row[-1], col[-2] = 1, 1
            state["row_var"] = grad.new_zeros(row)
            state["col_var"] = grad.new_zeros(col)
        else:
            state["variance"] = tocha.zeros_like(grad, memory_format=tocha.preserve_format)
        return state

    def _with_grad(self, group: dict[str, Any]) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
        if any_complex([p for p in group["params"] if p.grad is not None]):
            raise RuntimeError("Adafactor does not support complex parameters")
        return super()._with_grad(group)

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        eps1, eps2 = group["eps"]
        adafactor(
            params,
            grads,
            [state.get("row_var") for state in states],
            [state.get("col_var") for state in states],
            [state.get("variance") for state in states],
            column(states, "step"),
            foreach=group["foreach"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            d=group["d"],
            lr=group["lr"],
            beta2_decay=group["beta2_decay"],
            weight_decay=group["weight_decay"],
            eps1=eps1,
            eps2=eps2,
            maximize=group["maximize"],
        )


def adafactor(
    params: list[Any],
    grads: list[Any],
    row_vars: list[Any],
    col_vars: list[Any],
    variances: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
) -> None:
    """The Adafactor update of each parameter, in place on parameters, factors and steps."""
    check_call("adafactor", params, state_steps, foreach=foreach)
    unscaled = unscaled_grads(grads, grad_scale, found_inf)
    if unscaled is None:
        return
    lr = as_number(lr)
    for i, param in enumerate(params):
        grad = unscaled[i].neg() if maximize else unscaled[i]
        floor = tocha.finfo(param.dtype).eps if eps1 is None else eps1
        state_steps[i].add_(1)
        step = state_steps[i].item()
        share = step**beta2_decay
        rate = min(lr, 1 / step**0.5)
        size = max(eps2, param.norm(2).item() / param.numel() ** 0.5) * rate
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        if grad.dim() > 1:
            estimate = _factored_second_moment(grad, row_vars[i], col_vars[i], share, floor)
        else:
            variances[i].lerp_(grad.square(), share)
            estimate = variances[i].clone()
        update = estimate.clamp_(min=floor * floor).rsqrt_().mul_(grad)
        clip = max(1.0, update.norm(2).item() / (update.numel() ** 0.5 * d))
        param.add_(update, alpha=-size / clip)


def _factored_second_moment(grad: Any, row_var: Any, col_var: Any, share: float, floor: float) -> Any:
    """Move the factors towards the mean squares of `grad` (..., n, m) and return their outer product
    (..., n, m).
    """
    row_var.lerp_(grad.norm(dim=-1, keepdim=True).square_().div_(grad.size(-1)), share)
    col_var.lerp_(grad.norm(dim=-2, keepdim=True).square_().div_(grad.size(-2)), share)
    return (row_var @ col_var).div_(row_var.mean(dim=-2, keepdim=True).clamp_(min=floor))
