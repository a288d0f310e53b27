"""Values as a quantised tensor would have them, in floats: fake_quantize_per_tensor_affine and its like."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import dtypes
from tocha.backends.meta import MetaArray
from tocha.dispatch.override import require
from tocha.dispatch.prim import prim
from tocha.dispatch.registry import op
from tocha.dtypes import HALF_NP
from tocha.ops.arguments import check_tensor, wrap_dim
from tocha.prims.elementary import keep
from tocha.tensor import Tensor

_FLOAT32 = np.dtype(np.float32)


@prim(
    "fake_quantize", "pointwise", outputs=("out", "inside"), half="native",
    vjp=(lambda g, inside, *, channels: None if g[0] is None else keep(g[0], inside), None, None),
    infer=lambda x, *rest, **params: [MetaArray(x.shape, x.dtype), MetaArray(x.shape, np.bool_)],
)  # fmt: skip
def fake_quantize(xp: Any, x: Any, scale: Any, zero_point: Any, *, low: int, high: int, channels: bool) -> Any:
    """x / scale + zero_point, rounded (ties to even) and cut to [low, high], and back; and where nothing was cut. NaN counts as the least."""
    wide = x.astype(_FLOAT32) if x.dtype in HALF_NP else x
    steps, zero = wide * (_FLOAT32.type(1) / scale), zero_point.astype(wide.dtype)
    q = xp.rint(steps + zero) if zero_point.dtype.kind == "f" else xp.rint(steps) + zero
    inside = xp.logical_and(q >= low, q <= high)
    q = xp.where(q >= low, xp.minimum(q, q.dtype.type(high)), q.dtype.type(low))
    return ((q - zero) * scale.astype(wide.dtype)).astype(x.dtype, copy=False), inside


def _quantized(name: str, input: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, channels: bool) -> Tensor:
    if check_tensor(input, name)._a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}' tensors")
    if low > high:
        raise RuntimeError(f"{name}: `quant_min` should be less than or equal to `quant_max`, got {low} and {high}")
    if zero_point._a.dtype.kind in "iu":
        inside = (zero_point >= low) & (zero_point <= high)
        require(inside, RuntimeError, f"{name}: `zero_point` must be between `quant_min` and `quant_max` ({low} and {high})")
    return fake_quantize(input, scale.detach(), zero_point.detach(), low=low, high=high, channels=channels)[0]


@op("torch")
def fake_quantize_per_tensor_affine(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """input rounded to quant_min … quant_max steps of `scale` around `zero_point`; the gradient passes inside that range (torch docs:
    torch.fake_quantize_per_tensor_affine)."""
    step = scale.reshape(()).to(dtypes.float32) if isinstance(scale, Tensor) else input.new_tensor(scale, dtype=dtypes.float32)
    zero = zero_point.reshape(()).to(dtypes.int64) if isinstance(zero_point, Tensor) else input.new_tensor(zero_point, dtype=dtypes.int64)
    return _quantized("fake_quantize_per_tensor_affine", input, step, zero, quant_min, quant_max, False)


@op("torch")
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point (int32, or a float that isn't rounded) for each index of dimension `axis` (torch docs:
    torch.fake_quantize_per_channel_affine)."""
    name = "fake_quantize_per_channel_affine"
    if check_tensor(scale, name, "scale", 2).dtype not in (dtypes.float32, dtypes.bfloat16):
        raise RuntimeError(f"{name}: Scale must be Float or BFloat16, found {scale.dtype.name}")
    if check_tensor(zero_point, name, "zero_point", 3).dtype not in (dtypes.int32, dtypes.float32, dtypes.float16):
        raise RuntimeError(f"{name}: Zero-point must be Int32, Float or Half, found {zero_point.dtype.name}")
    if scale.ndim != 1 or zero_point._a.shape != scale._a.shape:
        raise RuntimeError(
            f"{name}: scale and zero-point should be 1-D tensors of one size, got {list(scale.shape)} and {list(zero_point.shape)}"
        )
    d = wrap_dim(axis, input.ndim, name)
    if axis < 0:
        raise RuntimeError(f"{name}: `axis` must be between 0 and number of dimensions of input, got {axis}")
    if scale._a.shape[0] != input._a.shape[d]:
        raise RuntimeError(
            f"{name}: dimensions of scale and zero-point are not consistent with input tensor ({list(scale.shape)} for {list(input.shape)} "
            f"along {axis})"
        )
    shape = (-1, *(1,) * (input.ndim - d - 1))
    step, zero = scale.to(dtypes.float32).reshape(shape), zero_point.reshape(shape)
    return _quantized(name, input, step, zero, quant_min, quant_max, True)
