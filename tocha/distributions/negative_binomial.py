"""Negative binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import ProbsOrLogits
from tocha.distributions.gamma import Gamma
from tocha.distributions.utils import broadcast_all, lazy_property
from tocha.nn import functional as F

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits):
    """Successes, each with probability `probs`, before `total_count` failures
    (torch docs: torch.distributions.negative_binomial.NegativeBinomial)."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real,
    }  # fmt: skip
    support = constraints.nonnegative_integer
    total_count: Any

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        ((name, value),) = self._given(probs, logits).items()
        self.total_count, value = broadcast_all(total_count, value)
        self.total_count = self.total_count.type_as(value)
        self._start(validate_args, **{name: value})

    @property
    def mean(self) -> Any:
        return self.total_count * tocha.exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / tocha.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(concentration=self.total_count, rate=tocha.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Any:
        with tocha.no_grad():
            return tocha.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        unnormalized = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        norm = -tocha.lgamma(n + value) + tocha.lgamma(1.0 + value) + tocha.lgamma(n)
        return unnormalized - norm.masked_fill(n + value == 0.0, 0.0)
