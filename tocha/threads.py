"""How many threads kernels use: BLAS's own pool, inside the OpenBLAS that NumPy's wheels carry, and whoever `follow`s it."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from collections.abc import Callable
from typing import Any

import numpy as np

# Names under which builds of OpenBLAS export the setter and the getter.
_PREFIXES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")


_followers: list[Callable[[int], Any]] = []
_without_blas = [os.cpu_count() or 1]


def follow(setter: Callable[[int], Any]) -> None:
    """Have `setter` called with the number of threads, now and whenever it changes."""
    setter(get_num_threads())
    _followers.append(setter)


@functools.cache
def _openblas() -> tuple[Any, Any] | None:
    """(get, set) of the number of OpenBLAS's threads, or None where NumPy was built on another BLAS."""
    folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        library = ctypes.CDLL(path)
        for prefix in _PREFIXES:
            get = getattr(library, prefix.format("get_num_threads"), None)
            put = getattr(library, prefix.format("set_num_threads"), None)
            if get is not None and put is not None:
                get.restype, put.argtypes = ctypes.c_int, [ctypes.c_int]
                return get, put
    return None


def get_num_threads() -> int:
    """Threads used inside an operator (torch docs: torch.get_num_threads)."""
    blas = _openblas()
    return int(blas[0]()) if blas is not None else _without_blas[0]


def set_num_threads(int: int) -> None:
    """Set the threads used inside an operator; RuntimeError unless positive (torch docs: torch.set_num_threads)."""
    if int <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    blas = _openblas()
    if blas is not None:
        blas[1](int)
    _without_blas[0] = int
    for setter in _followers:
        setter(int)


def get_num_interop_threads() -> int:
    """Threads between operators: eager runs them one after the other."""
    return 1


def set_num_interop_threads(int: int) -> None:
    """Accepted for compatibility: there is no pool between operators."""
    if int <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
