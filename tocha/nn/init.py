"""Initialisation of parameters, in place and without gradient (torch docs: torch.nn.init)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import tocha
from tocha.overrides import handle_torch_function, has_torch_function_unary

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_LINEAR = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
)


def _no_grad_uniform_(tensor: Any, a: float, b: float, generator: Any = None) -> Any:
    with tocha.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def _no_grad_normal_(tensor: Any, mean: float, std: float, generator: Any = None) -> Any:
    with tocha.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _no_grad_fill_(tensor: Any, value: float) -> Any:
    with tocha.no_grad():
        return tensor.fill_(value)


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor on the standard deviation before a nonlinearity; `param` is leaky_relu's slope."""
    if nonlinearity in _LINEAR or nonlinearity == "sigmoid":
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Fill from the uniform distribution on [a, b)."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(uniform_, (tensor,), tensor=tensor, a=a, b=b, generator=generator)
    return _no_grad_uniform_(tensor, a, b, generator)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Fill from the normal distribution."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(normal_, (tensor,), tensor=tensor, mean=mean, std=std, generator=generator)
    return _no_grad_normal_(tensor, mean, std, generator)


def trunc_normal_(
    tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Any:
    """Fill from the normal distribution cut to [a, b], by drawing again what falls outside."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
            stacklevel=2,
        )
    if tensor.is_meta:
        return tensor

    def cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    with tocha.no_grad():
        if cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3:
            return _redraw_outside(tensor, mean, std, a, b, generator)
        return _accept_by_density(tensor, mean, std, a, b, generator)


def _redraw_outside(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    """Normal draws for the whole tensor, again until none of its elements is outside [a, b]."""
    low, high = tensor.new_tensor(a, device="cpu").item(), tensor.new_tensor(b, device="cpu").item()
    values = tensor.normal_(mean, std, generator=generator)
    outside = (values < low) | (values > high)
    while bool(outside.any()):
        fresh = tocha.empty_like(values).normal_(mean, std, generator=generator)
        values = tocha.where(outside, fresh, values)
        outside = (values < low) | (values > high)
    return tensor if values is tensor else tensor.copy_(values)


def _accept_by_density(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    """Uniform draws, each kept with the probability of its density over the highest in [a, b]."""
    log_peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending = None
    values = tensor
    while pending is None or bool(pending.any()):
        drawn = tocha.empty_like(tensor).uniform_(a, b, generator=generator)
        values = drawn.clone() if pending is None else tocha.where(pending, drawn, values)
        log_density = drawn.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak)
        refused = tocha.empty_like(tensor).uniform_(generator=generator).log_().gt(log_density)
        pending = refused if pending is None else tocha.where(pending, refused, pending)
    return tensor.copy_(values)


def constant_(tensor: Any, val: float) -> Any:
    """Fill with `val`."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(constant_, (tensor,), tensor=tensor, val=val)
    return _no_grad_fill_(tensor, val)


def ones_(tensor: Any) -> Any:
    """Fill with 1."""
    return _no_grad_fill_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    """Fill with 0."""
    with tocha.no_grad():
        return tensor.zero_()


def eye_(tensor: Any) -> Any:
    """Make a matrix the identity."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with tocha.no_grad():
        tocha.eye(*tensor.shape, out=tensor, requires_grad=tensor.requires_grad)
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Make a convolution weight (3 to 5 dimensions) pass on as many input channels as it can."""
    dimensions = tensor.dim()
    if dimensions not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tensor.size()
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    out_per_group = sizes[0] // groups
    centre = tuple(n // 2 for n in sizes[2:])
    with tocha.no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(out_per_group, sizes[1])):
                tensor[(g * out_per_group + d, d, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    inner, outer = tensor.size(1), tensor.size(0)
    receptive_field = math.prod(tensor.shape[2:]) if tensor.dim() > 2 else 1
    return inner * receptive_field, outer * receptive_field


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill uniformly within ±gain·√(6/(fan_in + fan_out)) (Glorot and Bengio 2010)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill from N(0, gain²·2/(fan_in + fan_out)) (Glorot and Bengio 2010)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return _no_grad_normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Any:
    """Fill uniformly within ±gain·√(3/fan) (He et al. 2015); `a` is the slope of leaky_relu."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(
            kaiming_uniform_, (tensor,), tensor=tensor, a=a, mode=mode, nonlinearity=nonlinearity, generator=generator
        )
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    with tocha.no_grad():
        return tensor.uniform_(-bound, bound, generator=generator)


def kaiming_normal_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Any:
    """Fill from N(0, gain²/fan) (He et al. 2015); `a` is the slope of leaky_relu."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    with tocha.no_grad():
        return tensor.normal_(0, std, generator=generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Fill with a (semi-)orthogonal matrix, trailing dimensions flattened (Saxe et al. 2013)."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    cols = tensor.numel() // rows
    flat = tensor.new_empty((rows, cols)).normal_(0, 1, generator=generator)
    if rows < cols:
        flat.t_()
    q, r = tocha.linalg.qr(flat)
    q *= tocha.diag(r, 0).sign()  # makes Q uniform (Mezzadri 2007)
    if rows < cols:
        q.t_()
    with tocha.no_grad():
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Fill a matrix from N(0, std²) and zero the share `sparsity` of each column (Martens 2010)."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with tocha.no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(cols):
            tensor[tocha.randperm(rows)[:zeros], col] = 0
    return tensor


def _deprecated(function: Callable[..., Any]) -> Callable[..., Any]:
    new = function.__name__
    old = new[:-1]

    def alias(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    alias.__name__ = old
    alias.__doc__ = f"Deprecated name of :func:`{new}`."
    return alias


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
