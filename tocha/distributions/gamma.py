"""Gamma distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary
from tocha.distributions.exp_family import ExponentialFamily

__all__ = ["Gamma"]


class Gamma(Elementary, ExponentialFamily):
    """Shape `concentration`, `rate` (torch docs: torch.distributions.gamma.Gamma)."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    concentration: Any
    rate: Any

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        value = tocha._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=tocha.finfo(value.dtype).tiny)
        return value

    def log_prob(self, value: Any) -> Any:
        value = tocha.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        c, rate = self.concentration, self.rate
        return tocha.xlogy(c, rate) + tocha.xlogy(c - 1, value) - rate * value - tocha.lgamma(c)

    def entropy(self) -> Any:
        c = self.concentration
        return c - tocha.log(self.rate) + tocha.lgamma(c) + (1.0 - c) * tocha.digamma(c)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return tocha.special.gammainc(self.concentration, self.rate * value)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        return tocha.lgamma(x + 1) + (x + 1) * tocha.log(-y.reciprocal())
