"""The absolute value of a Normal variable around 0."""

from __future__ import annotations

import math
from typing import Any

from tocha.distributions._half import Half
from tocha.distributions.normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """|x| for x from Normal(0, scale) (torch docs: torch.distributions.half_normal.HalfNormal)."""

    whole = Normal

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)
