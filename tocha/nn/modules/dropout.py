"""Dropout layers (Srivastava et al. 2014; torch docs: torch.nn.Dropout)."""

from __future__ import annotations

from typing import Any

from tocha.nn import functional as F
from tocha.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zero elements with probability `p` and scale the rest by 1/(1-p)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zero whole channels of (N, C, L) or (C, L)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zero whole channels of (N, C, H, W)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zero whole channels of (N, C, D, H, W)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of self-normalising inputs (Klambauer et al. 2017)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.feature_alpha_dropout(input, self.p, self.training)
