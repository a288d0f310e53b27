"""The absolute value of a Cauchy variable around 0."""

from __future__ import annotations

import math
from typing import Any

import tocha
from tocha.distributions._half import Half
from tocha.distributions.cauchy import Cauchy

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """|x| for x from Cauchy(0, scale) (torch docs: torch.distributions.half_cauchy.HalfCauchy)."""

    whole = Cauchy

    @property
    def mean(self) -> Any:
        return tocha.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def _given(self, value: Any) -> Any:
        return tocha.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
