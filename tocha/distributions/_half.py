"""Absolute values of variables that are symmetric around 0."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.transformed_distribution import TransformedDistribution
from tocha.distributions.transforms import AbsTransform


class Half(TransformedDistribution):
    """|x| for x from `whole(0, scale)`: twice that density, on one side."""

    arg_constraints: ClassVar[Any] = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    whole: ClassVar[Any]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self.whole(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Any:
        """The scale of the variable whose absolute value this is."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        return tocha.zeros_like(self.scale)

    def _given(self, value: Any) -> Any:
        """The value that a density is asked for, as a tensor."""
        return value

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value = self._given(value)
        return tocha.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Any) -> Any:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)
