from __future__ import annotations

import math

import numpy as np
import pytest

from tocha.rng import rejection
from tocha.rng.mt19937 import MT19937


def test_dirichlet_of_torch() -> None:
    alpha = np.array([[0.5, 1.0, 2.0, 3.0, 0.1]])
    expected = [
        float.fromhex(v)
        for v in (
            "0x1.b2bb97f520d02p-13",
            "0x1.fff2ac3f2fdafp-6",
            "0x1.fa3653e17d044p-2",
            "0x1.e26713fcd70f8p-2",
            "0x1.968af55d2543ap-9",
        )
    ]
    np.testing.assert_allclose(rejection.dirichlet(MT19937(0), alpha)[0], expected, rtol=1e-15)


def test_dirichlet_stays_inside_the_simplex() -> None:
    x = rejection.dirichlet(MT19937(0), np.full((50, 3), 1e-3, np.float32))
    assert x.min() >= np.finfo(np.float32).tiny
    assert x.max() < 1


def test_poisson_edges() -> None:
    engine = MT19937(0)
    before = engine.get_state()
    assert rejection.poisson(engine, np.zeros(3)).tolist() == [0, 0, 0]
    assert (engine.get_state() == before).all()
    for rate in (-1.0, math.nan):
        with pytest.raises(RuntimeError, match="invalid Poisson rate"):
            rejection.poisson(engine, np.array([rate]))


def test_binomial_edges() -> None:
    engine = MT19937(0)
    counts = np.array([0, 5, 5, 5], np.float64)
    assert rejection.binomial(engine, counts, np.array([0.5, 0.0, 1.0, 2.0])).tolist() == [0, 0, 5, 5]
    assert math.isnan(rejection.binomial(engine, counts[1:2], np.array([math.nan]))[0])


@pytest.mark.parametrize("n, p", [(1000, 0.3), (1000, 0.7), (20, 0.1), (20, 0.95)])
def test_binomial_mean_and_range(n: int, p: float) -> None:
    x = rejection.binomial(MT19937(0), np.full(4000, n, np.float64), np.full(4000, p))
    assert x.min() >= 0
    assert x.max() <= n
    assert abs(x.mean() - n * p) < 4 * math.sqrt(n * p * (1 - p) / 4000)


def test_gamma_of_zero_is_the_smallest_number() -> None:
    assert rejection.standard_gamma(MT19937(0), np.zeros(1, np.float32))[0] == np.finfo(np.float32).tiny


@pytest.mark.parametrize("n", [1, 3, 4, 7, 16, 37, 130])
def test_lane_sum_is_a_sum(n: int) -> None:
    x = np.random.default_rng(n).random((6, n))
    np.testing.assert_allclose(rejection._lane_sum(x), [math.fsum(row) for row in x], rtol=1e-14)
