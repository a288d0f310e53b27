"""Which element a loop touches: affine functions of the loop's indices.

A node's elements have positions in the order of its own layout (`own`, strides in elements). An access gives, for a loop over some
shape, the position as offset + Σ index · step. Views compose by arithmetic on accesses, so they cost nothing in a kernel.
"""

from __future__ import annotations

from typing import NamedTuple

from tocha.backends.meta import contiguous_strides

Shape = tuple[int, ...]


class Access(NamedTuple):
    """Position = offset + Σ steps[l] · index[l], and for what is `picked` (tocha._inductor.picks) further on by what an index tensor says."""

    steps: Shape
    offset: int
    picked: bool = False


class Axis(NamedTuple):
    """One dimension's index as a function of the loop's: offset + Σ steps[l] · index[l]."""

    steps: Shape
    offset: int


def contiguous(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    return contiguous_strides(shape, 1)


def axes(access: Access, loop: Shape, shape: Shape, own: Shape) -> list[Axis] | None:
    """The access as an index for each dimension of an array with strides `own`; None if it wraps around within a dimension."""
    order = sorted((d for d in range(len(shape)) if shape[d] > 1 and own[d] > 0), key=lambda d: -own[d])
    steps = [[0] * len(loop) for _ in shape]
    offsets, last = [0] * len(shape), [0] * len(shape)
    rest = access.offset
    for d in order:
        offsets[d] = min(rest // own[d], shape[d] - 1)
        rest -= offsets[d] * own[d]
    if rest:
        return None
    for n, (size, step) in enumerate(zip(loop, access.steps, strict=True)):
        if size == 1 or step == 0:
            continue
        rest = step
        for d in order:
            steps[d][n], rest = divmod(rest, own[d])
            last[d] += steps[d][n] * (size - 1)
        if rest:
            return None
    if any(offsets[d] + last[d] >= max(shape[d], 1) for d in range(len(shape))):
        return None
    return [Axis(tuple(s), o) for s, o in zip(steps, offsets, strict=True)]


def along(index: list[Axis], strides: Shape, loop: Shape, offset: int = 0) -> Access:
    """The access to memory with `strides` at these indices."""
    steps = tuple(sum(a.steps[n] * s for a, s in zip(index, strides, strict=True)) for n in range(len(loop)))
    return Access(steps, offset + sum(a.offset * s for a, s in zip(index, strides, strict=True)))


def broadcast(index: list[Axis], shape: Shape) -> list[Axis]:
    """The indices of an operand of `shape` that is broadcast to the indexed array."""
    lead = len(index) - len(shape)
    return [Axis((0,) * len(a.steps), 0) if n == 1 else a for a, n in zip(index[lead:], shape, strict=True)]
