"""Logistic-normal distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tocha.distributions import constraints
from tocha.distributions.normal import Normal
from tocha.distributions.transformed_distribution import TransformedDistribution
from tocha.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Normal vectors broken to points of the simplex, one dimension larger
    (torch docs: torch.distributions.logistic_normal.LogisticNormal)."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Any:
        """The mean of the normal vector."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        """The standard deviation of the normal vector."""
        return self.base_dist.base_dist.scale
