from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from tocha.rng.mt19937 import MT19937, STATE_SIZE, nondeterministic_seed


def test_reference_stream() -> None:
    # The published first outputs of mt19937 seeded with 5489, and its 10000th.
    engine = MT19937(5489)
    assert engine.draw32(3).tolist() == [3499211612, 581869302, 3890346734]
    assert int(engine.draw32(9997)[-1]) == 4123659995


def test_64_bit_words_take_the_high_half_first() -> None:
    low, wide = MT19937(3), MT19937(3)
    halves = low.draw32(200).astype(object)
    assert wide.draw64(99).tolist() == [(a << 32) | b for a, b in halves.reshape(-1, 2)][:99]
    assert wide.next64() == (halves[198] << 32) | halves[199]


def test_only_the_low_half_of_the_seed_counts_for_the_stream() -> None:
    a, b = MT19937(2**40 + 3), MT19937(3)
    assert a.draw32(5).tolist() == b.draw32(5).tolist()
    assert a.seed == 2**40 + 3


def test_state_bytes_of_torch() -> None:
    state = MT19937(2**40 + 3).get_state()
    assert state.dtype == np.uint8
    assert state.shape == (STATE_SIZE,) == (5056,)
    assert hashlib.sha256(state.tobytes()).hexdigest()[:16] == "2c29770cead03138"


@pytest.mark.parametrize("drawn", [0, 1, 623, 624, 625, 1248])
def test_state_round_trip_continues_the_stream(drawn: int) -> None:
    engine = MT19937(7)
    engine.draw32(drawn)
    state = engine.get_state()
    other = MT19937(1)
    other.set_state(state)
    assert (other.get_state() == state).all()
    assert other.seed == 7
    assert (other.draw32(700) == engine.draw32(700)).all()


def test_state_keeps_the_spare_normals() -> None:
    engine = MT19937(7)
    engine.next_double, engine.next_float = -0.25, 1.5
    other = MT19937(1)
    other.set_state(engine.get_state())
    assert (other.next_double, other.next_float) == (-0.25, 1.5)
    other.set_state(MT19937(7).get_state())
    assert (other.next_double, other.next_float) == (None, None)


def test_reseeding_drops_the_spares_and_restarts() -> None:
    engine = MT19937(7)
    first = engine.draw32(4).tolist()
    engine.next_double = 1.0
    engine.reseed(7)
    assert engine.next_double is None
    assert engine.draw32(4).tolist() == first


def test_a_bad_state_is_refused_and_changes_nothing() -> None:
    engine = MT19937(7)
    before = engine.get_state()
    with pytest.raises(RuntimeError, match=r"size 5056 but found .* 16"):
        engine.set_state(np.zeros(16, np.uint8))
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        engine.set_state(np.zeros(5056, np.uint8))
    assert (engine.get_state() == before).all()


def test_chunks_join_to_the_whole() -> None:
    n = 3 * (1 << 16) + 5
    for whole, chunks in ((MT19937.draw32, MT19937.chunks32), (MT19937.draw64, MT19937.chunks64)):
        parts = list(chunks(MT19937(9), n))
        assert (np.concatenate([words for _, words in parts]) == whole(MT19937(9), n)).all()
        assert parts[-1][0].stop == n


def test_fresh_seeds_have_64_bits_and_differ() -> None:
    seeds = {nondeterministic_seed() for _ in range(8)}
    assert len(seeds) == 8
    assert 2**53 < max(seeds) < 2**64


def test_seeding_does_not_import_numpy_random() -> None:
    code = "import sys; from tocha.rng.mt19937 import MT19937; MT19937(3); print('numpy.random' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
