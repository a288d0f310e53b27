"""Discrete distributions over one random stream, number for number as torch's CPU kernels draw them.

Samples come in the order in which torch fills memory.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Final

import numpy as np

from tocha.rng.continuous import narrow, uniform32, uniform64
from tocha.rng.mt19937 import MT19937

_WIDE_RANGE: Final = 1 << 28  # from here on 32-bit words would be visibly skewed, so torch draws 64 bits
UNIFORM_64_FROM: Final = 0xFFFF_FFFF // 20
_MASK53: Final = np.uint64((1 << 53) - 1)
_LASWP_FROM: Final = 20_000
_LASWP_LOADED_FROM: Final = 200
_EPS_DIGITS: Final = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def cast(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """An int64 array in the target dtype: wrapped for integers, rounded (through float32) for floats."""
    if dtype.kind in "iub":
        return x.astype(dtype, copy=False)
    return x.astype(dtype) if dtype.itemsize >= 4 else narrow(x.astype(np.float32), dtype)


def _modulo(words: np.ndarray, span: int) -> np.ndarray:
    """words % span as int64."""
    if span & (span - 1) == 0:
        return (words & words.dtype.type(span - 1)).astype(np.int64)
    divisor = words.dtype.type(span)
    # Division by a scalar is vectorised in NumPy, the remainder is not.
    whole = words // divisor
    whole *= divisor
    words -= whole
    return words.astype(np.int64)


def integers(engine: MT19937, count: int, dtype: np.dtype[Any], low: int, span: int) -> np.ndarray:
    """Integers in [low, low + span), 0 < span <= 2**64; 2**64 stands for every int64."""
    if span == 1 << 64:
        return cast(engine.draw64(count).view(np.int64), dtype)
    out = np.empty(count, dtype)
    for part, words in (engine.chunks64 if span >= _WIDE_RANGE else engine.chunks32)(count):
        values = _modulo(words, span)
        if low:
            values += np.int64(low)
        out[part] = cast(values, dtype)
    return out


def integers_of_dtype(engine: MT19937, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Non-negative integers over the dtype's range; for floats up to two to the number of mantissa digits."""
    digits = _EPS_DIGITS.get(dtype.name)
    if digits is not None:
        span = (1 << digits) + 1
    elif dtype.kind == "b":
        span = 2
    else:
        span = int(np.iinfo(dtype).max) + 1
    words = engine.draw64(count) if dtype.name in ("int64", "float64") else engine.draw32(count)
    return cast(_modulo(words, span), dtype)


def permutation(engine: MT19937, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """A random permutation of range(count): Fisher–Yates from the front."""
    if count >= UNIFORM_64_FROM:
        return _inside_out(engine, count, dtype)
    if count < 2:
        return cast(np.arange(count), dtype)
    words = engine.draw32(count - 1)
    targets = words % np.arange(count, 1, -1, dtype=np.uint32)
    targets = targets.astype(np.int64)
    targets += np.arange(count - 1)
    if count >= (_LASWP_LOADED_FROM if "scipy.linalg.lapack" in sys.modules else _LASWP_FROM):
        return cast(_swap_rows(targets, count), dtype)
    order = list(range(count))
    for i, j in enumerate(targets.tolist()):
        order[i], order[j] = order[j], order[i]
    return cast(np.array(order, np.int64), dtype)


def _swap_rows(targets: np.ndarray, count: int) -> np.ndarray:
    """Apply the swaps (i, targets[i]) in turn with LAPACK's row interchange: ten times a loop's speed."""
    from scipy.linalg.lapack import dlaswp

    column = np.arange(count, dtype=np.float64).reshape(count, 1, order="F")
    return dlaswp(column, targets.astype(np.int32), overwrite_a=1).ravel().astype(np.int64)


def _inside_out(engine: MT19937, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    order = np.empty(count, np.int64)
    step = 1 << 20
    for start in range(0, count, step):
        stop = min(start + step, count)
        chosen = engine.draw64(stop - start) % np.arange(start + 1, stop + 1, dtype=np.uint64)
        for i, z in enumerate(chosen.tolist(), start):
            order[i] = i
            order[i], order[z] = order[z], i
    return cast(order, dtype)


def bernoulli(engine: MT19937, count: int, p: float) -> np.ndarray:
    """Booleans that are true with probability p, from 53-bit uniforms."""
    bound = np.uint64(math.ceil(p * 2.0**53))
    if count <= 64:
        return (engine.draw64(count) & _MASK53) < bound
    out = np.empty(count, np.bool_)
    for part, words in engine.chunks64(count):
        words &= _MASK53
        np.less(words, bound, out=out[part])
    return out


def bernoulli_each(engine: MT19937, p: np.ndarray) -> np.ndarray:
    """Booleans with a probability each; 53-bit uniforms for a float64 `p`, else 24-bit ones."""
    if p.dtype == np.float64:
        return uniform64(engine, p.size) < p
    return uniform32(engine, p.size) < p.astype(np.float32)


def geometric(engine: MT19937, count: int, p: float) -> np.ndarray:
    """Trials up to the first success, as float64."""
    with np.errstate(divide="ignore"):
        return np.ceil(np.log(uniform64(engine, count)) / math.log1p(-p))


def categorical(engine: MT19937, weights: np.ndarray, count: int) -> np.ndarray:
    """`count` indices a row, with replacement, with probability proportional to the row's float weights.

    RuntimeError as in torch for a negative or non-finite weight or a row that sums to nothing.
    """
    dtype = np.dtype(np.float64 if weights.dtype == np.float64 else np.float32)
    rows = weights.astype(dtype, copy=False)
    out = np.empty((len(rows), count), np.int64)
    for row, picked in zip(rows, out, strict=True):
        _check_weights(row)
        cumulative = np.add.accumulate(row, dtype=dtype)
        if not cumulative.size or not cumulative[-1] > 0:
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        cumulative /= cumulative[-1]
        cumulative[-1] = 1
        picked[:] = np.searchsorted(cumulative.astype(np.float64), uniform64(engine, count), side="left")
    return out


def _check_weights(row: np.ndarray) -> None:
    bad = ~(np.isfinite(row) & (row >= 0))
    if bad.any():
        # The first offending entry decides the message; NaN already fails the sign test.
        reason = "entry = infinity or NaN" if row[bad.argmax()] == np.inf else "entry < 0"
        raise RuntimeError(f"invalid multinomial distribution (encountering probability {reason})")
