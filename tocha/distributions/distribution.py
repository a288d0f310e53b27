"""What all distributions share: shapes, checks of arguments and values, sampling without gradients."""

from __future__ import annotations

import warnings
from typing import Any

import tocha
from tocha._checks import _check_tensor_all
from tocha.compiler import is_compiling
from tocha.device import Size
from tocha.distributions import constraints
from tocha.distributions.utils import lazy_property

__all__ = ["Distribution"]

_SCALAR = Size()


class Distribution:
    """A batch of distributions: samples have shape sample_shape + batch_shape + event_shape (torch docs:
    torch.distributions.distribution.Distribution). ValueError for parameters or values outside their constraints."""

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments, where validate_args isn't given."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = _SCALAR, event_shape: Any = _SCALAR, validate_args: bool | None = None) -> None:
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_arguments()
        super().__init__()

    def _check_arguments(self) -> None:
        try:
            found = self.arg_constraints
        except NotImplementedError:
            found = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
        for name, constraint in found.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue
            value = getattr(self, name)
            valid = constraint.check(value)
            if is_compiling():  # where the graph finds it isn't, this runs again, outside of it
                _check_tensor_all(valid)
            elif not valid.all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to "
                    f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distributions with parameters expanded to a larger batch, without copying."""
        raise NotImplementedError

    def _expanded(self, batch_shape: Any, _instance: Any) -> Any:
        """A distribution of this kind with every parameter that exists expanded; the general case of `expand`."""
        new = self._get_checked_instance(library_class(type(self)), _instance)
        batch_shape = Size(batch_shape)
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None:
                event = value.shape[value.dim() - _event_dim(constraint) :]
                new.__dict__[name] = value.expand(batch_shape + event)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Any:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of a single sample."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """The constraint of each argument, by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that values of the distribution satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most likely value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Any:
        """Samples without gradients."""
        with tocha.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Samples through which gradients flow to the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """n samples; deprecated."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density or probability at `value`."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The value below which a sample lies with a given probability."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution along a new first dimension, expanded over the batch if wanted."""
        raise NotImplementedError

    def _enumerated(self, values: Any, expand: bool) -> Any:
        """Values (n, …) along a first dimension before that of the batch."""
        values = values.view((-1,) + (1,) * len(self._batch_shape) + tuple(values.shape[1:]))
        return values.expand((-1, *self._batch_shape, *values.shape[1 + len(self._batch_shape) :])) if expand else values

    def entropy(self) -> Any:
        """The entropy, in nats, of each distribution of the batch."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """exp of the entropy."""
        return tocha.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Any:
        if not isinstance(sample_shape, Size):
            sample_shape = Size(sample_shape)
        return sample_shape + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        """ValueError unless `value` is a tensor of a fitting shape within the support."""
        if not isinstance(value, tocha.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = len(value.size()) - len(self._event_shape)
        if value.size()[max(start, 0) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}.")
        full = self._batch_shape + self._event_shape
        for have, want in zip(reversed(value.size()), reversed(full), strict=False):
            if have not in (1, want) and want != 1:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.size()} vs {full}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if support is None:
            raise AssertionError("support is unexpectedly None")
        valid = support.check(value)
        if is_compiling():
            _check_tensor_all(valid)
        elif not valid.all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support ({support!r}) of "
                f"the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method must also define a custom "
                ".expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in self.__dict__]
        shown = [self.__dict__[name] for name in names]
        parts = ", ".join(f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in zip(names, shown, strict=True))
        return f"{self.__class__.__name__}({parts})"


def library_class(cls: type) -> Any:
    """The nearest class of this library that `cls` is or derives from."""
    return next(c for c in cls.__mro__ if c.__module__.startswith("tocha.distributions"))


def _event_dim(constraint: Any) -> int:
    try:
        return constraint.event_dim
    except NotImplementedError:
        return 0
