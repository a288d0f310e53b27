"""Binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import ProbsOrLogits
from tocha.distributions.utils import broadcast_all

__all__ = ["Binomial"]


class Binomial(ProbsOrLogits):
    """Successes in `total_count` trials (torch docs: torch.distributions.binomial.Binomial)."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True
    total_count: Any

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        ((name, value),) = self._given(probs, logits).items()
        self.total_count, value = broadcast_all(total_count, value)
        self.total_count = self.total_count.type_as(value)
        self._start(validate_args, **{name: value})

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with tocha.no_grad():
            return tocha.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        choices = tocha.lgamma(n + 1) - tocha.lgamma(value + 1) - tocha.lgamma(n - value + 1)
        # log(1 + exp(logits)) with the exponent of large logits taken out; the maximum with 0 has slope 1/2 at 0
        above = (self.logits.clamp(min=0) + self.logits - self.logits.clamp(max=0)) / 2
        return value * self.logits + choices - n * (above + tocha.log1p(tocha.exp(-tocha.abs(self.logits))))

    def entropy(self) -> Any:
        n = int(self.total_count.max())
        if not self.total_count.min() == n:
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(tocha.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        n = int(self.total_count.max())
        if not self.total_count.min() == n:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return self._enumerated(tocha.arange(1 + n, dtype=self._param.dtype, device=self._param.device), expand)
