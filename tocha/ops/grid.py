"""Sampling images at the places a grid names, and affine grids (Jaderberg et al. 2015; torch docs: torch.nn.functional)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.backends import cpu, native
from tocha.dispatch.override import stacks
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.prims import grid as grid_prims
from tocha.prims.activation import ON_TENSORS
from tocha.prims.elementary import unread
from tocha.tensor import Tensor

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """x mirrored at low and high until it lies between them."""
    if low == high:
        return x * 0.0
    span = high - low
    distance = (x - low).abs()
    turns = (distance.detach() / span).floor()
    rest = distance - turns * span
    return ON_TENSORS.where(turns % 2 == 0, rest + low, span - rest + low)


def _inside(x: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Coordinates moved into the image as the padding mode says ('zeros' leaves them)."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        x = _reflected(x, 0.0, float(size - 1)) if align else _reflected(x, -0.5, size - 0.5)
    x = ON_TENSORS.where(x == x, x, 0.0)
    inner = (x > 0) & (x < size - 1)  # the gradient ends at the border itself
    return ON_TENSORS.where(inner, x, x.detach().clamp(0, size - 1))


def _unnormalized(grid: Tensor, size: int, align: bool) -> Tensor:
    return (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2


class _Image:
    """input (N, C, *spatial) to be read at whole coordinates."""

    def __init__(self, input: Tensor, spatial: tuple[int, ...], out: tuple[int, ...]) -> None:
        self.sizes, self.out = spatial, out
        self.n, self.c = input._a.shape[:2]
        self.flat = input.flatten(2)

    def at(self, places: Sequence[Tensor]) -> Tensor:
        """Values (N, C, *out) at float coordinates without fraction, 0 outside."""
        flat: Any = 0
        valid: Any = None
        for x, size in zip(places, self.sizes, strict=True):
            ok = (x >= 0) & (x <= size - 1)
            valid = ok if valid is None else valid & ok
            flat = flat * size + ON_TENSORS.where(ok, x, 0.0).to(dtypes.int64)
        index = flat.flatten(1).unsqueeze(1)
        index = index.expand(self.n, self.c, index._a.shape[2])
        values = self.flat.gather(2, index).reshape(self.n, self.c, *self.out)
        return ON_TENSORS.where(valid.unsqueeze(1), values, values.new_zeros(()))


def _linear(image: _Image, places: list[Tensor]) -> Tensor:
    lows = [p.detach().floor() for p in places]
    parts = [p - low for p, low in zip(places, lows, strict=True)]
    total: Any = None
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight: Any = None
        for step, part in zip(corner, parts, strict=True):
            w = part if step else 1 - part
            weight = w if weight is None else weight * w
        value = image.at([low + step for low, step in zip(lows, corner, strict=True)]) * weight.unsqueeze(1)
        total = value if total is None else total + value
    return total


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Keys' cubic kernel at t + 1, t, 1 - t and 2 - t."""
    a = _CUBIC

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bicubic(image: _Image, places: list[Tensor], padding: str, align: bool) -> Tensor:
    lows = [p.detach().floor() for p in places]
    weights = [_cubic_weights(p - low) for p, low in zip(places, lows, strict=True)]
    total: Any = None
    for i, j in itertools.product(range(4), repeat=2):
        at = [_inside(low + (k - 1), size, padding, align) for low, k, size in zip(lows, (i, j), image.sizes, strict=True)]
        value = image.at(at) * (weights[0][i] * weights[1][j]).unsqueeze(1)
        total = value if total is None else total + value
    return total


def _check(input: Tensor, grid: Tensor) -> int:
    check_tensor(input, "grid_sampler")
    check_tensor(grid, "grid_sampler", "grid", 2)
    n = input.ndim - 2
    if n not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes {list(input.shape)} and "
            f"grid with sizes {list(grid.shape)}"
        )
    if input._a.shape[0] != grid._a.shape[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes {list(input.shape)} and grid with sizes "
            f"{list(grid.shape)}"
        )
    if grid._a.shape[-1] != n:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {n} in last dimension, but got grid with sizes {list(grid.shape)}"
        )
    if 0 in input._a.shape[2:]:
        raise RuntimeError(
            f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(input.shape)}"
        )
    if input._a.dtype is not grid._a.dtype:
        raise RuntimeError(f"grid_sampler(): expected scalar type {input.dtype.name} but found {grid.dtype.name}")
    return n


def _sample(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    if _check(input, grid) == 3 and mode == "bicubic":
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    kind = input.dtype
    if kind in dtypes.HALF:
        input, grid = input.to(dtypes.float32), grid.to(dtypes.float32)
    if input._a.__class__ is cpu.Array and input._a.size >= native.LEAST["pool"] and not stacks.interpreters:
        out = grid_prims.grid_sample(input, grid, mode=mode, padding=padding, align=align)
    else:
        out = sampled(input, grid, mode, padding, align)
    return out.to(kind)


def sampled(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """The result in ordinary operators, for checked arguments."""
    sizes = tuple(input._a.shape[2:])
    n = len(sizes)
    image = _Image(input, sizes, tuple(grid._a.shape[1:-1]))
    places = [_unnormalized(grid.select(-1, n - 1 - i), size, align) for i, size in enumerate(sizes)]  # the grid names x first
    if mode == "bicubic":
        return _bicubic(image, places, padding, align)
    places = [_inside(p, size, padding, align) for p, size in zip(places, sizes, strict=True)]
    if mode == "bilinear":
        return _linear(image, places)
    out = image.at([p.detach().round() for p in places])
    return unread(grid.floor().sum(-1).unsqueeze(1), out) if grid._rg and state.grad else out


def _aligned(align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if "
            "the old behavior is desired. See the documentation of grid_sample for details.",
            stacklevel=3,
        )
    return bool(align_corners)


@op("F")
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Values of input (N, C, H, W) or (N, C, D, H, W) at the coordinates in [-1, 1] of grid (N, *out, 2 or 3) (torch docs:
    torch.nn.functional.grid_sample)."""
    if mode not in _MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    return _sample(input, grid, mode, padding_mode, _aligned(align_corners))


def _sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """`grid_sample` with numbered modes (torch docs: torch.nn.functional.grid_sample)."""
    return _sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


for _name in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"):
    op("torch", name=_name)(_sampler)


def _axis(like: Tensor, size: int, align: bool) -> Tensor:
    """`size` places from -1 to 1: the borders' (align) or the centres of cells."""
    if size <= 1:
        return like.new_zeros(size)
    steps = like.new_tensor(list(range(size))) * (2 / (size - 1)) - 1
    return steps if align else steps * ((size - 1) / size)


@op("F")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for grid_sample that theta (N, 2, 3) or (N, 3, 4) maps an output of `size` (N, C, *spatial) to (torch docs:
    torch.nn.functional.affine_grid)."""
    align = _aligned(align_corners)
    if not check_tensor(theta, "affine_grid", "theta").dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {tuple(size)}."
        )
    if theta.ndim != 3 or theta._a.shape[1:] != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {tuple(size)}. Got {theta.shape}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    spatial = tuple(size[2:])
    columns = []
    for i in range(n):  # x varies along the last dimension
        shape = [1] * n
        shape[n - 1 - i] = spatial[n - 1 - i]
        columns.append(_axis(theta.detach(), spatial[n - 1 - i], align).reshape(shape).expand(spatial))
    from tocha.ops.shape import stack

    base = stack([*columns, theta.new_ones(spatial)], -1).reshape(1, -1, n + 1)
    return base.matmul(theta.mT).reshape(size[0], *spatial, n)


@op("torch")
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """`affine_grid`."""
    return affine_grid(theta, size, align_corners)
