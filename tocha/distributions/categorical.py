"""Categorical distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.device import Size
from tocha.distributions import constraints
from tocha.distributions._elementary import ProbsOrLogits
from tocha.distributions.distribution import Distribution

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """A class index, by probabilities or logits in the last dimension (torch docs: torch.distributions.categorical.Categorical)."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        ((name, value),) = self._given(probs, logits).items()
        if value.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            self.probs = value / value.sum(-1, keepdim=True)
        else:
            self.logits = value - value.logsumexp(dim=-1, keepdim=True)
        self._num_events = self._param.size()[-1]
        batch_shape = self._param.size()[:-1] if self._param.ndimension() > 1 else Size()
        Distribution.__init__(self, batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        new._num_events = self._num_events
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    def _undefined(self) -> Any:
        return tocha.full(self._extended_shape(), float("nan"), dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mean(self) -> Any:
        return self._undefined()

    @property
    def mode(self) -> Any:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Any:
        return self._undefined()

    def sample(self, sample_shape: Any = ()) -> Any:
        if not isinstance(sample_shape, Size):
            sample_shape = Size(sample_shape)
        rows = tocha.multinomial(self.probs.reshape(-1, self._num_events), sample_shape.numel(), True).T
        return rows.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, logs = tocha.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logs.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        logits = tocha.clamp(self.logits, min=tocha.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        return self._enumerated(tocha.arange(self._num_events, dtype=tocha.long, device=self._param.device), expand)
