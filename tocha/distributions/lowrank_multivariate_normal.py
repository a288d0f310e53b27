"""Multivariate normal distribution with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.distribution import Distribution
from tocha.distributions.multivariate_normal import half_log_det, squared_distance, times_vector
from tocha.distributions.utils import lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal"]


def capacitance(factor: Any, diagonal: Any) -> Any:
    """The Cholesky factor of I + W^T D^-1 W."""
    m = factor.size(-1)
    inner = tocha.matmul(factor.mT / diagonal.unsqueeze(-2), factor).contiguous()
    inner.view(-1, m * m)[:, :: m + 1] += 1
    return tocha.linalg.cholesky(inner)


def log_det(diagonal: Any, tril: Any) -> Any:
    """log det (W W^T + D), by the matrix determinant lemma."""
    return 2 * half_log_det(tril) + diagonal.log().sum(-1)


def squared_distance_low_rank(factor: Any, diagonal: Any, x: Any, tril: Any) -> Any:
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    inner = times_vector(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.pow(2) / diagonal).sum(-1) - squared_distance(tril, inner)


class LowRankMultivariateNormal(Distribution):
    """Mean `loc`, covariance cov_factor cov_factor^T + diag(cov_diag) (torch docs:
    torch.distributions.lowrank_multivariate_normal.LowRankMultivariateNormal)."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            loc_, diagonal = tocha.broadcast_tensors(loc.unsqueeze(-1), cov_diag.unsqueeze(-1))
            batch_shape = tocha.broadcast_shapes(loc_.shape[:-2], cov_factor.shape[:-2])
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc_[..., 0].expand(batch_shape + event_shape)
        self.cov_factor = cov_factor.expand(batch_shape + cov_factor.shape[-2:])
        self.cov_diag = diagonal[..., 0].expand(batch_shape + event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = capacitance(cov_factor, cov_diag)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return new

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        return (self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag).expand(
            self._batch_shape + self._event_shape
        )

    def _square(self, value: Any) -> Any:
        n = self._event_shape[0]
        return value.expand(self._batch_shape + (n, n))

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower Cholesky factor of the covariance."""
        n = self._event_shape[0]
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = tocha.matmul(scaled, scaled.mT).contiguous()
        inner.view(-1, n * n)[:, :: n + 1] += 1
        return self._square(root * tocha.linalg.cholesky(inner))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._square(tocha.matmul(factor, factor.mT) + tocha.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance, by Woodbury's identity."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        solved = tocha.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._square(tocha.diag_embed(self._unbroadcasted_cov_diag.reciprocal()) - solved.mT @ solved)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        eps_w = standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc)
        eps_d = standard_normal(shape, self.loc)
        return self.loc + times_vector(self._unbroadcasted_cov_factor, eps_w) + self._unbroadcasted_cov_diag.sqrt() * eps_d

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        factor, diagonal, tril = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        distance = squared_distance_low_rank(factor, diagonal, value - self.loc, tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det(diagonal, tril) + distance)

    def entropy(self) -> Any:
        h = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        h = 0.5 * (h + log_det(self._unbroadcasted_cov_diag, self._capacitance_tril))
        return h if len(self._batch_shape) == 0 else h.expand(self._batch_shape)
