"""Gradients of random operators.

Most samples don't follow their parameters: their gradient is zero. Gamma and Dirichlet samples do, through
the implicit function theorem: at a fixed quantile dx/da = -(dF/da) / (dF/dx) (Figurnov, Mohamed & Mnih,
"Implicit Reparameterization Gradients", 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim


def _zeros(g: Any, sources_shape: Any, sources_dtype: Any, *, needs: Any) -> list[Any]:
    triples = zip(sources_shape, sources_dtype, needs, strict=True)
    return [g.new_zeros(shape, dtype=dtype) if need else None for shape, dtype, need in triples]


def _like_first(first: Any, *rest: Any) -> MetaArray:
    return MetaArray(first.shape, first.dtype)


@prim("sampled", "random", vjp=_zeros, half="native", infer=_like_first, tags=("random",))
def sampled(xp: Any, *sources: Any) -> Any:
    """The first of `sources`, values drawn with the others as parameters: differentiable in name only."""
    return sources[0]


def _gamma_vjp(g: Any, out: Any, alpha: Any, *, needs: Any) -> tuple[Any, ...]:
    return None, g * gamma_grad(alpha, out)


@prim("gamma_sample", "random", vjp=_gamma_vjp, infer=_like_first, tags=("random",))
def gamma_sample(xp: Any, values: Any, alpha: Any) -> Any:
    """`values` drawn from the gamma distribution of concentration alpha and unit scale."""
    return values


def _dirichlet_vjp(g: Any, out: Any, alpha: Any, *, needs: Any) -> tuple[Any, ...]:
    total = alpha.sum(-1, True).expand(alpha.shape)
    return None, dirichlet_grad(out, alpha, total) * (g - (out * g).sum(-1, True))


@prim("dirichlet_sample", "random", vjp=_dirichlet_vjp, infer=_like_first, tags=("random",))
def dirichlet_sample(xp: Any, values: Any, alpha: Any) -> Any:
    """`values` drawn from the Dirichlet distribution of concentrations alpha."""
    return values


@prim("gamma_grad", "random", infer=_like_first)
def gamma_grad(xp: Any, alpha: Any, x: Any) -> Any:
    """d x / d alpha of a standard gamma sample x at its quantile."""
    from scipy.special import digamma, gammainc, gammaincc, gammaln

    a, y = (np.asarray(xp.to_host(v), np.float64) for v in (alpha, x))
    with np.errstate(all="ignore"):
        log_density = (a - 1) * np.log(y) - y - gammaln(a)
        lower, upper = gammainc(a, y), gammaincc(a, y)
        below = _log_slope(lambda b: gammainc(b, y), a) * lower
        above = -_log_slope(lambda b: gammaincc(b, y), a) * upper
        general = -np.where(lower < upper, below, above) / np.exp(log_density)
        # F -> x**a / gamma(a + 1) as x -> 0, where both F and the density underflow.
        small = -(y / a) * (np.log(y) - digamma(a + 1))
        got = np.where(y < 1e-9, small, general)
    return xp.from_host(got.astype(alpha.dtype))


@prim("dirichlet_grad", "random", infer=_like_first)
def dirichlet_grad(xp: Any, x: Any, alpha: Any, total: Any) -> Any:
    """d x / d alpha, divided by 1 - x, of a beta(alpha, total - alpha) sample x at its quantile."""
    from scipy.special import betainc, betaincc, betaln, digamma

    y, a, t = (np.asarray(xp.to_host(v), np.float64) for v in (x, alpha, total))
    b = t - a
    with np.errstate(all="ignore"):
        log_density = (a - 1) * np.log(y) + (b - 1) * np.log1p(-y) - betaln(a, b)
        lower, upper = betainc(a, b, y), betaincc(a, b, y)
        below = _log_slope(lambda c: betainc(c, b, y), a) * lower
        above = -_log_slope(lambda c: betaincc(c, b, y), a) * upper
        general = -np.where(lower < upper, below, above) / np.exp(log_density) / (1 - y)
        # F -> x**a / (a B(a, b)) as x -> 0.
        small = -(y / a) * (np.log(y) - digamma(a) + digamma(t) - 1 / a)
        got = np.where(y < 1e-9, small, general)
    return xp.from_host(got.astype(x.dtype))


def _log_slope(function: Callable[[np.ndarray], np.ndarray], a: np.ndarray) -> np.ndarray:
    """d log f / d a by central differences of fourth order, good to about ten digits."""
    h = 1e-3 * a
    one = np.log(function(a + h)) - np.log(function(a - h))
    two = np.log(function(a + 2 * h)) - np.log(function(a - 2 * h))
    return (8 * one - two) / (12 * h)
