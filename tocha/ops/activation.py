"""Activation functions with torch's signatures (torch docs: torch.nn.functional, non-linear activation functions)."""

from __future__ import annotations

import warnings
from typing import Any

from tocha import dtypes
from tocha.dispatch.inplace import assign, check_writable
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.arguments import check_dtype, check_fits, check_tensor, wrap_dim
from tocha.prims import activation as prims
from tocha.tensor import Tensor

_SELU_ALPHA, _SELU_SCALE = prims.SELU_ALPHA, prims.SELU_SCALE


def _finish(name: str, input: Tensor, value: Tensor, inplace: bool) -> Tensor:
    """The value, written into the input where that was asked."""
    if not inplace:
        return value
    check_writable(input, name)
    return assign(input, value, name)


_relu, _relu_ = NAMESPACES["torch"]["relu"], NAMESPACES["torch"]["relu_"]


def short_relu(input: Any, inplace: bool = False) -> Tensor | None:
    """torch.relu asks for overrides itself, but as torch.relu: only plain tensors go there directly."""
    return _relu(input) if input.__class__ is Tensor and not inplace else None


@op("F", short=short_relu)
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0) (torch docs: torch.nn.functional.relu)."""
    return _relu_(input) if inplace else _relu(input)


op("F")(_relu_)


def _check_float(name: str, input: Tensor) -> Tensor:
    """NotImplementedError unless the tensor is of a floating-point type."""
    if check_tensor(input, name)._a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}' tensors")
    return input


@op("F")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where above `threshold`, else `value` (torch docs: torch.nn.functional.threshold)."""
    check_fits(check_tensor(input, "threshold").dtype, threshold, value)
    return _finish("threshold_", input, prims.threshold(input, threshold=threshold, value=value), inplace)


@op("torch", name="threshold")
def _torch_threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """input where above `threshold`, else `value`."""
    check_fits(check_tensor(input, "threshold").dtype, threshold, value)
    return prims.threshold(input, threshold=threshold, value=value)


@op("torch F", name="threshold_")
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    check_fits(check_tensor(input, "threshold_").dtype, threshold, value)
    return _finish("threshold_", input, prims.threshold(input, threshold=threshold, value=value), True)


@op("F")
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input clipped to [min_val, max_val] (torch docs: torch.nn.functional.hardtanh)."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, got {min_val} and {max_val}")
    if check_tensor(input, "hardtanh")._a.dtype.kind == "b":
        raise RuntimeError("hardtanh: Bool inputs not supported")
    if input.dtype is dtypes.uint8 and min_val < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    check_fits(input.dtype, min_val, max_val)
    return _finish("hardtanh_", input, prims.hardtanh(input, low=min_val, high=max_val), inplace)


@op("F")
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, True)


@op("F")
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """input clipped to [0, 6] (torch docs: torch.nn.functional.relu6)."""
    return hardtanh(input, 0, 6, inplace)


@op("F")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """(input + 3) / 6 clipped to [0, 1] (torch docs: torch.nn.functional.hardsigmoid)."""
    return _finish("hardsigmoid_", input, prims.hardsigmoid(_check_float("hardsigmoid", input)), inplace)


@op("F")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input) (torch docs: torch.nn.functional.hardswish)."""
    return _finish("hardswish_", input, prims.hardswish(_check_float("hardswish", input)), inplace)


@op("F")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope * input (torch docs: torch.nn.functional.leaky_relu)."""
    return _finish("leaky_relu_", input, prims.leaky_relu(_check_float("leaky_relu", input), slope=negative_slope), inplace)


@op("F")
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place; the slope must not be negative if gradients are recorded."""
    if negative_slope < 0 and input._rg:
        raise RuntimeError("In-place leakyReLu backward calculation is triggered with a negative slope which is not supported")
    return leaky_relu(input, negative_slope, True)


@op("F")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (e^input - 1) (Clevert et al. 2015; torch docs: torch.nn.functional.elu)."""
    return _finish("elu_", input, prims.elu(_check_float("elu", input), alpha=alpha, scale=1.0, speed=1.0), inplace)


@op("F")
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return elu(input, alpha, True)


def _celu(input: Tensor, alpha: float) -> Tensor:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return prims.elu(_check_float("celu", input), alpha=alpha, scale=1.0, speed=1.0 / alpha)


@op("torch F", name="celu_")
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return _finish("celu_", input, _celu(input, alpha), True)


@op("F")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (e^(input/alpha) - 1) (Barron 2017; torch docs: torch.nn.functional.celu)."""
    return _finish("celu_", input, _celu(input, alpha), inplace)


op("torch", name="celu")(lambda input, alpha=1.0: _celu(input, alpha))


def _selu(input: Tensor) -> Tensor:
    return prims.elu(_check_float("selu", input), alpha=_SELU_ALPHA, scale=_SELU_SCALE, speed=1.0)


@op("torch F", name="selu_")
def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return _finish("selu_", input, _selu(input), True)


@op("F")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Self-normalising elu (Klambauer et al. 2017; torch docs: torch.nn.functional.selu)."""
    return _finish("selu_", input, _selu(input), inplace)


op("torch", name="selu")(_selu)


@op("F")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also called swish (torch docs: torch.nn.functional.silu)."""
    if check_tensor(input, "silu")._a.dtype.kind == "c":
        return _finish("silu_", input, input * input.sigmoid(), inplace)
    return _finish("silu_", input, prims.silu(_check_float("silu", input)), inplace)


@op("F")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)) (Misra 2019; torch docs: torch.nn.functional.mish)."""
    return _finish("mish_", input, prims.mish(_check_float("mish", input)), inplace)


@op("F out")
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta input)) / beta, the identity where beta * input > threshold (torch docs: torch.nn.functional.softplus)."""
    return prims.softplus(_check_float("softplus", input), beta=beta, threshold=threshold)


@op("F out")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)) (torch docs: torch.nn.functional.logsigmoid)."""
    return prims.logsigmoid(_check_float("logsigmoid", input))


@op("F out")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution function, exact or by tanh (Hendrycks and Gimpel 2016; torch docs:
    torch.nn.functional.gelu)."""
    if approximate == "none":
        return prims.gelu(_check_float("gelu", input))
    if approximate != "tanh":
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    return prims.gelu_tanh(_check_float("gelu", input))


@op("torch method F out")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input where |input| > lambd, else 0 (torch docs: torch.nn.functional.hardshrink)."""
    return prims.hardshrink(_check_float("hardshrink", input), lambd=lambd)


@op("F out")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by lambd, at most to 0 (torch docs: torch.nn.functional.softshrink)."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return prims.softshrink(_check_float("softshrink", input), lambd=lambd)


@op("F")
def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input) (torch docs: torch.nn.functional.tanhshrink)."""
    return input - input.tanh()


@op("F")
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|) (torch docs: torch.nn.functional.softsign)."""
    return input / (input.abs() + 1)


@op("F")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half times the sigmoid of the second half of a dimension (Dauphin et al. 2017; torch docs: torch.nn.functional.glu)."""
    if check_tensor(input, "glu").ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    _check_float("glu", input)
    d = wrap_dim(dim, input.ndim, "glu")
    if input._a.shape[d] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {input._a.shape[d]}")
    return prims.gated(*input.chunk(2, d))


@op("torch method F")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where positive, else weight * input; one weight, or one for each channel (dimension 1) (He et al. 2015; torch docs:
    torch.nn.functional.prelu)."""
    if check_tensor(weight, "prelu", "weight", 2).ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight._a.dtype is not check_tensor(input, "prelu")._a.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype.name} and {weight.dtype.name}")
    _check_float("prelu", input)
    if weight.ndim == 1 and weight._a.shape[0] != 1:
        channels = input._a.shape[1] if input.ndim > 1 else 1
        if input.ndim == 0:
            raise RuntimeError("prelu: Not allow zero-dim input tensor with several weights.")
        if weight._a.shape[0] != channels:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight._a.shape[0]} and channel size = {channels}."
            )
    if weight.ndim == 1:
        weight = weight.reshape([1, -1] + [1] * (input.ndim - 2) if input.ndim > 1 else [-1] if input.ndim else [])
    return prims.prelu(input, weight)


# ---- softmax


def _normalised(name: str, rule: Any, input: Tensor, dim: int, dtype: Any) -> Tensor:
    wanted = check_dtype(dtype, name)
    if wanted is not None and wanted is not input.dtype:
        input = input.to(wanted)
    a = check_tensor(input, name)._a
    if a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{input.dtype.name}' tensors: give dtype=, or a floating-point tensor"
        )
    if a.ndim == 0:
        wrap_dim(dim, 0, name)
        return rule(input.reshape(1), dim=0).reshape(()).clone()  # a tensor of its own, no view
    return rule(input, dim=wrap_dim(dim, a.ndim, name))


def _short_rows(rule: Any) -> Any:
    """Of a tensor of floats in CPU memory, along a dimension that is named."""

    def short(input: Any, dim: Any = None, *more: Any) -> Tensor | None:
        if more or dim.__class__ is not int or input.__class__ is not Tensor or input._a.dtype.char not in "fd":
            return None
        n = input._a.ndim
        return rule(input, dim=dim % n) if n and -n <= dim < n else None

    return short


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 2,
    )
    return 0 if ndim in (0, 1, 3) else 1


@op("F", short=_short_rows(prims.softmax))
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """e^input over its sum along `dim` (torch docs: torch.nn.functional.softmax)."""
    return _normalised(
        "softmax", prims.softmax, input, _implicit_dim("softmax", input.ndim, _stacklevel) if dim is None else dim, dtype
    )


@op("F")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of -input (torch docs: torch.nn.functional.softmin)."""
    return _normalised(
        "softmin", prims.softmax, -input, _implicit_dim("softmin", input.ndim, _stacklevel) if dim is None else dim, dtype
    )


@op("F", short=_short_rows(prims.log_softmax))
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(input)), computed stably (torch docs: torch.nn.functional.log_softmax)."""
    chosen = _implicit_dim("log_softmax", input.ndim, _stacklevel) if dim is None else dim
    return _normalised("log_softmax", prims.log_softmax, input, chosen, dtype)


@op("torch method strictout special", name="softmax", short=_short_rows(prims.softmax))
def _torch_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """e^input over its sum along `dim` (torch docs: torch.softmax)."""
    return _normalised("softmax", prims.softmax, input, dim, dtype)


@op("torch method strictout special", name="log_softmax", short=_short_rows(prims.log_softmax))
def _torch_log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(input)) (torch docs: torch.log_softmax)."""
    return _normalised("log_softmax", prims.log_softmax, input, dim, dtype)
