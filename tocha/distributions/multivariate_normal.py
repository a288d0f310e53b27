"""Multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions.distribution import Distribution
from tocha.distributions.utils import lazy_property, standard_normal

__all__ = ["MultivariateNormal"]


def times_vector(matrix: Any, vector: Any) -> Any:
    """Matrices (…, n, m) times vectors (…, m)."""
    return tocha.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def squared_distance(lower: Any, x: Any) -> Any:
    """x^T (L L^T)^-1 x for vectors (…, n) and lower-triangular matrices (…, n, n), which broadcast from the left."""
    n = x.size(-1)
    shape = tocha.broadcast_shapes(x.shape[:-1], lower.shape[:-2])
    lead = x.dim() - lower.dim() + 1
    if lead <= 0 or any(a not in (1, b) for a, b in zip(lower.shape[:-2], x.shape[lead:-1], strict=True)):
        y = tocha.linalg.solve_triangular(lower, x.expand((*shape, n)).unsqueeze(-1), upper=False).squeeze(-1)
        return y.pow(2).sum(-1)
    rows = x.reshape((-1, *x.shape[lead:]))  # one solve for all samples of a matrix
    y = tocha.linalg.solve_triangular(lower, rows.movedim(0, -1), upper=False)
    return y.pow(2).sum(-2).movedim(-1, 0).reshape(shape)


def half_log_det(lower: Any) -> Any:
    """log det L."""
    return lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def factor_of_inverse(precision: Any) -> Any:
    """The lower Cholesky factor of the inverse of positive definite matrices."""
    flipped = tocha.linalg.cholesky(tocha.flip(precision, (-2, -1)))
    inverse = tocha.transpose(tocha.flip(flipped, (-2, -1)), -2, -1)
    identity = tocha.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return tocha.linalg.solve_triangular(inverse, identity, upper=False)


class CovarianceForms(Distribution):
    """What distributions share that are given by one of a covariance matrix, a precision matrix and a Cholesky factor."""

    _unbroadcasted_scale_tril: Any
    _FORMS = ("covariance_matrix", "scale_tril", "precision_matrix")

    def _one_form(self, forms: dict[str, Any]) -> tuple[str, Any]:
        given = [(name, value) for name, value in forms.items() if value is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, value = given[0]
        if value.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        return name, value

    def _factorise(self, name: str, value: Any) -> None:
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = value
        else:
            self._unbroadcasted_scale_tril = (
                tocha.linalg.cholesky(value) if name == "covariance_matrix" else factor_of_inverse(value)
            )

    def _expanded(self, batch_shape: Any, _instance: Any) -> Any:
        new = super()._expanded(batch_shape, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    def _square(self, value: Any) -> Any:
        n = self._event_shape[-1]
        return value.expand(self._batch_shape + (n, n))

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower Cholesky factor of the covariance."""
        return self._square(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._square(tocha.matmul(self._unbroadcasted_scale_tril, self._unbroadcasted_scale_tril.mT))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._square(tocha.cholesky_inverse(self._unbroadcasted_scale_tril))


class MultivariateNormal(CovarianceForms):
    """Vectors with mean `loc` and one of covariance_matrix, precision_matrix and scale_tril
    (torch docs: torch.distributions.multivariate_normal.MultivariateNormal)."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        forms = {"scale_tril": scale_tril, "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix}
        name, value = self._one_form(forms)
        batch_shape = tocha.broadcast_shapes(value.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = value.expand(batch_shape + (-1, -1))
        self.loc = loc.expand(batch_shape + (-1,))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._factorise(name, value)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(batch_shape, _instance)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        eps = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + times_vector(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = squared_distance(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Any:
        h = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(self._unbroadcasted_scale_tril)
        return h if len(self._batch_shape) == 0 else h.expand(self._batch_shape)
