"""Continuous Bernoulli distribution (Loaiza-Ganem & Cunningham 2019)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import ProbsOrLogits
from tocha.distributions.exp_family import ExponentialFamily
from tocha.distributions.utils import broadcast_all, clamp_probs
from tocha.nn import functional as F

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Density proportional to probs^x (1 - probs)^(1 - x) on [0, 1]; for probs within `lims`, around 1/2, by Taylor series
    (torch docs: torch.distributions.continuous_bernoulli.ContinuousBernoulli)."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None
    ) -> None:
        self._lims = lims
        given = self._given(probs, logits)
        if logits is None:
            (self.probs,) = broadcast_all(probs)
            checked = constraints.unit_interval.check(self.probs).all()
            if validate_args is not False and (validate_args or self._validate_args) and not checked:
                raise ValueError("The parameter probs has invalid values")
            given = {"probs": probs if not isinstance(probs, tocha.Tensor) else clamp_probs(self.probs)}
        self._start(validate_args, **given)
        if logits is None:
            self.probs = clamp_probs(self.probs)

    def _expanded(self, batch_shape: Any, _instance: Any) -> Any:
        new = super()._expanded(batch_shape, _instance)
        new._lims = self._lims
        return new

    def _stable(self) -> Any:
        """Where the closed forms may be used."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Any:
        return tocha.where(self._stable(), self.probs, tocha.full_like(self.probs, self._lims[0]))

    def _cont_bern_log_norm(self) -> Any:
        """log C(probs) = log(2 artanh(1 - 2 probs) / (1 - 2 probs))."""
        cut = self._cut_probs()
        low = tocha.where(cut <= 0.5, cut, tocha.zeros_like(cut))
        high = tocha.where(cut >= 0.5, cut, tocha.ones_like(cut))
        norm = tocha.log(tocha.abs(tocha.log1p(-cut) - tocha.log(cut))) - tocha.where(
            cut <= 0.5, tocha.log1p(-2.0 * low), tocha.log(2.0 * high - 1.0)
        )
        x = tocha.pow(self.probs - 0.5, 2)
        return tocha.where(self._stable(), norm, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Any:
        cut = self._cut_probs()
        exact = cut / (2.0 * cut - 1.0) + 1.0 / (tocha.log1p(-cut) - tocha.log(cut))
        x = self.probs - 0.5
        return tocha.where(self._stable(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * tocha.pow(x, 2)) * x)

    @property
    def stddev(self) -> Any:
        return tocha.sqrt(self.variance)

    @property
    def variance(self) -> Any:
        cut = self._cut_probs()
        exact = cut * (cut - 1.0) / tocha.pow(1.0 - 2.0 * cut, 2) + 1.0 / tocha.pow(tocha.log1p(-cut) - tocha.log(cut), 2)
        x = tocha.pow(self.probs - 0.5, 2)
        return tocha.where(self._stable(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape: Any = ()) -> Any:
        with tocha.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = tocha.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
        return self.icdf(u)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._cont_bern_log_norm()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        cut = self._cut_probs()
        inside = (tocha.pow(cut, value) * tocha.pow(1.0 - cut, 1.0 - value) + cut - 1.0) / (2.0 * cut - 1.0)
        inside = tocha.where(self._stable(), inside, value)
        inside = tocha.where(tocha.le(value, 0.0), tocha.zeros_like(value), inside)
        return tocha.where(tocha.ge(value, 1.0), tocha.ones_like(value), inside)

    def icdf(self, value: Any) -> Any:
        cut = self._cut_probs()
        exact = (tocha.log1p(-cut + value * (2.0 * cut - 1.0)) - tocha.log1p(-cut)) / (tocha.log(cut) - tocha.log1p(-cut))
        return tocha.where(self._stable(), exact, value)

    def entropy(self) -> Any:
        log_odds = self.logits
        return -self.mean * log_odds - self._cont_bern_log_norm() - tocha.log1p(-self.probs)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        """log((exp(x) - 1) / x), by Taylor series around 0."""
        (x,) = natural_params
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= low) | (x > high)
        cut = tocha.where(outside, x, low * tocha.ones_like(x))
        norm = tocha.log(tocha.abs(tocha.special.expm1(cut))) - tocha.log(tocha.abs(cut))
        taylor = 0.5 * x + tocha.pow(x, 2) / 24.0 - tocha.pow(x, 4) / 2880.0
        return tocha.where(outside, norm, taylor)
