"""torch.cuda.amp: the older names of `torch.amp` for CUDA (torch docs: torch.cuda.amp)."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import tocha
from tocha import amp as _amp
from tocha.dtypes import dtype as DType

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"`{old}` is deprecated. Please use `{new}` instead.", FutureWarning, stacklevel=3)


class autocast(_amp.autocast):
    """`torch.amp.autocast('cuda', ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = tocha.float16, cache_enabled: bool = True) -> None:
        _deprecated("torch.cuda.amp.autocast(args...)", "torch.amp.autocast('cuda', args...)")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """`torch.amp.GradScaler('cuda', ...)`."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        _deprecated("torch.cuda.amp.GradScaler(args...)", "torch.amp.GradScaler('cuda', args...)")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: DType | None = None) -> Any:
    """`torch.amp.custom_fwd(..., device_type='cuda')`."""
    _deprecated("torch.cuda.amp.custom_fwd(args...)", "torch.amp.custom_fwd(args..., device_type='cuda')")
    return functools.partial(_amp.custom_fwd, device_type="cuda")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """`torch.amp.custom_bwd(..., device_type='cuda')`."""
    _deprecated("torch.cuda.amp.custom_bwd(args...)", "torch.amp.custom_bwd(args..., device_type='cuda')")
    return _amp.custom_bwd(bwd, device_type="cuda")
