"""How many threads kernels use. Today that is BLAS's own pool, which NumPy loads."""

from __future__ import annotations

import os

_count = 0


def get_num_threads() -> int:
    """Threads used inside an operator (torch docs: torch.get_num_threads)."""
    return _count or int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def set_num_threads(int: int) -> None:
    """Set the threads used inside an operator; RuntimeError unless positive (torch docs: torch.set_num_threads)."""
    global _count
    if int <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    _count = int


def get_num_interop_threads() -> int:
    """Threads between operators: eager runs them one after the other."""
    return 1


def set_num_interop_threads(int: int) -> None:
    """Accepted for compatibility: there is no pool between operators."""
    if int <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
