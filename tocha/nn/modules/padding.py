"""Padding layers (torch docs: torch.nn, padding layers)."""

from __future__ import annotations

from typing import Any

from tocha.nn import functional as F
from tocha.nn.modules.module import Module
from tocha.nn.modules.utils import _ntuple, _pair, _quadruple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    """Pads the last `len(padding) / 2` dimensions; `padding` holds (before, after), last dimension first."""

    __constants__ = ["padding"]
    _mode: str
    _tuple: Any

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = type(self)._tuple(padding)

    def forward(self, input: Any) -> Any:
        """The padded input."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Any) -> None:
        raise NotImplementedError

    def forward(self, input: Any) -> Any:
        """The padded input."""
        self._check_input_dim(input)
        return super().forward(input)


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]
    _mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Any:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class CircularPad1d(_CircularPadNd):
    """Pad with the values of the other end: (N, C, L) or (C, L)."""

    _tuple = staticmethod(_pair)

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class CircularPad2d(_CircularPadNd):
    """Pad with the values of the other end: (N, C, H, W) or (C, H, W)."""

    _tuple = staticmethod(_quadruple)

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() not in (3, 4):
            raise ValueError(f"expected 3D or 4D input (got {input.dim()}D input)")


class CircularPad3d(_CircularPadNd):
    """Pad with the values of the other end: (N, C, D, H, W) or (C, D, H, W)."""

    _tuple = staticmethod(_ntuple(6))

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() not in (4, 5):
            raise ValueError(f"expected 4D or 5D input (got {input.dim()}D input)")


class ConstantPad1d(_ConstantPadNd):
    """Pad with `value`: (N, C, L) or (C, L)."""

    _tuple = staticmethod(_pair)


class ConstantPad2d(_ConstantPadNd):
    """Pad with `value`: (N, C, H, W) or (C, H, W)."""

    _tuple = staticmethod(_quadruple)


class ConstantPad3d(_ConstantPadNd):
    """Pad with `value`: (N, C, D, H, W) or (C, D, H, W)."""

    _tuple = staticmethod(_ntuple(6))


class ReflectionPad1d(_ReflectionPadNd):
    """Pad with the reflection at the border: (N, C, L) or (C, L)."""

    _tuple = staticmethod(_pair)


class ReflectionPad2d(_ReflectionPadNd):
    """Pad with the reflection at the border: (N, C, H, W) or (C, H, W)."""

    _tuple = staticmethod(_quadruple)


class ReflectionPad3d(_ReflectionPadNd):
    """Pad with the reflection at the border: (N, C, D, H, W) or (C, D, H, W)."""

    _tuple = staticmethod(_ntuple(6))


class ReplicationPad1d(_ReplicationPadNd):
    """Pad with the border value: (N, C, L) or (C, L)."""

    _tuple = staticmethod(_pair)


class ReplicationPad2d(_ReplicationPadNd):
    """Pad with the border value: (N, C, H, W) or (C, H, W)."""

    _tuple = staticmethod(_quadruple)


class ReplicationPad3d(_ReplicationPadNd):
    """Pad with the border value: (N, C, D, H, W) or (C, D, H, W)."""

    _tuple = staticmethod(_ntuple(6))


class ZeroPad1d(ConstantPad1d):
    """Pad with zeros: (N, C, L) or (C, L)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Pad with zeros: (N, C, H, W) or (C, H, W)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Pad with zeros: (N, C, D, H, W) or (C, D, H, W)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
