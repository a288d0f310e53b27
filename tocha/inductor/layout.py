"""How several arrays of one broadcast shape are walked: dimensions in memory order, merged where all arrays allow it.

A flat layout has one dimension, and a kernel counts elements. Otherwise the last dimension is the inner loop, cut into blocks when there
are few rows, and a kernel counts blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Shape = tuple[int, ...]
_BLOCK = 8192  # elements of a long row that one unit takes
_FEW_ROWS = 64


class Layout(NamedTuple):
    """`shape` and `strides` (in elements, one tuple an array) after merging; `order` is the output's dimensions, outermost first."""

    shape: Shape
    strides: tuple[Shape, ...]
    order: Shape

    @property
    def inner(self) -> str:
        """For each array its step along the inner loop: 0, 1 or n. With the number of dimensions, this is what a kernel depends on."""
        return "".join("0" if s[-1] == 0 else "1" if s[-1] == 1 else "n" for s in self.strides)


def memory_order(shape: Shape, strides: list[Shape]) -> Shape:
    """Dimensions from the slowest to the fastest: those of the first array whose strides tell (torch docs: TensorIterator keeps
    the layout of dense operands); ties keep the given order."""
    order = list(range(len(shape)))
    for i in range(1, len(order)):
        for j in range(i, 0, -1):
            if _swap(order[j - 1], order[j], shape, strides):
                order[j - 1], order[j] = order[j], order[j - 1]
            else:
                break
    return tuple(order)


def _swap(outer: int, inner: int, shape: Shape, strides: list[Shape]) -> bool:
    if shape[outer] == 1 or shape[inner] == 1:
        return False
    for s in strides:
        if s[outer] == 0 or s[inner] == 0:
            continue
        if s[outer] != s[inner]:
            return s[outer] < s[inner]
    return False


def merge(shape: Shape, strides: list[Shape], order: Shape) -> Layout:
    """The layout of arrays with `strides` in elements, walked in `order`."""
    dims = [d for d in order if shape[d] != 1]
    if not dims:
        return Layout((1,), tuple((1,) for _ in strides), order)
    sizes = [shape[dims[0]]]
    steps = [[s[dims[0]]] for s in strides]
    for d in dims[1:]:
        n = shape[d]
        if all(mine[-1] == s[d] * n for mine, s in zip(steps, strides, strict=True)):
            sizes[-1] *= n
            for mine, s in zip(steps, strides, strict=True):
                mine[-1] = s[d]
        else:
            sizes.append(n)
            for mine, s in zip(steps, strides, strict=True):
                mine.append(s[d])
    return Layout(tuple(sizes), tuple(map(tuple, steps)), order)


def work(layout: Layout, grain: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What a kernel that isn't flat is told: units, grain in units, then the sizes in the order of `size_names`."""
    *outer, inner = layout.shape
    rows = 1
    for n in outer:
        rows *= n
    block = inner if rows >= _FEW_ROWS else min(inner, _BLOCK)
    blocks = -(-inner // block)
    sizes = [*outer, inner, block, blocks]
    for steps in layout.strides:
        sizes += steps
    return np.array([rows * blocks, max(1, grain // block), *sizes], np.int64)


def size_names(dimensions: int, arrays: int) -> list[str]:
    """The sizes of a kernel over `dimensions` > 1 dimensions."""
    names = [f"n{d}" for d in range(dimensions)] + ["block", "blocks"]
    return names + [f"s{a}_{d}" for a in range(arrays) for d in range(dimensions)]
