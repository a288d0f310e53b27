"""F.pad in all modes (torch docs: torch.nn.functional.pad)."""

from __future__ import annotations

from collections.abc import Sequence

from tocha.dispatch.prim import tie
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.arrange import constant_pad_nd
from tocha.prims.resample import resample
from tocha.prims.windows import Pairs
from tocha.tensor import Tensor


def _pairs(input: Tensor, pad: Sequence[int]) -> Pairs:
    """Pads in the order of dimensions from torch's flat list, which starts at the last one."""
    pairs = [(0, 0)] * input.ndim
    for i in range(len(pad) // 2):
        pairs[-1 - i] = (int(pad[2 * i]), int(pad[2 * i + 1]))
    return tuple(pairs)


def _mapped(input: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    n = len(pad) // 2
    if n not in (1, 2, 3) or input.ndim not in (n + 1, n + 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {input.ndim}D input tensor.\nSupported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    specs = []
    for size, (low, high) in zip(input._a.shape[-n:], _pairs(input, pad)[-n:], strict=True):
        most = max(low, high)
        if mode == "reflect" and most >= size:
            raise RuntimeError(
                f"pad: Padding size should be less than the corresponding input dimension, but got: padding ({low}, {high}) at a dimension of size "
                f"{size} of input {list(input.shape)}"
            )
        if mode == "circular" and most > size:
            raise RuntimeError(
                f"pad: Padding value causes wrapping around more than once: padding ({low}, {high}) at a dimension of size {size}"
            )
        out = size + low + high
        if mode == "circular":  # crop first: what is wrapped around comes from what is left
            size, low = size + min(low, 0) + min(high, 0), max(low, 0)
        if out <= 0 or (mode == "replicate" and size == 0):
            raise RuntimeError(
                f"pad: input of size {list(input.shape)} with padding ({low}, {high}) gives an output size of {out}: too small"
            )
        specs.append((mode, size, out, False, float(low)))
    if mode == "circular" and min(pad) < 0:
        input = constant_pad_nd(input, [min(p, 0) for p in pad])
    out = resample(input, specs=tuple(specs))
    return out if mode == "circular" else tie(out)


@op("F")
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements put before and after the last dimensions, pairs from the last dimension on: a constant, or input's own values by
    'reflect', 'replicate' or 'circular'; negative pads crop (torch docs: torch.nn.functional.pad)."""
    check_tensor(input, "pad")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    return _mapped(input, pad, mode)
