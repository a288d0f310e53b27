"""Where calls with out= want their result: kernels write it to that memory, so that it needn't be copied there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np


class _Wanted(threading.local):
    array: Any = None


_wanted = _Wanted()


def offered(target: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`, for whose result there is the array `target`."""
    _wanted.array = target
    try:
        return function(*args, **kwargs)
    finally:
        _wanted.array = None


def room(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array to put a result in that nothing fails after: the one that is wanted, if it is like that, else a new one."""
    target = _wanted.array
    if target is not None and target.shape == shape and target.dtype is dtype:
        _wanted.array = None
        return target
    return np.empty(shape, dtype)


def expects(shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether `room` would give an array that is wanted."""
    target = _wanted.array
    return target is not None and target.shape == shape and target.dtype is dtype
