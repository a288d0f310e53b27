"""Divergences between distributions of one type."""

from __future__ import annotations

import math
from typing import Any

import tocha
from tocha.distributions.bernoulli import Bernoulli
from tocha.distributions.beta import Beta
from tocha.distributions.binomial import Binomial
from tocha.distributions.categorical import Categorical
from tocha.distributions.cauchy import Cauchy
from tocha.distributions.continuous_bernoulli import ContinuousBernoulli
from tocha.distributions.dirichlet import Dirichlet
from tocha.distributions.exp_family import ExponentialFamily
from tocha.distributions.exponential import Exponential
from tocha.distributions.gamma import Gamma
from tocha.distributions.geometric import Geometric
from tocha.distributions.gumbel import Gumbel
from tocha.distributions.half_normal import HalfNormal
from tocha.distributions.independent import Independent
from tocha.distributions.kl import register_kl
from tocha.distributions.laplace import Laplace
from tocha.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal, log_det, squared_distance_low_rank
from tocha.distributions.multivariate_normal import MultivariateNormal, half_log_det, squared_distance
from tocha.distributions.normal import Normal
from tocha.distributions.one_hot_categorical import OneHotCategorical
from tocha.distributions.pareto import Pareto
from tocha.distributions.poisson import Poisson
from tocha.distributions.transformed_distribution import TransformedDistribution
from tocha.distributions.uniform import Uniform
from tocha.distributions.utils import euler_constant, sum_rightmost
from tocha.nn.functional import softplus


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = tocha.where(p.probs == 0, 0.0, tocha.where(q.probs == 0, math.inf, one))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return one + tocha.where(p.probs == 1, 0.0, tocha.where(q.probs == 1, math.inf, zero))


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    total_p, total_q = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    norm_q = q.concentration1.lgamma() + q.concentration0.lgamma() + total_p.lgamma()
    norm_p = p.concentration1.lgamma() + p.concentration0.lgamma() + total_q.lgamma()
    one = (p.concentration1 - q.concentration1) * tocha.digamma(p.concentration1)
    zero = (p.concentration0 - q.concentration0) * tocha.digamma(p.concentration0)
    return norm_q - norm_p + one + zero + (total_q - total_p) * tocha.digamma(total_p)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return tocha.where(p.total_count > q.total_count, math.inf, kl)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = tocha.where((q.probs == 0).expand_as(terms), math.inf, terms)
    return tocha.where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    norm_p = p._cont_bern_log_norm() + tocha.log1p(-p.probs)
    return p.mean * (p.logits - q.logits) + norm_p - q._cont_bern_log_norm() - tocha.log1p(-q.probs)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    total_p, total_q = p.concentration.sum(-1), q.concentration.sum(-1)
    norms = total_p.lgamma() - total_q.lgamma() - (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1)
    slopes = p.concentration.digamma() - total_p.digamma().unsqueeze(-1)
    return norms + ((p.concentration - q.concentration) * slopes).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Any:
    """The Bregman divergence of the log normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"The cross KL-divergence between different exponential families cannot be computed: {type(p).__name__}, {type(q).__name__}"
        )
    points = [x.detach().requires_grad_() for x in p._natural_params]
    norm_p = p._log_normalizer(*points)
    slopes = tocha.autograd.grad(norm_p.sum(), points, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - norm_p
    for point, other, slope in zip(points, q._natural_params, slopes, strict=True):
        result = result - sum_rightmost((other - point) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    norms = q.concentration * (p.rate / q.rate).log() + tocha.lgamma(q.concentration) - tocha.lgamma(p.concentration)
    slope = (p.concentration - q.concentration) * tocha.digamma(p.concentration)
    return norms + slope + (q.rate - p.rate) * (p.concentration / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, at_q, at_p = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    tail = tocha.exp(at_q + (1 + ratio).lgamma() - at_p)
    return -ratio.log() - at_q + at_p + ratio * euler_constant + tail - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - tocha.log1p(-q.probs) / p.probs - q.logits


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * tocha.exp(-away / p.scale) - 1


def _trace(lower: Any, factor: Any) -> Any:
    """trace(F^T (L L^T)^-1 F), with batches broadcast."""
    n = lower.shape[-1]
    shape = tocha.broadcast_shapes(lower.shape[:-2], factor.shape[:-2])
    lower, factor = lower.expand((*shape, n, n)), factor.expand((*shape, n, factor.size(-1)))
    return tocha.linalg.solve_triangular(lower, factor, upper=False).pow(2).sum((-2, -1))


def _check_events(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {type(p).__name__} distributions with different event shapes cannot be computed: "
            f"{tuple(p.event_shape)}, {tuple(q.event_shape)}"
        )


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank_low_rank(p: Any, q: Any) -> Any:
    _check_events(p, q)
    factor_q, diagonal_q, tril_q = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q._capacitance_tril
    factor_p, diagonal_p = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
    logs = log_det(diagonal_q, tril_q) - log_det(diagonal_p, p._capacitance_tril)
    distance = squared_distance_low_rank(factor_q, diagonal_q, q.loc - p.loc, tril_q)
    scaled = factor_q.mT / diagonal_q.unsqueeze(-2)
    inner = tocha.linalg.solve_triangular(*_together(tril_q, scaled), upper=False)
    trace = (diagonal_p / diagonal_q).sum(-1) + (factor_p * diagonal_q.rsqrt().unsqueeze(-1)).pow(2).sum((-2, -1))
    trace = trace - (inner * diagonal_p.sqrt().unsqueeze(-2)).pow(2).sum((-2, -1)) - inner.matmul(factor_p).pow(2).sum((-2, -1))
    return 0.5 * (logs + distance + trace - p.event_shape[0])


def _together(a: Any, b: Any) -> tuple[Any, Any]:
    shape = tocha.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.expand(shape + a.shape[-2:]), b.expand(shape + b.shape[-2:])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _normal_low_rank(p: Any, q: Any) -> Any:
    _check_events(p, q)
    factor, diagonal, tril = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q._capacitance_tril
    root = p._unbroadcasted_scale_tril
    logs = log_det(diagonal, tril) - 2 * half_log_det(root)
    distance = squared_distance_low_rank(factor, diagonal, q.loc - p.loc, tril)
    inner = tocha.linalg.solve_triangular(*_together(tril, factor.mT / diagonal.unsqueeze(-2)), upper=False)
    trace = (root * diagonal.rsqrt().unsqueeze(-1)).pow(2).sum((-2, -1)) - inner.matmul(root).pow(2).sum((-2, -1))
    return 0.5 * (logs + distance + trace - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_normal(p: Any, q: Any) -> Any:
    _check_events(p, q)
    root = q._unbroadcasted_scale_tril
    logs = 2 * half_log_det(root) - log_det(p._unbroadcasted_cov_diag, p._capacitance_tril)
    trace = _trace(root, p._unbroadcasted_cov_factor) + _trace(root, tocha.diag_embed(p._unbroadcasted_cov_diag.sqrt()))
    return 0.5 * (logs + squared_distance(root, q.loc - p.loc) + trace - p.event_shape[0])


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    _check_events(p, q)
    root_p, root_q = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    distance = squared_distance(root_q, q.loc - p.loc)
    return half_log_det(root_q) - half_log_det(root_p) + 0.5 * (_trace(root_q, root_p) + distance - p.event_shape[0])


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return tocha.where(p.support.lower_bound < q.support.lower_bound, math.inf, kl)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    from tocha.distributions.kl import kl_divergence

    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return tocha.where((q.low > p.low) | (q.high < p.high), math.inf, kl)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    from tocha.distributions.kl import kl_divergence

    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()
