"""torch.backends.cudnn: the flags programs set. Kernels don't come from cuDNN, so that none of them changes a result: what
CUDA computes is deterministic but for sums by atomic operations (index_add, scatter_add and the like)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """False: cuDNN isn't used."""
    return False


def version() -> int | None:
    """None: cuDNN isn't used."""
    return None


def is_acceptable(tensor: object) -> bool:
    """False: cuDNN isn't used."""
    return False


def set_flags(
    _enabled: bool | None = None, _benchmark: bool | None = None, _benchmark_limit: int | None = None, _deterministic: bool | None = None,
    _allow_tf32: bool | None = None, _fp32_precision: str | None = None,
) -> tuple[bool, bool, int, bool, bool, str]:  # fmt: skip
    """Set those that aren't None; the old values."""
    held = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision)
    globals().update({name: value for name, value in zip(names, given, strict=True) if value is not None})
    return held


@contextlib.contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False, allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:  # fmt: skip
    """A context with these flags."""
    held = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    try:
        yield
    finally:
        set_flags(*held)
