"""Every sampler against digests of real torch's tensors and of its generator state afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tocha.rng import continuous, discrete, rejection
from tocha.rng.continuous import narrow
from tocha.rng.mt19937 import MT19937

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text(encoding="utf-8"))

Sampler = Callable[[MT19937, int, np.dtype], np.ndarray]


def _linspace(stop: float, n: int, dtype: np.dtype, start: float = 0.0) -> np.ndarray:
    """torch.linspace, which counts the second half from the end."""
    step = (dtype.type(stop) - dtype.type(start)) / dtype.type(max(n - 1, 1))
    k = np.arange(n, dtype=dtype)
    up = continuous.fma64(k.astype(float), float(step), float(np.dtype(dtype).type(start))).astype(dtype)
    down = continuous.fma64((n - 1 - k).astype(float), -float(step), float(dtype.type(stop))).astype(dtype)
    return np.where(np.arange(n) < n // 2, up, down) if n > 1 else np.full(1, start, dtype)


def _categorical(engine: MT19937, n: int, dtype: np.dtype) -> np.ndarray:
    return discrete.categorical(engine, np.arange(1.0, 8.0, dtype=np.float32)[None], n + 1)[0]


def _geometric(engine: MT19937, n: int, dtype: np.dtype) -> np.ndarray:
    return discrete.geometric(engine, n, 0.3).astype(dtype)


F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
SAMPLERS: dict[str, Sampler] = {
    "uniform": continuous.uniform,
    "uniform_range": lambda e, n, d: continuous.uniform(e, n, d, -0.3, 1.7),
    "normal": continuous.normal,
    "normal_scaled": lambda e, n, d: continuous.normal(e, n, d, 0.37, 1.7),
    "normal_serial": lambda e, n, d: continuous.normal_serial(e, n, d, 0.37, 1.7),
    "log_normal": lambda e, n, d: continuous.log_normal(e, n, d, 0.3, 0.7),
    "exponential": lambda e, n, d: continuous.exponential(e, n, d, 1.3),
    "cauchy": lambda e, n, d: continuous.cauchy(e, n, d, 0.3, 2.2),
    "geometric": _geometric,
    "bernoulli": lambda e, n, d: discrete.bernoulli(e, n, 0.3).astype(d),
    "bernoulli_each32": lambda e, n, d: discrete.bernoulli_each(e, _linspace(1, n, F32)).astype(d),
    "bernoulli_each64": lambda e, n, d: discrete.bernoulli_each(e, _linspace(1, n, F32).astype(F64)).astype(d),
    "random": discrete.integers_of_dtype,
    "random_range": lambda e, n, d: discrete.integers(e, n, d, 3, 97),
    "random_wide": lambda e, n, d: discrete.integers(e, n, d, -5, 2**40 + 12),
    "random_full": lambda e, n, d: discrete.integers(e, n, d, -(2**63), 2**64),
    "permutation": discrete.permutation,
    "categorical": _categorical,
    "poisson": lambda e, n, d: rejection.poisson(e, _linspace(40, n, d)),
    "binomial": lambda e, n, d: rejection.binomial(e, np.full(n, 60, d), _linspace(1, n, d)),
    "gamma": lambda e, n, d: rejection.standard_gamma(e, _linspace(6, n, d, 0.1)),
}


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def _digest(x: np.ndarray) -> str:
    return hashlib.sha256(x.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_and_state(name: str) -> None:
    wrong = []
    for dtype, size, values, state in EXPECTED[name]:
        engine = MT19937(size)
        x = SAMPLERS[name](engine, size, _dtype(dtype))
        if (_digest(x), _digest(engine.get_state())) != (values, state):
            wrong.append((dtype, size))
    assert wrong == []


def test_every_fixture_has_a_sampler() -> None:
    assert set(EXPECTED) == set(SAMPLERS)


def test_narrow_rounds_float64_twice() -> None:
    # 1 + 2**-11 + 2**-40 is above the float16 midpoint, but float32 drops the excess and ties go to even.
    assert narrow(np.array([1 + 2.0**-11 + 2.0**-40]), np.dtype(np.float16))[0] == 1
