"""Float64 building blocks that NumPy lacks: an exact fused multiply-add and the C library's functions."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

_SPLIT: Final = 134217729.0  # 2**27 + 1, Veltkamp's constant
_LARGE: Final = 2.0**900


def libm(name: str, x: np.ndarray) -> np.ndarray:
    """The C library's function of that name on each element of a float64 array.

    NumPy's own loops may differ in the last bit where they are vectorised; torch calls the C library.
    """
    return np.fromiter(map(getattr(math, name), x.tolist()), np.float64, x.size)


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _split(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = a * _SPLIT
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """round(a * b + c) with a single rounding, for products far from underflow.

    Boldo & Melquiond, "Emulation of FMA and correctly rounded sums" (2008): the low parts are added to odd.
    """
    if c == 0.0:
        return a * b + 0.0
    if b == 1.0:
        return a + c
    if abs(b) > _LARGE:  # splitting it would overflow
        return fma64(a, b / _LARGE, c / _LARGE) * _LARGE
    with np.errstate(over="ignore", invalid="ignore"):
        return _fma64(a, b, c)


def _fma64(a: np.ndarray, b: float, c: float) -> np.ndarray:
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(np.asarray(b))
    product_low = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    high, low = _two_sum(np.full_like(a, c), product_low)
    top, carry = _two_sum(product, high)
    tail, error = _two_sum(low, carry)
    even = (tail.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    odd = np.where((error != 0) & even, np.nextafter(tail, toward), tail)
    return np.where(np.isfinite(product), top + odd, product + c)
