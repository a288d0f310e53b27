"""Inverse gamma distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.gamma import Gamma
from tocha.distributions.transformed_distribution import TransformedDistribution
from tocha.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """1 / x for x from Gamma(concentration, rate) (torch docs: torch.distributions.inverse_gamma.InverseGamma)."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def concentration(self) -> Any:
        """The shape of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Any:
        """The rate of the gamma distribution."""
        return self.base_dist.rate

    @property
    def mean(self) -> Any:
        mean = self.rate / (self.concentration - 1)
        return tocha.where(self.concentration > 1, mean, tocha.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        c = self.concentration
        return tocha.where(c > 2, self.rate.square() / ((c - 1).square() * (c - 2)), tocha.inf)

    def entropy(self) -> Any:
        c = self.concentration
        return c + self.rate.log() + c.lgamma() - (1 + c) * c.digamma()
