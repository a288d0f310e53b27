"""Where calls with out= want their result: kernels write it to that memory, so that it needn't be copied there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.backends.native import LEAST

_ndarray = np.ndarray


class _Wanted(threading.local):
    array: Any = None


_wanted = _Wanted()


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], outs: Sequence[Any]) -> Any:
    """`function(*args, **kwargs)`, whose result may already lie in `outs`: one array that shares no memory with an operand."""
    target = outs[0]._a if len(outs) == 1 else None
    if target.__class__ is not _ndarray or target.size < LEAST["copy"] or not target.flags.carray:
        return function(*args, **kwargs)
    for operand in (*args, *kwargs.values()):
        for x in operand if operand.__class__ in (list, tuple) else (operand,):
            a = getattr(x, "_a", None)
            if a is not None and (a.__class__ is not _ndarray or np.may_share_memory(a, target)):
                return function(*args, **kwargs)
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
