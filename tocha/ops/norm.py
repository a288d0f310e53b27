"""Normalisation functions with torch's signatures (torch docs: torch.nn.functional, normalization functions)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import no_grad, state
from tocha.device import Size
from tocha.dispatch.override import INTERPRETERS
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.prims import norm as prims
from tocha.prims.view import index_scatter
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def _floating(name: str, input: Tensor) -> None:
    if check_tensor(input, name)._a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}' tensors")


def _normalized_shape(name: str, input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None) -> Shape:
    wanted = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not wanted:
        raise RuntimeError(f"{name}: Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = []")
    for label, x in (("weight", weight), ("bias", bias)):
        if x is not None and x._a.shape != wanted:
            raise RuntimeError(
                f"{name}: Expected {label} to be of same shape as normalized_shape, but got {label} of shape {list(x.shape)} and "
                f"normalized_shape = {list(wanted)}"
            )
    if input._a.shape[input._a.ndim - len(wanted) :] != wanted or input._a.ndim < len(wanted):
        raise RuntimeError(
            f"{name}: Given normalized_shape={list(wanted)}, expected input with shape [*, {', '.join(map(str, wanted))}], but got input of "
            f"size{list(input.shape)}"
        )
    return wanted


def _layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    _floating("layer_norm", input)
    wanted = _normalized_shape("layer_norm", input, normalized_shape, weight, bias)
    n = input._a.ndim
    if n > 3 and not input._a.flags.c_contiguous:
        input = input.contiguous()  # the result is row-major in torch, from channels_last memory too
    return prims.standardize(
        input, weight, bias, shape=input._a.shape, axes=tuple(range(n - len(wanted), n)), affine=wanted, eps=eps
    )


@op("F")
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Zero mean and unit variance over the last dimensions, then weight and bias of that shape (Ba et al. 2016; torch docs:
    torch.nn.functional.layer_norm)."""
    return _layer_norm(input, normalized_shape, weight, bias, eps)[0]


@op("torch", name="layer_norm")
def _torch_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.layer_norm`."""
    return _layer_norm(input, normalized_shape, weight, bias, eps)[0]


def _given_type(input: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """The moments in the type of the weight, or of the input without one."""
    kind = input.dtype if weight is None else weight.dtype
    return mean.to(kind), rstd.to(kind)


@op("torch")
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm with the mean and reciprocal standard deviation used."""
    out, mean, var = _layer_norm(input, normalized_shape, weight, bias, eps)
    return out, *_given_type(input, weight, mean.detach(), (var.detach() + eps).rsqrt())


@op("F torch")
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Unit mean square over the last dimensions, then weight; `eps` None is the type's machine epsilon (Zhang and Sennrich 2019;
    torch docs: torch.nn.functional.rms_norm)."""
    if check_tensor(input, "rms_norm").is_complex():
        return _complex_rms_norm(input, normalized_shape, weight, eps)
    _floating("rms_norm", input)
    wanted = _normalized_shape("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = dtypes.finfo(dtypes.float32 if input.dtype in dtypes.HALF else input.dtype).eps
    return prims.rms_norm(input, weight, dims=len(wanted), eps=eps)


def _complex_rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: float | None) -> Tensor:
    """As torch computes it: the mean of squares (not of squared magnitudes) under the root."""
    wanted = _normalized_shape("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = dtypes.finfo(input.dtype).eps
    dims = tuple(range(input.ndim - len(wanted), input.ndim))
    out = input * ((input * input).sum(dims, keepdim=True) / math.prod(wanted) + eps).rsqrt()
    return out if weight is None else out * weight


def _group_norm(input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    _floating("group_norm", input)
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    n, c = input._a.shape[:2]
    if num_groups <= 0 or c % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(input.shape)} and "
            f"num_groups={num_groups}"
        )
    for label, x in (("weight", weight), ("bias", bias)):
        if x is not None and x._a.shape != (c,):
            raise RuntimeError(
                f"Expected {label} to be a vector of size equal to the number of channels in input, but got {label} of shape {list(x.shape)} "
                f"and input of shape {list(input.shape)}"
            )
    rest = math.prod(input._a.shape[2:])
    groups = (num_groups, c // num_groups)
    return prims.standardize(input, weight, bias, shape=(n, *groups, rest), axes=(2, 3), affine=(*groups, 1), eps=eps)


@op("F")
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Zero mean and unit variance over each group of channels of each sample (Wu and He 2018; torch docs:
    torch.nn.functional.group_norm). ValueError for one value in each group of a single sample."""
    shape = check_tensor(input, "group_norm")._a.shape
    if len(shape) > 1 and num_groups > 0:
        _more_than_one([shape[0] * shape[1] // num_groups, num_groups, *shape[2:]])
    return _group_norm(input, num_groups, weight, bias, eps)[0]


@op("torch", name="group_norm")
def _torch_group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Tensor:
    """`torch.nn.functional.group_norm`."""
    return _group_norm(input, num_groups, weight, bias, eps)[0]


@op("torch")
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm with the mean and reciprocal standard deviation used."""
    out, mean, var = prims.standardize(
        input, weight, bias, shape=(N, group, C // group, HxW), axes=(2, 3), affine=(group, C // group, 1), eps=eps
    )
    return out, *_given_type(input, weight, mean.reshape(N, group), (var + eps).rsqrt().reshape(N, group))


# ---- batch and instance normalisation


def _check_channels(name: str, input: Tensor, *tensors: Tensor | None) -> None:
    _floating(name, input)
    if input._a.ndim < 2:
        if not input._a.size:
            return
        raise RuntimeError(f"{name}: expected input of at least 2 dimensions (N, C, ...), got {list(input.shape)}")
    c = input._a.shape[1]
    for label, x in zip(("running_mean", "running_var", "weight", "bias"), tensors, strict=True):
        if x is not None and x._a.size != c:
            raise RuntimeError(f"{name}: {label} should contain {c} elements not {x._a.size}")


def _blend(a: Any, v: Any, momentum: float, factor: float) -> None:
    a *= 1 - momentum
    a += (v if factor == 1 else v * factor) * momentum


def _update_running(running: Tensor | None, value: Any, momentum: float, factor: float = 1.0) -> None:
    """running = (1 - momentum) * running + momentum * factor * value, in place; value has as many elements."""
    if running.__class__ is Tensor and value.__class__ is Tensor and momentum.__class__ is float and not INTERPRETERS:
        a, v = running._a, value._a
        if a.__class__ is v.__class__ is np.ndarray and a.dtype is v.dtype and not running._rg and running._vc is not UNCOUNTED:
            state.run(_blend, a, v.reshape(a.shape), momentum, factor)
            version_of(running).bump("add_")
            return
    if running is not None:
        with no_grad():
            value = value.detach().reshape(running.shape)
            running.mul_(1 - momentum).add_((value if factor == 1 else value * factor).to(running.dtype), alpha=momentum)


def _by_running(input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Tensor:
    """Normalised by running statistics; backward reads what they are now, though a call in training may come before it."""
    if state.grad and (input._rg or (weight is not None and weight._rg)):
        mean, var = mean.detach().clone(), var.detach().clone()
    return prims.batch_norm_given(input, weight, bias, mean, var, eps=eps)


def _batch_norm(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, momentum: Any, eps: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The output, and the batch's mean and biased variance where those were used."""
    shape = input._a.shape
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("batch_norm: Expected running_mean and running_var to be defined when training=False")
        return _by_running(input, weight, bias, running_mean, running_var, eps), None, None
    if len(shape) < 2:
        return input.clone(), None, None
    n, c = shape[:2]
    rest = math.prod(shape[2:])
    out, mean, var = prims.standardize(input, weight, bias, shape=(n, c, rest), axes=(0, 2), affine=(c, 1), eps=eps)
    if n * rest and (running_mean is not None or running_var is not None):
        _update_running(running_mean, mean, momentum)
        _update_running(running_var, var, momentum, n * rest / max(n * rest - 1, 1))
    return out, mean, var


@op("F")
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Zero mean and unit variance of each channel, over the batch in training (which updates the running statistics in place),
    else by the running statistics (Ioffe and Szegedy 2015; torch docs: torch.nn.functional.batch_norm)."""
    if training:
        _more_than_one(input._a.shape)
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    _check_channels("batch_norm", input, running_mean, running_var, weight, bias)
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


def _more_than_one(size: Sequence[int]) -> None:
    if math.prod(size[:1]) * math.prod(size[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size if isinstance(size, list) else Size(size)}")


@op("torch", name="batch_norm")
def _torch_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.batch_norm` with the native order of arguments."""
    _check_channels("batch_norm", input, running_mean, running_var, weight, bias)
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


@op("torch")
def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """batch_norm with the batch's mean and reciprocal standard deviation (empty outside training)."""
    _check_channels("native_batch_norm", input, running_mean, running_var, weight, bias)
    out, mean, var = _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if mean is None or var is None:
        return out, input.new_empty(0), input.new_empty(0)
    c = input._a.shape[1]
    return out, *_given_type(input, weight, mean.detach().reshape(c), (var.detach().reshape(c) + eps).rsqrt())


@op("F")
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Zero mean and unit variance of each channel of each sample; `use_input_stats` False takes the running statistics (Ulyanov et
    al. 2016; torch docs: torch.nn.functional.instance_norm)."""
    _check_channels("instance_norm", input, running_mean, running_var, weight, bias)
    shape = input._a.shape
    n, c = shape[:2]
    rest = math.prod(shape[2:])
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return _by_running(input, weight, bias, running_mean, running_var, eps)
    if rest == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    out, mean, var = prims.standardize(input.contiguous(), weight, bias, shape=(n, c, rest), axes=(2,), affine=(c, 1), eps=eps)
    if n and (running_mean is not None or running_var is not None):
        _update_running(running_mean, mean.detach().reshape(n, c).sum(0) / n, momentum)
        _update_running(running_var, var.detach().reshape(n, c).sum(0) * (rest / (rest - 1) / n), momentum)
    return out


@op("torch", name="instance_norm")
def _torch_instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.instance_norm` with the native order of arguments."""
    return instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@op("F")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input over (k + alpha * mean of squares of `size` neighbouring channels)^beta (Krizhevsky et al. 2012; torch docs:
    torch.nn.functional.local_response_norm)."""
    if check_tensor(input, "local_response_norm").ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {input.ndim} dimensions)")
    if not input._a.size:
        return input
    c = input._a.shape[1]
    square = input * input
    before = size // 2
    total = square.new_zeros(square.shape)
    for shift in range(-before, size - before):  # channel i adds channel i + shift where that exists
        low, high = max(0, -shift), min(c, c - shift)
        if low < high:
            part = square.narrow(1, low + shift, high - low)
            shape = tuple(square.shape)
            total = total + index_scatter(part, shape=shape, index=(slice(None), slice(low, high)))
    mean = total / size if input.dtype.is_floating_point or input.dtype.is_complex else total // size
    return input / (mean * alpha + k) ** beta


@op("F")
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """input over its p-norm along `dim`, which counts as at least `eps` (torch docs: torch.nn.functional.normalize)."""
    denominator = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    if out is None:
        return input / denominator
    from tocha.dispatch.registry import NAMESPACES

    return NAMESPACES["torch"]["div"](input, denominator, out=out)
