"""Laplace distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary

__all__ = ["Laplace"]


class Laplace(Elementary):
    """Density exp(-|x - loc| / scale) / (2 scale) (torch docs: torch.distributions.laplace.Laplace)."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    loc: Any
    scale: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Any:
        return (2**0.5) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Any:
        eps = tocha.finfo(self.loc.dtype).eps
        u = self.loc.new(self._extended_shape(sample_shape)).uniform_(eps - 1, 1)
        return self.loc - self.scale * u.sign() * tocha.log1p(-u.abs())

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -tocha.log(2 * self.scale) - tocha.abs(value - self.loc) / self.scale

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * tocha.expm1(-away.abs() / self.scale)

    def icdf(self, value: Any) -> Any:
        away = value - 0.5
        return self.loc - self.scale * away.sign() * tocha.log1p(-2 * away.abs())

    def entropy(self) -> Any:
        return 1 + tocha.log(2 * self.scale)
