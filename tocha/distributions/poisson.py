"""Poisson distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary
from tocha.distributions.exp_family import ExponentialFamily

__all__ = ["Poisson"]


class Poisson(Elementary, ExponentialFamily):
    """Counts with mean `rate` (torch docs: torch.distributions.poisson.Poisson)."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Any

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with tocha.no_grad():
            return tocha.poisson(self.rate.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (tocha.log(self.rate),)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return tocha.exp(natural_params[0])
