"""A kernel of the Box-Muller transform on blocks of 16 uniforms, operation for operation that of tocha.rng.box_muller, which explains it.

It has torch's bits where the CPU rounds x * y + z once (tocha.inductor.jit.has_fma).
"""

from __future__ import annotations

from tocha.inductor.loop_ir import (
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    Index,
    Kernel,
    Load,
    Loop,
    Param,
    Size,
    Store,
    Unary,
    fma,
    verify,
)  # fmt: skip
from tocha.rng import box_muller as reference

_ZERO = Const(0, "index")
_HALF = reference.BLOCK // 2


def _bits(x: Expr) -> Expr:
    return Bitcast(x, "i32")


def _float(x: Expr) -> Expr:
    return Bitcast(x, "f32")


def _polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    value = fma(x, coefficients[0], coefficients[1])
    for c in coefficients[2:]:
        value = fma(value, x, c)
    return value


def _log(x: Expr) -> Expr:
    raw = _bits(x)
    mantissa = (raw & ~0x7F800000) | 0x3F000000
    low = (mantissa - reference.SQRT_HALF_BITS) >> 31
    e = Convert((raw >> 23) - 126 + low, "f32")
    x = _float(mantissa) - 1.0 + _float(mantissa & low)
    z = x * x
    y = fma(_polynomial(x, reference.LOG) * x, z, e * float(reference.LN2_LOW))
    return fma(e, reference.LN2_HIGH, x + fma(z, -0.5, y))


def _sincos(x: Expr) -> tuple[Expr, Expr]:
    octant = (Convert(x * float(reference.FOUR_OVER_PI), "i32") + 1) & ~1
    turns = Convert(octant, "f32")
    for part in reference.MINUS_PI_4:
        x = fma(turns, part, x)
    z = x * x
    sin = fma(_polynomial(z, reference.SIN) * z, x, x)
    cos = fma(_polynomial(z, reference.COS) * z, z, z * -0.5) + 1.0
    swapped = (_bits(sin) ^ _bits(cos)) & ((octant << 30) >> 31)
    sin_bits = _bits(sin) ^ swapped ^ ((octant & 4) << 29)
    cos_bits = _bits(cos) ^ swapped ^ (((octant + 2) & 4) << 29)
    return _float(sin_bits), _float(cos_bits)


def make() -> Kernel:
    """Normals from uniforms in [0, 1); a unit is a block. Both buffers may be the same memory: a lane is read before it is written."""
    first = Index("unit") * reference.BLOCK + Index("j")
    u1, u2 = Load("u", first, "f32"), Load("u", first + _HALF, "f32")
    radius = Unary("sqrt", _log(1.0 - u1) * -2.0)
    sin, cos = _sincos(u2 * float(reference.TWO_PI))
    mean, std = Convert(Param("mean", "f64"), "f32"), Convert(Param("std", "f64"), "f32")
    stores = (Store("out", first, fma(radius * cos, std, mean)), Store("out", first + _HALF, fma(radius * sin, std, mean)))
    body = (Loop("unit", Size("lo"), Size("hi"), (Loop("j", _ZERO, Const(_HALF, "index"), stores, "vector"),)),)
    kernel = Kernel("normal", (Buffer("out", "f32"), Buffer("u", "f32")), (Param("mean", "f64"), Param("std", "f64")), (), body)
    verify(kernel)
    return kernel
