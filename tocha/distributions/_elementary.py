"""What families of scalar distributions share: parameters broadcast together, given as probabilities or as logits."""

from __future__ import annotations

from numbers import Number
from typing import Any

from tocha.device import Size
from tocha.distributions.distribution import Distribution
from tocha.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


class Elementary(Distribution):
    """A distribution of scalars."""

    def _start(self, validate_args: bool | None, **parameters: Any) -> None:
        """Broadcast the parameters, make them attributes and initialise; numbers alone make a batch of shape ()."""
        scalar = all(isinstance(value, Number) for value in parameters.values())
        for name, value in zip(parameters, broadcast_all(*parameters.values()), strict=True):
            self.__dict__[name] = value
        shape = Size() if scalar else value.size()
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(batch_shape, _instance)


class ProbsOrLogits(Elementary):
    """A distribution parametrised by probabilities or by logits, each computed from the other when asked for."""

    _is_binary = True
    _kind: str

    def _given(self, probs: Any, logits: Any) -> dict[str, Any]:
        """The one parameter that was given; ValueError unless it is one."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._kind = "logits" if probs is None else "probs"
        return {self._kind: logits if probs is None else probs}

    @property
    def _param(self) -> Any:
        """The parameter that was given."""
        return self.__dict__[self._kind]

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)

    def _expanded(self, batch_shape: Any, _instance: Any) -> Any:
        new = super()._expanded(batch_shape, _instance)
        new._kind = self._kind
        return new

    @lazy_property
    def logits(self) -> Any:
        """Log odds, or log probabilities."""
        return probs_to_logits(self.probs, is_binary=self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._is_binary)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()
