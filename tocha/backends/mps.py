"""torch.backends.mps: whether Metal is used. It is not."""

from __future__ import annotations


def is_available() -> bool:
    """False: Metal isn't used."""
    return False


def is_built() -> bool:
    """False: there is no Metal backend."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: there is no Metal backend."""
    return False
