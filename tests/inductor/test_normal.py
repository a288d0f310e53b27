"""The Box-Muller kernel has the bits of its NumPy form."""

import numpy as np
import pytest

from tocha.backends import _native_random, native
from tocha.inductor import jit
from tocha.rng import box_muller
from tocha.rng.mt19937 import MT19937


@pytest.mark.skipif(not jit.has_fma(), reason="this CPU rounds x * y + z twice")
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.5, 2.3), (-1e3, 1e-3)])
@pytest.mark.parametrize("blocks", [1, 3, 5000])
def test_normals_have_the_same_bits(monkeypatch: pytest.MonkeyPatch, mean: float, std: float, blocks: int) -> None:
    words = np.random.default_rng(3).integers(0, 1 << 24, 16 * blocks)
    words[:4] = 0, 1, (1 << 24) - 1, 1 << 23
    u = (words / (1 << 24)).astype(np.float32)
    want, got = u.copy(), u.copy()
    monkeypatch.setattr(box_muller, "kernel", None)
    box_muller.normal_blocks32(want, mean, std)
    assert _native_random.transform(got, np.float32(mean), np.float32(std))
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@pytest.mark.usefixtures("no_compiler")
def test_few_normals_load_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same bits either way."""
    monkeypatch.setattr(native, "LEAST", {**native.LEAST, "row": 4096})
    monkeypatch.setattr(_native_random, "_known", {})
    assert not _native_random.draw("uniform32", MT19937(1), np.empty(8, np.float32), 2.0**-24, 0.0, 2.0, 0.0)
    assert not _native_random.transform(np.full(64, 0.5, np.float32), 0.0, 1.0)
