"""torch.backends.mkl: whether MKL is used. It is not."""

from __future__ import annotations


def is_available() -> bool:
    """False: MKL isn't used."""
    return False
