"""Special functions: error, gamma and Bessel functions and their kin. Values come from SciPy (CuPy on CUDA).

Derivatives: NIST Digital Library of Mathematical Functions, chapters 5, 7, 8, 9, 10 and 25.
"""

from __future__ import annotations

import math
from typing import Any

from tocha.prims.elementary import conj, keep, where_number
from tocha.prims.pointwise import pointwise

_REAL = ("complex",)
_EVERYWHERE = "torch method inplace out special"
_SPECIAL = "special out"
_AIRY_END = 200.0  # Ai is less than the least number from about 108 on
_SQRT_PI, _SQRT_2PI = math.sqrt(math.pi), math.sqrt(2 * math.pi)


def _unary(
    name: str, rule: Any, vjp: Any, spell: str, text: str, domain: tuple[float, float] = (-2.0, 2.0), refuse: Any = _REAL
) -> Any:
    path = "torch.special." if "torch" not in spell.split() else "torch."
    return pointwise(
        name, rule, vjp=vjp, promote="float", refuse=refuse, spell=spell, domain=domain, doc=f"{text} (torch docs: {path}{name})."
    )


# ---- error functions and the normal distribution

_unary("erf", lambda o, x: o.erf(x), lambda g, x: g * (2 / _SQRT_PI) * (-x * x).exp(), _EVERYWHERE, "Error function")
_unary("erfc", lambda o, x: o.erfc(x), lambda g, x: g * (-2 / _SQRT_PI) * (-x * x).exp(), _EVERYWHERE, "1 - erf(input)")
_unary(
    "erfinv",
    lambda o, x: o.erfinv(x),
    lambda g, x: g * (_SQRT_PI / 2) * (x.erfinv() ** 2).exp(),  # what torch saves is the operand, so the result may be written to
    _EVERYWHERE,
    "Inverse of erf",
    (-0.9, 0.9),
)
_unary("erfcx", lambda o, x: o.erfcx(x), lambda g, x, out: g * (2 * x * out - 2 / _SQRT_PI), _SPECIAL, "exp(x²) erfc(x)")
_unary(
    "ndtr", lambda o, x: o.ndtr(x), lambda g, x: g * (-0.5 * x * x).exp() / _SQRT_2PI, _SPECIAL, "Normal distribution function"
)
_unary(
    "ndtri",
    lambda o, x: o.ndtri(x),
    lambda g, out: g * _SQRT_2PI * (0.5 * out * out).exp(),
    _SPECIAL,
    "Normal quantile function",
    (0.1, 0.9),
)
_unary(
    "log_ndtr", lambda o, x: o.log_ndtr(x), lambda g, x: g / _erfcx(x * -math.sqrt(0.5)) * math.sqrt(2 / math.pi), _SPECIAL,
    "Logarithm of the normal distribution function",
)  # fmt: skip


def _erfcx(x: Any) -> Any:
    from tocha.dispatch.registry import NAMESPACES

    return NAMESPACES["special"]["erfcx"](x)


# ---- gamma functions


def _digamma(o: Any, x: Any) -> Any:
    pole = o.copysign(x.dtype.type(math.inf), o.neg(x))
    whole = o.logical_and(o.lt(x, 0), o.eq(x, o.floor(x)))
    return o.where(o.eq(x, 0), pole, o.where(whole, x.dtype.type(math.nan), o.digamma(x)))


def _polygamma(o: Any, x: Any, *, n: int) -> Any:
    if n == 0:
        return _digamma(o, x)
    x = o.where(o.eq(x, -math.inf), x.dtype.type(math.nan), x)
    return o.mul(o.zeta(x.dtype.type(n + 1), x), (-1.0) ** (n + 1) * math.factorial(n))


_unary(
    "lgamma",
    lambda o, x: o.gammaln(o.where(o.isinf(x), o.abs(x), x)),
    lambda g, x: g * x.digamma(),
    "torch method inplace out special:gammaln",
    "Logarithm of |gamma|",
    (0.5, 3),
)
_unary(
    "digamma",
    _digamma,
    lambda g, x: g * polygamma(x, n=1),
    "torch method inplace out special special:psi",
    "Derivative of lgamma",
    (0.5, 3),
)
polygamma = pointwise(
    "polygamma",
    _polygamma,
    vjp=lambda g, x, *, n: g * polygamma(x, n=n + 1),
    promote="float",
    refuse=_REAL,
    spell="",
    domain=(0.5, 3),
)


def _binary(
    name: str, rule: Any, vjp: Any, spell: str, text: str, numbers: str = "both", domain: tuple[float, float] = (0.5, 2.0)
) -> Any:
    return pointwise(
        name,
        rule,
        vjp=vjp,
        promote="float",
        refuse=_REAL,
        spell=spell,
        numbers=numbers,
        domain=domain,
        doc=f"{text} (torch docs: torch.{name}).",
    )


def _not_differentiable(name: str) -> Any:
    def refuse(g: Any) -> Any:
        raise RuntimeError(
            f"the derivative for 'input' is not implemented for {name}: it has no closed form. Detach that argument."
        )

    return refuse


def _gamma_density(g: Any, x: Any, y: Any) -> Any:
    return g * ((x - 1) * y.log() - y - x.lgamma()).exp()


def _incomplete(name: str, start: float) -> Any:
    """A ratio of incomplete gamma functions. Where one argument alone decides, the other may be NaN, as in torch: at y = 0 and for
    an infinite order it is `start`, at infinity the complement."""

    def rule(o: Any, x: Any, y: Any) -> Any:
        number = x.dtype.type
        unordered = o.logical_or(o.isnan(x), o.isnan(y))
        known = o.where(o.logical_or(o.eq(y, 0), o.eq(x, math.inf)), number(start), number(math.nan))
        known = o.where(o.logical_and(o.isnan(x), o.eq(y, math.inf)), number(1 - start), known)
        return o.where(unordered, known, getattr(o, name)(x, y))

    return rule


_binary(
    "igamma", _incomplete("gammainc", 0.0), (_not_differentiable("igamma"), _gamma_density),
    "torch method inplace out special:gammainc", "Regularised lower incomplete gamma function", "none",
)  # fmt: skip
_binary(
    "igammac", _incomplete("gammaincc", 1.0), (_not_differentiable("igammac"), lambda g, x, y: -_gamma_density(g, x, y)),
    "torch method inplace out special:gammaincc", "Regularised upper incomplete gamma function", "none",
)  # fmt: skip
_binary(
    "zeta", lambda o, x, y: o.zeta(x, y), (_not_differentiable("zeta"), lambda g, x, y: g * -x * _zeta(x + 1, y)),
    "special out", "Hurwitz zeta function", domain=(1.5, 3.0),
)  # fmt: skip


def _zeta(x: Any, y: Any) -> Any:
    from tocha.dispatch.registry import NAMESPACES

    return NAMESPACES["special"]["zeta"](x, y)


# ---- x log y, entropy, logit, sinc


def _times_log(name: str) -> Any:
    """x log(y), with 0 log(y) = 0 unless y is NaN."""

    def rule(o: Any, x: Any, y: Any) -> Any:
        zero = o.logical_and(o.eq(x, 0), o.logical_not(o.isnan(y)))
        return o.where(zero, x.dtype.type(0), o.mul(x, getattr(o, name)(y)))

    return rule


def _masked_log(g: Any, x: Any, y: Any, log: Any, least: float) -> Any:
    return g * keep(log, ~((x == 0) & (y <= least)))


def _tensor(x: Any, like: Any) -> Any:
    return x if hasattr(x, "_a") else like.new_tensor(x, dtype=like.dtype)


_binary(
    "xlogy", _times_log("log"), (lambda g, x, y: _masked_log(g, x, y, _tensor(y, g).log(), 0), lambda g, x, y: g * x / y),
    "torch method inplace out special", "input * log(other), 0 where input is 0",
)  # fmt: skip
_binary(
    "xlog1py", _times_log("log1p"), (lambda g, x, y: _masked_log(g, x, y, _tensor(y, g).log1p(), -1), lambda g, x, y: g * x / (y + 1)),
    "special out", "input * log1p(other), 0 where input is 0",
)  # fmt: skip
_unary("entr", lambda o, x: o.entr(x), lambda g, x: g * (-x.log() - 1), _SPECIAL, "-x log(x), -inf for negative x", (0.1, 2.0))


def _logit(o: Any, x: Any, *, eps: float | None) -> Any:
    if eps is not None:
        x = o.minimum(o.maximum(x, x.dtype.type(eps)), x.dtype.type(1 - eps))
    return o.log(o.div(x, o.sub(1, x)))


def _logit_vjp(g: Any, x: Any, *, eps: float | None) -> Any:
    if eps is None:
        return _logit_inside(g, x)
    return keep(g / (x * (1 - x)), (x >= eps) & (x <= 1 - eps))


def _logit_inside(g: Any, x: Any) -> Any:
    """NaN outside [0, 1], where logit is not defined."""
    return where_number((x < 0) | (x > 1), math.nan, g / (x * (1 - x)))


logit = pointwise("logit", _logit, vjp=_logit_vjp, promote="float", refuse=_REAL, spell="", domain=(0.1, 0.9))


def _sinc(o: Any, x: Any) -> Any:
    y = o.mul(x, x.dtype.type(math.pi))
    return o.where(o.eq(x, 0), x.dtype.type(1), o.div(o.sin(y), y))


def _sinc_vjp(g: Any, x: Any) -> Any:
    y = x * math.pi
    return g * conj(keep((y.cos() * y - y.sin()) / (y * x), x != 0))


_unary("sinc", _sinc, _sinc_vjp, _EVERYWHERE, "sin(pi x) / (pi x)", refuse=())
for _name, _factor, _text in (("deg2rad", math.pi / 180, "Degrees to radians"), ("rad2deg", 180 / math.pi, "Radians to degrees")):
    _unary(
        _name,
        (lambda f: lambda o, x: o.mul(x, x.dtype.type(f)))(_factor),
        (lambda f: lambda g: g * f)(_factor),
        "torch method inplace out",
        _text,
    )

# ---- Bessel functions and kin


def _i1_vjp(g: Any, x: Any, out: Any) -> Any:
    return g * where_number(x == 0, 0.5, x.i0() - out / x)


def _i1e_vjp(g: Any, x: Any, out: Any) -> Any:
    return g * where_number(x == 0, 0.5, _i0e(x) - out * (x.sgn() + 1 / x))


def _i0e(x: Any) -> Any:
    return i0e(x)


_unary("i0", lambda o, x: o.i0(x), lambda g, x: g * i1(x), _EVERYWHERE, "Modified Bessel function of order 0")
i1 = _unary("i1", lambda o, x: o.i1(x), _i1_vjp, _SPECIAL, "Modified Bessel function of order 1")
i0e = _unary("i0e", lambda o, x: o.i0e(x), lambda g, x, out: g * (i1e(x) - x.sgn() * out), _SPECIAL, "exp(-|x|) i0(x)")
i1e = _unary("i1e", lambda o, x: o.i1e(x), _i1e_vjp, _SPECIAL, "exp(-|x|) i1(x)")
for _name, _source in (
    ("bessel_j0", "j0"), ("bessel_j1", "j1"), ("bessel_y0", "y0"), ("bessel_y1", "y1"), ("modified_bessel_i0", "i0"),
    ("modified_bessel_i1", "i1"), ("modified_bessel_k0", "k0"), ("modified_bessel_k1", "k1"),
    ("scaled_modified_bessel_k0", "k0e"), ("scaled_modified_bessel_k1", "k1e"),
):  # fmt: skip
    _unary(_name, (lambda n: lambda o, x: getattr(o, n)(x))(_source), None, _SPECIAL, f"The function {_source}", (0.5, 2.0))
_unary(
    "spherical_bessel_j0", lambda o, x: o.where(o.isinf(x), x.dtype.type(0), o.where(o.eq(x, 0), x.dtype.type(1), o.div(o.sin(x), x))),
    None, _SPECIAL, "Spherical Bessel function of the first kind, order 0",
)  # fmt: skip
_unary(
    "airy_ai",
    lambda o, x: o.where(o.logical_and(o.gt(x, _AIRY_END), o.lt(x, math.inf)), x.dtype.type(0), o.airy(x)[0].astype(x.dtype)),
    None,
    _SPECIAL,
    "Airy function Ai",
)

# ---- orthogonal polynomials: P[k+1] = a(k, x) P[k] - b(k) P[k-1]

_POLYNOMIALS = {
    "chebyshev_polynomial_t": (lambda x: x, lambda k, x: 2 * x, lambda k: 1),
    "chebyshev_polynomial_u": (lambda x: 2 * x, lambda k, x: 2 * x, lambda k: 1),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, lambda k, x: 2 * x, lambda k: 1),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, lambda k, x: 2 * x, lambda k: 1),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x: 2 * x, lambda k: 2 * k),
    "hermite_polynomial_he": (lambda x: x, lambda k, x: x, lambda k: k),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda k, x: (2 * k + 1 - x) / (k + 1), lambda k: k / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x: (2 * k + 1) * x / (k + 1), lambda k: k / (k + 1)),
}
_CLOSED_FROM = 6  # degrees from which Chebyshev polynomials are evaluated by their angle
_HERMITE_LIMIT = {4: 128, 8: 512}  # by item size; torch gives NaN above


def _chebyshev(o: Any, kind: str, x: Any, n: Any) -> Any:
    """By angle: T = cos(n a), U = sin((n+1) a) / sin(a), V and W with half angles; complex angles serve |x| > 1."""
    a = o.arccos(x.astype(o.complex128))
    if kind == "t":
        return o.cos(n * a).real
    if kind == "u":
        end = o.where(o.logical_and(o.lt(x, 0), o.eq(o.rem(n, 2), 1)), -(n + 1), n + 1)
        return o.where(o.eq(o.abs(x), 1), end, o.div(o.sin((n + 1) * a), o.sin(a)).real)
    odd = o.where(o.eq(o.rem(n, 2), 1), -1.0, 1.0)
    if kind == "v":
        return o.where(o.eq(x, -1), odd * (2 * n + 1), o.div(o.cos((n + 0.5) * a), o.cos(a / 2)).real)
    return o.where(o.eq(x, 1), 2 * n + 1, o.div(o.sin((n + 0.5) * a), o.sin(a / 2)).real)


def _polynomial(name: str) -> Any:
    first, slope, back = _POLYNOMIALS[name.removeprefix("shifted_")]
    shifted, closed, hermite = name.startswith("shifted"), "chebyshev" in name, "hermite" in name

    def rule(o: Any, x: Any, n: Any) -> Any:
        """In float64; degrees are truncated to integers, negative ones (and those that fit no int64) give 0."""
        y = 2 * x.astype(o.float64) - 1 if shifted else x.astype(o.float64)
        degree = o.where(o.lt(o.abs(n), 2.0**63), o.trunc(n), -1).astype(o.float64)
        y, degree = o.broadcast_arrays(y, degree)
        before, now = o.zeros(y.shape, o.float64), o.ones(y.shape, o.float64)
        out = o.where(o.eq(degree, 0), now, before)
        highest = int(o.max(degree)) if degree.size else 0
        if closed and highest > _CLOSED_FROM:
            out = o.where(o.gt(degree, _CLOSED_FROM), _chebyshev(o, name[-1], y, degree), out)
            highest = _CLOSED_FROM
        elif hermite:
            limit = _HERMITE_LIMIT[x.dtype.itemsize]
            out = o.where(o.gt(degree, limit), math.nan, out)
            highest = min(highest, limit)
        for k in range(highest):
            before, now = now, (first(y) if k == 0 else slope(k, y) * now - back(k) * before)
            out = o.where(o.eq(degree, k + 1), now, out)
        return out

    return rule


for _name in (*_POLYNOMIALS, *(f"shifted_chebyshev_polynomial_{_kind}" for _kind in "tuvw")):
    _binary(
        _name, _polynomial(_name), None, _SPECIAL,
        f"The {_name.replace('_polynomial_', ' polynomial ').replace('_', ' ')} of degree n at the input",
    )  # fmt: skip
