"""float8 as bytes: expressions that make them of float32 and read them, for kernels (arithmetic is never done in float8).

Formats and special values: Micikevicius et al. 2022 (e4m3fn, e5m2), Noune et al. 2022 (fnuz: no infinities, no negative zero, 0x80 is NaN),
OCP Microscaling formats 2023 (e8m0fnu: powers of 2). What is too large for e4m3fn becomes its largest number, as in torch.
"""

from __future__ import annotations

from typing import NamedTuple

from tocha.inductor.loop_ir import Binary, Bitcast, Const, Expr, compare, const, convert, select

_INFINITY, _NAN = 0x7F800000, 0x7FC00000  # bits of float32


class Format(NamedTuple):
    """Bits of the mantissa, the exponent's bias, the largest finite number and what is above it, without sign; `unsigned_zero`: as fnuz."""

    mantissa: int
    bias: int
    largest: int
    above: int
    unsigned_zero: bool = False


FORMATS = {
    "float8_e4m3fn": Format(3, 7, 0x7E, 0x7E), "float8_e5m2": Format(2, 15, 0x7B, 0x7C),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, 0x80, True), "float8_e5m2fnuz": Format(2, 16, 0x7F, 0x80, True),
}  # fmt: skip


def encoded(name: str, x: Expr) -> Expr:
    """The byte of a float32, rounded to the nearest, ties to even (e8m0fnu: to the larger)."""
    bits: Expr = Bitcast(x, "u32")
    size = bits & 0x7FFFFFFF
    is_nan = compare("gt", size, _INFINITY)
    if name == "float8_e8m0fnu":
        return convert(select(is_nan, 0xFF, _power(size)), "u8")
    f = FORMATS[name]
    down = 23 - f.mantissa
    normal = ((size + ((1 << (down - 1)) - 1) + ((size >> down) & 1)) >> down) - ((127 - f.bias) << f.mantissa)
    # Added to a number whose last bit is worth the format's smallest one, a small number is rounded by the addition.
    anchor = const(2.0 ** (24 - f.bias - f.mantissa), "f32")
    small = Bitcast(Bitcast(size, "f32") + anchor, "u32") - Bitcast(anchor, "u32")
    code = select(compare("lt", size, (128 - f.bias) << 23), small, normal)
    sign = (bits >> 24) & 0x80
    if f.unsigned_zero:
        outside = is_nan | compare("gt", code, f.largest)
        code = select(outside, f.above, select(compare("eq", code, 0), 0, code | sign))
    else:
        code = select(is_nan, 0x7F, Binary("min", code, const(f.above, "u32"))) | sign
    return convert(code, "u8")


def _power(size: Expr) -> Expr:
    """The exponent of the nearest power of 2; numbers below the smallest, which float32 has as a denormal one, become that."""
    return select(compare("le", size, 0x00400000), 0, (size + 0x00400000) >> 23)


def decoded(name: str, byte: Expr) -> Expr:
    """The float32 of a byte, exactly."""
    code = convert(byte, "u32")
    if name == "float8_e8m0fnu":
        bits = select(compare("eq", code, 0), 0x00400000, select(compare("eq", code, 0xFF), _NAN, code << 23))
        return Bitcast(bits, "f32")
    f = FORMATS[name]
    size, up = code & 0x7F, 23 - f.mantissa
    scaled = Bitcast(size << up, "f32") * const(2.0 ** (127 - f.bias), "f32")
    found: Expr = Bitcast(scaled, "u32")
    if f.unsigned_zero:
        return Bitcast(select(compare("eq", code, 0x80), _NAN, found | ((code & 0x80) << 24)), "f32")
    special = Const(_NAN, "u32") if f.largest == 0x7E else (size << up) | _INFINITY
    return Bitcast(select(compare("gt", size, f.largest), special, found) | ((code & 0x80) << 24), "f32")
