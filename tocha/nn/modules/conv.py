"""Convolutions and transposed convolutions (torch docs: torch.nn, convolution layers)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.nn import functional as F
from tocha.nn import init
from tocha.nn.modules.module import Module
from tocha.nn.modules.utils import _ntuple, _reverse_repeat_tuple, _single
from tocha.nn.parameter import Parameter

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: arguments, parameters, their initialisation, repr."""

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_conv(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._padding_for_pad()
        kw = {"device": device, "dtype": dtype}
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = Parameter(tocha.empty((outer, inner // groups, *kernel_size), **kw))
        if bias:
            self.bias = Parameter(tocha.empty(out_channels, **kw))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _padding_for_pad(self) -> Any:
        """The padding in the order of `F.pad`, for padding modes other than zeros."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        sides = []
        for d, k in zip(reversed(self.dilation), reversed(self.kernel_size)):
            total = d * (k - 1) if self.padding == "same" else 0
            sides += [total // 2, total - total // 2]
        return sides

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly from ±1/√fan_in, whatever the weight's memory format is."""
        with tocha.no_grad():
            in_rows = self.weight.is_contiguous()
            weight = self.weight if in_rows else tocha.empty_like(self.weight, memory_format=tocha.contiguous_format)
            init.kaiming_uniform_(weight, a=math.sqrt(5))
            if not in_rows:
                self.weight.copy_(weight)
            if self.bias is not None:
                fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
                if fan_in != 0:
                    bound = 1 / math.sqrt(fan_in)
                    init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        n = len(self.kernel_size)
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * len(self.padding):
            s += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            s += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            s += f", output_padding={self.output_padding}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        if self.padding_mode != "zeros":
            s += f", padding_mode={self.padding_mode}"
        return s

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")

    def _padded(self, input: Any) -> tuple[Any, Any]:
        """The input and the padding left for the convolution: a mode other than zeros is applied here."""
        if self.padding_mode == "zeros":
            return input, self.padding
        pads = self._reversed_padding_repeated_twice
        return F.pad(input, pads, mode=self.padding_mode), (0,) * len(self.kernel_size)


def _check_conv(
    in_channels: int, out_channels: int, stride: tuple[int, ...], padding: Any, groups: int, padding_mode: str
) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {set(_PADDING_MODES)}, but got padding_mode='{padding_mode}'")


class _PlainConvNd(_ConvNd):
    """What Conv1d to Conv3d share; `_dims` is the number of spatial dimensions."""

    _dims: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        sizes = _ntuple(self._dims)
        super().__init__(
            in_channels,
            out_channels,
            sizes(kernel_size),
            sizes(stride),
            padding if isinstance(padding, str) else sizes(padding),
            sizes(dilation),
            False,
            sizes(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        input, padding = self._padded(input)
        return getattr(F, f"conv{self._dims}d")(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Any) -> Any:
        """The convolved input."""
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_PlainConvNd):
    """(N, C_in, L), or without N, to (N, C_out, …); weight (C_out, C_in/groups, *kernel_size), bias
    (C_out).

    `padding` may be "same" or "valid"; `padding_mode` zeros, reflect, replicate or circular.
    """

    _dims = 1


class Conv2d(_PlainConvNd):
    """(N, C_in, H, W), or without N, to (N, C_out, …); weight (C_out, C_in/groups, *kernel_size), bias
    (C_out).

    `padding` may be "same" or "valid"; `padding_mode` zeros, reflect, replicate or circular.
    """

    _dims = 2


class Conv3d(_PlainConvNd):
    """(N, C_in, D, H, W), or without N, to (N, C_out, …); weight (C_out, C_in/groups, *kernel_size), bias
    (C_out).

    `padding` may be "same" or "valid"; `padding_mode` zeros, reflect, replicate or circular.
    """

    _dims = 3


class _ConvTransposeNd(_ConvNd):
    """What ConvTranspose1d to ConvTranspose3d share; `_dims` is the number of spatial dimensions."""

    _dims: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = _ntuple(self._dims)
        super().__init__(
            in_channels,
            out_channels,
            sizes(kernel_size),
            sizes(stride),
            sizes(padding),
            sizes(dilation),
            True,
            sizes(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Any, output_size: list[int] | None = None) -> Any:
        """The result, of size `output_size` if the arguments admit it."""
        n = self._dims
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, n, self.dilation)
        convolve = getattr(F, f"conv_transpose{n}d")
        return convolve(input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation)

    def _output_padding(
        self,
        input: Any,
        output_size: list[int] | None,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:
        """The output padding that yields `output_size`, spatial or whole; ValueError if impossible."""
        n = num_spatial_dims
        if output_size is None:
            return _single(self.output_padding)
        non_spatial = 2 if input.dim() == n + 2 else 1
        if len(output_size) == non_spatial + n:
            output_size = output_size[non_spatial:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or "
                f"{non_spatial + n} "
                f"elements (got {len(output_size)})"
            )
        low = [
            (input.size(d + non_spatial) - 1) * stride[d]
            - 2 * padding[d]
            + (dilation[d] if dilation is not None else 1) * (kernel_size[d] - 1)
            + 1
            for d in range(n)
        ]
        high = [low[d] + stride[d] - 1 for d in range(n)]
        if any(not lo <= size <= hi for lo, size, hi in zip(low, output_size, high)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {low} to {high} "
                f"(for an input of {input.size()[2:]})"
            )
        return [size - lo for size, lo in zip(output_size, low)]


class ConvTranspose1d(_ConvTransposeNd):
    """(N, C_in, L), or without N, to (N, C_out, …); weight (C_in, C_out/groups, *kernel), bias (C_out)."""

    _dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """(N, C_in, H, W), or without N, to (N, C_out, …); weight (C_in, C_out/groups, *kernel), bias (C_out)."""

    _dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """(N, C_in, D, H, W), or without N, to (N, C_out, …); weight (C_in, C_out/groups, *kernel), bias (C_out)."""

    _dims = 3


from tocha.nn.modules._lazy_conv import (  # noqa: E402  (built on the classes above)
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
)
