"""torch.__config__: what this build is made of."""

from __future__ import annotations

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Versions of tocha and of what computes for it."""
    import platform

    import numpy

    from tocha.version import __version__

    return f"tocha {__version__} built with:\n  - Python {platform.python_version()}\n  - NumPy {numpy.__version__}\n"


def parallel_info() -> str:
    """Numbers of threads."""
    from tocha.threads import get_num_interop_threads, get_num_threads

    return (
        f"tocha parallel:\n\tget_num_threads() : {get_num_threads()}\n\tget_num_interop_threads() : {get_num_interop_threads()}\n"
    )
