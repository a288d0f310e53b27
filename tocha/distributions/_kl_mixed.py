"""Divergences between distributions of two types: infinite where p has mass outside the support of q, else by moments of p."""

from __future__ import annotations

import math
from typing import Any

import tocha
from tocha.distributions.bernoulli import Bernoulli
from tocha.distributions.beta import Beta
from tocha.distributions.binomial import Binomial
from tocha.distributions.continuous_bernoulli import ContinuousBernoulli
from tocha.distributions.exponential import Exponential
from tocha.distributions.gamma import Gamma
from tocha.distributions.gumbel import Gumbel
from tocha.distributions.kl import register_kl
from tocha.distributions.laplace import Laplace
from tocha.distributions.normal import Normal
from tocha.distributions.pareto import Pareto
from tocha.distributions.poisson import Poisson
from tocha.distributions.uniform import Uniform
from tocha.distributions.utils import euler_constant

_BOUNDED = (Uniform, Pareto, ContinuousBernoulli, Beta)
_INFINITE: list[tuple[Any, tuple[Any, ...], str]] = [
    # p, the types q that don't cover it, and a parameter of p whose shape the result has
    (Beta, (Pareto,), "concentration1"),
    (ContinuousBernoulli, (Pareto,), "probs"),
    (Exponential, (Beta, ContinuousBernoulli, Pareto, Uniform), "rate"),
    (Gamma, _BOUNDED, "concentration"),
    (Gumbel, (*_BOUNDED, Exponential, Gamma), "loc"),
    (Laplace, (*_BOUNDED, Exponential, Gamma), "loc"),
    (Normal, (*_BOUNDED, Exponential, Gamma), "loc"),
    (Pareto, (Beta, ContinuousBernoulli, Uniform), "scale"),
    (Poisson, (Bernoulli, Binomial), "rate"),
]


def _register_infinite(type_p: Any, type_q: Any, name: str) -> None:
    @register_kl(type_p, type_q)
    def infinite(p: Any, q: Any) -> Any:
        return tocha.full_like(getattr(p, name), math.inf)


for _p, _types, _name in _INFINITE:
    for _q in _types:
        _register_infinite(_p, _q, _name)


def _xlogx(x: Any) -> Any:
    return tocha.special.xlogy(x, x)


def _unless(outside: Any, kl: Any) -> Any:
    return tocha.where(outside, math.inf, kl)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - tocha.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Beta, Exponential)
def _beta_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Any:
    norm = q.concentration.lgamma() - q.concentration * q.rate.log()
    slope = (q.concentration - 1) * (p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma())
    return -p.entropy() + norm - slope + q.rate * p.mean


@register_kl(Beta, Normal)
def _beta_normal(p: Any, q: Any) -> Any:
    mean, var = p.mean, q.scale.pow(2)
    square = (mean * (1 - mean) / (p.concentration1 + p.concentration0 + 1) + mean.pow(2)) * 0.5
    return -p.entropy() + 0.5 * (var * 2 * math.pi).log() + (square - q.loc * mean + q.loc.pow(2) * 0.5) / var


@register_kl(Beta, Uniform)
def _beta_uniform(p: Any, q: Any) -> Any:
    return _unless((q.low > 0) | (q.high < 1), -p.entropy() + (q.high - q.low).log())


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - tocha.log(q.rate) + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p: Any, q: Any) -> Any:
    norm = 0.5 * (math.log(2.0 * math.pi) + tocha.square(q.loc / q.scale)) + tocha.log(q.scale)
    moments = (p.variance + tocha.square(p.mean) - 2.0 * q.loc * p.mean) / (2.0 * tocha.square(q.scale))
    return -p.entropy() + norm + moments


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: Any, q: Any) -> Any:
    kl = -p.entropy() + (q.high - q.low).log()
    return _unless(tocha.max(tocha.ge(q.low, p.support.lower_bound), tocha.le(q.high, p.support.upper_bound)), kl)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    c = q.concentration
    return -c * tocha.log(ratio) + ratio + tocha.lgamma(c) + c * euler_constant - (1 + euler_constant)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Any:
    product, at = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 - at + tocha.exp(at) * product / (product + 1) + product.reciprocal()


@register_kl(Exponential, Normal)
def _exponential_normal(p: Any, q: Any) -> Any:
    var, square = q.scale.pow(2), p.rate.pow(2)
    norm = 0.5 * tocha.log(square * var * 2 * math.pi)
    return norm - 1 + (square.reciprocal() - q.loc / p.rate + q.loc.pow(2) * 0.5) / var


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Any:
    c, product, at = p.concentration, p.rate * q.scale, q.loc / q.scale
    inner = (c - 1) * c.digamma() - c.lgamma() - c
    return inner + product.log() + c / product + at.exp() * (1 + product.reciprocal()).pow(-c) - at


@register_kl(Gamma, Normal)
def _gamma_normal(p: Any, q: Any) -> Any:
    c, var, square = p.concentration, q.scale.pow(2), p.rate.pow(2)
    norm = 0.5 * (square * var * 2 * math.pi).log() - c - c.lgamma()
    moments = 0.5 * (c.pow(2) + c) / square - q.loc * c / p.rate + 0.5 * q.loc.pow(2)
    return norm + (c - 1) * c.digamma() + moments / var


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    spread = (math.pi * ratio * 0.5).pow(2) / 3
    away = ((p.loc + p.scale * euler_constant - q.loc) / q.scale).pow(2) * 0.5
    return -(ratio / math.sqrt(2 * math.pi)).log() + spread + away - (euler_constant + 1)


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Any:
    var = q.scale.pow(2)
    ratio = p.scale.pow(2) / var
    moments = 0.5 * p.loc.pow(2) - p.loc * q.loc + 0.5 * q.loc.pow(2)
    return -0.5 * tocha.log(2 * ratio / math.pi) + ratio + moments / var - 1


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Any:
    at_p, square, at_q = p.loc / q.scale, (p.scale / q.scale).pow(2), q.loc / q.scale
    tail = tocha.exp(-at_p + 0.5 * square + at_q)
    return at_p - at_q + tail - 0.5 * (1 + (square * 2 * math.pi).log())


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    relative = away / p.scale
    bell = math.sqrt(2 / math.pi) * p.scale * tocha.exp(-0.5 * relative.pow(2))
    spread = (bell + away * tocha.erf(math.sqrt(0.5) * relative)) / q.scale
    return -(p.scale / q.scale).log() + spread - 0.5 * (1 + math.log(0.5 * math.pi))


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Any:
    product = p.scale * q.rate
    kl = (p.alpha / product).log() - p.alpha.reciprocal() + p.alpha * product / (p.alpha - 1) - 1
    return _unless(p.alpha <= 1, kl)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Any:
    common = p.scale.log() + p.alpha.reciprocal()
    norm = p.alpha.log() - common + q.concentration.lgamma() - q.concentration * q.rate.log()
    kl = norm + (1 - q.concentration) * common + q.rate * p.alpha * p.scale / (p.alpha - 1) - 1
    return _unless(p.alpha <= 1, kl)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Any:
    common = p.scale / (p.alpha - 1)
    norm = (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log() - p.alpha.reciprocal()
    moments = p.alpha * common.pow(2) / (p.alpha - 2) + (p.alpha * common - q.loc).pow(2)
    return _unless(p.alpha <= 2, norm + moments / (2 * q.scale.pow(2)) - 1)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Any:
    width = p.high - p.low
    one = (q.concentration1 - 1) * (_xlogx(p.high) - _xlogx(p.low) - width) / width
    zero = (q.concentration0 - 1) * (_xlogx(1 - p.high) - _xlogx(1 - p.low) + width) / width
    norm = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma()
    return _unless((p.high > 1) | (p.low < 0), zero + norm - width.log() - one)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Any, q: Any) -> Any:
    kl = -p.entropy() - p.mean * q.logits - tocha.log1p(-q.probs) - q._cont_bern_log_norm()
    return _unless(tocha.max(tocha.ge(p.high, q.support.upper_bound), tocha.le(p.low, q.support.lower_bound)), kl)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Any:
    kl = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return _unless(p.low < 0, kl)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Any:
    width = p.high - p.low
    norm = q.concentration.lgamma() - q.concentration * q.rate.log()
    logs = (1 - q.concentration) * (_xlogx(p.high) - _xlogx(p.low) - width) / width
    return _unless(p.low < 0, -width.log() + norm + logs + q.rate * (p.high + p.low) / 2)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Any:
    relative, at = q.scale / (p.high - p.low), q.loc / q.scale
    mean = 0.5 * (p.high + p.low) / q.scale - at
    tail = relative * (tocha.exp(at - p.low / q.scale) - tocha.exp(at - p.high / q.scale))
    return relative.log() + mean + tail


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Any:
    width = p.high - p.low
    spread, away = width.pow(2) / 12, ((p.high + p.low - 2 * q.loc) / 2).pow(2)
    return (math.sqrt(math.pi * 2) * q.scale / width).log() + 0.5 * (spread + away) / q.scale.pow(2)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Any:
    width = p.high - p.low
    norm = (q.alpha * q.scale.pow(q.alpha) * width).log()
    logs = (_xlogx(p.high) - _xlogx(p.low) - width) / width
    return _unless(p.low < q.scale, logs * (q.alpha + 1) - norm)
