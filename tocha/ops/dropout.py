"""Dropout in all its forms, the randomised leaky ReLU and the Gumbel softmax.

Hinton et al. 2012 (dropout), Tompson et al. 2014 (whole channels), Klambauer et al. 2017 (alpha dropout),
Xu et al. 2015 (RReLU), Jang et al. 2016 (Gumbel softmax). torch docs: torch.nn.functional.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import no_grad
from tocha.backends import _native_random, namespace
from tocha.device import CPU, contiguous_format
from tocha.dispatch.override import INTERPRETERS
from tocha.dispatch.prim import tie
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops._sampling import ByKernel, fresh, overwrite, refuse
from tocha.ops.arguments import check_tensor
from tocha.ops.creation import empty_like, zeros_like
from tocha.rng import continuous, discrete
from tocha.tensor import Tensor

_mul = NAMESPACES["torch"]["mul"]
_ALPHA = 1.7580993408473766  # scale * alpha of SELU


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _keep(input: Tensor, p: float, feature: bool, scale: Any) -> Tensor:
    """`scale` where an element (or, with `feature`, a channel) survives, else 0; laid out like the input."""
    if input.dtype.is_complex:
        refuse("bernoulli_scalar_cpu_", input.dtype)
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"dropout: result type float32 can't be cast to the desired output type {input.dtype}")
    draw = _draw(p, input.dtype, scale)
    shape = input._a.shape
    if feature:
        if input.ndim < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        shape = (*shape[:2], *(1 for _ in shape[2:]))
    elif not input.is_contiguous():
        return overwrite(empty_like(input.detach()), None, "dropout", draw)
    return fresh(shape, input.dtype, input.device, None, "dropout", draw)


@functools.lru_cache(256)
def _draw(p: float, dtype: dtypes.dtype, scale: Any) -> ByKernel:
    value = dtype.np.type(scale)

    def draw(engine: Any, count: int, np_dtype: Any, contiguous: bool) -> np.ndarray:
        kept = discrete.bernoulli(engine, count, 1.0 - p)
        return kept.astype(np_dtype) if scale == 1 else np.multiply(kept, value, dtype=np_dtype)

    return ByKernel(draw, _native_random.bernoulli(dtype.np, 1.0 - p, float(value)))


@functools.lru_cache(256)
def _inverse(p: float, dtype: dtypes.dtype) -> Any:
    """1 / (1 - p) rounded once, in the type torch divides in."""
    work = np.float64 if dtype is dtypes.float64 else np.float32
    return work(1) / work(1 - p)


def _apply(input: Tensor, p: float, train: bool, feature: bool, alpha: bool, inplace: bool) -> Tensor:
    check_tensor(input, "dropout")
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not train or input._a.size == 0:
        return input
    if p == 1:
        return _times(input, zeros_like(input), inplace)
    if not alpha:
        return _times(input, _keep(input, p, feature, _inverse(p, input.dtype)), inplace)
    a = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    with no_grad():
        noise = _keep(input, p, feature, 1)
        shift = noise.add(-1).mul_(_ALPHA * a).add_(_ALPHA * a * p)
        noise.mul_(a)
    return _times(input, noise, inplace).add_(shift)


def _times(input: Tensor, factor: Tensor, inplace: bool) -> Tensor:
    return input.mul_(factor) if inplace else input.mul(factor)


def _family(name: str, feature: bool, alpha: bool, doc: str) -> None:
    def out_of_place(input: Tensor, p: float, train: bool) -> Tensor:
        return _apply(input, p, train, feature, alpha, False)

    def in_place(input: Tensor, p: float, train: bool) -> Tensor:
        return _apply(input, p, train, feature, alpha, True)

    for suffix, function in (("", out_of_place), ("_", in_place)):
        op("torch", name=name + suffix, doc=doc)(function)


_family("dropout", False, False, "Zero elements with probability p, scale the rest by 1/(1-p).")
_family("feature_dropout", True, False, "Zero whole channels with probability p, scale the rest by 1/(1-p).")
_family("alpha_dropout", False, True, "Dropout that keeps mean and variance of SELU activations.")
_family("feature_alpha_dropout", True, True, "Alpha dropout of whole channels.")


@op("torch")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(output, mask) of dropout; the mask is true where elements survive."""
    if p == 0 or train is False or input._a.size == 0:
        return input.clone(), _ones_mask(input)
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    mask = empty_like(input.detach(), dtype=dtypes.bool_)
    mask = overwrite(mask, None, "native_dropout", lambda e, n, d, c: discrete.bernoulli(e, n, 1 - p))
    return input.mul(mask).mul(0.0 if p == 1 else 1 / (1 - p)), mask


def _ones_mask(input: Tensor) -> Tensor:
    return empty_like(input.detach(), dtype=dtypes.bool_).fill_(True)


def _short_dropout(input: Any, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
    """Of a dense float32 tensor on the CPU, in training."""
    if input.__class__ is not Tensor or p.__class__ is not float or not 0 < p < 1 or training is not True or inplace:
        return None
    a = input._a
    if a.__class__ is not np.ndarray or a.dtype.char != "f" or not a.size or not a.flags.c_contiguous or INTERPRETERS:
        return None
    return _mul(input, fresh(a.shape, dtypes.float32, CPU, None, "dropout", _draw(p, dtypes.float32, _inverse(p, dtypes.float32))))


@op("F", name="dropout", short=_short_dropout)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zero elements with probability `p` and scale the rest by 1/(1-p)."""
    if p < 0 or p > 1:
        _check(p)
    return _apply(input, p, training, False, False, inplace)


@op("F", name="alpha_dropout")
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations."""
    _check(p)
    return _apply(input, p, training, False, True, inplace)


@op("F", name="feature_alpha_dropout")
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout of whole channels."""
    _check(p)
    return _apply(input, p, training, True, True, inplace)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    """Feature dropout of a tensor whose channels come first or second."""
    if batched:
        return _apply(input, p, training, True, False, inplace)
    result = _apply(input.unsqueeze(0), p, training, True, False, inplace)
    return input if inplace else result.squeeze(0)


_DIMS_NOTE = (
    "Note that dropout{n}d exists to provide channel-wise dropout on inputs with {n} spatial dimension{s}, a "
    "channel dimension, and an optional batch dimension (i.e. {a}D or {b}D inputs)."
)


def _warn_dims(spatial: int, ndim: int) -> None:
    note = _DIMS_NOTE.format(n=spatial, s="s", a=spatial + 1, b=spatial + 2)
    warnings.warn(
        f"dropout{spatial}d: Received a {ndim}-D input to dropout{spatial}d, which is deprecated and will "
        "result in an error in a future release. To retain the behavior and silence this warning, please use "
        f"dropout instead. {note}",
        stacklevel=4,
    )


@op("F")
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L)."""
    _check(p)
    if input.ndim not in (2, 3):
        note = _DIMS_NOTE.format(n=1, s="", a=2, b=3)
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. {note}")
    return _channels(input, p, training, inplace, input.ndim == 3)


@op("F")
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, H, W); a 3-d input is taken as (N, C, L)."""
    _check(p)
    if input.ndim not in (3, 4):
        _warn_dims(2, input.ndim)
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior "
            "is desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior "
            "will change in a future release to interpret the input as one without a batch dimension, i.e. "
            "shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using "
            "dropout1d instead.",
            stacklevel=3,
        )
    return _channels(input, p, training, inplace, True)


@op("F")
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W); other inputs are taken without N too."""
    _check(p)
    if input.ndim not in (4, 5):
        _warn_dims(3, input.ndim)
    return _channels(input, p, training, inplace, input.ndim == 5)


# ---- randomised leaky ReLU


def _slopes(input: Tensor, lower: float, upper: float, generator: Any) -> Tensor:
    """The factor of each element: drawn where it is not positive, else 1. Only those elements draw."""
    where = np.flatnonzero(_host(input <= 0)) if not input.is_meta else np.empty(0, np.int64)
    start, span = lower, upper - lower
    if input.dtype is dtypes.float32:
        start, span = float(np.float32(lower)), float(np.float32(upper)) - float(np.float32(lower))

    def draw(engine: Any, count: int, np_dtype: Any, contiguous: bool) -> np.ndarray:
        slopes = np.ones(count)
        slopes[where] = continuous.uniform64(engine, len(where)) * span + start
        return slopes.astype(np_dtype)

    return fresh(input._a.shape, input.dtype, input.device, generator, "rrelu", draw)


def _host(input: Tensor) -> np.ndarray:
    return namespace(input._a).to_host(input._a)


def _rrelu(input: Tensor, lower: Any, upper: Any, training: bool, generator: Any = None, inplace: bool = False) -> Tensor:
    lower, upper = float(lower), float(upper)
    if not lower <= upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return NAMESPACES["F"]["leaky_relu"](input, (lower + upper) / 2, inplace)
    if input.dtype not in (dtypes.float32, dtypes.float64, dtypes.bfloat16):
        refuse("rrelu_with_noise_out_cpu", input.dtype)
    if input.dtype is dtypes.bfloat16:  # computed in float32, slopes included, and rounded once
        wide = input.float()
        out = tie(wide.mul(_slopes(wide.detach(), lower, upper, generator))).to(input.dtype)
        return input.copy_(out) if inplace else out
    slopes = _slopes(input.detach(), lower, upper, generator)
    return tie(_times(input, slopes, inplace))


@op("torch", name="rrelu")
def _rrelu_torch(input: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, generator: Any = None) -> Tensor:
    """Leaky ReLU with a random slope for each negative element in training (torch docs: torch.rrelu)."""
    return _rrelu(input, lower, upper, training, generator)


@op("torch F", name="rrelu_")
def _rrelu_in_place(
    input: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """`rrelu` in place."""
    return _rrelu(input, lower, upper, training, generator, True)


@op("F")
def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """Leaky ReLU whose slope is drawn from [lower, upper) in training, else their mean."""
    return _rrelu(input, lower, upper, training, None, inplace)


# ---- Gumbel softmax


@op("F")
def gumbel_softmax(logits: Tensor, tau: Any = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Near one-hot samples of the categorical distribution; `hard`: one-hot, with the soft gradient."""
    gumbels = -empty_like(logits.detach(), memory_format=contiguous_format).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = zeros_like(logits, memory_format=contiguous_format).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft
