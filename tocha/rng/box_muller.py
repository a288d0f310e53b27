"""Box–Muller on blocks of 16 uniforms: the float32 kernel of torch's x86 builds and the float64 one.

Box & Muller (1958). Of each block, lane j of the first eight gives the radius and lane j of the last eight
the angle. The float32 kernel evaluates the Cephes polynomials (S. Moshier) for log, sin and cos with fused
multiply-adds: here an exact float64 product and a float64 sum, rounded to float32. That second rounding
disagrees with a true fused multiply-add about once in 10**9 operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from tocha.rng.fused import fma64, libm

BLOCK: Final = 16
_HALF: Final = BLOCK // 2
_ROWS: Final = 2048
_F: Final = np.float32
_ONE: Final = _F(1)


def _rounded(*coefficients: float) -> tuple[float, ...]:
    return tuple(float(_F(c)) for c in coefficients)


LOG: Final = _rounded(
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
COS: Final = _rounded(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
SIN: Final = _rounded(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
MINUS_PI_4: Final = _rounded(-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
LN2_LOW: Final = _F(-2.12194440e-4)
LN2_HIGH: Final = float(_F(0.693359375))
SQRT_HALF_BITS: Final = int(_F(0.707106781186547524).view(np.int32))
FOUR_OVER_PI: Final = _F(1.27323954473516)
TWO_PI: Final = _F(2 * math.pi)


# Where a native one is at hand, set by tocha.backends.native: (u, mean, std) -> whether it transformed u.
kernel: Callable[[np.ndarray, float, float], bool] | None = None


class _Kernel:
    """The float32 transform of n lane pairs at a time; its passes reuse buffers that stay in cache."""

    def __init__(self, n: int) -> None:
        self.product, self.wide, self.x64, self.z64 = (np.empty(n) for _ in range(4))
        self.e, self.z, self.sin, self.cos, self.swap = (np.empty(n, _F) for _ in range(5))
        self.bits, self.sign = np.empty(n, np.int32), np.empty(n, np.int32)

    def fma(self, a: np.ndarray, b: np.ndarray | float, c: np.ndarray | float, out: np.ndarray) -> None:
        """out = a * b + c rounded once, for float64 a and b that hold float32 values."""
        np.multiply(a, b, out=self.product)
        np.add(self.product, c, out=self.product)
        out[...] = self.product

    def horner(self, variable: np.ndarray, coefficients: tuple[float, ...], out: np.ndarray) -> None:
        """The polynomial in Horner form, rounded to float32 at each step."""
        self.fma(variable, coefficients[0], coefficients[1], out)
        for c in coefficients[2:]:
            self.wide[...] = out
            self.fma(self.wide, variable, c, out)

    def widen(self, x: np.ndarray) -> None:
        """Keep x and x * x (rounded to float32) in float64 for the polynomials."""
        np.multiply(x, x, out=self.z)
        self.x64[...] = x
        self.z64[...] = self.z

    def log(self, x: np.ndarray) -> None:
        """x in (0, 1] becomes its natural logarithm."""
        bits, low, y = self.bits, self.sign, self.sin
        raw = x.view(np.int32)
        np.right_shift(raw, 23, out=bits)
        np.subtract(bits, 126, out=bits)
        np.bitwise_and(raw, ~0x7F800000, out=raw)
        np.bitwise_or(raw, 0x3F000000, out=raw)
        # All ones where the mantissa, now in [0.5, 1), is below sqrt(1/2): it doubles, the exponent drops.
        np.subtract(raw, SQRT_HALF_BITS, out=low)
        np.right_shift(low, 31, out=low)
        np.add(bits, low, out=bits)
        np.bitwise_and(raw, low, out=y.view(np.int32))
        self.e[...] = bits
        np.subtract(x, _ONE, out=x)
        np.add(x, y, out=x)
        self.widen(x)
        self.horner(self.x64, LOG, y)
        np.multiply(y, x, out=y)
        self.wide[...] = y
        np.multiply(self.e, LN2_LOW, out=self.swap)
        self.fma(self.wide, self.z64, self.swap, y)
        self.fma(self.z64, -0.5, y, y)
        np.add(x, y, out=x)
        self.wide[...] = self.e
        self.fma(self.wide, LN2_HIGH, x, x)

    def sincos(self, x: np.ndarray) -> None:
        """The sine and cosine of x in [0, 2 pi], into self.sin and self.cos; x is overwritten."""
        sin, cos, octant, sign = self.sin, self.cos, self.bits, self.sign
        np.multiply(x, FOUR_OVER_PI, out=self.swap)
        octant[...] = self.swap
        np.add(octant, 1, out=octant)
        np.bitwise_and(octant, ~1, out=octant)
        self.wide[...] = octant
        for part in MINUS_PI_4:
            self.fma(self.wide, part, x, x)
        self.widen(x)
        self.horner(self.z64, SIN, sin)
        np.multiply(sin, self.z, out=sin)
        self.wide[...] = sin
        self.fma(self.wide, self.x64, x, sin)
        self.horner(self.z64, COS, cos)
        np.multiply(cos, self.z, out=cos)
        self.wide[...] = cos
        np.multiply(self.z, _F(-0.5), out=self.z)
        self.fma(self.wide, self.z64, self.z, cos)
        np.add(cos, _ONE, out=cos)
        # Bit 1 of the octant tells where sine and cosine change places: a mask of all ones there.
        np.left_shift(octant, 30, out=sign)
        np.right_shift(sign, 31, out=sign)
        s, c, difference = sin.view(np.int32), cos.view(np.int32), self.swap.view(np.int32)
        np.bitwise_xor(s, c, out=difference)
        np.bitwise_and(difference, sign, out=difference)
        np.bitwise_xor(s, difference, out=s)
        np.bitwise_xor(c, difference, out=c)
        self.flip(sin, octant)
        np.add(octant, 2, out=octant)
        self.flip(cos, octant)

    def flip(self, value: np.ndarray, octant: np.ndarray) -> None:
        """Negate where bit 2 of the octant is set."""
        np.bitwise_and(octant, 4, out=self.sign)
        np.left_shift(self.sign, 29, out=self.sign)
        raw = value.view(np.int32)
        np.bitwise_xor(raw, self.sign, out=raw)

    def transform(self, u1: np.ndarray, u2: np.ndarray, mean: float, std: float) -> None:
        """Two rows of n uniforms become two rows of n normals, in place."""
        np.subtract(_ONE, u1, out=u1)
        self.log(u1)
        np.multiply(u1, _F(-2), out=u1)
        np.sqrt(u1, out=u1)
        np.multiply(u2, TWO_PI, out=u2)
        self.sincos(u2)
        for trig, out in ((self.sin, u2), (self.cos, u1)):
            np.multiply(u1, trig, out=out)
            if mean == 0.0:
                np.multiply(out, _F(std), out=out)
                np.add(out, _F(0), out=out)
            else:
                self.wide[...] = out
                self.fma(self.wide, std, mean, out)


def normal_blocks32(u: np.ndarray, mean: float, std: float) -> None:
    """Float32 uniforms in [0, 1), a multiple of 16 of them, become normals in place."""
    mean, std = float(_F(mean)), float(_F(std))
    if kernel is not None and kernel(u, mean, std):
        return
    # A half block moves as one 32-byte item: NumPy copies those far faster than rows of eight floats.
    halves = u.view(np.dtype((np.void, _HALF * u.itemsize))).reshape(-1, 2)
    rows = len(halves)
    step = min(rows, _ROWS)
    passes = pair = None
    for start in range(0, rows, step):
        chunk = halves[start : start + step]
        if pair is None or len(chunk) * _HALF != pair.shape[1]:
            pair = np.empty((2, len(chunk) * _HALF), np.float32)
            passes = _Kernel(pair.shape[1])
        assert passes is not None
        items = pair.view(halves.dtype)
        items[0], items[1] = chunk[:, 0], chunk[:, 1]
        passes.transform(pair[0], pair[1], mean, std)
        chunk[:, 0], chunk[:, 1] = items[0], items[1]


def normal_blocks64(u: np.ndarray, mean: float, std: float) -> None:
    """Float64 uniforms in [0, 1), a multiple of 16 of them, become normals in place."""
    lanes = u.reshape(-1, 2, _HALF)
    radius = np.sqrt(-2.0 * libm("log", (1.0 - lanes[:, 0]).ravel()))
    theta = (2 * math.pi * lanes[:, 1]).ravel()
    for half, name in ((0, "cos"), (1, "sin")):
        lanes[:, half] = fma64(radius * libm(name, theta), std, mean).reshape(-1, _HALF)
