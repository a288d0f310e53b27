"""Windows as columns and back, and rearrangements between channels and space (torch docs: torch.nn.functional, vision functions)."""

from __future__ import annotations

from typing import Any

from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.convolution import spatial
from tocha.prims import move
from tocha.prims.fold import from_columns, to_columns
from tocha.prims.windows import out_sizes
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def _read(name: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple[Shape, Shape, Shape, Shape]:
    kernel, spread = spatial(kernel_size, 2, name, "kernel_size"), spatial(dilation, 2, name, "dilation")
    pads, steps = spatial(padding, 2, name, "padding"), spatial(stride, 2, name, "stride")
    for label, values, low in (("kernel_size", kernel, 1), ("dilation", spread, 1), ("padding", pads, 0), ("stride", steps, 1)):
        if min(values) < low:
            raise RuntimeError(
                f"{name}: {label} should be {'greater than zero' if low else 'non-negative'}, but got {list(values)}"
            )
    return kernel, spread, pads, steps


@op("F")
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Sliding windows of images (N, C, H, W), N optional, as columns (N, C * kernel, windows) (torch docs:
    torch.nn.functional.unfold)."""
    kernel, spread, pads, steps = _read("unfold", kernel_size, dilation, padding, stride)
    shape = check_tensor(input, "unfold")._a.shape
    if len(shape) not in (3, 4) or 0 in shape[-3:]:
        raise RuntimeError(
            f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {list(shape)}"
        )
    x = input if len(shape) == 4 else input.unsqueeze(0)
    sizes = out_sizes(shape[-2:], kernel, steps, spread, tuple((p, p) for p in pads))
    if min(sizes) < 1:
        raise RuntimeError(
            f"unfold: Given input with spatial size {tuple(shape[-2:])}, kernel_size={kernel}, dilation={spread}, "
            f"padding={pads}, stride={steps}, calculated "
            f"shape of the array of sliding blocks as {sizes}, but its components must be at least one."
        )
    out = to_columns(x, kernel=kernel, dilation=spread, padding=pads, stride=steps)
    return out if len(shape) == 4 else out.squeeze(0)


@op("F")
def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Columns (N, C * kernel, windows), N optional, summed into images (N, C, *output_size) (torch docs: torch.nn.functional.fold)."""
    size = spatial(output_size, 2, "fold", "output_size")
    kernel, spread, pads, steps = _read("fold", kernel_size, dilation, padding, stride)
    shape = check_tensor(input, "fold")._a.shape
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(
            f"fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions, but got: {list(shape)}"
        )
    if shape[-2] % (kernel[0] * kernel[1]):
        raise RuntimeError(
            f"fold: Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)={shape[-2]} and "
            f"kernel_size={kernel}."
        )
    sizes = out_sizes(size, kernel, steps, spread, tuple((p, p) for p in pads))
    if min(sizes) < 1 or shape[-1] != sizes[0] * sizes[1]:
        raise RuntimeError(
            f"fold: Given output_size={size}, kernel_size={kernel}, dilation={spread}, padding={pads}, stride={steps}, expected size of input's "
            f"dimension 2 to match the calculated number of sliding blocks {sizes[0]} * {sizes[1]} = {sizes[0] * sizes[1]}, but got "
            f"input.size(2)={shape[-1]}."
        )
    x = input if len(shape) == 3 else input.unsqueeze(0)
    out = from_columns(x, size=size, kernel=kernel, dilation=spread, padding=pads, stride=steps)
    return out if len(shape) == 3 else out.squeeze(0)


def _needs_channels(name: str, input: Tensor, least: int = 3) -> None:
    if check_tensor(input, name).ndim < least:
        raise RuntimeError(
            f"{name} expects input to have at least {least} dimensions, but got input with {input.ndim} dimension(s)"
        )


@op("F torch")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r², H, W) -> (*, C, H r, W r) (Shi et al. 2016; torch docs: torch.nn.functional.pixel_shuffle)."""
    _needs_channels("pixel_shuffle", input)
    r = upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input._a.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            f"input.size(-3)={c} is not divisible by {r * r}"
        )
    n = len(lead)
    x = input.reshape((*lead, c // (r * r), r, r, h, w)).permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return move.clone(x, order="C").reshape((*lead, c // (r * r), h * r, w * r))


@op("F torch")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) -> (*, C r², H, W) (torch docs: torch.nn.functional.pixel_unshuffle)."""
    _needs_channels("pixel_unshuffle", input)
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input._a.shape
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but input of size {h}x{w} is not divisible by {r}"
        )
    n = len(lead)
    x = input.reshape((*lead, c, h // r, r, w // r, r)).permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return move.clone(x, order="C").reshape((*lead, c * r * r, h // r, w // r))


@op("F torch", alias=("native_channel_shuffle",))
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels (dimension 1) of several groups interleaved (Zhang et al. 2018; torch docs: torch.nn.functional.channel_shuffle)."""
    _needs_channels("channel_shuffle", input)
    shape = input._a.shape
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups.")
    x = input.reshape((shape[0], groups, shape[1] // groups, *shape[2:])).transpose(1, 2)
    return x.reshape(shape)
