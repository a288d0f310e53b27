"""Fisher-Snedecor (F) distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary
from tocha.distributions.gamma import Gamma

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Elementary):
    """The ratio of two chi-squared variables, each over its degrees of freedom
    (torch docs: torch.distributions.fishersnedecor.FisherSnedecor)."""

    arg_constraints: ClassVar[Any] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Any
    df2: Any

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, df1=df1, df2=df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)

    def _expanded(self, batch_shape: Any, _instance: Any) -> Any:
        new = super()._expanded(batch_shape, _instance)
        new._gamma1, new._gamma2 = self._gamma1.expand(batch_shape), self._gamma2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Any:
        df2 = tocha.where(self.df2 > 2, self.df2, float("nan"))
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return tocha.where(self.df1 > 2, mode, float("nan"))

    @property
    def variance(self) -> Any:
        df2 = tocha.where(self.df2 > 4, self.df2, float("nan"))
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        first = self._gamma1.rsample(sample_shape).view(shape)
        second = self._gamma2.rsample(sample_shape).view(shape)
        tiny = tocha.finfo(second.dtype).tiny
        second.clamp_(min=tiny)
        ratio = first / second
        ratio.clamp_(min=tiny)
        return ratio

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        beta = (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
        return beta + half1 * ratio.log() + (half1 - 1) * tocha.log(value) - (half1 + half2) * tocha.log1p(ratio * value)
