from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tocha.rng import discrete
from tocha.rng.mt19937 import MT19937

I64 = np.dtype(np.int64)


def test_a_long_permutation_of_torch() -> None:
    order = discrete.permutation(MT19937(0), 100_000, I64)
    assert hashlib.sha256(order.tobytes()).hexdigest()[:16] == "27df463fc2ed34f1"


def test_both_ways_to_shuffle_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LASWP_FROM", "_LASWP_LOADED_FROM"):
        monkeypatch.setattr(discrete, name, 10**6)
    loop = discrete.permutation(MT19937(4), 3000, I64)
    for name in ("_LASWP_FROM", "_LASWP_LOADED_FROM"):
        monkeypatch.setattr(discrete, name, 2)
    assert (discrete.permutation(MT19937(4), 3000, I64) == loop).all()


def test_huge_permutations_insert_inside_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete, "UNIFORM_64_FROM", 2)
    order: list[int] = []
    engine = MT19937(4)
    for i in range(50):
        z = engine.next64() % (i + 1)
        order.append(i)
        order[i], order[z] = order[z], i
    assert discrete.permutation(MT19937(4), 50, I64).tolist() == order


@pytest.mark.parametrize("n", [0, 1])
def test_a_trivial_permutation_draws_nothing(n: int) -> None:
    engine = MT19937(4)
    before = engine.get_state()
    assert discrete.permutation(engine, n, I64).tolist() == list(range(n))
    assert (engine.get_state() == before).all()


@pytest.mark.parametrize("span", [7, 64, (1 << 28) - 1, 1 << 28, 10**15])
def test_integers_are_the_words_modulo_the_span(span: int) -> None:
    wide = span >= 1 << 28
    words = (MT19937.draw64 if wide else MT19937.draw32)(MT19937(4), 90).tolist()
    got = discrete.integers(MT19937(4), 90, I64, -3, span).tolist()
    assert got == [w % span - 3 for w in words]


def test_probability_zero_and_one() -> None:
    assert not discrete.bernoulli(MT19937(4), 1000, 0.0).any()
    assert discrete.bernoulli(MT19937(4), 1000, 1.0).all()


def test_zero_weights_are_never_picked() -> None:
    weights = np.array([[0, 1, 0, 3, 0], [0, 0, 0, 0, 1]], np.float32)
    picked = discrete.categorical(MT19937(4), weights, 500)
    assert set(picked[0].tolist()) == {1, 3}
    assert set(picked[1].tolist()) == {4}


@pytest.mark.parametrize(
    "row, message",
    [
        ([1.0, -1.0], "entry < 0"),
        ([1.0, float("nan")], "entry < 0"),
        ([1.0, float("inf"), -1.0], "entry = infinity or NaN"),
        ([0.0, 0.0], "sum of probabilities <= 0"),
    ],
)
def test_bad_weights(row: list[float], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        discrete.categorical(MT19937(4), np.array([row], np.float32), 2)


def test_geometric_at_a_uniform_of_zero_is_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete, "uniform64", lambda engine, count: np.zeros(count))
    assert discrete.geometric(MT19937(4), 2, 0.5).tolist() == [np.inf, np.inf]
