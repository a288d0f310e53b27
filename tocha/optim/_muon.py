"""Muon: momentum orthogonalised by Newton-Schulz iterations.

Source: torch docs, torch.optim.Muon; Jordan et al. 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tocha

from ._common import RuleOptimizer, any_complex, as_number, check_call, check_lr, column, zeros_like
from .optimizer import ParamsT

__all__ = ["Muon"]

#: Coefficients of the quintic iteration, and the number of iterations.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5

#: How the learning rate depends on the shape (A, B) of a matrix.
_RATE_RULES: dict[str, Callable[[int, int], float]] = {
    "original": lambda a, b: math.sqrt(max(1, a / b)),
    "match_rms_adamw": lambda a, b: 0.2 * math.sqrt(max(a, b)),
}


class Muon(RuleOptimizer):
    """Muon, for matrices only. State: "momentum_buffer"."""

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = NEWTON_SCHULZ,
        eps: float = 1e-7,
        ns_steps: int = NEWTON_SCHULZ_STEPS,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_lr(lr, "Learning rate should be >= 0 but is: {}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn is not None and adjust_lr_fn not in _RATE_RULES:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {"momentum_buffer": zeros_like(p.grad)}

    def _with_grad(self, group: dict[str, Any]) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
        if any_complex([p for p in group["params"] if p.grad is not None]):
            raise RuntimeError("Muon does not support complex parameters")
        return super()._with_grad(group)

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        muon(
            params,
            grads,
            column(states, "momentum_buffer"),
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            nesterov=group["nesterov"],
            ns_coefficients=group["ns_coefficients"],
            eps=group["eps"],
            ns_steps=group["ns_steps"],
            adjust_lr_fn=group["adjust_lr_fn"],
            has_complex=False,
        )


def muon(
    params: list[Any],
    grads: list[Any],
    muon_momentum_bufs: list[Any],
    *,
    foreach: bool | None = None,
    lr: Any,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    ns_coefficients: tuple[float, float, float],
    ns_steps: int,
    eps: float,
    adjust_lr_fn: str | None,
    has_complex: bool,
) -> None:
    """The Muon update of each matrix, in place on parameters and momentum buffers."""
    if has_complex:
        raise ValueError("Complex parameters are not supported")
    check_call("muon", params, foreach=foreach)
    lr = as_number(lr)
    rule = _RATE_RULES[adjust_lr_fn or "original"]
    for param, grad, buffer in zip(params, grads, muon_momentum_bufs):
        if grad.dim() != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        buffer.lerp_(grad, 1 - momentum)
        update = grad.lerp(buffer, momentum) if nesterov else buffer
        update = orthogonalised(update, ns_coefficients, ns_steps, eps)
        rate = lr * rule(*param.shape)
        param.mul_(1 - lr * weight_decay)
        param.add_(update, alpha=-rate)


def orthogonalised(matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """A bfloat16 matrix near the orthogonal polar factor of `matrix` (n, m), by a quintic Newton-Schulz
    iteration.
    """
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if matrix.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = matrix.size(0) > matrix.size(1)
    if tall:
        x = x.T
    # Spectral norm at most 1, or the iteration diverges.
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        polynomial = tocha.addmm(gram, gram, gram, beta=b, alpha=c)
        x = tocha.addmm(x, polynomial, x, beta=a)
    return x.T if tall else x
