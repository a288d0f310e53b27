from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tocha.rng.fused import fma64, libm


@pytest.mark.parametrize("b, c", [(0.7, 0.3), (1.7, -0.3), (-2.2, 1e-17), (1e8, -1e8), (3.0, 0.0), (1.0, 0.1)])
def test_fma64_rounds_once(b: float, c: float) -> None:
    a = np.concatenate([np.linspace(-3, 3, 501), np.sqrt(np.arange(1.0, 500.0)), -c / b * (1 + np.arange(4) * 2.0**-52)])
    exact = [float(Fraction(x) * Fraction(b) + Fraction(c)) for x in a.tolist()]
    assert fma64(a, b, c).tolist() == exact


@pytest.mark.parametrize("b, c", [(1e305, 1.0), (-1.7e308, 1e292), (1e300, -3e299)])
def test_fma64_of_huge_factors(b: float, c: float) -> None:
    a = np.linspace(0.01, 0.99, 200)
    assert fma64(a, b, c).tolist() == [float(Fraction(x) * Fraction(b) + Fraction(c)) for x in a.tolist()]


def test_fma64_differs_from_two_roundings() -> None:
    a = np.linspace(-3, 3, 501)
    assert (fma64(a, 0.7, 0.3) != a * 0.7 + 0.3).any()


def test_fma64_passes_on_infinities() -> None:
    got = fma64(np.array([math.inf, -math.inf, math.nan]), 0.7, 0.3)
    assert got[:2].tolist() == [math.inf, -math.inf]
    assert math.isnan(got[2])


def test_libm_is_the_math_module() -> None:
    x = np.linspace(-0.9, 3, 50)
    assert libm("log1p", x).tolist() == [math.log1p(v) for v in x.tolist()]
