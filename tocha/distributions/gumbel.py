"""Gumbel distribution."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.transformed_distribution import TransformedDistribution
from tocha.distributions.transforms import AffineTransform, ExpTransform
from tocha.distributions.uniform import Uniform
from tocha.distributions.utils import broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """loc - scale * log(-log(u)) for u uniform on (0, 1) (torch docs: torch.distributions.gumbel.Gumbel)."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    loc: Any
    scale: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = tocha.finfo(self.loc.dtype)
        low, high = info.tiny, 1 - info.eps
        if not (isinstance(loc, Number) and isinstance(scale, Number)):
            low, high = tocha.full_like(self.loc, low), tocha.full_like(self.loc, high)
        transforms = [
            ExpTransform().inv, AffineTransform(loc=0, scale=-tocha.ones_like(self.scale)), ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]  # fmt: skip
        super().__init__(Uniform(low, high, validate_args=validate_args), transforms, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def entropy(self) -> Any:
        return self.scale.log() + (1 + euler_constant)
