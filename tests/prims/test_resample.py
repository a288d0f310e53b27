"""Padding by what lies inside, against numpy.pad on random shapes."""

import numpy as np
import pytest

import tocha as torch


@pytest.mark.parametrize(("mode", "numpys"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_padding_of_random_shapes(mode: str, numpys: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        shape = [2, 3, *rng.integers(2, 20, int(rng.integers(1, 4))).tolist()]
        x = rng.standard_normal(shape).astype(np.float32)
        pads = [(int(rng.integers(0, n)), int(rng.integers(0, n))) for n in shape[2:]]
        got = torch.nn.functional.pad(torch.from_numpy(x), [n for pair in reversed(pads) for n in pair], mode=mode)
        np.testing.assert_array_equal(got.numpy(), np.pad(x, [(0, 0), (0, 0), *pads], mode=numpys))
