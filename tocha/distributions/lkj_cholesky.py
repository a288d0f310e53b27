"""Cholesky factors of random correlation matrices, by the onion method (Lewandowski, Kurowicka & Joe 2009)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.device import Size
from tocha.distributions import constraints
from tocha.distributions.beta import Beta
from tocha.distributions.distribution import Distribution
from tocha.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower factors L of correlation matrices of size `dim`, density proportional to det(L L^T)^(concentration - 1)
    (torch docs: torch.distributions.lkj_cholesky.LKJCholesky)."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        batch_shape = self.concentration.size()
        marginal = self.concentration + 0.5 * (dim - 2)
        offset = tocha.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        offset = tocha.cat([offset.new_zeros((1,)), offset])
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(batch_shape, Size((dim, dim)), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        new.dim = self.dim
        new._beta = self._beta.expand(Size(batch_shape) + (self.dim,))
        return new

    def sample(self, sample_shape: Any = ()) -> Any:
        y = self._beta.sample(sample_shape).unsqueeze(-1)
        u = tocha.randn(self._extended_shape(sample_shape), dtype=y.dtype, device=y.device).tril(-1)
        sphere = u / u.norm(dim=-1, keepdim=True)
        sphere[..., 0, :].fill_(0.0)
        w = tocha.sqrt(y) * sphere
        tiny = tocha.finfo(w.dtype).tiny
        diagonal = tocha.clamp(1 - tocha.sum(w**2, dim=-1), min=tiny).sqrt()
        return w + tocha.diag_embed(diagonal)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = tocha.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalized = tocha.sum(order * diagonal.log(), dim=-1)
        rest = self.dim - 1
        alpha = self.concentration + 0.5 * rest
        below = tocha.mvlgamma(alpha - 0.5, rest) - tocha.lgamma(alpha) * rest
        return unnormalized - (0.5 * rest * math.log(math.pi) + below)
