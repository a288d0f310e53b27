"""Sign, rounding, extremes and division with a remainder."""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.backends.shared import number
from tocha.dispatch.prim import prim
from tocha.prims.elementary import keep, zero
from tocha.prims.pointwise import pointwise

# ---- sign and parts


def _abs_vjp(g: Any, x: Any) -> Any:
    return g * x.sgn()


pointwise(
    "abs", lambda o, x: o.abs(x), vjp=_abs_vjp, output="real", refuse=("bool",), alias=("absolute",),
    doc="Absolute value; of complex numbers the modulus (torch docs: torch.abs).",
)  # fmt: skip


def _sign(o: Any, x: Any) -> Any:
    """NaN has sign 0, as in torch; NumPy's is NaN."""
    if x.dtype.kind == "b":
        return x
    up = o.gt(x, 0).astype(x.dtype)
    return up if x.dtype.kind == "u" else o.sub(up, o.lt(x, 0).astype(x.dtype))


def _sgn(o: Any, x: Any) -> Any:
    if x.dtype.kind != "c":
        return _sign(o, x)
    size = o.abs(x)
    return o.where(o.eq(size, 0), x.dtype.type(0), o.div(x, size))


def _sgn_vjp(g: Any, x: Any, out: Any) -> Any:
    """The part of g across the unit circle's tangent, over |x|."""
    if not x.is_complex():
        return zero(g)
    size = x.abs()
    along = (g * out.conj()).real * out
    return keep((g - along) / size, size != 0)


pointwise("sign", _sign, vjp=zero, refuse=("complex",), doc="-1, 0 or 1 (torch docs: torch.sign).")
pointwise("sgn", _sgn, vjp=_sgn_vjp, doc="sign; of complex numbers x / |x| (torch docs: torch.sgn).")
pointwise(
    "signbit", lambda o, x: o.signbit(x) if x.dtype.kind == "f" else o.lt(x, 0) if x.dtype.kind == "i" else o.zeros(x.shape, bool),
    output="bool", refuse=("complex",), spell="torch method out", doc="Whether the sign bit is set, as for -0.0 (torch docs: torch.signbit).",
)  # fmt: skip


def _angle(o: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return o.angle(x)
    if x.dtype.kind == "u":
        return o.zeros(x.shape, x.dtype)
    return o.where(o.isnan(x), x, o.where(o.lt(x, 0), x.dtype.type(o.pi), x.dtype.type(0)))


def _angle_vjp(g: Any, x: Any) -> Any:
    if not x.is_complex():
        return zero(g)
    size = x.abs()
    return keep(x / size * (g / size) * 1j, size != 0)


pointwise(
    "angle", _angle, vjp=_angle_vjp, promote="float", output="real", spell="torch method out",
    doc="Argument of complex numbers, in radians; 0 or pi of real ones (torch docs: torch.angle).",
)  # fmt: skip
conjugate = pointwise("conj_physical", lambda o, x: o.conj(x), vjp=lambda g: g.conj_physical(), spell="")


copysign = pointwise(
    "copysign", lambda o, x, y: o.copysign(x, y), promote="float", numbers="second", refuse=("complex",),
    vjp=(lambda g, x, out: g * keep(out / x, x != 0), zero),
    doc="Magnitude of input, sign of other (torch docs: torch.copysign).",
)  # fmt: skip

# ---- rounding to whole numbers

for _name, _numpy, _alias in (("floor", "floor", ()), ("ceil", "ceil", ()), ("trunc", "trunc", ("fix",))):
    pointwise(
        _name, (lambda n: lambda o, x: x if x.dtype.kind in "iu" else getattr(o, n)(x))(_numpy), vjp=zero,
        refuse=("bool", "complex"), alias=_alias, doc=f"Round with {_name} (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise(
    "frac", lambda o, x: o.sub(x, o.trunc(x)), vjp=lambda g: g, refuse=("bool", "complex", "integral"),
    doc="Fractional part, with the input's sign (torch docs: torch.frac).",
)  # fmt: skip


def _round(o: Any, x: Any, *, decimals: int) -> Any:
    if x.dtype.kind in "iu":
        return x
    if decimals == 0:
        return o.rint(x)
    if decimals < 0:
        ten = x.dtype.type(10.0**-decimals)
        return o.mul(o.rint(o.div(x, ten)), ten)
    ten = x.dtype.type(10.0**decimals)
    return o.div(o.rint(o.mul(x, ten)), ten)


round_ = pointwise("round", _round, vjp=zero, refuse=("bool", "complex"), spell="", doc="Half to even.")

# ---- extremes


for _name, _gradients in (
    ("maximum", (lambda g, x, y: _share(g, x < y, x == y), lambda g, x, y: _share(g, x > y, x == y))),
    ("minimum", (lambda g, x, y: _share(g, x > y, x == y), lambda g, x, y: _share(g, x < y, x == y))),
):
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), vjp=_gradients, refuse=("complex",), numbers="none",
        spell="torch method out", doc=f"Elementwise {_name}; NaN wins; ties share the gradient (torch docs: torch.{_name}).",
    )  # fmt: skip
for _name in ("fmax", "fmin"):
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), refuse=("complex",), numbers="none", spell="torch method out",
        vjp=(
            (lambda n: lambda g, x, y: keep(g, _takes_first(n, x, y)))(_name),
            (lambda n: lambda g, x, y: keep(g, ~_takes_first(n, x, y)))(_name),
        ),
        doc=f"Elementwise {_name[1:]}imum that ignores NaN; ties go to the input (torch docs: torch.{_name}).",
    )  # fmt: skip


def _share(g: Any, behind: Any, tie: Any) -> Any:
    """Half of g at ties, none where behind."""
    return keep(g - keep(g / 2, tie), ~behind)


def _takes_first(name: str, x: Any, y: Any) -> Any:
    return ((x >= y) if name == "fmax" else (x <= y)) | y.isnan()


def _inside(g: Any, x: Any, min: Any, max: Any) -> Any:
    kept = x >= min if max is None else x <= max if min is None else (x >= min) & (x <= max)
    return keep(g, kept)


def _clamp(o: Any, x: Any, *, min: Any, max: Any) -> Any:
    if x.dtype.kind != "f":  # NumPy takes plain numbers as a float array's type
        min, max = (bound if bound is None or hasattr(bound, "dtype") else number(bound, x.dtype) for bound in (min, max))
    if min is not None:
        x = o.maximum(x, min)
    return x if max is None else o.minimum(x, max)


clamp_scalar = pointwise(
    "clamp_scalar", _clamp, refuse=("complex",), spell="",
    vjp=(lambda g, x, *, min, max: _inside(g, x, min, max),),
)  # fmt: skip
clamp_tensor = pointwise(
    "clamp_tensor", lambda o, x, low, high: o.minimum(o.maximum(x, low), high), refuse=("complex",), spell="",
    vjp=(
        lambda g, x, low, high: keep(g, (low <= high) & (x >= low) & (x <= high)),
        lambda g, x, low, high: keep(g, (low < high) & (x < low)),
        lambda g, x, low, high: keep(g, (x > high) | (high < low)),
    ),
)  # fmt: skip
clamp_low = pointwise(
    "clamp_low", lambda o, x, y: o.maximum(x, y), refuse=("complex",), spell="",
    vjp=(lambda g, x, y: keep(g, x >= y), lambda g, x, y: keep(g, x < y)),
)  # fmt: skip
clamp_high = pointwise(
    "clamp_high", lambda o, x, y: o.minimum(x, y), refuse=("complex",), spell="",
    vjp=(lambda g, x, y: keep(g, x <= y), lambda g, x, y: keep(g, x > y)),
)  # fmt: skip


def _nan_to_num(o: Any, x: Any, *, nan: float, posinf: float | None, neginf: float | None) -> Any:
    if x.dtype.kind in "biu":
        return x
    if x.dtype.kind == "c":
        out = o.empty(x.shape, x.dtype)
        out.real, out.imag = (
            _nan_to_num(o, x.real, nan=nan, posinf=posinf, neginf=neginf),
            _nan_to_num(o, x.imag, nan=nan, posinf=posinf, neginf=neginf),
        )
        return out
    return o.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


nan_to_num = pointwise(
    "nan_to_num", _nan_to_num, vjp=lambda g, x: keep(g, x.isfinite()), spell="", doc="NaN and infinities replaced."
)

# ---- division with a remainder


def check_divisor(o: Any, y: Any) -> None:
    """Integers divided by 0 are an error, in torch's words."""
    if y.dtype.kind in "iu" and o.any(o.eq(y, 0)):
        raise RuntimeError("ZeroDivisionError")


def _floor_divide(o: Any, x: Any, y: Any) -> Any:
    check_divisor(o, y)
    return o.floor_div(x, y)


def _trunc_divide(o: Any, x: Any, y: Any) -> Any:
    check_divisor(o, y)
    if x.dtype.kind not in "iu":
        return o.trunc(o.div(x, y))
    return o.floor_div(o.sub(x, o.fmod(x, y)), y)


def _remainder(o: Any, x: Any, y: Any) -> Any:
    check_divisor(o, y)
    rest = o.rem(x, y)
    return rest if x.dtype.kind in "iu" else o.where(o.eq(rest, 0), o.copysign(rest, x), rest)  # torch's zeros have x's sign


def _fmod(o: Any, x: Any, y: Any) -> Any:
    check_divisor(o, y)
    return o.fmod(x, y)


floor_divide = pointwise(
    "floor_divide", _floor_divide, vjp=(zero, zero), refuse=("bool", "complex"),
    doc="Quotient rounded down; exact on integers (torch docs: torch.floor_divide).",
)  # fmt: skip
trunc_divide = pointwise("trunc_divide", _trunc_divide, vjp=(zero, zero), refuse=("bool", "complex"), spell="")
trunc_divide.half = "native"  # torch rounds the quotient to the half type before it truncates
pointwise(
    "remainder", _remainder, vjp=(lambda g: g, lambda g, x, y: -g * x.div(y, rounding_mode="floor")), refuse=("bool", "complex"),
    doc="Remainder with the divisor's sign, as Python's % (torch docs: torch.remainder).",
)  # fmt: skip
pointwise(
    "fmod", _fmod, numbers="second", vjp=(lambda g: g, lambda g, x, y: -g * x.div(y, rounding_mode="trunc")), refuse=("bool", "complex"),
    doc="Remainder with the dividend's sign, as C's fmod (torch docs: torch.fmod).",
)  # fmt: skip
pointwise(
    "heaviside", lambda o, x, y: o.where(o.eq(x, 0), y, o.gt(x, 0).astype(y.dtype)), refuse=("complex",), numbers="none",
    doc="0 below 0, 1 above, `values` at 0 (torch docs: torch.heaviside).",
)  # fmt: skip
nextafter = pointwise(
    "nextafter", lambda o, x, y: o.nextafter(x, y), vjp=(lambda g, x, y: keep(g, x != y), zero),
    refuse=("bool", "complex", "integral"), numbers="none",
    doc="The next representable number towards other (torch docs: torch.nextafter).",
)  # fmt: skip
nextafter.half = "native"  # the neighbour in the type itself


@prim("frexp", "pointwise", outputs=("mantissa", "exponent"),
      vjp=lambda g, exponent: [None if g[0] is None else g[0] / 2.0 ** exponent.detach()],
      infer=lambda input: (MetaArray(input.shape, input.dtype), MetaArray(input.shape, "int32")))  # fmt: skip
def frexp(xp: Any, input: Any) -> Any:
    """Mantissas in [0.5, 1) and int32 exponents."""
    return xp.frexp(input)
