"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.device import Size
from tocha.distributions import constraints
from tocha.distributions.categorical import Categorical
from tocha.distributions.constraints import MixtureSameFamilyConstraint
from tocha.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Components along the last batch dimension, chosen by a Categorical
    (torch docs: torch.distributions.mixture_same_family.MixtureSameFamily)."""

    arg_constraints: ClassVar[Any] = {}
    has_rsample = False

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        have, parts = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(have), reversed(parts), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({have}) is not compatible with `component_distribution.batch_shape`({parts})"
                )
        count, found = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if count is not None and found is not None and count != found:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal `component_distribution.batch_shape[-1]` ({found})"
            )
        self._num_component = count
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(parts, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        batch_shape = Size(batch_shape)
        new._component_distribution = self._component_distribution.expand(batch_shape + (self._num_component,))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The Categorical that chooses."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _weighted(self, values: Any) -> Any:
        """The sum over components of their values, by probability."""
        return tocha.sum(self._pad_mixture_dimensions(self._mixture_distribution.probs) * values, dim=-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Any:
        within = self._weighted(self._component_distribution.variance)
        return within + self._weighted((self._component_distribution.mean - self._pad(self.mean)).pow(2.0))

    def cdf(self, x: Any) -> Any:
        x = self._pad(x)
        return tocha.sum(self._component_distribution.cdf(x) * self._mixture_distribution.probs, dim=-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        x = self._pad(x)
        weights = tocha.log_softmax(self._mixture_distribution.logits, dim=-1)
        return tocha.logsumexp(self._component_distribution.log_prob(x) + weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        with tocha.no_grad():
            dim = len(sample_shape) + len(self._batch_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            samples = self._component_distribution.sample(sample_shape)
            ones = Size([1] * (self._event_ndims + 1))
            chosen = chosen.reshape(chosen.shape + ones).repeat(Size([1] * len(chosen.shape)) + Size([1]) + self._event_shape)
            return tocha.gather(samples, dim, chosen).squeeze(dim)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Any) -> Any:
        missing = self._batch_shape.numel() and len(self._batch_shape) - len(self._mixture_distribution.batch_shape)
        shape = x.shape
        return x.reshape(shape[:-1] + Size(missing * [1]) + shape[-1:] + Size(self._event_ndims * [1]))

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
