"""Elementary functions as loop IR: polynomials that LLVM vectorises, or calls of the C library.

float32: exp, exp2, expm1, log, log1p, tanh and erf are computed in float32 (at most 2 ulp); all others in float64
with polynomials of some 36 bits, which needs no tricks against cancellation and rounds once. float64: exp, exp2, log,
sin, cos and tan are polynomials of full accuracy, the rest is libm.

Method: reduce the argument to a small interval (Cody and Waite 1980), evaluate a polynomial by Horner's rule, put the
result back together. Polynomials are minimax fits (Remez) made for these intervals; each table says what it
approximates and the error. A function that is only right for part of its arguments names the others `hard`: those
elements are computed again, one by one, with libm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tocha.inductor.loop_ir import Binary, Bitcast, Call, Expr, Unary, compare, const, convert, fma, select

# e^r = 1 + r + r²P(r), |r| ≤ ln(2)/2: 2^-28, 2^-38, 2^-62
_EXP_32 = (0.0013814609670407413, 0.008368710066470745, 0.041668387437426305, 0.16666520688016628, 0.4999999345140438)
_EXP_MEDIUM = (
    2.4876315348862891e-5, 0.00019899394729306608, 0.0013888823905209673, 0.008333298337184823, 0.041666666854706285, 0.16666666719333055,
    0.49999999999909472,
)  # fmt: skip
_EXP_64 = (
    2.0921670179120711e-9, 2.5105314116534943e-8, 2.7557252673292368e-7, 2.7557255166245235e-6, 2.4801587347587178e-5, 0.00019841269875005669,
    0.0013888888888874294, 0.008333333333326082, 0.041666666666666684, 0.16666666666666671, 0.5,
)  # fmt: skip
# 2^r = 1 + rP(r), |r| ≤ 1/2: 2^-29, 2^-40, 2^-64
_EXP2_32 = (
    0.00015476442558180358,
    0.001340040293564002,
    0.0096180034019983215,
    0.055503274597237727,
    0.24022651349694376,
    0.69314720640145483,
)
_EXP2_MEDIUM = (
    1.3263598650377577e-6, 1.5310124769649571e-5, 0.00015403414989612833, 0.0013333450477472247, 0.0096181292201306609, 0.055504109411467171,
    0.24022650695551306, 0.69314718054604149,
)  # fmt: skip
_EXP2_64 = (
    2.5741925156140039e-11, 4.456692819921132e-10, 7.0548881676832954e-9, 1.0178051089477982e-7, 1.3215486833276053e-6, 1.5252733856507136e-5,
    0.0001540353039334084, 0.0013333558146390175, 0.0096181291076284953, 0.055504108664821699, 0.24022650695910071, 0.69314718055994531,
)  # fmt: skip
# log(1 + f) = f - f²/2 + f³P(f), √½ - 1 ≤ f ≤ √2 - 1: 2^-30
_LOG_32 = (
    0.069155938519781179, -0.1178977282546969, 0.11872847816716652, -0.12384347315500131, 0.14218677562993182, -0.16669251481826278,
    0.20002225498759035, -0.24999986573293504, 0.3333331046079585,
)  # fmt: skip
# log((1 + s)/(1 - s)) = 2s + s³P(s²), |s| ≤ 0.1716: 2^-45, 2^-59
_LOG_MEDIUM = (0.19583835393978129, 0.22176216659890376, 0.28572108301347855, 0.39999995632441301, 0.66666666675757624)
_LOG_64 = (
    0.14795642362117943, 0.15314089738296169, 0.18183562398635413, 0.22222198619744192, 0.28571428741812568, 0.39999999999418044, 0.66666666666667337,
)  # fmt: skip
# sin r = r + r³P(r²), cos r = 1 - r²/2 + r⁴P(r²), |r| ≤ pi/4: 2^-38 and 2^-43; 2^-58 and 2^-64
_SIN_MEDIUM = (2.7182376425140196e-6, -0.00019839327183296095, 0.0083333293624668801, -0.16666666641428782)
_COS_MEDIUM = (-2.7209563057344791e-7, 2.4799511979143211e-5, -0.0013888883723599602, 0.04166666662249118)
_SIN_64 = (
    1.589650683772896e-10,
    -2.5050753300920358e-8,
    2.7557313662322523e-6,
    -0.00019841269829726104,
    0.0083333333333223166,
    -0.16666666666666632,
)
_COS_64 = (
    -1.1359458203116798e-11,
    2.0875719759804634e-9,
    -2.7557314327669819e-7,
    2.4801587289401324e-5,
    -0.0013888888888874003,
    0.041666666666666599,
)
# tanh x = x + x³P(x²), |x| ≤ 0.625: 2^-28
_TANH_32 = (-0.005717088051619592, 0.02065063089577606, -0.053743513660594843, 0.13331491514542072, -0.3333328393634317)
# tanh x = xP(x²)/Q(x²), |x| ≤ 9: 2^-24, and not below 1 at the end in float32
_TANH_ABOVE = (1.3356546979537143e-08, 2.0610463252523914e-05, 0.003495672019198537, 0.13381098210811615, 1.0)
_TANH_BELOW = (7.777335326863977e-07, 0.00032857718179002404, 0.02587730623781681, 0.4671441316604614, 1.0)
# atan x = x + x³P(x²), |x| ≤ 1: 2^-34; asin x = x + x³P(x²), |x| ≤ 1/2: 2^-40
_ATAN_MEDIUM = (
    -0.00071133173232684963, 0.0049994707143023047, -0.016471838695583041, 0.034705196524247896, -0.054704962474250587, 0.07269411460002876,
    -0.089888021610973404, 0.11095204805542029, -0.14284251188072786, 0.19999932219993792, -0.33333332235898881,
)  # fmt: skip
_ASIN_MEDIUM = (
    0.032940778648221752, 0.0019494730562681876, 0.020658603249689902, 0.021863106220663929, 0.030426829562320494, 0.044640688614174576,
    0.075000050389671722, 0.16666666626763733,
)  # fmt: skip
# erf x = x + xP(x²), |x| ≤ 1.125: 2^-27; erfc x = P(x)^-8, 1.125 ≤ x ≤ 4: 2^-27 of erf
_ERF_32 = (
    7.021928425014778e-05, -0.0007748543671752644, 0.005157502563938001, -0.02683710696360184, 0.11283177157678656,
    -0.37612589526393214, 0.12837916051767861,
)  # fmt: skip
_ERFC_ROOT_32 = (
    0.0006428471908590793, -0.005230439073273263, 0.024155435530442863, -0.05126682455944597, 0.10437125865180319,
    0.019034745178908116, 0.17569113343764853, 0.992712622709714,
)  # fmt: skip
# erf x = xP(x²)/Q(x²), |x| ≤ 3.93: 2^-24 and never below, so that it ends at 1
_ERF_ABOVE = (
    2.0419703102172103e-06, 0.00028480865050518114, 0.0037796115279316966, 0.052790295324190835, 0.19078389375152274, 1.1283792126094847,
)  # fmt: skip
_ERF_BELOW = (3.800407029169569e-05, 0.0011652131916052746, 0.014997441461154948, 0.11425754310972633, 0.5024105330236583, 1.0)
# (1 + 2x) e^(x²) erfc x = P((x - 4)/(x + 4)), 0 ≤ x ≤ 11: 2^-33
_ERFC_MEDIUM = (
    8.4891540294625731e-5, -0.0003548973108938886, -0.00082185682872039059, 0.0050950443700890763, -0.016148275905695847, 0.037161507732581997,
    -0.066341336545726647, 0.0937324290883198, -0.10103807421299411, 0.068097120430593812, 0.015379619395811217, -0.13962111821894907,
    1.2329951188071114,
)  # fmt: skip

_LN2 = math.log(2)
# Upper parts with trailing zeros, so that products with small whole numbers are exact.
_LN2_32 = (0.693145751953125, 1.428606820309417e-06)
_LN2_64 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_PI_2 = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_FAR = 1e6  # above it, multiples of pi/2 are no longer told apart by three parts
_MAGIC = {"f32": 1.5 * 2**23, "f64": 1.5 * 2**52}  # adding it rounds to a whole number, which then is the lowest bits
_LAYOUT = {"f32": ("i32", 23, 127), "f64": ("i64", 52, 1023)}  # integer type, mantissa bits, exponent's bias

Hard = Callable[[Expr], None]


def _poly(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Highest power first."""
    found: Any = coefficients[0]
    for c in coefficients[1:]:
        found = fma(found, x, c)
    return found


def _copysign(x: Any, y: Expr) -> Expr:
    return Binary("copysign", x if isinstance(x, Expr) else const(x, y.type), y)


def _negative(x: Expr) -> Expr:
    """Whether the sign bit is set."""
    integer = "i32" if x.type == "f32" else "i64"
    return Bitcast(x, integer) < 0


def _odd(x: Expr, y: Expr) -> Expr:
    """y, but x where that is ±0."""
    return select(_is(x, 0.0), x, y)


def _is(x: Expr, value: float) -> Expr:
    return compare("eq", x, value)


def _between(x: Expr, low: float, high: float) -> Expr:
    """x held in an interval; NaN stays."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def _round(x: Expr, scale: float) -> tuple[Expr, Expr]:
    """x * scale as a whole number: as float, and as integer."""
    magic = _MAGIC[x.type]
    shifted = fma(x, scale, magic)
    integer = _LAYOUT[x.type][0]
    bits = const(magic, x.type)
    return shifted - magic, Binary("sub", Bitcast(shifted, integer), Bitcast(bits, integer))


def _power_of_two(n: Expr, type: str) -> Expr:
    """2^n for an integer n in the range of normal numbers."""
    _, mantissa, bias = _LAYOUT[type]
    return Bitcast((n + bias) << mantissa, type)


def _scale(y: Expr, n: Expr, type: str) -> Expr:
    """y * 2^n, in two steps so that results may be denormal or infinite."""
    half = n >> 1
    return y * _power_of_two(half, type) * _power_of_two(n - half, type)


# ---- exponentials and logarithms

_EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}


def _reduced_exp(x: Expr, table: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """n, r and e^r - 1 with x = n ln 2 + r."""
    high, low = _LN2_32 if x.type == "f32" else _LN2_64
    whole, n = _round(x, 1 / _LN2)
    r = fma(whole, -low, fma(whole, -high, x))
    return n, r, fma(r * r, _poly(r, table), r)


def exp(x: Expr) -> Expr:
    n, _, y = _reduced_exp(_between(x, *_EXP_RANGE[x.type]), _EXP_32 if x.type == "f32" else _EXP_64)
    return _scale(y + 1.0, n, x.type)


def exp_of_difference(x: Expr) -> Expr:
    """e^x where x is a score less the largest one, or the sum's logarithm: hardly above 0; results below normal numbers are 0."""
    n, _, y = _reduced_exp(x, _EXP_32 if x.type == "f32" else _EXP_64)
    p = _power_of_two(n, x.type)
    return select(x < (-87.0 if x.type == "f32" else -708.0), 0.0, fma(p, y, p))


def exp_plus_one(x: Expr) -> Expr:
    """e^x + 1, in which powers below normal numbers are lost: with half of 2^n, as 2^128 would be infinite."""
    low, high = (-87.0, 89.0) if x.type == "f32" else (-708.0, 710.0)
    n, _, y = _reduced_exp(_between(x, low, high), _EXP_32 if x.type == "f32" else _EXP_64)
    half = _power_of_two(n - 1, x.type)
    power = fma(half, y, half)
    return (power + power) + 1.0


def _exp_medium(x: Expr) -> Expr:
    """float64 with 2^-37, for |x| < 700."""
    n, _, y = _reduced_exp(x, _EXP_MEDIUM)
    p = _power_of_two(n, "f64")
    return fma(p, y, p)


def exp2(x: Expr) -> Expr:
    low, high = (-151.0, 129.0) if x.type == "f32" else (-1076.0, 1025.0)
    x = _between(x, low, high)
    whole, n = _round(x, 1.0)
    r = x - whole
    return _scale(fma(r, _poly(r, _EXP2_32 if x.type == "f32" else _EXP2_64), 1.0), n, x.type)


def _expm1(x: Expr) -> Expr:
    n, _, y = _reduced_exp(_between(x, -60.0, 120.0), _EXP_MEDIUM)
    p = _power_of_two(n, "f64")
    return _odd(x, fma(p, y, p - 1.0))


def expm1(x: Expr) -> Expr:
    """float32; with half of 2^n, as 2^128 would be infinite."""
    n, _, y = _reduced_exp(_between(x, -20.0, 89.0), _EXP_32)
    half = _power_of_two(n - 1, "f32")
    return _odd(x, fma(half, y, half - 0.5) * 2.0)


def _split(x: Expr) -> tuple[Expr, Expr]:
    """Exponent e (as float) and m - 1 of x = 2^e m, √½ ≤ m < √2, for x > 0 (denormals too)."""
    type = x.type
    integer, mantissa, _ = _LAYOUT[type]
    tiny = x < (2.0**-126 if type == "f32" else 2.0**-1022)
    shift = mantissa + 1
    bits = Bitcast(select(tiny, x * 2.0**shift, x), integer)
    root = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}[type]
    e = (bits - root) >> mantissa
    m = Bitcast(bits - (e << mantissa), type)
    if type == "f32":
        whole = convert(e, type)
    else:  # conversion of 64-bit integers is slow on most CPUs
        magic = _MAGIC[type]
        whole = Bitcast(e + Bitcast(const(magic, type), integer), type) - magic
    return whole - select(tiny, const(float(shift), type), 0.0), m - 1.0


def _log_ends(x: Expr, y: Expr) -> Expr:
    """y, and what the logarithm is at 0, below 0, at infinity and NaN."""
    y = select(x < math.inf, y, x)
    y = select(_is(x, 0.0), -math.inf, y)
    return select(x < 0.0, math.nan, y)


def log(x: Expr) -> Expr:
    e, f = _split(x)
    if x.type == "f32":
        z = f * f
        y = fma(e, _LN2_32[1], f * z * _poly(f, _LOG_32))
        y = fma(e, _LN2_32[0], fma(z, -0.5, y) + f)
        return _log_ends(x, y)
    return _log_ends(x, _log_wide(e, f, _LOG_64))


def _log_wide(e: Expr, f: Expr, table: tuple[float, ...]) -> Expr:
    s = f / (f + 2.0)
    z = s * s
    half = 0.5 * f * f
    rest = s * fma(z, _poly(z, table), half)
    return fma(e, _LN2_64[0], f - (half - fma(e, _LN2_64[1], rest)))


def _log_medium(x: Expr) -> Expr:
    e, f = _split(x)
    return _log_ends(x, _log_wide(e, f, _LOG_MEDIUM))


def log1p(x: Expr) -> Expr:
    """float32: log of u = 1 + x, and what u lost of x over u."""
    u = x + 1.0
    e, f = _split(u)
    lost = select(x < 2.0**24, (x - (u - 1.0)) / u, 0.0)
    z = f * f
    y = fma(e, _LN2_32[1], fma(f * z, _poly(f, _LOG_32), lost))
    return _odd(x, _log_ends(u, fma(e, _LN2_32[0], fma(z, -0.5, y) + f)))


def _log1p(x: Expr) -> Expr:
    u = x + 1.0
    lost = select(abs(x) < 0.5, (x - (u - 1.0)) / u, 0.0)
    return _odd(x, _log_medium(u) + lost)


def _logaddexp(x: Expr, y: Expr) -> Expr:
    far = Binary("max", x, y) + _log1p(_exp_medium(_between(-abs(x - y), -600.0, 0.0)))
    return select(_equal(x, y), x + _LN2, far)


def _logaddexp2(x: Expr, y: Expr) -> Expr:
    far = Binary("max", x, y) + _log1p(_exp_medium(_between(abs(x - y) * -_LN2, -600.0, 0.0))) * (1 / _LN2)
    return select(_equal(x, y), x + 1.0, far)


def _equal(x: Expr, y: Expr) -> Expr:
    return compare("eq", x, y)


def _pow(x: Expr, y: Expr) -> Expr:
    """C's pow with all its special cases, in float64 for float32 operands."""
    size = abs(x)
    t = _between(y * (_log_medium(size) * (1 / _LN2)), -1000.0, 1000.0)
    whole, n = _round(t, 1.0)
    r = t - whole
    p = _power_of_two(n, "f64")
    power = fma(p * r, _poly(r, _EXP2_MEDIUM), p)
    power = select(_is(size, math.inf) & (y > 0.0), math.inf, power)
    whole_y = _equal(Unary("trunc", y), y)
    half = y * 0.5
    odd = whole_y & Unary("not", _equal(Unary("trunc", half), half))
    power = select(odd, _copysign(power, x), power)
    bad = (x < 0.0) & Unary("not", whole_y) & (size < math.inf)
    power = select(bad, math.nan, power)
    one = _is(y, 0.0) | _is(x, 1.0) | (_is(x, -1.0) & _is(abs(y), math.inf))
    return select(one, 1.0, power)


# ---- trigonometry


def _quarter_turns(x: Expr) -> tuple[Expr, Expr]:
    """q and r with x = q pi/2 + r."""
    whole, q = _round(x, 2 / math.pi)
    r = x
    for part in _PI_2:
        r = fma(whole, -part, r)
    return q, r


def _sine_cosine(r: Expr, wide: bool) -> tuple[Expr, Expr]:
    z = r * r
    sine = fma(r * z, _poly(z, _SIN_64 if wide else _SIN_MEDIUM), r)
    cosine = fma(z * z, _poly(z, _COS_64 if wide else _COS_MEDIUM), fma(z, -0.5, 1.0))
    return sine, cosine


def _flip(x: Expr, odd: Expr) -> Expr:
    """-x where bit 1 of the integer `odd` is set."""
    return Bitcast(Bitcast(x, "i64") ^ ((odd & const(2, "i64")) << 62), "f64")


def _one_bit(q: Expr) -> Expr:
    return _equal(q & const(1, "i64"), const(1, "i64"))


def _circular(name: str, x: Expr, wide: bool) -> Expr:
    q, r = _quarter_turns(x)
    sine, cosine = _sine_cosine(r, wide)
    swap = _one_bit(q)
    if name == "sin":
        return _odd(x, _flip(select(swap, cosine, sine), q))
    if name == "cos":
        return _flip(select(swap, sine, cosine), q + 1)
    top, bottom = select(swap, cosine, sine), select(swap, -sine, cosine)
    return _odd(x, top / bottom)


def _asin_core(a: Expr) -> tuple[Expr, Expr, Expr]:
    """For 0 ≤ a ≤ 1: whether a > 1/2, and asin of a or of √((1 - a)/2) then."""
    large = a > 0.5
    z = select(large, (1.0 - a) * 0.5, a * a)
    s = select(large, Unary("sqrt", z), a)
    return large, fma(s * z, _poly(z, _ASIN_MEDIUM), s), s


def _asin(x: Expr) -> Expr:
    large, y, _ = _asin_core(abs(x))
    return _copysign(select(large, math.pi / 2 - 2.0 * y, y), x)


def _acos(x: Expr) -> Expr:
    large, y, _ = _asin_core(abs(x))
    near = select(large, 2.0 * y, math.pi / 2 - y)  # of |x|
    return select(x < 0.0, math.pi - near, near)


def _atan_unit(a: Expr) -> Expr:
    """For 0 ≤ a ≤ 1."""
    z = a * a
    return fma(a * z, _poly(z, _ATAN_MEDIUM), a)


def _atan(x: Expr) -> Expr:
    a = abs(x)
    large = a > 1.0
    y = _atan_unit(select(large, 1.0 / a, a))
    return _copysign(select(large, math.pi / 2 - y, y), x)


def _atan2(y: Expr, x: Expr) -> Expr:
    a, b = abs(y), abs(x)
    low, high = Binary("min", a, b), Binary("max", a, b)
    ratio = select(_equal(low, high), select(_is(high, 0.0), const(0.0, "f64"), 1.0), low / high)
    angle = _atan_unit(ratio)
    angle = select(a > b, math.pi / 2 - angle, angle)
    return _copysign(select(_negative(x), math.pi - angle, angle), y)


# ---- hyperbolic functions


def tanh(x: Expr) -> Expr:
    """float32. 1 - 2/(1 + 2^t) far from 0: an error of t matters the less, the larger t is."""
    a = abs(x)
    bounded, scale = select(a > 10.0, 10.0, a), 2 / _LN2
    whole, n = _round(bounded, scale)
    r, p = fma(bounded, scale, -whole), _power_of_two(n, "f32")
    far = 1.0 - 2.0 / fma(p * r, _poly(r, _EXP2_32), p + 1.0)
    z = a * a
    return _copysign(select(a > 0.625, far, fma(a * z, _poly(z, _TANH_32), a)), x)


def tanh_absolute(x: Expr) -> Expr:
    """tanh in float32 with an absolute error of 3e-7 and a relative one of 5 ulp, for gates: half the time."""
    x = _between(x, -9.0, 9.0)
    z = x * x
    return _between(x * _poly(z, _TANH_ABOVE) / _poly(z, _TANH_BELOW), -1.0, 1.0)


def _sinh(x: Expr) -> Expr:
    e = _expm1(_between(abs(x), 0.0, 100.0))
    return _copysign((e + e / (e + 1.0)) * 0.5, x)


def _cosh(x: Expr) -> Expr:
    e = _exp_medium(_between(abs(x), 0.0, 100.0))
    return (e + 1.0 / e) * 0.5


def _asinh(x: Expr) -> Expr:
    a = abs(x)
    return _copysign(_log1p(a + select(a < math.inf, a * a / (Unary("sqrt", a * a + 1.0) + 1.0), a)), x)


def _acosh(x: Expr) -> Expr:
    t = x - 1.0
    return select(x < 1.0, math.nan, _log1p(t + Unary("sqrt", t * (t + 2.0))))


def _atanh(x: Expr) -> Expr:
    a = abs(x)
    return _copysign(_log1p(2.0 * a / (1.0 - a)) * 0.5, x)


# ---- error functions


def erf(x: Expr) -> Expr:
    """float32. Far from 0 a division and a power by squaring take the place of e^(-x²) (after Abramowitz and Stegun 1964, 7.1.28)."""
    t = abs(x)
    power = _poly(select(t > 4.0, 4.0, t), _ERFC_ROOT_32)
    for _ in range(3):
        power = power * power
    return select(t > 1.125, _copysign(1.0 - 1.0 / power, x), fma(x, _poly(x * x, _ERF_32), x))


def erf_absolute(x: Expr) -> Expr:
    """erf in float32 with an absolute error of 3e-7, for where something near 1 is added to it: half the time."""
    x = _between(x, -3.93, 3.93)
    z = x * x
    return _between(x * (_poly(z, _ERF_ABOVE) / _poly(z, _ERF_BELOW)), -1.0, 1.0)


def _erfc(x: Expr) -> Expr:
    a = _between(abs(x), 0.0, 11.0)
    y = _poly((a - 4.0) / (a + 4.0), _ERFC_MEDIUM) * _exp_medium(-(a * a)) / fma(a, 2.0, 1.0)
    return select(x < 0.0, 2.0 - y, y)


def _hypot(x: Expr, y: Expr) -> Expr:
    infinite = _is(abs(x), math.inf) | _is(abs(y), math.inf)
    return select(infinite, math.inf, Unary("sqrt", fma(x, x, y * y)))


_IN_FLOAT32: dict[str, Callable[..., Expr]] = {
    "exp": exp,
    "exp2": exp2,
    "log": log,
    "tanh": tanh,
    "erf": erf,
    "expm1": expm1,
    "log1p": log1p,
}
_IN_FLOAT64: dict[str, Callable[..., Expr]] = {"exp": exp, "exp2": exp2, "log": log}
_THROUGH_FLOAT64: dict[str, Callable[..., Expr]] = {
    "expm1": _expm1, "log1p": _log1p, "log2": lambda x: _log_medium(x) * (1 / _LN2), "log10": lambda x: _log_medium(x) * (1 / math.log(10)),
    "asin": _asin, "acos": _acos, "atan": _atan, "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
    "erfc": _erfc, "pow": _pow, "atan2": _atan2, "hypot": _hypot, "logaddexp": _logaddexp, "logaddexp2": _logaddexp2,
}  # fmt: skip
_CIRCULAR = ("sin", "cos", "tan")
LIBM = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "erfc", "pow", "hypot", "fmod", "cbrt", "nextafter",
))  # fmt: skip
NAMES = LIBM | _THROUGH_FLOAT64.keys()


def elementary(name: str, *x: Expr, hard: Hard | None) -> Expr:
    """The function called `name` of one or two floats. `hard` is told when elements need another try without it."""
    type = x[0].type
    if name in _CIRCULAR and hard is not None:
        hard(Unary("not", abs(x[0]) < _FAR))
        value = _circular(name, convert(x[0], "f64"), wide=type == "f64")
        return convert(value, type)
    if name not in _CIRCULAR:
        if type == "f32" and name in _IN_FLOAT32:
            return _IN_FLOAT32[name](*x)
        if type == "f32" and name in _THROUGH_FLOAT64:
            return convert(_THROUGH_FLOAT64[name](*[convert(v, "f64") for v in x]), "f32")
        if type == "f64" and name in _IN_FLOAT64:
            return _IN_FLOAT64[name](*x)
    if name not in LIBM:
        raise NotImplementedError(f"{name} of {type}")
    return Call(name + "f" if type == "f32" else name, x, type)
