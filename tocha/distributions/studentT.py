"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary
from tocha.distributions.chi2 import Chi2
from tocha.distributions.utils import standard_normal

__all__ = ["StudentT"]


class StudentT(Elementary):
    """`df` degrees of freedom, moved by `loc` and stretched by `scale` (torch docs: torch.distributions.studentT.StudentT)."""

    arg_constraints: ClassVar[Any] = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    df: Any
    loc: Any
    scale: Any

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._start(validate_args, df=df, loc=loc, scale=scale)
        self._chi2 = Chi2(self.df)

    def _expanded(self, batch_shape: Any, _instance: Any) -> Any:
        new = super()._expanded(batch_shape, _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Any:
        return tocha.where(self.df <= 1, float("nan"), self.loc)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        below = tocha.where(self.df > 1, float("inf"), float("nan"))
        return tocha.where(self.df > 2, finite, below.to(finite))

    def rsample(self, sample_shape: Any = ()) -> Any:
        x = standard_normal(self._extended_shape(sample_shape), self.df)
        return self.loc + self.scale * (x * tocha.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        norm = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        norm = norm + tocha.lgamma(0.5 * self.df) - tocha.lgamma(0.5 * (self.df + 1.0))
        return -0.5 * (self.df + 1.0) * tocha.log1p(y**2.0 / self.df) - norm

    def entropy(self) -> Any:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        beta = tocha.lgamma(half) + math.lgamma(0.5) - tocha.lgamma(more)
        return self.scale.log() + more * (tocha.digamma(more) - tocha.digamma(half)) + 0.5 * self.df.log() + beta
