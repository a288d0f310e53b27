"""Exponential families: the entropy from the log normaliser (Nielsen & Nock 2010, eq. 3)."""

from __future__ import annotations

from typing import Any

import tocha
from tocha.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution with density exp(<t(x), theta> - F(theta) + k(x)): subclasses give theta, F and the mean of k
    (torch docs: torch.distributions.exp_family.ExponentialFamily)."""

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy, by differentiating the log normaliser."""
        result = -self._mean_carrier_measure
        points = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*points)
        gradients = tocha.autograd.grad(normalizer.sum(), points, create_graph=True)
        result = result + normalizer
        for point, gradient in zip(self._natural_params, gradients, strict=True):
            result = result - (point * gradient).reshape((*self._batch_shape, -1)).sum(-1)
        return result
