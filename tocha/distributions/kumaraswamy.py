"""Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.transformed_distribution import TransformedDistribution
from tocha.distributions.transforms import AffineTransform, PowerTransform
from tocha.distributions.uniform import Uniform
from tocha.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


def _moment(a: Any, b: Any, n: int) -> Any:
    """The n-th moment, b B(1 + n / a, b)."""
    first = 1 + n / a
    return tocha.exp(tocha.lgamma(first) + tocha.lgamma(b) - tocha.lgamma(first + b)) * b


class Kumaraswamy(TransformedDistribution):
    """Density a b x^(a - 1) (1 - x^a)^(b - 1) on [0, 1] for a = concentration1, b = concentration0
    (torch docs: torch.distributions.kumaraswamy.Kumaraswamy)."""

    arg_constraints: ClassVar[Any] = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    concentration1: Any
    concentration0: Any

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        a, b = self.concentration1, self.concentration0
        base = Uniform(tocha.full_like(b, 0), tocha.full_like(b, 1), validate_args=validate_args)
        transforms = [
            PowerTransform(exponent=b.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=a.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return _moment(self.concentration1, self.concentration0, 1)

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        log_mode = a.reciprocal() * (-b).log1p() - (-a * b).log1p()
        log_mode = tocha.where((a < 1) | (b < 1), float("nan"), log_mode)
        return log_mode.exp()

    @property
    def variance(self) -> Any:
        return _moment(self.concentration1, self.concentration0, 2) - tocha.pow(self.mean, 2)

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = tocha.digamma(b + 1) + euler_constant
        return (1 - a.reciprocal()) * harmonic + (1 - b.reciprocal()) - tocha.log(a) - tocha.log(b)
