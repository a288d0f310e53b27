"""Distances between rows (torch docs: torch.nn.CosineSimilarity, PairwiseDistance)."""

from __future__ import annotations

from typing import Any

from tocha.nn import functional as F
from tocha.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """`‖x₁ − x₂ + eps‖ₚ` over the last dimension."""

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Any, x2: Any) -> Any:
        """(N, D) or (D,) to (N,) or ()."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """`x₁·x₂ / (max(‖x₁‖, eps)·max(‖x₂‖, eps))` along `dim`."""

    __constants__ = ["dim", "eps"]

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Any, x2: Any) -> Any:
        """The similarity, without dimension `dim`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
