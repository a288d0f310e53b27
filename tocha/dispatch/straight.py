"""Calls with out= whose kernel writes to that memory at once (tocha.backends.native_out)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.backends import native, native_out
from tocha.dispatch.override import INTERPRETERS
from tocha.tensor import Tensor

#: Operators with such kernels; any other result is computed again by who asked.
_OPERATORS = frozenset((
    "cat", "concat", "concatenate", "cumprod", "cumsum", "gather", "index_select", "log_softmax", "softmax", "stack", "tril", "triu",
))  # fmt: skip
_ndarray = np.ndarray


def straight(name: str, function: Callable[..., Any], out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a kernel has written `function(*args, **kwargs)` to the memory of `out`, a plain tensor that shares none with an operand and
    has the result's type and shape; nothing is recorded. False with nothing changed."""
    a = out._a
    if name not in _OPERATORS or a.__class__ is not _ndarray or a.size < native.LEAST["copy"] or not a.flags.carray:
        return False
    if INTERPRETERS or out._vc is UNCOUNTED or (state.grad and out._rg):
        return False
    owner = a if a.base is None else a.base
    for operand in (*args, *kwargs.values()):
        for x in operand if operand.__class__ in (list, tuple) else (operand,):
            if isinstance(x, Tensor):
                b = x._a
                if x.__class__ is not Tensor or b.__class__ is not _ndarray or (state.grad and x._rg):
                    return False
                if (b if b.base is None else b.base) is owner or np.may_share_memory(a, b):
                    return False
    got = native_out.offered(a, function, args, kwargs)
    if got.__class__ is not Tensor or got._a is not a:
        return False
    version_of(out).bump(name)
    return True
