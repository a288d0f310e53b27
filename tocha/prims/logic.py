"""Logical and bitwise operators, tests of values, and whole-number operators."""

from __future__ import annotations

from typing import Any

from tocha.prims.pointwise import pointwise

# ---- logic: any type in, bool out

for _name in ("logical_and", "logical_or", "logical_xor"):
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), output="bool", numbers="none",
        doc=f"{_name}, non-zero counting as true (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise(
    "logical_not", lambda o, x: o.logical_not(x), output="bool", doc="Whether input is zero (torch docs: torch.logical_not)."
)

# ---- bits

for _name, _text in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "exclusive or")):
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), refuse=("float", "complex"),
        doc=f"Bitwise {_text} of integers or bools (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise(
    "bitwise_not",
    lambda o, x: o.invert(x),
    refuse=("float", "complex"),
    doc="Bitwise complement (torch docs: torch.bitwise_not).",
)


def _shift(name: str) -> Any:
    """A shift by a negative count or by the width or more gives 0 (right shifts of negative numbers: -1)."""

    def rule(o: Any, x: Any, y: Any) -> Any:
        bits = 8 * x.dtype.itemsize
        outside = o.logical_or(o.lt(y, 0), o.ge(y, bits))
        if name == "left_shift":
            return o.where(outside, x.dtype.type(0), o.left_shift(x, o.where(outside, x.dtype.type(0), y)))
        return (
            o.right_shift(x, o.where(outside, x.dtype.type(bits - 1), y))
            if x.dtype.kind == "i"
            else o.where(outside, x.dtype.type(0), o.right_shift(x, o.where(outside, x.dtype.type(0), y)))
        )

    return rule


for _name in ("left_shift", "right_shift"):
    pointwise(
        "bitwise_" + _name, _shift(_name), refuse=("bool", "float", "complex"),
        doc=f"Arithmetic {_name.replace('_', ' ')} of integers (torch docs: torch.bitwise_{_name}).",
    )  # fmt: skip
for _name in ("gcd", "lcm"):
    pointwise(
        _name, (lambda n: lambda o, x, y: getattr(o, n)(x, y))(_name), refuse=("bool", "float", "complex"), numbers="none",
        doc=f"{_name} of integers, never negative (torch docs: torch.{_name}).",
    )  # fmt: skip

# ---- tests of values


def _test(name: str) -> Any:
    def rule(o: Any, x: Any) -> Any:
        if x.dtype.kind in "biu":
            return o.eq(x, x) if name == "isfinite" else o.ne(x, x)  # which keeps the order of strides
        return getattr(o, name)(x)

    return rule


for _name, _text in (("isfinite", "finite"), ("isinf", "infinite"), ("isnan", "NaN")):
    pointwise(_name, _test(_name), output="bool", spell="torch method", doc=f"Whether {_text} (torch docs: torch.{_name}).")
for _name, _value in (("isposinf", float("inf")), ("isneginf", float("-inf"))):
    pointwise(
        _name,
        (lambda v: lambda o, x: o.eq(x, v) if x.dtype.kind == "f" else o.ne(x, x))(_value),
        output="bool", refuse=("complex",), spell="torch method out", doc=f"Whether equal to {_value} (torch docs: torch.{_name}).",
    )  # fmt: skip
pointwise(
    "isreal", lambda o, x: o.eq(x.imag, 0) if x.dtype.kind == "c" else o.ones_like(x, dtype=bool), output="bool", spell="torch method",
    doc="Whether the imaginary part is 0 (torch docs: torch.isreal).",
)  # fmt: skip
