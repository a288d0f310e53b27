"""Half types from float64 are rounded twice, by way of float32, as torch does it everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tocha as torch

NEAR = 1.0 + 2.0**-11 + 2.0**-40  # over the middle between two float16 numbers, but not in float32


@pytest.mark.parametrize("make", [
    lambda: torch.tensor([NEAR], dtype=torch.float64).half(),
    lambda: torch.tensor([NEAR], dtype=torch.float64).repeat(100_000).half()[:1],
    lambda: torch.tensor([NEAR], dtype=torch.float16),
    lambda: torch.tensor(np.array([NEAR]), dtype=torch.float16),
    lambda: torch.full((1,), NEAR, dtype=torch.float16),
    lambda: torch.zeros(1, dtype=torch.float16) + NEAR,
    lambda: torch.zeros(1, dtype=torch.float16).copy_(torch.tensor([NEAR], dtype=torch.float64)),
    lambda: torch.compile(lambda x: x.half())(torch.tensor([NEAR], dtype=torch.float64)),
    lambda: torch.compile(lambda x: x.float().half())(torch.tensor([NEAR] * 9, dtype=torch.float64))[:1],
])  # fmt: skip
def test_rounded_twice(make: object) -> None:
    assert make().tolist() == [1.0]  # type: ignore[operator]
