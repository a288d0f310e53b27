"""Random values drawn by kernels straight into the memory of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.device import CPU
from tocha.dispatch.overlap import has_history
from tocha.dispatch.override import INTERPRETERS, NO_DISPATCH
from tocha.random import Generator, engine_for
from tocha.tensor import Tensor

# Draws `count` values of a NumPy type; `contiguous` tells whether the target is. The arrays of parameters that are given come last.
Draw = Callable[..., np.ndarray]


class ByKernel:
    """A draw that a kernel can do too, with the same values: `into(engine, array)` fills a dense array and returns True, or changes nothing."""

    __slots__ = ("draw", "into")

    def __init__(self, draw: Draw, into: Callable[[Any, Any], bool] | None) -> None:
        self.draw, self.into = draw, into

    def __call__(self, *args: Any) -> np.ndarray:
        return self.draw(*args)


def straight(target: Tensor, generator: Generator | None, name: str, draw: ByKernel, booked: bool = True) -> bool:
    """Whether a kernel drew into the target's memory: a tensor of its own array there, and nothing recorded."""
    a = target._a
    if draw.into is None or INTERPRETERS or a.__class__ is not np.ndarray or target.__class__ not in NO_DISPATCH:
        return False
    if target._vc is UNCOUNTED or (state.grad and has_history(target)) or not a.size or not a.flags.c_contiguous or not a.flags.writeable:
        return False
    if not draw.into(engine_for(generator, CPU, name), a):
        return False
    if booked:
        version_of(target).bump(name)
    return True
