"""Dirichlet distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


class _Sample(tocha.autograd.Function):  # type: ignore[misc]
    """A sample whose gradient is that of its implicit reparametrisation."""

    @staticmethod
    def forward(ctx: Any, concentration: Any) -> Any:
        x = tocha._sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @tocha.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        x, concentration = ctx.saved_tensors
        total = concentration.sum(-1, True).expand_as(concentration)
        slope = tocha._dirichlet_grad(x, concentration, total)
        return slope * (grad - (x * grad).sum(-1, True))


class Dirichlet(ExponentialFamily):
    """Points of the simplex, density proportional to the product of x_i^(concentration_i - 1)
    (torch docs: torch.distributions.dirichlet.Dirichlet)."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(batch_shape, _instance)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return _Sample.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        c = self.concentration
        return tocha.xlogy(c - 1.0, value).sum(-1) + tocha.lgamma(c.sum(-1)) - tocha.lgamma(c).sum(-1)

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        excess = (self.concentration - 1).clamp(min=0.0)
        mode = excess / excess.sum(-1, True)
        mask = (self.concentration < 1).all(dim=-1)
        mode[mask] = tocha.nn.functional.one_hot(mode[mask].argmax(dim=-1), excess.shape[-1]).to(mode)
        return mode

    @property
    def variance(self) -> Any:
        c = self.concentration
        total = c.sum(-1, True)
        return c * (total - c) / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        c = self.concentration
        k = c.size(-1)
        total = c.sum(-1)
        return (
            tocha.lgamma(c).sum(-1)
            - tocha.lgamma(total)
            - (k - total) * tocha.digamma(total)
            - ((c - 1.0) * tocha.digamma(c)).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        (x,) = natural_params
        return x.lgamma().sum(-1) - tocha.lgamma(x.sum(-1))
