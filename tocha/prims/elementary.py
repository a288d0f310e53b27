"""Arithmetic, comparison, rounding, exponential and trigonometric operators: one record each.

Gradient formulas are standard calculus; for complex arguments they follow the convention of torch docs, "Autograd for
Complex Numbers" (the conjugate of the Wirtinger derivative), hence `.conj()`.
"""

from __future__ import annotations

import math
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.pointwise import broadcast_shapes, pointwise
from tocha.tensor import Tensor


def conj(x: Any) -> Any:
    """The conjugate of a complex tensor or number; anything else unchanged."""
    if isinstance(x, Tensor):
        return x.conj_physical() if x._a.dtype.kind == "c" else x
    return x.conjugate() if x.__class__ is complex else x


# ---- choosing


def _where_infer(condition: Any, input: Any, other: Any, *, dtype: Any) -> MetaArray:
    return MetaArray(broadcast_shapes("where", condition.shape, input.shape, other.shape), dtype)


@prim("where", "pointwise", half="native", infer=_where_infer,
      vjp=(None, lambda g, condition: keep(g, condition), lambda g, condition: keep(g, ~condition)))  # fmt: skip
def where(xp: Any, condition: Any, input: Any, other: Any, *, dtype: Any) -> Any:
    """input where a bool condition holds, else other; both as `dtype`."""
    if input.dtype is not dtype:
        input = xp.cast(input, dtype)
    return xp.where(condition, input, other if other.dtype is dtype else xp.cast(other, dtype))


where.fit = True


@prim("keep", "pointwise", half="native", vjp=(lambda g, mask: keep(g, mask), None),
      infer=lambda input, mask: MetaArray(broadcast_shapes("keep", input.shape, mask.shape), input.dtype))  # fmt: skip
def keep(xp: Any, input: Any, mask: Any) -> Any:
    """input where a bool mask (which broadcasts to it) holds, else 0: NaN and Inf don't leak as through a product."""
    return xp.where(mask, input, input.dtype.type(0))


def zero(g: Any) -> Any:
    """The gradient where nothing depends on the argument, though torch has a gradient there."""
    return g.new_zeros(g.shape)


@prim("unread", "pointwise", half="native", vjp=(lambda g: g * 0, lambda g: g),
      infer=lambda input, other: MetaArray(other.shape, other.dtype))  # fmt: skip
def unread(xp: Any, input: Any, other: Any) -> Any:
    """other, as of `0 * input + other` where NaN in input doesn't count; input broadcasts to it."""
    return other.copy()


unread.fit = True

# ---- arithmetic

add = pointwise(
    "add", lambda o, x, y: o.add(x, y), vjp=(lambda g: g, lambda g: g), scaled=True, numbers="all",
    doc="Sum, `input + alpha * other` (torch docs: torch.add).",
)  # fmt: skip
sub = pointwise(
    "sub", lambda o, x, y: o.sub(x, y), vjp=(lambda g: g, lambda g: -g), refuse=("bool",), alias=("subtract",), scaled=True, numbers="all",
    doc="Difference, `input - alpha * other` (torch docs: torch.sub).",
)  # fmt: skip
mul = pointwise(
    "mul", lambda o, x, y: o.mul(x, y), vjp=(lambda g, y: g * conj(y), lambda g, x: g * conj(x)), alias=("multiply",), numbers="all",
    doc="Product (torch docs: torch.mul).",
)  # fmt: skip
true_divide = pointwise(
    "true_divide", lambda o, x, y: o.div(x, y), promote="float", domain=(0.5, 2.0), spell="torch method inplace out", numbers="all",
    vjp=(lambda g, y: g / conj(y), lambda g, x, y: -g * conj((x / y) / y)),
    doc="True division: integers give floats (torch docs: torch.true_divide).",
)  # fmt: skip
neg = pointwise(
    "neg", lambda o, x: o.neg(x), vjp=lambda g: -g, refuse=("bool",), alias=("negative",), doc="Negation (torch docs: torch.neg).",
)  # fmt: skip
pointwise(
    "reciprocal", lambda o, x: o.div(1.0, x), vjp=lambda g, out: -g * conj(out * out), promote="float", domain=(0.5, 2.0),
    doc="1 / input (torch docs: torch.reciprocal).",
)  # fmt: skip
pointwise(
    "square",
    lambda o, x: o.square(x),
    vjp=lambda g, x: g * conj(2 * x),
    promote="number",
    doc="input * input (torch docs: torch.square).",
)

# ---- comparison

for _name, _alias, _text in (
    ("eq", (), "equal"), ("ne", ("not_equal",), "not equal"), ("lt", ("less",), "less than"),
    ("le", ("less_equal",), "at most"), ("gt", ("greater",), "greater than"), ("ge", ("greater_equal",), "at least"),
):  # fmt: skip
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), output="bool", alias=_alias, numbers="second",
        refuse=() if _name in ("eq", "ne") else ("complex",),
        doc=f"Whether input is {_text} other, elementwise, as bool (torch docs: torch.{_name}).",
    )  # fmt: skip

# ---- exponentials and powers

exp = pointwise(
    "exp", lambda o, x: o.exp(x), vjp=lambda g, out: g * conj(out), promote="float", doc="e^input (torch docs: torch.exp)."
)
pointwise(
    "exp2", lambda o, x: o.exp2(x), vjp=lambda g, out: g * conj(out * math.log(2)), promote="float", alias=(),
    spell="torch method inplace out special", doc="2^input (torch docs: torch.exp2).",
)  # fmt: skip
pointwise(
    "expm1", lambda o, x: o.expm1(x), vjp=lambda g, out: g * conj(out + 1), promote="float", spell="torch method inplace out special",
    doc="e^input - 1, exact near 0 (torch docs: torch.expm1).",
)  # fmt: skip
log = pointwise(
    "log", lambda o, x: o.log(x), vjp=lambda g, x: g / conj(x), promote="float", domain=(0.1, 3.0), doc="Natural logarithm (torch docs: torch.log)."
)  # fmt: skip
for _name, _base in (("log2", 2.0), ("log10", 10.0)):
    pointwise(
        _name, (lambda n: lambda o, x: getattr(o, n)(x))(_name), promote="float", domain=(0.1, 3.0),
        vjp=(lambda b: lambda g, x: g / conj(x * math.log(b)))(_base), doc=f"Logarithm to base {_base:g} (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise(
    "log1p", lambda o, x: o.log1p(x), vjp=lambda g, x: g / conj(x + 1), promote="float", domain=(-0.9, 3.0),
    spell="torch method inplace out special", doc="log(1 + input), exact near 0 (torch docs: torch.log1p).",
)  # fmt: skip
sqrt = pointwise(
    "sqrt", lambda o, x: o.sqrt(x), vjp=lambda g, out: g / conj(2 * out), promote="float", domain=(0.1, 3.0),
    doc="Square root (torch docs: torch.sqrt)."
)  # fmt: skip
rsqrt = pointwise(
    "rsqrt", lambda o, x: o.div(1.0, o.sqrt(x)), vjp=lambda g, out: -0.5 * g * conj(out * out * out), promote="float", domain=(0.1, 3.0),
    doc="1 / sqrt(input) (torch docs: torch.rsqrt).",
)  # fmt: skip

# ---- trigonometric and hyperbolic


def _acosh_slope(x: Any) -> Any:
    return conj((x - 1).rsqrt() * (x + 1).rsqrt()) if x.is_complex() else (x * x - 1).rsqrt()


sin = pointwise(
    "sin", lambda o, x: o.sin(x), vjp=lambda g, x: g * conj(x.cos()), promote="float", doc="Sine (torch docs: torch.sin)."
)
cos = pointwise(
    "cos", lambda o, x: o.cos(x), vjp=lambda g, x: -g * conj(x.sin()), promote="float", doc="Cosine (torch docs: torch.cos)."
)
pointwise(
    "tan",
    lambda o, x: o.tan(x),
    vjp=lambda g, out: g * conj(1 + out * out),
    promote="float",
    domain=(-1, 1),
    doc="Tangent (torch docs: torch.tan).",
)
for _name, _numpy, _rule, _range in (
    ("asin", "arcsin", lambda g, x: g * conj((1 - x * x).rsqrt()), (-0.9, 0.9)),
    ("acos", "arccos", lambda g, x: -g * conj((1 - x * x).rsqrt()), (-0.9, 0.9)),
    ("atan", "arctan", lambda g, x: g / conj(x * x + 1), (-2.0, 2.0)),
    ("asinh", "arcsinh", lambda g, x: g * conj((x * x + 1).rsqrt()), (-2.0, 2.0)),
    ("acosh", "arccosh", lambda g, x: g * _acosh_slope(x), (1.2, 3.0)),
    ("atanh", "arctanh", lambda g, x: g / conj(1 - x * x), (-0.9, 0.9)),
):  # fmt: skip
    pointwise(
        _name, (lambda n: lambda o, x: getattr(o, n)(x))(_numpy), vjp=_rule, promote="float", domain=_range, alias=(_numpy,),
        doc=f"Inverse of {_name[1:]} (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise(
    "sinh",
    lambda o, x: o.sinh(x),
    vjp=lambda g, x: g * conj(x.cosh()),
    promote="float",
    doc="Hyperbolic sine (torch docs: torch.sinh).",
)
pointwise(
    "cosh",
    lambda o, x: o.cosh(x),
    vjp=lambda g, x: g * conj(x.sinh()),
    promote="float",
    doc="Hyperbolic cosine (torch docs: torch.cosh).",
)
tanh = pointwise(
    "tanh", lambda o, x: o.tanh(x), vjp=lambda g, out: g * conj(1 - out * out), promote="float", spell="torch method inplace out F",
    doc="Hyperbolic tangent (torch docs: torch.tanh).",
)  # fmt: skip
sigmoid = pointwise(
    "sigmoid", lambda o, x: o.div(1.0, o.add(1.0, o.exp(o.neg(x)))), vjp=lambda g, out: g * conj(out * (1 - out)), promote="float",
    spell="torch method inplace out F special:expit", doc="1 / (1 + e^-input) (torch docs: torch.sigmoid).",
)  # fmt: skip

# ---- powers

ldexp = pointwise(
    "ldexp", lambda o, x, y: o.mul(x, o.exp2(y)), spell="", promote="float",
    vjp=(lambda g, y: g * conj(y.exp2()), lambda g, out: g * conj(out * math.log(2))),
)  # fmt: skip


def _pow(o: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu" or not o.any(o.lt(y, 0)):
        return o.pow(x, y)
    negative = o.lt(y, 0)  # 1 and -1 have inverses; the rest truncate to 0
    one, zero = x.dtype.type(1), x.dtype.type(0)
    unit = (
        o.where(o.eq(x, 1), one, o.where(o.eq(x, -1), o.where(o.bitwise_and(y, 1), -one, one), zero))
        if x.dtype.kind == "i"
        else o.where(o.eq(x, 1), one, zero)
    )
    return o.where(negative, unit, o.pow(x, o.where(negative, zero, y)))


def _pow_base_vjp(g: Any, x: Any, y: Any) -> Any:
    return g * conj(where_number(y == 0, 0, y * x ** (y - 1)))


def _pow_exponent_vjp(g: Any, x: Any, y: Any, out: Any) -> Any:
    base = x if hasattr(x, "_a") else out.new_tensor(x, dtype=out.dtype)
    complex_ = out.is_complex()
    safe = (
        (base == 0) & ((y.real >= 0) if y.is_complex() else (y >= 0))
        if not complex_
        else (base == 0) & ((y.real if y.is_complex() else y) >= 0)
    )
    return g * conj(keep(out * base.log(), ~safe))


def where_number(condition: Any, number: float, value: Any) -> Any:
    """`number` where the condition holds, else the tensor's value."""
    return where(condition, value.new_tensor(number), value, dtype=value.dtype.np)


pow_tensor = pointwise("pow", _pow, vjp=(_pow_base_vjp, _pow_exponent_vjp), refuse=("bool",), spell="", domain=(0.5, 2.0))


def _pow_scalar(o: Any, x: Any, *, exponent: Any) -> Any:
    """Small exponents by multiplication: exact, and much faster than a general power."""
    if exponent == 2:
        return o.mul(x, x)
    if exponent == 3:
        return o.mul(o.mul(x, x), x)
    if x.dtype.kind in "iu":
        return o.pow(x, x.dtype.type(exponent))
    if exponent == 0.5:
        return o.sqrt(x)
    if exponent == -0.5:
        return o.div(1.0, o.sqrt(x))
    if exponent == -1:
        return o.div(1.0, x)
    if exponent == -2:
        return o.div(1.0, o.mul(x, x))
    return o.pow(x, x.dtype.type(exponent))


def _pow_scalar_vjp(g: Any, x: Any, *, exponent: Any) -> Any:
    if exponent == 0:
        return g.new_zeros(g.shape)
    if exponent == 2:
        return g * conj(2 * x)
    return g * conj(exponent * x ** (exponent - 1))


pow_scalar = pointwise("pow_scalar", _pow_scalar, vjp=_pow_scalar_vjp, refuse=("bool",), spell="", domain=(0.5, 2.0))

# ---- ternary arithmetic


def _lerp(o: Any, x: Any, y: Any, w: Any) -> Any:
    near = o.lt(o.abs(w), 0.5)
    step = o.sub(y, x)
    return o.where(near, o.add(x, o.mul(w, step)), o.sub(y, o.mul(step, o.sub(1, w))))


lerp_tensor = pointwise(
    "lerp", _lerp, refuse=("bool", "integral"), spell="",
    vjp=(lambda g, w: g * conj(1 - w), lambda g, w: g * conj(w), lambda g, x, y: g * conj(y - x)),
)  # fmt: skip


def _lerp_scalar(o: Any, x: Any, y: Any, *, weight: Any) -> Any:
    step = o.sub(y, x)
    return o.add(x, o.mul(step, weight)) if abs(weight) < 0.5 else o.sub(y, o.mul(step, 1 - weight))


lerp_scalar = pointwise(
    "lerp_scalar", _lerp_scalar, refuse=("bool", "integral"), spell="",
    vjp=(lambda g, *, weight: g * conj(1 - weight), lambda g, *, weight: g * conj(weight)),
)  # fmt: skip


def _scaled_product(o: Any, x: Any, y: Any, z: Any, *, value: Any) -> Any:
    return o.add(x, o.mul(y, z) if value == 1 else o.mul(o.mul(y, value if x.dtype.kind in "fc" else x.dtype.type(value)), z))


addcmul = pointwise(
    "addcmul", _scaled_product, spell="",
    vjp=(lambda g: g, lambda g, z, *, value: g * conj(z * value), lambda g, y, *, value: g * conj(y * value)),
)  # fmt: skip
addcdiv = pointwise(
    "addcdiv", lambda o, x, y, z, *, value: o.add(x, o.mul(value, o.div(y, z))), promote="float", spell="", domain=(0.5, 2.0),
    vjp=(lambda g: g, lambda g, z, *, value: g * conj(value / z), lambda g, y, z, *, value: -g * conj(value * y / (z * z))),
)  # fmt: skip


# ---- two arguments, floating point

pointwise(
    "atan2", lambda o, x, y: o.arctan2(x, y), promote="float", refuse=("complex",), numbers="none", alias=("arctan2",),
    vjp=(lambda g, x, y: _over_norm(g * y, x, y), lambda g, x, y: _over_norm(-g * x, x, y)),
    doc="Angle of the point (other, input) (torch docs: torch.atan2).",
)  # fmt: skip


def _over_norm(g: Any, x: Any, y: Any) -> Any:
    """g / (x² + y²), 0 at the origin."""
    square = x * x + y * y
    return keep(g / square, square != 0)


pointwise(
    "hypot", lambda o, x, y: o.hypot(x, y), refuse=("complex", "integral", "bool"), numbers="none",
    vjp=(lambda g, x, out: keep(g * (x / out), out != 0), lambda g, y, out: keep(g * (y / out), out != 0)),
    doc="sqrt(input² + other²) without overflow (torch docs: torch.hypot).",
)  # fmt: skip


def _log_add(o: Any, x: Any, y: Any, power: str, log1p: Any) -> Any:
    """The larger one plus log(1 + e^-difference); complex numbers are compared by real part."""
    ahead = o.ge(x.real, y.real)
    high, low = o.where(ahead, x, y), o.where(ahead, y, x)
    same = o.logical_and(o.isinf(high.real), o.eq(x, y))
    return o.where(same, high, o.add(high, log1p(getattr(o, power)(o.sub(low, high)))))


def _logaddexp(o: Any, x: Any, y: Any) -> Any:
    return _log_add(o, x, y, "exp", o.log1p) if x.dtype.kind == "c" else o.logaddexp(x, y)


def _logaddexp2(o: Any, x: Any, y: Any) -> Any:
    return o.logaddexp2(x, y)


for _name, _log_rule, _function in (("logaddexp", _logaddexp, "exp"), ("logaddexp2", _logaddexp2, "exp2")):
    pointwise(
        _name, _log_rule, refuse=("bool", "integral") + (("complex",) if _function == "exp2" else ()), numbers="none", spell="torch method out",
        vjp=(
            (lambda b: lambda g, x, y: g / conj(1 + getattr(y - x, b)()))(_function),
            (lambda b: lambda g, x, y: g / conj(1 + getattr(x - y, b)()))(_function),
        ),
        doc=f"log of the sum of {'2' if _function == 'exp2' else 'e'}-powers, without overflow (torch docs: torch.{_name}).",
    )  # fmt: skip
