"""Exponential distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary
from tocha.distributions.exp_family import ExponentialFamily

__all__ = ["Exponential"]


class Exponential(Elementary, ExponentialFamily):
    """Density rate * exp(-rate x) (torch docs: torch.distributions.exponential.Exponential)."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    rate: Any

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        return tocha.zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.rate.new(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 1 - tocha.exp(-self.rate * value)

    def icdf(self, value: Any) -> Any:
        return -tocha.log1p(-value) / self.rate

    def entropy(self) -> Any:
        return 1.0 - tocha.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return -tocha.log(-natural_params[0])
