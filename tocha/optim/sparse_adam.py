"""Adam for sparse gradients. Source: torch docs, torch.optim.SparseAdam."""

from __future__ import annotations

from typing import Any

from ._common import RuleOptimizer, check_betas, check_lr
from .optimizer import ParamsT

__all__ = ["SparseAdam"]


class SparseAdam(RuleOptimizer):
    """Adam that moves only the rows present in a sparse gradient. tocha's gradients are dense, so `step`
    refuses them.

    It can be made, printed and checkpointed; `step` raises RuntimeError and names the optimizer to use.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_lr(lr)
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
