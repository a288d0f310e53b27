"""Generalised Pareto distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Elementary):
    """P(X > x) = (1 + concentration (x - loc) / scale)^(-1 / concentration), exponential for concentration 0
    (torch docs: torch.distributions.generalized_pareto.GeneralizedPareto)."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    loc: Any
    scale: Any
    concentration: Any

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, loc=loc, scale=scale, concentration=concentration)

    def _exponential(self) -> Any:
        """Where the concentration counts as 0, and a concentration to divide by that isn't 0 there."""
        zero = tocha.isclose(self.concentration, tocha.zeros_like(self.concentration))
        return zero, tocha.where(zero, tocha.ones_like(self.concentration), self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = tocha.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, safe = self._exponential()
        y = 1 / safe + tocha.ones_like(z)
        inner = tocha.where(y == 0, 0.0, y * tocha.log1p(safe * z))
        return -self.scale.log() - tocha.where(zero, z, inner)

    def log_survival_function(self, value: Any) -> Any:
        """log P(X > value)."""
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, safe = self._exponential()
        return tocha.where(zero, -z, -tocha.log1p(safe * z) / safe)

    def log_cdf(self, value: Any) -> Any:
        """log P(X <= value)."""
        return tocha.log1p(-tocha.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return tocha.exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Any:
        zero, safe = self._exponential()
        logu = tocha.log1p(-value)
        return tocha.where(zero, self.loc - self.scale * logu, self.loc + self.scale * tocha.expm1(-safe * logu) / safe)

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    @property
    def mean(self) -> Any:
        c = self.concentration
        below = tocha.where(c < 1, c, 0.5)
        return tocha.where(c < 1, self.loc + self.scale / (1 - below), tocha.nan)

    @property
    def variance(self) -> Any:
        c = self.concentration
        below = tocha.where(c < 0.5, c, 0.25)
        finite = self.scale**2 / ((1 - below) ** 2 * (1 - 2 * below))
        return tocha.where(c < 0.5, finite, tocha.nan)

    def entropy(self) -> Any:
        return (tocha.log(self.scale) + self.concentration + 1).expand(self._batch_shape)

    @property
    def mode(self) -> Any:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        upper = tocha.where(self.concentration < 0, self.loc - self.scale / self.concentration, tocha.inf)
        return constraints.interval(self.loc, upper)
