"""Elements in another order or several times: flip, roll, rot90, repeat, tile, repeat_interleave, padding."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tocha.backends import namespace
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_fits, check_int, check_tensor, integer, shape_of, wrap_dim, wrap_dims
from tocha.prims import arrange as prims
from tocha.prims import indexing
from tocha.prims.move import unsafe_view
from tocha.tensor import Tensor, wrap

Shape = tuple[int, ...]


@op("torch method")
def flip(input: Tensor, *dims: Any) -> Tensor:
    """Reversed along dimensions, as a copy (torch docs: torch.flip)."""
    return prims.flip(input, dims=wrap_dims(shape_of(dims, "flip"), input.ndim, "flip", empty_is_all=False))


@op("torch method")
def fliplr(input: Tensor) -> Tensor:
    """Reversed along dimension 1 (torch docs: torch.fliplr)."""
    if check_tensor(input, "fliplr").ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return prims.flip(input, dims=(1,))


@op("torch method")
def flipud(input: Tensor) -> Tensor:
    """Reversed along dimension 0 (torch docs: torch.flipud)."""
    if check_tensor(input, "flipud").ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return prims.flip(input, dims=(0,))


@op("torch method")
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Shifted around along dimensions, or flattened without any (torch docs: torch.roll)."""
    steps = tuple(integer(s) for s in shifts) if isinstance(shifts, (tuple, list)) else (integer(shifts),)
    axes = () if dims is None else tuple(dims) if isinstance(dims, (tuple, list)) else (integer(dims),)
    if not steps:
        raise RuntimeError("`shifts` required")
    if not axes and len(steps) == 1:
        rolled = prims.roll(input.reshape(-1), shifts=steps, dims=(0,))
        return rolled if input.ndim == 1 else unsafe_view(rolled, shape=tuple(input._a.shape))
    if len(steps) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(steps)}, dims:{len(axes)}")
    if input.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return prims.roll(input, shifts=steps, dims=tuple(wrap_dim(d, input.ndim, "roll") for d in axes))


@op("torch method")
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Turned by k quarters in the plane of two dimensions (torch docs: torch.rot90)."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == input.ndim:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = (wrap_dim(d, input.ndim, "rot90") for d in dims)
    quarter = check_int(k, "rot90", "k") % 4
    if quarter == 1:
        return prims.flip(input.transpose(a, b), dims=(a,))
    if quarter == 2:
        return prims.flip(input, dims=tuple(sorted((a, b))))
    if quarter == 3:
        return prims.flip(input.transpose(a, b), dims=(b,))
    return input.clone()


@op("method")
def repeat(input: Tensor, *repeats: Any) -> Tensor:
    """The whole repeated along each dimension, new ones in front (torch docs: Tensor.repeat)."""
    counts = shape_of(repeats, "repeat")
    if len(counts) < input.ndim:
        raise RuntimeError(
            f"Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: {len(counts)} < {input.ndim}"
        )
    if any(n < 0 for n in counts):
        raise RuntimeError(f"repeat: Trying to create tensor with negative dimension: repeats {list(counts)}")
    return prims.repeat(input, repeats=counts)


@op("torch method")
def tile(input: Tensor, *dims: Any) -> Tensor:
    """`repeat` with ones put in front of too few counts (torch docs: torch.tile)."""
    counts = shape_of(dims, "tile")
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


@op("torch method")
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element (slice of `dim`) repeated, by one count or its own (torch docs: torch.repeat_interleave)."""
    if repeats is None:
        return _positions(input, output_size)
    if dim is None:
        input, dim = input.reshape(-1), 0
    lifted = input if input.ndim else input.reshape(1)
    d = wrap_dim(dim, input.ndim, "repeat_interleave")
    size = lifted._a.shape[d]
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError("repeats can not be negative")
        if output_size is not None and output_size != size * repeats:
            raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {size * repeats} but got {output_size}")
        shape = lifted._a.shape
        spread = lifted.unsqueeze(d + 1).expand((*shape[: d + 1], repeats, *shape[d + 1 :]))
        return spread.clone().reshape((*shape[:d], size * repeats, *shape[d + 1 :]))
    if isinstance(repeats, float):
        raise TypeError("repeat_interleave(): argument 'repeats' must be an int or a Tensor, not float")
    counts = repeats if isinstance(repeats, Tensor) else wrap(np.array(repeats, np.int64))
    if counts._a.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if counts._a.size == 1:
        counts = counts.reshape(1).expand(size)
    elif counts._a.shape[0] != size:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts._a.shape[0]} and "
            f"input.size({d}) = {size}"
        )
    return indexing.index(lifted, _positions(counts, output_size), dims=(d,))


def _positions(counts: Tensor, output_size: int | None) -> Tensor:
    """0, 1, … each as often as its count says."""
    if counts._a.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if counts._a.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"repeats has to be Long or Int tensor, got {counts.dtype.name}")
    xp = namespace(counts._a)
    if counts._a.size and int(counts._a.min()) < 0:
        raise RuntimeError("repeats can not be negative")
    if output_size is not None and int(counts._a.sum()) != output_size:
        raise RuntimeError(f"allocated size does not match required size: {output_size} and {int(counts._a.sum())}")
    own = xp.arange(counts._a.shape[0], dtype=xp.int64)
    return wrap(xp.repeat(own, counts._a).astype(counts._a.dtype, copy=False))


@op("torch")
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """`value` before and after the last dimensions, whose pairs come innermost first; negative counts crop (torch docs:
    torch.nn.functional.pad)."""
    full = _pad_pairs(tuple([int(n) for n in pad]), tuple(input._a.shape))
    if isinstance(value, Tensor):
        value = value.item()
    if value != 0 or value.__class__ not in (int, float):
        check_fits(input.dtype, value)
    return prims.constant_pad(input, pad=full, value=value)


@functools.lru_cache(1024)
def _pad_pairs(counts: Shape, shape: Shape) -> tuple[tuple[int, int], ...]:
    """The counts by dimension, for a tensor of `shape`."""
    if len(counts) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(counts)}")
    if len(counts) > 2 * len(shape):
        raise RuntimeError(
            f"Length of pad should be no more than twice the number of dimensions of the input. Pad length is {len(counts)} while "
            f"the input has {len(shape)} dimensions."
        )
    pairs = [(counts[i], counts[i + 1]) for i in range(0, len(counts), 2)]
    full = tuple(reversed(pairs + [(0, 0)] * (len(shape) - len(pairs))))
    for d, (n, (a, b)) in enumerate(zip(shape, full, strict=True)):
        if n + a + b < 0:
            raise RuntimeError(
                f"The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which is invalid. "
                f"Check dimension {d} of your input."
            )
    return full
