"""Reductions: sum, mean, max, var, norm, any, … over given dimensions."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_dtype, wrap_dims
from tocha.prims import reduce as prims
from tocha.tensor import Tensor


@op("torch method out")
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum over all or the given dimensions; integers sum to int64 (torch docs: torch.sum)."""
    found = check_dtype(dtype, "sum") or (dtypes.int64 if input._a.dtype.kind in "biu" else None)
    if found is not None and found.np is not input._a.dtype:
        input = input.to(found)
    return prims.sum_(input, dim=wrap_dims(dim, input._a.ndim, "sum"), keepdim=keepdim)
