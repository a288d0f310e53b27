"""The maps of torch.distributions.transforms: elementwise ones, those onto vectors and matrices of a kind, those of parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Number
from typing import Any

import tocha
from tocha.device import Size
from tocha.distributions import constraints
from tocha.distributions._transform import Transform
from tocha.distributions.utils import broadcast_all, lazy_property, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from tocha.nn import functional as F


class _Alike(Transform):
    """A map without parameters: any two of a kind are equal."""

    def __eq__(self, other: object) -> Any:
        return isinstance(other, type(self))

    __hash__ = None


class ExpTransform(_Alike):
    """y = exp(x)."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class AbsTransform(_Alike):
    """y = |x|; the inverse takes the positive value."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class SigmoidTransform(_Alike):
    """y = 1 / (1 + exp(-x)), kept off 0 and 1."""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return _inside(tocha.sigmoid(x))

    def _inverse(self, y: Any) -> Any:
        y = _inside(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -F.softplus(-x) - F.softplus(x)


def _inside(p: Any) -> Any:
    info = tocha.finfo(p.dtype)
    return tocha.clamp(p, min=info.tiny, max=1.0 - info.eps)


class SoftplusTransform(_Alike):
    """y = log(1 + exp(x)), the identity where x is large."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return F.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -F.softplus(-x)


class TanhTransform(_Alike):
    """y = tanh(x)."""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


def _broadcast(shape: Any, *others: Any) -> Any:
    return tocha.broadcast_shapes(shape, *(getattr(o, "shape", ()) for o in others))


class PowerTransform(Transform):
    """y = x ** exponent, for positive x."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size=cache_size)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> Any:
        return isinstance(other, PowerTransform) and self.exponent.eq(other.exponent).all().item()

    __hash__ = None

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return _broadcast(shape, self.exponent)

    def inverse_shape(self, shape: Any) -> Any:
        return _broadcast(shape, self.exponent)


class AffineTransform(Transform):
    """y = loc + scale * x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> Any:
        return self._event_dim

    def _set(self) -> Any:
        return constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._set()

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._set()

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other: object) -> Any:
        return (
            isinstance(other, AffineTransform)
            and _same_parameter(self.loc, other.loc)
            and _same_parameter(self.scale, other.scale)
        )

    __hash__ = None

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Number):
            value: Any = self.scale
            return 1 if value > 0 else -1 if value < 0 else 0
        return self.scale.sign()

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        scale: Any = self.scale
        shape = x.shape
        if isinstance(scale, Number):
            result = tocha.full_like(x, math.log(abs(scale)))  # type: ignore[arg-type]
        else:
            result = tocha.abs(scale).log()
        if self.event_dim:
            result = result.view((*result.size()[: -self.event_dim], -1)).sum(-1)
            shape = shape[: -self.event_dim]
        return result.expand(shape)

    def forward_shape(self, shape: Any) -> Any:
        return _broadcast(shape, self.loc, self.scale)

    def inverse_shape(self, shape: Any) -> Any:
        return _broadcast(shape, self.loc, self.scale)


def _same_parameter(a: Any, b: Any) -> bool:
    if isinstance(a, Number) and isinstance(b, Number):
        return a == b
    return bool((a == b).all().item())


class ReshapeTransform(Transform):
    """Events of one shape as events of another."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape = Size(in_shape)
        self.out_shape = Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.size()[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _reshaped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _reshaped(shape, self.out_shape, self.in_shape)


def _reshaped(shape: Any, have: Any, want: Any) -> Any:
    if len(shape) < len(have):
        raise ValueError("Too few dimensions on input")
    cut = len(shape) - len(have)
    if tuple(shape[cut:]) != tuple(have):
        raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {have}")
    return shape[:cut] + want


class SoftmaxTransform(_Alike):
    """Vectors to points of the simplex, by exp and division; not one to one, so there is no determinant."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        probs = (x - x.max(-1, True)[0]).exp()
        return probs / probs.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _at_least(shape, 1)

    def inverse_shape(self, shape: Any) -> Any:
        return _at_least(shape, 1)


def _at_least(shape: Any, count: int) -> Any:
    if len(shape) < count:
        raise ValueError("Too few dimensions on input")
    return shape


class StickBreakingTransform(_Alike):
    """Vectors of n numbers to points of the simplex in n + 1 dimensions: each breaks a part off what is left of a stick."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Any) -> Any:
        offset = x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)
        part = _inside(tocha.sigmoid(x - offset.log()))
        left = (1 - part).cumprod(-1)
        return F.pad(part, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        shorter = y[..., :-1]
        offset = y.shape[-1] - shorter.new_ones(shorter.shape[-1]).cumsum(-1)
        left = tocha.clamp(1 - shorter.cumsum(-1), min=tocha.finfo(y.dtype).tiny)
        return shorter.log() - left.log() + offset.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        offset = x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)
        x = x - offset.log()
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return _stuck(shape, 1)

    def inverse_shape(self, shape: Any) -> Any:
        return _stuck(shape, -1)


def _stuck(shape: Any, more: int) -> Any:
    return _at_least(shape, 1)[:-1] + (shape[-1] + more,)


class LowerCholeskyTransform(_Alike):
    """Matrices to lower-triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Alike):
    """Matrices to positive definite ones, through their Cholesky factors."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        x = LowerCholeskyTransform()(x)
        return x @ x.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(tocha.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Vectors of D (D - 1) / 2 numbers to Cholesky factors of correlation matrices (Lewandowski, Kurowicka & Joe 2009)."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = tocha.finfo(x.dtype).eps
        x = tocha.tanh(x).clamp(min=-1 + eps, max=1 - eps)
        partial = vec_to_tril_matrix(x, diag=-1)
        left = (1 - partial**2).sqrt().cumprod(-1)
        partial = partial + tocha.eye(partial.shape[-1], dtype=partial.dtype, device=partial.device)
        return partial * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        left = F.pad((1 - tocha.cumsum(y * y, dim=-1))[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(dim=-1), diag=-2)
        sticks = 0.5 * left.log().sum(-1)
        return sticks - 2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(dim=-1)

    def forward_shape(self, shape: Any) -> Any:
        count = _at_least(shape, 1)[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (size, size)

    def inverse_shape(self, shape: Any) -> Any:
        if _at_least(shape, 2)[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


class _Parts(Transform):
    """Transforms of parts of a tensor along a dimension."""

    transforms: list[Any]

    def _check(self, value: Any) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for a tensor with {value.dim()} dimensions")

    def _cut(self, value: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _join(self, parts: list[Any], dim: int) -> Any:
        raise NotImplementedError

    dim: int

    def __init__(self, tseq: Sequence[Any], cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        if cache_size:
            tseq = [t.with_cache(cache_size) for t in tseq]
        super().__init__(cache_size=cache_size)
        self.transforms = list(tseq)

    def _call(self, x: Any) -> Any:
        self._check(x)
        return self._join([t(part) for t, part in zip(self.transforms, self._cut(x), strict=True)], self.dim)

    def _inverse(self, y: Any) -> Any:
        self._check(y)
        return self._join([t.inv(part) for t, part in zip(self.transforms, self._cut(y), strict=True)], self.dim)

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)


class CatTransform(_Parts):
    """Transforms of slices of given `lengths` along a dimension."""

    def __init__(self, tseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0) -> None:
        super().__init__(tseq, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths has {len(self.lengths)} elements for {len(self.transforms)} transforms")
        self.dim = dim

    @lazy_property
    def event_dim(self) -> Any:
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> Any:
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _cut(self, value: Any) -> Sequence[Any]:
        if value.size(self.dim) != self.length:
            raise AssertionError(f"size {value.size(self.dim)} of dim {self.dim} is not the sum {self.length} of the lengths")
        return value.split(self.lengths, self.dim)

    def _join(self, parts: list[Any], dim: int) -> Any:
        return tocha.cat(parts, dim=dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        self._check(x)
        self._check(y)
        terms = []
        for t, before, after in zip(self.transforms, self._cut(x), self._cut(y), strict=True):
            term = t.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, self.event_dim - t.event_dim) if t.event_dim < self.event_dim else term)
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return tocha.cat(terms, dim=dim) if dim < 0 else sum(terms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """One transform for each place of a dimension."""

    def __init__(self, tseq: Sequence[Any], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, cache_size)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _cut(self, value: Any) -> Sequence[Any]:
        if value.size(self.dim) != len(self.transforms):
            raise AssertionError(
                f"size {value.size(self.dim)} of dim {self.dim} is not the number {len(self.transforms)} of transforms"
            )
        return value.unbind(self.dim)

    def _join(self, parts: list[Any], dim: int) -> Any:
        return tocha.stack(parts, dim=dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        self._check(x)
        self._check(y)
        parts = zip(self.transforms, self._cut(x), self._cut(y), strict=True)
        return tocha.stack([t.log_abs_det_jacobian(before, after) for t, before, after in parts], dim=self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CumulativeDistributionTransform(Transform):
    """Values to the probabilities of being below them."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else CumulativeDistributionTransform(self.distribution, cache_size)
