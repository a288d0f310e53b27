"""Comparison of operators' results with literal values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import Tensor

nan, inf = float("nan"), float("inf")


def empty(shape: list[int]) -> Any:
    """The expected value of a tensor of `shape` without elements."""
    return np.zeros(shape)


def check(got: Any, dtypes: str, expected: Any) -> None:
    """Types (named in `dtypes`, one for each result), shapes and values, NaN being equal to itself."""
    results = list(got) if isinstance(got, (tuple, list)) else [got]
    values = expected if isinstance(got, (tuple, list)) else [expected]
    names = dtypes.split()
    assert len(results) == len(values) == len(names)
    for result, name, value in zip(results, names, values, strict=True):
        if not isinstance(result, Tensor):
            assert type(result).__name__ == name
            assert result == value
            continue
        assert result.dtype.name == name
        array = (result.float() if name in ("bfloat16", "float16") else result).numpy()
        assert array.shape == np.shape(value)
        np.testing.assert_allclose(array, value, rtol=2e-5, atol=1e-6)
