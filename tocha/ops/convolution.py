"""conv1d-3d and their transposes with torch's signatures (torch docs: torch.nn.functional, convolution functions)."""

from __future__ import annotations

import functools
from typing import Any

from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.prims import convolution as prims
from tocha.prims.windows import out_sizes
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def spatial(value: Any, n: int, name: str, argument: str) -> Shape:
    """An int, or n of them (or one in a sequence), as n ints."""
    if isinstance(value, (tuple, list)):
        found = tuple(int(v) for v in value)
        if len(found) == 1:
            found *= n
        if len(found) != n:
            raise RuntimeError(
                f"{name}: expected {argument} to be a single integer value or a list of {n} values to match the spatial "
                f"dimensions, but got {argument}={list(value)}"
            )
        return found
    if isinstance(value, float) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{argument}' must be tuple of ints, not {type(value).__name__}")
    return (int(value),) * n


def _positive(name: str, values: Shape, argument: str) -> Shape:
    if min(values) <= 0:
        raise RuntimeError(f"{name}: non-positive {argument} is not supported, got {list(values)}")
    return values


def _check(
    name: str, input: Tensor, weight: Tensor, bias: Tensor | None, n: int, groups: int, transposed: bool
) -> tuple[Tensor, bool]:
    """The input with a batch dimension, and whether it was given one; every shape checked."""
    check_tensor(input, name)
    check_tensor(weight, name, "weight", 2)
    if groups <= 0:
        raise RuntimeError(f"{name}: non-positive groups is not supported, got {groups}")
    if input._a.dtype.kind == "b":
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")
    if weight._a.ndim != n + 2:
        raise RuntimeError(
            f"{name}: expected {n + 2}-dimensional weight, but got {weight.ndim}-dimensional weight of size {list(weight.shape)}"
        )
    if input._a.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(input.shape)}"
        )
    for label, x in (("weight", weight), ("bias", bias)):
        if x is not None and x._a.dtype is not input._a.dtype:
            raise RuntimeError(f"{name}: Input type ({input.dtype.name}) and {label} type ({x.dtype.name}) should be the same")
    batched = input._a.ndim == n + 2
    x = input if batched else input.unsqueeze(0)
    wanted = weight._a.shape[0] if transposed else weight._a.shape[1] * groups
    if x._a.shape[1] != wanted:
        raise RuntimeError(
            f"Given {'transposed=1' if transposed else f'groups={groups}'}, weight of size {list(weight.shape)}, expected "
            f"input{list(x.shape)} to have {wanted} channels, but got {x._a.shape[1]} channels instead ({name})"
        )
    if weight._a.shape[0] % groups or weight._a.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0 and divisible by {groups}, but got weight of "
            f"size {list(weight.shape)} instead ({name})"
        )
    outputs = weight._a.shape[1] * groups if transposed else weight._a.shape[0]
    if bias is not None and bias._a.shape != (outputs,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {outputs} elements, but got bias of size "
            f"{list(bias.shape)} instead ({name})"
        )
    return x, batched


def _pads(name: str, padding: Any, kernel: Shape, stride: Shape, dilation: Shape) -> Any:
    n = len(kernel)
    if isinstance(padding, str):
        if padding == "valid":
            return ((0, 0),) * n
        if padding != "same":
            raise RuntimeError(f"Invalid padding string: '{padding}' ({name} takes 'same' or 'valid')")
        if any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((t // 2, t - t // 2) for t in total)
    pads = spatial(padding, n, name, "padding")
    if min(pads) < 0:
        raise RuntimeError(f"{name}: negative padding is not supported, got {list(pads)}")
    return tuple((p, p) for p in pads)


def _conv(
    name: str, n: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    x, batched = _check(name, input, weight, bias, n, groups, False)
    given = name, x._a.shape[2:], tuple(weight._a.shape[2:]), stride, padding, dilation
    try:
        steps, pads, spread = _geometry_once(*given)
    except TypeError:  # a list
        steps, pads, spread = _geometry(*given)
    out = prims.conv(x, weight, bias, stride=steps, padding=pads, dilation=spread, groups=groups)
    return out if batched else out.squeeze(0)


def _geometry(name: str, size: Shape, kernel: Shape, stride: Any, padding: Any, dilation: Any) -> tuple[Shape, Any, Shape]:
    """Strides, pads and dilations for every dimension, checked."""
    n = len(kernel)
    steps = _positive(name, spatial(stride, n, name, "stride"), "stride")
    spread = _positive(name, spatial(dilation, n, name, "dilation"), "dilation")
    pads = _pads(name, padding, kernel, steps, spread)
    sizes = out_sizes(size, kernel, steps, spread, pads)
    if (sizes and min(sizes) <= 0) or (kernel and 0 in kernel):
        padded = " x ".join(str(m + low + high) for m, (low, high) in zip(size, pads, strict=True))
        reach = " x ".join(str(d * (k - 1) + 1) for k, d in zip(kernel, spread, strict=True))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({padded}). Kernel size: ({reach}). Kernel size can't be greater than actual input "
            f"size ({name})"
        )
    return steps, pads, spread


_geometry_once = functools.lru_cache(1024, typed=True)(_geometry)


def _transpose(
    name: str, n: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> Tensor:  # fmt: skip
    x, batched = _check(name, input, weight, bias, n, groups, True)
    steps = _positive(name, spatial(stride, n, name, "stride"), "stride")
    spread = _positive(name, spatial(dilation, n, name, "dilation"), "dilation")
    pads, extra = spatial(padding, n, name, "padding"), spatial(output_padding, n, name, "output_padding")
    kernel = weight._a.shape[2:]
    if min(pads) < 0 or 0 in kernel:
        raise RuntimeError(
            f"{name}: padding can't be negative nor a kernel empty, got padding {list(pads)}, kernel {list(kernel)}"
        )
    for e, s, d in zip(extra, steps, spread, strict=True):
        if e < 0 or (e >= s and e >= d):
            raise RuntimeError(
                f"{name}: output padding must be smaller than either stride or dilation, but got output_padding {list(extra)}, stride "
                f"{list(steps)}, dilation {list(spread)}"
            )
    size = tuple(
        (m - 1) * s - 2 * p + d * (k - 1) + e + 1
        for m, s, p, d, k, e in zip(x._a.shape[2:], steps, pads, spread, kernel, extra, strict=True)
    )
    if min(size) < 0 or (0 in x._a.shape[2:]):
        raise RuntimeError(
            f"Given input size per channel: {list(x.shape[2:])}. Calculated output size per channel: {list(size)}. Output size is too small ({name})"
        )
    out = prims.conv_input(
        x, weight, bias, size=size, stride=steps, padding=tuple((p, p) for p in pads), dilation=spread, groups=groups
    )
    return out if batched else out.squeeze(0)


def _register(n: int) -> None:
    name, shape = f"conv{n}d", "".join(f", {c}" for c in ("D", "H", "W")[3 - n :])

    def conv(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Tensor:
        return _conv(name, n, input, weight, bias, stride, padding, dilation, groups)

    def conv_transpose(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Tensor:  # fmt: skip
        return _transpose(f"conv_transpose{n}d", n, input, weight, bias, stride, padding, output_padding, groups, dilation)

    doc = f"Cross-correlation of (N, C{shape}), N optional, with (O, C/groups, *kernel) (torch docs: torch.nn.functional.{name})."
    op("torch F", name=name, doc=doc)(conv)
    doc = f"The gradient of {name} with respect to its input, as an operator (torch docs: torch.nn.functional.conv_transpose{n}d)."
    op("torch F", name=f"conv_transpose{n}d", doc=doc)(conv_transpose)


for _n in (1, 2, 3):
    _register(_n)


@op("torch")
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    """Any of the convolutions, chosen by input's rank and `transposed` (torch docs: aten::convolution)."""
    n = weight.ndim - 2
    if transposed:
        return _transpose("conv_transpose", n, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv("convolution", n, input, weight, bias, stride, padding, dilation, groups)


@op("torch F")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """1-d convolution of (time, batch, channels) with (kernel, C, O) (torch docs: torch.nn.functional.conv_tbc)."""
    out = _conv("conv_tbc", 1, input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1)
    return out.permute(2, 0, 1)
