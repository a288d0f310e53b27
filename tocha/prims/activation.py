"""Activations: pointwise rules with their derivative, and softmax and its logarithm as fused kernels.

An activation's gradient runs as one kernel, `<name>_backward`, written once as a scalar rule; where the gradient is itself
recorded (create_graph) the same rule runs on tensors, so that any number of derivatives follows.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tocha.backends.cpu import ZEROS
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import REGISTRY, prim
from tocha.dispatch.registry import NAMESPACES, add_spellings
from tocha.prims.contract import recording
from tocha.prims.elementary import zero
from tocha.prims.forms import Form, InplaceForm
from tocha.prims.pointwise import Pointwise, pointwise

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_INVERSE_SQRT_2_PI = 1 / math.sqrt(2 * math.pi)
_CUBIC = 0.044715  # of the tanh approximation of gelu (Hendrycks and Gimpel 2016)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


class TensorHandler:
    """The handler under which a scalar rule computes on tensors, recorded on the tape."""

    _SPELLING: ClassVar[dict[str, str]] = {"div": "true_divide"}

    def __getattr__(self, name: str) -> Any:
        spelled = self._SPELLING.get(name, name)
        found: Any = REGISTRY.get(spelled)
        if not isinstance(found, Pointwise):
            found = NAMESPACES["torch"][spelled]
        setattr(self, name, found)
        return found


ON_TENSORS = TensorHandler()


def _signed(function: Callable[..., Any], names: tuple[str, ...], parameters: list[str]) -> Callable[..., Any]:
    """Give a generic function the parameter names that primitives and gradient rules are read by."""
    kind = inspect.Parameter
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [kind(n, kind.POSITIONAL_OR_KEYWORD) for n in names] + [kind(n, kind.KEYWORD_ONLY) for n in parameters]
    )
    return function


def activation(
    name: str, rule: Callable[..., Any], slope: Callable[..., Any], spell: str = "", refuse: tuple[str, ...] = ("complex",),
    **options: Any,
) -> Pointwise:  # fmt: skip
    """A unary pointwise operator from its scalar rule and its derivative's."""
    parameters = inspect.getfullargspec(rule).kwonlyargs

    def scaled(o: Any, g: Any, x: Any, **params: Any) -> Any:
        return o.mul(g, slope(o, x, **params))

    backward = pointwise(f"{name}_backward", _signed(scaled, ("o", "g", "x"), parameters), spell="")

    def vjp(g: Any, x: Any, **params: Any) -> Any:
        return g * slope(ON_TENSORS, x, **params) if recording(g, x) else backward(g, x, **params)

    return pointwise(name, rule, _signed(vjp, ("g", "x"), parameters), spell=spell, refuse=refuse, **options)


def _sigmoid(o: Any, x: Any) -> Any:
    return o.div(1.0, o.add(o.exp(o.neg(x)), 1.0))


def _softplus(o: Any, x: Any) -> Any:
    """log(1 + e^x) without overflow."""
    return o.add(o.maximum(x, 0.0), o.log1p(o.exp(o.neg(o.abs(x)))))


def _clip(o: Any, x: Any, low: float, high: float) -> Any:
    return o.minimum(o.maximum(x, low), high)


def _inside(o: Any, x: Any, low: float, high: float, yes: Any, no: Any) -> Any:
    """`yes` where low < x < high, else `no` (NaN counts as inside)."""
    return o.where(o.le(x, low), no, o.where(o.ge(x, high), no, yes))


# ---- rectifiers

relu_backward = pointwise(
    "relu_backward", lambda o, g, out: o.where(o.le(out, 0), 0, g), vjp=(lambda g, out: relu_backward(g, out), zero), spell=""
)
relu = pointwise(
    "relu", lambda o, x: o.where(o.lt(x, 0), 0, x), vjp=relu_backward, refuse=("complex", "bool"), spell="",
    doc="max(input, 0) (torch docs: torch.nn.functional.relu).",
)  # fmt: skip


def _relu_kernel(x: Any, out: Any = None) -> Any:
    return np.maximum(ZEROS[x.dtype], x, out=out)


relu.ufunc = relu.eager = _relu_kernel
relu.direct = frozenset(ZEROS)
add_spellings("relu", Form(relu, relu.doc), ["torch", "method", "inplace"], InplaceForm(relu, relu.doc))
threshold = activation(
    "threshold", lambda o, x, *, threshold, value: o.where(o.le(x, threshold), value, x),
    lambda o, x, *, threshold, value: o.where(o.le(x, threshold), 0.0, 1.0), refuse=("complex", "bool"),
)  # fmt: skip
hardtanh = activation(
    "hardtanh", lambda o, x, *, low, high: _clip(o, x, low, high), lambda o, x, *, low, high: _inside(o, x, low, high, 1.0, 0.0)
)
hardsigmoid = activation(
    "hardsigmoid", lambda o, x: o.div(_clip(o, o.add(x, 3.0), 0.0, 6.0), 6.0), lambda o, x: _inside(o, x, -3.0, 3.0, 1 / 6, 0.0)
)
hardswish = activation(
    "hardswish", lambda o, x: o.div(o.mul(x, _clip(o, o.add(x, 3.0), 0.0, 6.0)), 6.0),
    lambda o, x: o.where(o.le(x, -3.0), 0.0, o.where(o.ge(x, 3.0), 1.0, o.add(o.div(x, 3.0), 0.5))),
)  # fmt: skip
leaky_relu = activation(
    "leaky_relu",
    lambda o, x, *, slope: o.where(o.gt(x, 0), x, o.mul(x, slope)),
    lambda o, x, *, slope: o.where(o.gt(x, 0), 1.0, slope),
)
elu = activation(
    "elu", lambda o, x, *, alpha, scale, speed: o.where(o.gt(x, 0), o.mul(x, scale), o.mul(o.expm1(o.mul(o.minimum(x, 0.0), speed)), alpha * scale)),
    lambda o, x, *, alpha, scale, speed: o.where(o.gt(x, 0), scale, o.mul(o.exp(o.mul(o.minimum(x, 0.0), speed)), alpha * scale * speed)),
)  # fmt: skip
hardshrink = activation(
    "hardshrink", lambda o, x, *, lambd: o.where(o.le(o.abs(x), lambd), 0.0, x),
    lambda o, x, *, lambd: o.where(o.le(o.abs(x), lambd), 0.0, 1.0),
)  # fmt: skip
softshrink = activation(
    "softshrink", lambda o, x, *, lambd: o.where(o.gt(x, lambd), o.sub(x, lambd), o.where(o.lt(x, -lambd), o.add(x, lambd), o.mul(x, 0.0))),
    lambda o, x, *, lambd: o.where(o.le(o.abs(x), lambd), 0.0, 1.0),
)  # fmt: skip
prelu = pointwise(
    "prelu", lambda o, x, weight: o.where(o.gt(x, 0), x, o.mul(x, weight)), spell="",
    vjp=(
        lambda g, x, weight: ON_TENSORS.where(x > 0, g, g * weight),
        lambda g, x: g * ON_TENSORS.where(x > 0, 0.0, x),
    ),
)  # fmt: skip


def _gate(g: Any, x: Any, gate: Any) -> Any:
    opened = gate.sigmoid()
    return g * x * opened * (1 - opened)


gated = pointwise(
    "gated", lambda o, x, gate: o.mul(x, _sigmoid(o, gate)), spell="", refuse=("complex",),
    vjp=(lambda g, gate: g * gate.sigmoid(), _gate),
)  # fmt: skip
for _piecewise_linear in (threshold, hardtanh, hardsigmoid, leaky_relu, hardshrink, softshrink, prelu):
    _piecewise_linear.tied()

# ---- smooth ones

silu = activation(
    "silu", lambda o, x: o.div(x, o.add(o.exp(o.neg(x)), 1.0)),
    lambda o, x: (lambda s: o.mul(s, o.add(o.mul(x, o.sub(1.0, s)), 1.0)))(_sigmoid(o, x)), refuse=(),
)  # fmt: skip
mish = activation(
    "mish", lambda o, x: o.mul(x, o.tanh(_softplus(o, x))),
    lambda o, x: (lambda t: o.add(t, o.mul(o.mul(x, _sigmoid(o, x)), o.sub(1.0, o.mul(t, t)))))(o.tanh(_softplus(o, x))),
)  # fmt: skip
softplus = activation(
    "softplus", lambda o, x, *, beta, threshold: o.where(o.gt(o.mul(x, beta), threshold), x, o.div(_softplus(o, o.mul(x, beta)), beta)),
    lambda o, x, *, beta, threshold: o.where(o.gt(o.mul(x, beta), threshold), 1.0, _sigmoid(o, o.mul(x, beta))),
)  # fmt: skip
logsigmoid = activation(
    "logsigmoid", lambda o, x: o.neg(_softplus(o, o.neg(x))), lambda o, x: _sigmoid(o, o.neg(x)),
)  # fmt: skip
gelu = activation(
    "gelu", lambda o, x: o.mul(o.mul(x, 0.5), o.add(o.erf(o.mul(x, _SQRT_HALF)), 1.0)),
    lambda o, x: o.add(
        o.mul(o.add(o.erf(o.mul(x, _SQRT_HALF)), 1.0), 0.5), o.mul(o.mul(x, _INVERSE_SQRT_2_PI), o.exp(o.mul(o.mul(x, x), -0.5)))
    ),
)  # fmt: skip


def _gelu_tanh(o: Any, x: Any) -> Any:
    return o.tanh(o.mul(o.mul(x, o.add(o.mul(o.mul(x, x), _CUBIC), 1.0)), _SQRT_2_OVER_PI))


def _gelu_tanh_slope(o: Any, x: Any) -> Any:
    t = _gelu_tanh(o, x)
    inner = o.mul(o.add(o.mul(o.mul(x, x), 3 * _CUBIC), 1.0), _SQRT_2_OVER_PI)
    return o.mul(o.add(o.add(t, 1.0), o.mul(o.mul(x, o.sub(1.0, o.mul(t, t))), inner)), 0.5)


gelu_tanh = activation("gelu_tanh", lambda o, x: o.mul(o.mul(x, 0.5), o.add(_gelu_tanh(o, x), 1.0)), _gelu_tanh_slope)

# ---- softmax


def _softmax_vjp(g: Any, out: Any, *, dim: int) -> Any:
    if recording(g, out):
        return out * (g - (g * out).sum(dim, keepdim=True))
    return softmax_backward(g, out, dim=dim)


def _like(input: Any, *others: Any, **params: Any) -> MetaArray:
    return MetaArray(input.shape, input.dtype)


@prim("softmax", "norm", vjp=_softmax_vjp, infer=_like)
def softmax(xp: Any, input: Any, *, dim: int) -> Any:
    """e^input over its sum along `dim`."""
    if not input.size:
        return input.copy()
    out = input - xp.reduce_max(input, axis=dim, keepdims=True)
    xp.exp(out, out=out)
    out /= xp.reduce_add(out, axis=dim, keepdims=True)
    return out


@prim("softmax_backward", "norm", infer=_like)
def softmax_backward(xp: Any, g: Any, out: Any, *, dim: int) -> Any:
    weighted = g * out
    total = xp.reduce_add(weighted, axis=dim, keepdims=True)
    xp.subtract(g, total, out=weighted)
    weighted *= out
    return weighted


def _log_softmax_vjp(g: Any, out: Any, *, dim: int) -> Any:
    if recording(g, out):
        return g - out.exp() * g.sum(dim, keepdim=True)
    return log_softmax_backward(g, out, dim=dim)


@prim("log_softmax", "norm", vjp=_log_softmax_vjp, infer=_like)
def log_softmax(xp: Any, input: Any, *, dim: int) -> Any:
    """input minus the logarithm of the sum of e^input along `dim`."""
    if not input.size:
        return input.copy()
    out = input - xp.reduce_max(input, axis=dim, keepdims=True)
    out -= xp.log(xp.reduce_add(xp.exp(out), axis=dim, keepdims=True))
    return out


@prim("log_softmax_backward", "norm", infer=_like)
def log_softmax_backward(xp: Any, g: Any, out: Any, *, dim: int) -> Any:
    probability = xp.exp(out)
    probability *= xp.reduce_add(g, axis=dim, keepdims=True)
    return xp.subtract(g, probability, out=probability)
