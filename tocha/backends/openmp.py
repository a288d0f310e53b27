"""torch.backends.openmp: whether OpenMP is used. It is not."""

from __future__ import annotations


def is_available() -> bool:
    """False: OpenMP isn't used."""
    return False
