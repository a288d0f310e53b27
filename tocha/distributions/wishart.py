"""Wishart distribution; samples by Bartlett's decomposition."""

from __future__ import annotations

import math
import warnings
from numbers import Number
from typing import Any

import tocha
from tocha.device import Size
from tocha.distributions import constraints
from tocha.distributions.chi2 import Chi2
from tocha.distributions.exp_family import ExponentialFamily
from tocha.distributions.multivariate_normal import CovarianceForms, half_log_det

__all__ = ["Wishart"]


def _mvdigamma(x: Any, p: int) -> Any:
    """The derivative of the multivariate log-gamma function."""
    if not x.gt((p - 1) / 2).all():
        raise AssertionError("Wrong domain for multivariate digamma function.")
    return tocha.digamma(x.unsqueeze(-1) - tocha.arange(p, dtype=x.dtype, device=x.device).div(2).expand(x.shape + (-1,))).sum(-1)


class Wishart(CovarianceForms, ExponentialFamily):
    """Sums of `df` outer products of normal vectors with a given covariance
    (torch docs: torch.distributions.wishart.Wishart)."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1),
        }  # fmt: skip

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        forms = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        name, value = self._one_form(forms)
        if isinstance(df, Number):
            batch_shape = Size(value.shape[:-2])
            self.df = tocha.full((), df, dtype=value.dtype, device=value.device)
        else:
            batch_shape = tocha.broadcast_shapes(value.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
        event_shape = value.shape[-2:]
        self._event_shape = event_shape
        if self.df.le(event_shape[-1] - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}.")
        self.__dict__[name] = value.expand(batch_shape + (-1, -1))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if self.df.lt(event_shape[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.", stacklevel=2
            )
        self._factorise(name, value)
        self._dist_chi2 = self._chi2(self.df)

    def _chi2(self, df: Any) -> Any:
        n = self._event_shape[-1]
        falling = tocha.arange(n, dtype=self._unbroadcasted_scale_tril.dtype, device=self._unbroadcasted_scale_tril.device)
        return Chi2(df.expand(self._batch_shape).unsqueeze(-1) - falling.expand(self._batch_shape + (-1,)))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        new._dist_chi2 = new._chi2(new.df)
        return new

    @property
    def mean(self) -> Any:
        return self.df.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = tocha.where(factor <= 0, float("nan"), factor)
        return factor.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df.view(self._batch_shape + (1, 1)) * (v.pow(2) + tocha.einsum("...i,...j->...ij", diagonal, diagonal))

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Any:
        p = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        i, j = tocha.tril_indices(p, p, offset=-1)
        noise[..., i, j] = tocha.randn(
            Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,), dtype=noise.dtype, device=noise.device
        )
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int = 10) -> Any:
        """Samples; those that come out singular are drawn again, up to `max_try_correction` times."""
        sample_shape = Size(sample_shape)
        self._bartlett_sampling(sample_shape)  # torch throws its first samples away; this keeps to its numbers
        sample = self._bartlett_sampling(sample_shape)
        singular = ~self.support.check(sample)
        if singular.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
            for _ in range(max_try_correction):
                sample = tocha.where(singular[..., None, None], self._bartlett_sampling(sample_shape), sample)
                singular = ~self.support.check(sample)
                if not singular.any():
                    break
        return sample

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        nu, p = self.df, self._event_shape[-1]
        solved = tocha.cholesky_solve(value, self._unbroadcasted_scale_tril)
        return (
            -nu * (p * math.log(2.0) / 2.0 + half_log_det(self._unbroadcasted_scale_tril))
            - tocha.mvlgamma(nu / 2.0, p=p)
            + (nu - p - 1.0) / 2.0 * tocha.linalg.slogdet(value).logabsdet
            - solved.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / 2.0
        )

    def entropy(self) -> Any:
        nu, p = self.df, self._event_shape[-1]
        return (
            (p + 1.0) * (p * math.log(2.0) / 2.0 + half_log_det(self._unbroadcasted_scale_tril))
            + tocha.mvlgamma(nu / 2.0, p=p)
            - (nu - p - 1.0) / 2.0 * _mvdigamma(nu / 2.0, p=p)
            + nu * p / 2.0
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        p = x.shape[-1]
        half = y + (p + 1) / 2
        return half * (-tocha.linalg.slogdet(-2 * x).logabsdet + p * math.log(2.0)) + tocha.mvlgamma(half, p=p)
