from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tocha.rng import continuous
from tocha.rng.mt19937 import MT19937

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def _hex(*values: str) -> list[float]:
    return [float.fromhex(v) for v in values]


# torch.manual_seed(0), then the call in float64. The C library's last bit may differ between platforms.
FLOAT64 = [
    (
        lambda e: continuous.normal(e, 5, F64),
        _hex(
            "0x1.8a7eb8902be3ap+0",
            "-0x1.2c78a087c6feap-2",
            "-0x1.16e2920a70ee5p+1",
            "0x1.23096ca3e350dp-1",
            "-0x1.15a341987e136p+0",
        ),
    ),
    (
        lambda e: continuous.normal(e, 17, F64)[:3],
        _hex("-0x1.27bb92e9262dcp+1", "-0x1.443c91ccf2402p-1", "-0x1.42cbf54f08f8ep+0"),
    ),
    (
        lambda e: continuous.exponential(e, 3, F64, 1.3),
        _hex("0x1.596f68dbd9925p+1", "0x1.e495121461d33p-1", "0x1.e4772b1dc3231p-2"),
    ),
    (
        lambda e: continuous.cauchy(e, 3, F64, 0.3, 2.2),
        _hex("0x1.79d70efa6b697p+4", "0x1.fb8454e8bac34p+0", "0x1.22ad061c258c9p-6"),
    ),
]


@pytest.mark.parametrize("call, expected", FLOAT64)
def test_float64_samples(call, expected) -> None:
    np.testing.assert_allclose(call(MT19937(0)), expected, rtol=4e-16)


def test_uniform_range_in_float64_is_fused() -> None:
    expected = _hex("0x1.a3ddfcaf7dd62p+0", "0x1.1d9a90b54fff3p+0", "0x1.3ccee1dab0c5cp-1")
    assert continuous.uniform(MT19937(0), 3, F64, -0.3, 1.7).tolist() == expected


def test_the_spare_normal_carries_over() -> None:
    engine = MT19937(0)
    split = np.concatenate([continuous.normal(engine, n, F32) for n in (1, 3, 2, 5)])
    assert (split == continuous.normal(MT19937(0), 11, F32)).all()
    assert engine.next_double is not None


def test_blocks_leave_the_spare_alone() -> None:
    engine = MT19937(0)
    continuous.normal(engine, 1, F32)
    spare = engine.next_double
    continuous.normal(engine, 40, F32)
    assert engine.next_double == spare


def test_a_ragged_end_redraws_its_block() -> None:
    # 17 = one block and a tail: elements 1..16 come from words 17..32 of the stream.
    engine = MT19937(5)
    x = continuous.normal(engine, 17, F32)
    u = continuous.uniform32(MT19937(5), 33)
    whole = u[:16].copy(), u[17:].copy()
    for block in whole:
        continuous.normal_blocks32(block, 0.0, 1.0)
    assert x[0] == whole[0][0]
    assert (x[1:] == whole[1]).all()


def test_large_normals_equal_small_calls() -> None:
    # Crosses the chunks of the draws and of the transform.
    n = 16 * 5000
    engine = MT19937(1)
    parts = [continuous.normal(engine, 16 * k, F32) for k in (1, 7, 1024, 1025, 2943)]
    assert (np.concatenate(parts) == continuous.normal(MT19937(1), n, F32)).all()


def test_uniform_never_reaches_the_upper_end() -> None:
    half, brain = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
    for dtype in (half, brain):
        x = continuous.uniform(MT19937(2), 20000, dtype, 0.0, 1.0).astype(np.float64)
        assert x.min() >= 0
        assert x.max() < 1
    # In float32 the only number below 1 + 2**-22 and at least 1 + 2**-23 is its lower end.
    top = 1 + 2.0**-22
    assert set(continuous.uniform(MT19937(2), 1000, F32, 1.0, top).tolist()) == {1.0, 1 + 2.0**-23}


@pytest.mark.parametrize("dtype", [F32, F64, np.dtype(np.float16)])
def test_zero_standard_deviation_gives_the_mean(dtype: np.dtype) -> None:
    for n in (3, 40):
        x = continuous.normal(MT19937(2), n, dtype, 0.5, 0.0)
        assert (x == 0.5).all()
        assert x.dtype == dtype


@pytest.mark.parametrize("sampler", [continuous.uniform, continuous.normal, continuous.exponential])
def test_nothing_asked_nothing_drawn(sampler) -> None:
    engine = MT19937(2)
    before = engine.get_state()
    assert sampler(engine, 0, F32).shape == (0,)
    assert (engine.get_state() == before).all()
