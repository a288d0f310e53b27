"""make_tensor: random tensors for tests (torch docs: torch.testing.make_tensor)."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.ops.arguments import shape_of
from tocha.ops.creation import make
from tocha.tensor import Tensor


def make_tensor(
    *shape: Any, dtype: dtypes.dtype, device: Any, low: float | None = None, high: float | None = None, requires_grad: bool = False,
    noncontiguous: bool = False, exclude_zero: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Uniform values in [low, high) of a dtype (defaults: [-9, 9), unsigned [0, 10), bool {0, 1})."""
    from tocha.device import device as Device

    size = shape_of(shape, "make_tensor")
    where = Device(device)
    if dtype is dtypes.bool_:
        low, high = 0, 2
    elif dtype.category == dtypes.INTEGRAL:
        low, high = (-9 if dtype.is_signed else 0) if low is None else low, (10 if high is None else high)
    else:
        low, high = -9.0 if low is None else low, 9.0 if high is None else high
    if low >= high:
        raise ValueError(f"make_tensor: `low` must be less than `high`, got {low} and {high}")
    wide = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    if dtype.is_complex:
        real = make((*wide, 2), dtype.to_real(), where).uniform_(low, high)
        out = real.view_as_complex()
    elif dtype.is_floating_point:
        work = dtypes.float32 if dtype in dtypes.HALF else dtype
        out = make(wide, work, where).uniform_(low, high).to(dtype)
    else:
        out = make(wide, dtypes.int64, where).random_(int(low), int(high)).to(dtype)
    if noncontiguous and size:
        out = out[..., ::2]
    if exclude_zero:
        out = out.masked_fill(out == 0, 1)
    return out.requires_grad_() if requires_grad else out
