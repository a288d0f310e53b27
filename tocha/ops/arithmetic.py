"""Pointwise operators with more than two arguments, modes or special signatures: div, pow, clamp, lerp, …"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import dtypes
from tocha.backends import cpu
from tocha.backends.lazy import Lazy
from tocha.dispatch import promote
from tocha.dispatch.override import HOLLOW, INTERPRETERS, NO_DISPATCH
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.arguments import Number, check_fits, check_tensor, scalar_of
from tocha.ops.convert import to
from tocha.ops.shape import view_as_real
from tocha.prims import elementary, rounding, special
from tocha.prims import view as views
from tocha.prims.forms import as_operand, check_operands
from tocha.prims.reduce import equal as equal_values
from tocha.tensor import Tensor

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)


# ---- division, remainder, powers


@op("torch method inplace out", alias=("divide",))
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, rounded with rounding_mode None, 'floor' or 'trunc' (torch docs: torch.div)."""
    if rounding_mode is None:
        return _true_divide(input, other)
    input = as_operand(input, other)
    check_operands("div", (input, other))
    if rounding_mode == "floor":
        return rounding.floor_divide(input, other)
    if rounding_mode == "trunc":
        return rounding.trunc_divide(input, other)
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


_true_divide = NAMESPACES["torch"]["true_divide"]


@op("torch method")
def rsub(input: Tensor, other: Any, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input (torch docs: torch.rsub)."""
    check_tensor(input, "rsub")
    if not isinstance(other, Tensor):
        check_operands("rsub", (input, other))
    return NAMESPACES["torch"]["sub"](other, input, alpha=alpha)


def _short_pow(input: Any, exponent: Any) -> Tensor | None:
    """The usual case, a float tensor to a number; None for the rest."""
    if (exponent.__class__ is int or exponent.__class__ is float) and input.__class__ is Tensor and input._a.dtype.char in "fd":
        return elementary.pow_scalar(input, exponent=exponent)
    return None


def _pow_rule(x: Any, exponent: Any) -> Any:
    return None if hasattr(exponent, "dtype") or (exponent < 0 and x.dtype.kind == "i") else (elementary.pow_scalar, [x], {"exponent": exponent})


@op("torch method inplace out", short=_short_pow, into=_pow_rule)
def pow(input: Any, exponent: Any) -> Tensor:
    """input to the power exponent; integers to negative powers are refused for numbers (torch docs: torch.pow)."""
    if isinstance(exponent, _NUMBERS):
        if not isinstance(input, Tensor):
            check_operands("pow", (input, exponent))
        if isinstance(exponent, np.generic):
            exponent = exponent.item()
        return _pow_number(input, exponent)
    check_operands("pow", (input, exponent))
    return elementary.pow_tensor(input, exponent)


def _pow_number(input: Tensor, exponent: Any) -> Tensor:
    kind = promote.result_type((input, exponent))
    if kind.category <= dtypes.INTEGRAL and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if kind is dtypes.bool_:
        return NAMESPACES["torch"]["bitwise_or"](input, not exponent)
    if kind is not input.dtype:
        input = to(input, kind)
    if kind in dtypes.HALF or kind.category == dtypes.INTEGRAL:
        exponent = scalar_of(exponent, kind).item()
    return elementary.pow_scalar(input, exponent=exponent)


@op("torch method strictout")
def float_power(input: Any, exponent: Any) -> Tensor:
    """Power in double precision (torch docs: torch.float_power)."""
    check_operands("float_power", (input, exponent))
    kind = _double((input, exponent))
    return pow(*(to(v, kind) if isinstance(v, Tensor) else v for v in (input, exponent)))


@op("torch method")
def float_power_(input: Tensor, exponent: Any) -> Tensor:
    """`float_power` in place, for tensors of double precision."""
    kind = _double((input, exponent))
    if input.dtype is not kind:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {input.dtype.name} but the operation's result requires dtype {kind.name}"
        )
    return NAMESPACES["torch"]["pow_"](input, exponent)


def _double(operands: tuple[Any, ...]) -> dtypes.dtype:
    return dtypes.complex128 if any(_is_complex(v) for v in operands) else dtypes.float64


def _is_complex(value: Any) -> bool:
    return value._a.dtype.kind == "c" if isinstance(value, Tensor) else isinstance(value, complex)


@op("torch method inplace out")
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other (torch docs: torch.ldexp)."""
    check_operands("ldexp", (input, other), "none")
    if not input.is_floating_point() or other._a.dtype.kind not in "iu":
        return elementary.ldexp(input, other)
    half = other // 2  # two steps, as 2**other may leave the range that the product stays in
    wide = input.to(dtypes.float64)
    return (wide * pow(2.0, half.to(dtypes.float64)) * pow(2.0, (other - half).to(dtypes.float64))).to(input.dtype)


# ---- clamp


def _bounded(value: Any, name: str) -> None:
    if value is not None and not isinstance(value, (Tensor, *_NUMBERS)):
        raise TypeError(f"{name}(): argument bounds must be Tensors or Numbers, not {type(value).__name__}")


def _short_clamp(input: Any, min: Any = None, max: Any = None) -> Tensor | None:
    """A float tensor between numbers; None for the rest."""
    if input.__class__ is not Tensor or input._a.dtype.kind != "f" or min is max:
        return None
    for bound in (min, max):
        if not (bound is None or bound.__class__ is float or bound.__class__ is int):
            return None
    return rounding.clamp_scalar(input, min=min, max=max)


def _clamp_rule(x: Any, min: Any = None, max: Any = None) -> Any:
    """`clamp` between numbers or arrays as the registry asks for it."""
    if min is max:
        return None
    if hasattr(min, "dtype"):
        return (rounding.clamp_low, [x, min], {}) if max is None else _between(x, min, max)
    if hasattr(max, "dtype"):
        return (rounding.clamp_high, [x, max], {}) if min is None else None
    return rounding.clamp_scalar, [x], {"min": min, "max": max}


def _between(x: Any, min: Any, max: Any) -> Any:
    return (rounding.clamp_tensor, [x, min, max], {}) if hasattr(max, "dtype") else None


@op("torch method inplace out", alias=("clip",), short=_short_clamp, into=_clamp_rule)
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Values limited to [min, max] (numbers or tensors); max wins if min > max; NaN stays (torch docs: torch.clamp)."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    check_tensor(input, "clamp")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if not all(bound is None or isinstance(bound, Tensor) for bound in (min, max)):
            bound = min if isinstance(min, Tensor) else max
            if bound.ndim == 0 and not bound.requires_grad:  # then it counts as a number
                return clamp(input, bound.item(), max) if bound is min else clamp(input, min, bound.item())
            raise TypeError(
                "clamp() received an invalid combination of arguments: bounds must both be Tensors or both be Numbers"
            )
        if max is None:
            return rounding.clamp_low(input, min)
        if min is None:
            return rounding.clamp_high(input, max)
        return rounding.clamp_tensor(input, min, max)
    _bounded(min, "clamp")
    _bounded(max, "clamp")
    return _clamp_numbers(input, min, max)


def _clamp_numbers(input: Tensor, min: Any, max: Any) -> Tensor:
    if input._a.dtype.kind != "f" or isinstance(min, complex) or isinstance(max, complex):
        kind = promote.result_type((input, min, max))
        if kind is not input.dtype:
            input = to(input, kind)
        check_fits(kind, min, max)
    return rounding.clamp_scalar(input, min=min, max=max)


@op("torch method inplace out", into=_clamp_rule)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Values not below min (torch docs: torch.clamp_min)."""
    return clamp(input, min=min)


@op("torch method inplace out", into=lambda x, max: _clamp_rule(x, None, max))
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Values not above max (torch docs: torch.clamp_max)."""
    return clamp(input, max=max)


# ---- lerp, addcmul, addcdiv


def _lerp_rule(input: Any, end: Any, weight: Any) -> Any:
    if hasattr(weight, "dtype"):
        return elementary.lerp_tensor, [input, end, weight], {}
    return elementary.lerp_scalar, [input, end], {"weight": weight}


def _product_rule(rule: Any) -> Any:
    return lambda input, tensor1, tensor2, value=1: (rule, [input, tensor1, tensor2], {"value": value})


@op("torch method inplace out", into=_lerp_rule)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input) (torch docs: torch.lerp)."""
    check_tensor(end, "lerp", "end", 2)
    if isinstance(end, Tensor) and input.dtype is not end.dtype:
        raise RuntimeError(f"lerp: expected dtype {input.dtype} for `end` but got dtype {end.dtype}")
    if isinstance(weight, Tensor):
        if weight.dtype is not input.dtype and weight._a.ndim:
            raise RuntimeError(f"lerp: expected dtype {input.dtype} for `weight` but got dtype {weight.dtype}")
        return elementary.lerp_tensor(input, end, weight)
    return elementary.lerp_scalar(input, end, weight=weight)


@op("torch method inplace out", into=_product_rule(elementary.addcmul))
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 * tensor2 (torch docs: torch.addcmul)."""
    check_tensor(tensor1, "addcmul", "tensor1", 2)
    check_tensor(tensor2, "addcmul", "tensor2", 3)
    if input._a.dtype.kind == tensor1._a.dtype.kind == tensor2._a.dtype.kind == "b":
        raise NotImplementedError("\"addcmul\" not implemented for 'Bool'")
    check_fits(input.dtype, value)
    return elementary.addcmul(input, tensor1, tensor2, value=value)


@op("torch method inplace out", into=_product_rule(elementary.addcdiv))
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2, of floating-point tensors (torch docs: torch.addcdiv)."""
    check_tensor(tensor1, "addcdiv", "tensor1", 2)
    check_tensor(tensor2, "addcdiv", "tensor2", 3)
    if tensor1._a.dtype.kind in "biu" and tensor2._a.dtype.kind in "biu":
        raise RuntimeError(
            "Integer division with addcdiv is not supported: use (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) "
            "or cast the tensors to a floating point type"
        )
    return elementary.addcdiv(input, tensor1, tensor2, value=value)


# ---- rounding, parts, replacing


@op("torch method inplace strictout special:round")
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Half to even, at `decimals` places (torch docs: torch.round)."""
    check_tensor(input, "round")
    if decimals and input._a.dtype.kind in "iu":
        raise NotImplementedError('"round_cpu" not implemented for integers with decimals')
    return rounding.round_(input, decimals=decimals)


@op("torch method inplace strictout")
def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN and infinities replaced, by 0 and the type's limits unless given (torch docs: torch.nan_to_num)."""
    if input._a.dtype.kind not in "biu":
        limits = dtypes.finfo(input.dtype)
        posinf, neginf = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    return rounding.nan_to_num(input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@op("torch method")
def positive(input: Tensor) -> Tensor:
    """The input itself (torch docs: torch.positive)."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@op("torch method inplace out special:logit")
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), x clamped to [eps, 1 - eps] if given (torch docs: torch.logit)."""
    return special.logit(input, eps=eps)


@op("torch out special:polygamma")
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma (torch docs: torch.polygamma)."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return special.polygamma(input, n=int(n))


@op("method inplace", name="polygamma")
def _polygamma_method(input: Tensor, n: int) -> Tensor:
    """`torch.polygamma(n, input)`."""
    return polygamma(n, input)


@op("torch method inplace out special:multigammaln")
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """Logarithm of the multivariate gamma function (torch docs: torch.mvlgamma)."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    steps = input.new_tensor(
        [-0.5 * i for i in range(p)], dtype=None if input.is_floating_point() else dtypes.get_default_dtype()
    )
    values = (input.unsqueeze(-1) + steps).lgamma().sum(-1)
    return values + p * (p - 1) / 4 * float(np.log(np.pi))


@op("torch method out")
def frexp(input: Tensor) -> Any:
    """Mantissa in [0.5, 1) and int32 exponent of every element (torch docs: torch.frexp)."""
    from tocha.ops.results import named

    if not input.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return named("frexp", rounding.frexp(input))


# ---- comparison of whole tensors


@op("torch method")
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, elementwise (torch docs: torch.isclose)."""
    check_tensor(other, "isclose", "other", 2)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype} did not match {other.dtype}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"rtol and atol must be greater than or equal to zero, but got rtol={rtol} and atol={atol}")
    input, other = input.detach(), other.detach()
    close = input == other
    inexact = input._a.dtype.kind not in "biu"
    if equal_nan and inexact:
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    if not inexact:
        kind = dtypes.get_default_dtype()
        input, other = to(input, kind), to(other, kind)
    allowed = atol + (rtol * other).abs()
    distance = (input - other).abs()
    return close | (NAMESPACES["torch"]["isfinite"](distance) & (distance <= allowed))


@op("torch method")
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close (torch docs: torch.allclose)."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def _short_equal(input: Any, other: Any) -> bool | None:
    """CPU tensors of one type; None for the rest."""
    if not input.__class__ is other.__class__ is Tensor or INTERPRETERS:
        return None
    a, b = input._a, other._a
    if not a.__class__ is b.__class__ is cpu.Array or a.dtype is not b.dtype:
        return None
    return a.shape == b.shape and bool(cpu.reduce_and(cpu.eq(a, b), axis=None))


@op("torch method", short=_short_equal)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all values agree (torch docs: torch.equal)."""
    check_tensor(other, "equal", "other", 2)
    if input.device != other.device:
        raise RuntimeError(f"equal: Expected all tensors to be on the same device, got {input.device} and {other.device}")
    if input._a.shape != other._a.shape:
        return False
    if input._a.dtype is other._a.dtype:
        return bool(equal_values(input, other)._a)
    return bool((input.detach() == other.detach()).all())


# ---- complex parts


@op("torch property")
def real(input: Tensor) -> Tensor:
    """The real part, a view; of real tensors the tensor itself (torch docs: torch.real)."""
    if input._a.dtype.kind != "c":
        return input
    if input._a.__class__ is Lazy:
        return real(views.conj(input)) if input._a.conj else views.neg_view(real(views.neg_view(input)))
    return view_as_real(input)[..., 0]


@op("torch property")
def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view; RuntimeError for real tensors (torch docs: torch.imag)."""
    if input._a.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    if input._a.__class__ is Lazy:
        return views.neg_view(imag(views.conj(input) if input._a.conj else views.neg_view(input)))
    return view_as_real(input)[..., 1]


@op("torch method")
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, a view; real tensors themselves (torch docs: torch.conj)."""
    if input._a.dtype.kind != "c":
        return input
    return views.conj(input) if _takes_lazy(input) else rounding.conjugate(input)


def _takes_lazy(input: Tensor) -> bool:
    """Whether views with conjugation or negation pending are made of it: not inside an interpreter or of a wrapper."""
    return not INTERPRETERS and input.__class__ in NO_DISPATCH and input.__class__ not in HOLLOW


@op("torch")
def _neg_view(input: Tensor) -> Tensor:
    """The negative, a view (torch docs: "Negative view")."""
    if input._a.dtype.kind == "b":
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported: use `~` or logical_not()")
    return views.neg_view(input) if _takes_lazy(input) else -input


@op("torch method inplace strictout")
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors themselves (torch docs: torch.conj_physical)."""
    return rounding.conjugate(input) if input._a.dtype.kind == "c" else input
