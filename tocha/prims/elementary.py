"""Arithmetic, comparison, rounding, exponential and trigonometric operators: one record each.

Gradient formulas are standard calculus; for complex arguments they follow the convention of torch docs, "Autograd for
Complex Numbers" (the conjugate of the Wirtinger derivative), hence `.conj()`.
"""

from __future__ import annotations

import math
from typing import Any

from tocha.prims.pointwise import pointwise


def conj(x: Any) -> Any:
    """The conjugate of a complex tensor or number; anything else unchanged."""
    if isinstance(x, complex):
        return x.conjugate()
    return x.conj() if getattr(x, "is_complex", None) and x.is_complex() else x


# ---- arithmetic

add = pointwise(
    "add", lambda o, x, y: o.add(x, y), vjp=(lambda g: g, lambda g: g), scaled=True,
    doc="Sum, `input + alpha * other` (torch docs: torch.add).",
)  # fmt: skip
sub = pointwise(
    "sub", lambda o, x, y: o.sub(x, y), vjp=(lambda g: g, lambda g: -g), refuse=("bool",), alias=("subtract",), scaled=True,
    doc="Difference, `input - alpha * other` (torch docs: torch.sub).",
)  # fmt: skip
mul = pointwise(
    "mul", lambda o, x, y: o.mul(x, y), vjp=(lambda g, y: g * conj(y), lambda g, x: g * conj(x)), alias=("multiply",),
    doc="Product (torch docs: torch.mul).",
)  # fmt: skip
true_divide = pointwise(
    "true_divide", lambda o, x, y: o.div(x, y), promote="float", domain=(0.5, 2.0), spell="torch method inplace out",
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
    "square", lambda o, x: o.mul(x, x), vjp=lambda g, x: g * conj(2 * x), doc="input * input (torch docs: torch.square)."
)

# ---- comparison

for _name, _alias, _text in (
    ("eq", (), "equal"), ("ne", ("not_equal",), "not equal"), ("lt", ("less",), "less than"),
    ("le", ("less_equal",), "at most"), ("gt", ("greater",), "greater than"), ("ge", ("greater_equal",), "at least"),
):  # fmt: skip
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), output="bool", alias=_alias,
        refuse=() if _name in ("eq", "ne") else ("complex",),
        doc=f"Whether input is {_text} other, elementwise, as bool (torch docs: torch.{_name}).",
    )  # fmt: skip

# ---- exponentials and powers

exp = pointwise("exp", lambda o, x: o.exp(x), vjp=lambda g, out: g * conj(out), promote="float", doc="e^input (torch docs: torch.exp).")
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
    "sqrt", lambda o, x: o.sqrt(x), vjp=lambda g, out: g / conj(2 * out), promote="float", domain=(0.1, 3.0), doc="Square root (torch docs: torch.sqrt)."
)  # fmt: skip
rsqrt = pointwise(
    "rsqrt", lambda o, x: o.div(1.0, o.sqrt(x)), vjp=lambda g, out: -0.5 * g * conj(out * out * out), promote="float", domain=(0.1, 3.0),
    doc="1 / sqrt(input) (torch docs: torch.rsqrt).",
)  # fmt: skip

# ---- trigonometric and hyperbolic

sin = pointwise("sin", lambda o, x: o.sin(x), vjp=lambda g, x: g * conj(x.cos()), promote="float", doc="Sine (torch docs: torch.sin).")
cos = pointwise("cos", lambda o, x: o.cos(x), vjp=lambda g, x: -g * conj(x.sin()), promote="float", doc="Cosine (torch docs: torch.cos).")
pointwise("tan", lambda o, x: o.tan(x), vjp=lambda g, out: g * conj(1 + out * out), promote="float", domain=(-1, 1), doc="Tangent (torch docs: torch.tan).")
for _name, _numpy, _rule, _range in (
    ("asin", "arcsin", lambda g, x: g * conj((1 - x * x).rsqrt()), (-0.9, 0.9)),
    ("acos", "arccos", lambda g, x: -g * conj((1 - x * x).rsqrt()), (-0.9, 0.9)),
    ("atan", "arctan", lambda g, x: g / conj(x * x + 1), (-2.0, 2.0)),
    ("asinh", "arcsinh", lambda g, x: g * conj((x * x + 1).rsqrt()), (-2.0, 2.0)),
    ("acosh", "arccosh", lambda g, x: g * conj((x - 1).rsqrt() * (x + 1).rsqrt()), (1.2, 3.0)),
    ("atanh", "arctanh", lambda g, x: g / conj(1 - x * x), (-0.9, 0.9)),
):  # fmt: skip
    pointwise(
        _name, (lambda n: lambda o, x: getattr(o, n)(x))(_numpy), vjp=_rule, promote="float", domain=_range, alias=(_numpy,),
        doc=f"Inverse of {_name[1:]} (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise("sinh", lambda o, x: o.sinh(x), vjp=lambda g, x: g * conj(x.cosh()), promote="float", doc="Hyperbolic sine (torch docs: torch.sinh).")
pointwise("cosh", lambda o, x: o.cosh(x), vjp=lambda g, x: g * conj(x.sinh()), promote="float", doc="Hyperbolic cosine (torch docs: torch.cosh).")
tanh = pointwise(
    "tanh", lambda o, x: o.tanh(x), vjp=lambda g, out: g * conj(1 - out * out), promote="float", spell="torch method inplace out F",
    doc="Hyperbolic tangent (torch docs: torch.tanh).",
)  # fmt: skip
sigmoid = pointwise(
    "sigmoid", lambda o, x: o.div(1.0, o.add(1.0, o.exp(o.neg(x)))), vjp=lambda g, out: g * conj(out * (1 - out)), promote="float",
    spell="torch method inplace out F special:expit", doc="1 / (1 + e^-input) (torch docs: torch.sigmoid).",
)  # fmt: skip
