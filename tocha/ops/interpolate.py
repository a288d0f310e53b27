"""Resizing images and sampling them at given places (torch docs: torch.nn.functional, vision functions)."""

from __future__ import annotations

import math
import warnings
from typing import Any

from tocha import dtypes
from tocha.dispatch.prim import tie
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.prims.resample import resample
from tocha.tensor import Tensor

_ALIGNING = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_BASE = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic", "lanczos": "lanczos"}
_MODES = ("nearest", "linear", "bilinear", "bicubic", "trilinear", "lanczos", "area", "nearest-exact")


def _sizes(input: Tensor, size: Any, scale_factor: Any, recompute: bool | None) -> tuple[list[int], list[float]]:
    """The output's sizes, and for each dimension the given scale factor (0.0: computed from sizes)."""
    n = input.ndim - 2
    spatial = input._a.shape[2:]
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        wanted = [int(s) for s in size] if isinstance(size, (tuple, list)) else [int(size)] * n
        if len(wanted) != n:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
                f"{list(spatial)} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in "
                "(o1, o2, ...,oK) format."
            )
        return wanted, [0.0] * n
    factors = [float(s) for s in scale_factor] if isinstance(scale_factor, (tuple, list)) else [float(scale_factor)] * n
    if len(factors) != n:
        raise ValueError(
            f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions of {list(spatial)} "
            f"and scale_factor of shape {scale_factor}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and scale_factor in "
            "(s1, s2, ...,sK) format."
        )
    wanted = [math.floor(m * f) for m, f in zip(spatial, factors, strict=True)]
    return wanted, [0.0] * n if recompute else factors


@op("F")
def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """(N, C, *spatial) resized to `size` or by `scale_factor` (torch docs: torch.nn.functional.interpolate)."""
    check_tensor(input, "interpolate")
    if mode not in _ALIGNING:
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    align = bool(align_corners)
    if input.ndim not in (3, 4, 5) or mode not in _MODES:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | "
            f"trilinear | lanczos | area | nearest-exact (got {mode})"
        )
    n = input.ndim - 2
    sizes, factors = _sizes(input, size, scale_factor, recompute_scale_factor)
    if antialias and (mode not in ("bilinear", "bicubic", "lanczos") or input.ndim != 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    wanted = {"lanczos": 2, **_ALIGNING}.get(mode, n)
    if wanted != n:
        raise NotImplementedError(f"Got {input.ndim}D input, but {mode} mode needs {wanted + 2}D input")
    return _resize(input, sizes, factors, mode, align, antialias)


def _resize(input: Tensor, sizes: list[int], factors: list[float], mode: str, align: bool, antialias: bool) -> Tensor:
    spatial = input._a.shape[2:]
    if min(sizes) <= 0 or 0 in spatial:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(spatial)} and output {list(sizes)} (interpolate)"
        )
    if 0 in input._a.shape[1:]:
        raise RuntimeError(
            f"interpolate: Non-empty {input.ndim}D data tensor expected but got a tensor with sizes {list(input.shape)}"
        )
    if input._a.dtype not in dtypes.FLOAT_NP and input.dtype is not dtypes.uint8:
        raise NotImplementedError(f"\"interpolate\" in mode {mode} not implemented for '{input.dtype.name}' tensors")
    if input.dtype is dtypes.uint8 and mode in ("linear", "trilinear"):
        raise NotImplementedError(
            f"\"interpolate\" in mode {mode} not implemented for 'Byte': convert it to a floating-point type first"
        )
    base = _BASE.get(mode, mode) + ("-antialias" if antialias else "")
    specs = tuple(
        (base, m, s, align, 1.0 / f if f and base != "area" else 0.0) for m, s, f in zip(spatial, sizes, factors, strict=True)
    )
    out = resample(input, specs=specs)
    return tie(out) if base == "area" else out


@op("F")
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate` under its old name."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


@op("F")
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` in mode 'nearest'."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


@op("F")
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` in mode 'bilinear' with aligned corners."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
