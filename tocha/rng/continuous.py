"""Continuous distributions over one random stream, number for number as torch's CPU kernels draw them.

Every function returns `count` samples in the order in which torch fills memory; `dtype` is float64, float32,
float16 or bfloat16. The narrow ones are computed wider and rounded through float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tocha.rng.box_muller import BLOCK, normal_blocks32, normal_blocks64
from tocha.rng.fused import fma64, libm
from tocha.rng.mt19937 import MT19937

_MASK24: Final = np.uint32((1 << 24) - 1)
_MASK53: Final = np.uint64((1 << 53) - 1)
_UNIT24: Final = np.float32(2.0**-24)
_EXACT_BELOW: Final = 64
_FEW: Final = 32


def uniform32(engine: MT19937, count: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Float32 uniforms on [low, high) of 24 random bits; the upper end itself can come out by rounding."""
    if count <= _FEW and low == 0.0 and high == 1.0:
        return (engine.draw32(count) & _MASK24).astype(np.float32) * _UNIT24
    start, span = float(np.float32(low)), float(np.float32(high) - np.float32(low))
    out = np.empty(count, np.float32)
    for part, words in engine.chunks32(count):
        words &= _MASK24
        piece = out[part]
        # The signed conversion is a single vector instruction, the unsigned one is not.
        if start == 0.0 and span == 1.0:
            np.copyto(piece, words.view(np.int32), casting="unsafe")
            piece *= _UNIT24
        else:
            # In float64 the product is exact, so this is a fused multiply-add.
            wide = words.view(np.int32) * (2.0**-24 * span)
            wide += start
            np.copyto(piece, wide, casting="same_kind")
    return out


# Where a native one is at hand, set by tocha.backends._native_random: (engine, array) -> whether it filled the array.
kernel: Callable[[MT19937, np.ndarray], bool] | None = None


def uniform64(engine: MT19937, count: int) -> np.ndarray:
    """Float64 uniforms in [0, 1) of 53 random bits."""
    out = np.empty(count)
    if count and kernel is not None and kernel(engine, out):
        return out
    for part, words in engine.chunks64(count):
        words &= _MASK53
        piece = out[part]
        np.copyto(piece, words.view(np.int64), casting="unsafe")
        piece *= 2.0**-53
    return out


def narrow(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Cast as C++ does: float64 reaches the 16-bit types through float32."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return x.astype(np.float32, copy=False).astype(dtype, copy=False)


def uniform(engine: MT19937, count: int, dtype: np.dtype[Any], low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Uniform on [low, high)."""
    unit = low == 0.0 and high == 1.0
    if dtype == np.float64:
        x = uniform64(engine, count)
        if not unit:
            x = fma64(x, high - low, low)
    else:
        x = narrow(uniform32(engine, count, low, high), dtype)
    if unit and dtype.itemsize >= 4:
        return x
    # Rounding may reach the excluded upper end.
    top = dtype.type(high)
    if count and x.max() >= top:
        x[x == top] = dtype.type(low)
    return x


def _map(name: str, x: np.ndarray, exact: bool) -> np.ndarray:
    """An elementary function in float64: the C library's bits when `exact`, else NumPy's."""
    return libm(name, x) if exact else getattr(np, name)(x)


def normal_one(engine: MT19937) -> float:
    """The next standard normal: the spare of the last pair, or the first of a new one."""
    spare = engine.next_double
    if spare is not None:
        engine.next_double = None
        return spare
    u1, u2 = engine.next_uniform(), engine.next_uniform()
    radius = math.sqrt(-2.0 * math.log1p(-u2))
    theta = 2.0 * math.pi * u1
    engine.next_double = radius * math.sin(theta)
    return radius * math.cos(theta)


def _normal_pairs(engine: MT19937, count: int, exact: bool) -> np.ndarray:
    """Standard normals in float64, two from each pair of draws; the spare one stays in the engine."""
    if count <= _FEW:
        return np.array([normal_one(engine) for _ in range(count)], np.float64)
    out = np.empty(count)
    filled = 0
    if count and engine.next_double is not None:
        out[0] = engine.next_double
        engine.next_double = None
        filled = 1
    pairs = (count - filled + 1) // 2
    if pairs == 0:
        return out
    u = uniform64(engine, 2 * pairs)
    radius = np.sqrt(-2.0 * _map("log1p", -u[1::2], exact))
    theta = 2.0 * math.pi * u[0::2]
    samples = np.empty(2 * pairs)
    samples[0::2] = radius * _map("cos", theta, exact)
    samples[1::2] = radius * _map("sin", theta, exact)
    out[filled:] = samples[: count - filled]
    if (count - filled) % 2:
        last = math.sqrt(-2.0 * math.log1p(-float(u[-1])))
        engine.next_double = last * math.sin(float(theta[-1]))
    return out


def normal_serial(engine: MT19937, count: int, dtype: np.dtype[Any], mean: float, std: float) -> np.ndarray:
    """Normal, drawn one after the other: torch's way for fewer than 16 elements and for strided targets."""
    wide = dtype == np.float64
    x = _normal_pairs(engine, count, wide or count < _EXACT_BELOW)
    return narrow(fma64(x, std, mean) if wide else x * std + mean, dtype)


def normal(engine: MT19937, count: int, dtype: np.dtype[Any], mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    """Normal on a contiguous target: in blocks of 16; a ragged end has its last block drawn anew."""
    if count < BLOCK:
        return normal_serial(engine, count, dtype, mean, std)
    wide = dtype == np.float64
    draw, transform = (uniform64, normal_blocks64) if wide else (uniform32, normal_blocks32)
    ragged = count % BLOCK != 0
    # A 16-bit target draws no uniforms for the tail that is overwritten anyway.
    spent = count if dtype.itemsize >= 4 else count - count % BLOCK
    u = draw(engine, spent + (BLOCK if ragged else 0))
    whole = count - count % BLOCK
    if not ragged:
        transform(u, mean, std)
        return narrow(u, dtype)
    blocks = np.concatenate([u[:whole], u[spent:]])
    transform(blocks, mean, std)
    out = np.empty(count, u.dtype)
    out[:whole] = blocks[:whole]
    out[count - BLOCK :] = blocks[whole:]
    return narrow(out, dtype)


def log_normal(engine: MT19937, count: int, dtype: np.dtype[Any], mean: float, std: float) -> np.ndarray:
    """exp of a normal with that mean and standard deviation."""
    exact = dtype == np.float64
    x = _normal_pairs(engine, count, exact or count < _EXACT_BELOW)
    with np.errstate(over="ignore"):
        return narrow(_map("exp", fma64(x, std, mean) if exact else x * std + mean, exact), dtype)


def exponential(engine: MT19937, count: int, dtype: np.dtype[Any], rate: float = 1.0) -> np.ndarray:
    """Exponential of that rate by inversion."""
    return narrow(-1.0 / rate * _map("log1p", -uniform64(engine, count), dtype == np.float64), dtype)


def cauchy(engine: MT19937, count: int, dtype: np.dtype[Any], median: float, sigma: float) -> np.ndarray:
    """Cauchy by inversion."""
    angle = math.pi * (uniform64(engine, count) - 0.5)
    exact = dtype == np.float64
    tangent = _map("tan", angle, exact)
    return narrow(fma64(tangent, sigma, median) if exact else tangent * sigma + median, dtype)
