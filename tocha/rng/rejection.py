"""Distributions that torch samples element by element: Poisson, binomial, gamma and Dirichlet."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tocha.rng.continuous import narrow, normal_one
from tocha.rng.mt19937 import MT19937

_STIRLING_TAIL: Final = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def poisson(engine: MT19937, rates: np.ndarray) -> np.ndarray:
    """One Poisson count for each rate, in the rates' dtype; RuntimeError for a negative rate."""
    values = [_poisson_one(engine, rate) for rate in rates.astype(np.float64).tolist()]
    return narrow(np.array(values, np.float64), rates.dtype)


def _poisson_one(engine: MT19937, rate: float) -> int:
    if not rate >= 0:
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    if rate >= 10:
        return _poisson_transformed(engine, rate)
    if rate == 0:
        return 0
    limit = math.exp(-rate)
    count, product = 0, 1.0
    while True:
        product *= engine.next_uniform()
        if product <= limit:
            return count
        count += 1


def _poisson_transformed(engine: MT19937, rate: float) -> int:
    """Hörmann, "The transformed rejection method for generating Poisson random variables" (1993), PTRS."""
    log_rate = math.log(rate)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = engine.next_uniform() - 0.5
        v = engine.next_uniform()
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43) if us else -1
        if us >= 0.07 and v <= squeeze:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        log_v = math.log(v) if v else -math.inf
        bound = -rate + k * log_rate - math.lgamma(k + 1.0)
        if log_v + math.log(inverse_alpha) - math.log(a / (us * us) + b) <= bound:
            return k


def binomial(engine: MT19937, counts: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """One binomial count for each pair (trials, probability), in the dtype of `counts`."""
    one = counts.dtype.type
    values = [_binomial_one(engine, n, p, one) for n, p in zip(counts, probabilities, strict=True)]
    return np.array(values, counts.dtype)


def _binomial_one(engine: MT19937, n: Any, p: Any, real: Any) -> Any:
    if n <= 0 or p <= 0:
        return real(0)
    if p >= 1:
        return n
    if p <= 0.5:
        return _binomial_half(engine, n, p, real)
    if p > 0.5:
        return n - _binomial_half(engine, n, real(1.0 - float(p)), real)
    return real(math.nan)


def _binomial_half(engine: MT19937, n: Any, p: Any, real: Any) -> Any:
    if n * p >= 10:
        return _binomial_transformed(engine, n, p, real)
    log_q = float(np.log1p(-p)) if real is np.float32 else math.log1p(-p)
    successes, trials = 0, 0.0
    while True:
        u = engine.next_uniform()
        trials += math.ceil(math.log(u) / log_q) if u else math.inf
        if trials > n:
            return real(successes)
        successes += 1


def _binomial_transformed(engine: MT19937, n: Any, p: Any, real: Any) -> Any:
    """Hörmann, "The generation of binomial random variates" (1993), BTRS."""
    one = real(1)
    deviation = float(np.sqrt(n * p * (one - p)))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * float(p)
    c = float(n * p) + 0.5
    squeeze = 0.92 - 4.2 / b
    r = float(p / (one - p))
    alpha = (2.83 + 5.1 / b) * deviation
    m = float(np.floor((n + one) * p))
    while True:
        u = engine.next_uniform() - 0.5
        v = engine.next_uniform()
        us = 0.5 - abs(u)
        k = real(math.floor((2 * a / us + b) * u + c)) if us else real(-1)
        if k < 0 or k > n:
            continue
        if us >= 0.07 and v <= squeeze:
            return k
        log_v = math.log(v * alpha / (a / (us * us) + b)) if v else -math.inf
        if log_v <= _binomial_bound(float(n), float(k), m, r):
            return k


def _binomial_bound(n: float, k: float, m: float, r: float) -> float:
    return (
        (m + 0.5) * math.log((m + 1) / (r * (n - m + 1)))
        + (n + 1) * math.log((n - m + 1) / (n - k + 1))
        + (k + 0.5) * math.log(r * (n - k + 1) / (k + 1))
        + _stirling_tail(m)
        + _stirling_tail(n - m)
        - _stirling_tail(k)
        - _stirling_tail(n - k)
    )


def _stirling_tail(k: float) -> float:
    """What Stirling's formula misses of log(k!)."""
    if k < len(_STIRLING_TAIL):
        return _STIRLING_TAIL[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _gamma_one(engine: MT19937, alpha: Any, real: Any) -> float:
    """Marsaglia & Tsang, "A simple method for generating gamma variables" (2000)."""
    scale = 1.0
    if alpha < 1:
        if alpha == 0:
            return 0.0
        scale = math.pow(1 - engine.next_uniform(), float(real(1) / alpha))
        alpha = alpha + real(1)
    third = np.float32(1) / np.float32(3)
    d = float(alpha - real(third))
    c = 1.0 / math.sqrt(9.0 * d)
    squeeze = float(np.float32(0.0331))
    while True:
        y = 0.0
        while y <= 0:
            x = normal_one(engine)
            y = 1.0 + c * x
        v = y * y * y
        u = 1 - engine.next_uniform()
        xx = x * x
        if u < 1.0 - squeeze * xx * xx or math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
            return scale * d * v


def standard_gamma(engine: MT19937, alpha: np.ndarray) -> np.ndarray:
    """One gamma sample of unit scale for each concentration, at least the dtype's smallest normal number."""
    real = alpha.dtype.type
    values = np.array([_gamma_one(engine, a, real) for a in alpha], np.float64)
    return np.maximum(narrow(values, alpha.dtype), np.finfo(alpha.dtype).tiny)


def dirichlet(engine: MT19937, alpha: np.ndarray) -> np.ndarray:
    """Dirichlet samples over the last axis, from float64 gammas normalised."""
    values = [_gamma_one(engine, a, np.float64) for a in alpha.astype(np.float64).ravel()]
    gammas = np.maximum(np.array(values, np.float64), np.finfo(np.float64).tiny).reshape(alpha.shape)
    ratio = narrow(gammas / _lane_sum(gammas)[..., None], alpha.dtype)
    one = alpha.dtype.type(1)
    return np.clip(ratio, np.finfo(alpha.dtype).tiny, np.nextafter(one, alpha.dtype.type(0)))


def _lane_sum(x: np.ndarray) -> np.ndarray:
    """The sum over the last axis in torch's order: 4 accumulators of 4 lanes, the ragged rest first."""
    lanes = ways = 4
    vectors = x.shape[-1] // lanes
    rows = x[..., : vectors * lanes].reshape(*x.shape[:-1], vectors, lanes)
    total = np.zeros(x.shape[:-1])
    for i in range(vectors * lanes, x.shape[-1]):
        total = total + x[..., i]
    full = vectors // ways * ways
    parts = [np.add.accumulate(rows[..., k:full:ways, :], axis=-2)[..., -1, :] for k in range(ways) if full]
    first = parts[0] if full else np.zeros((*x.shape[:-1], lanes))
    for i in range(full, vectors):
        first = first + rows[..., i, :]
    for part in parts[1:]:
        first = first + part
    for lane in range(lanes if vectors else 0):
        total = total + first[..., lane]
    return total
