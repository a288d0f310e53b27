"""Kernels that move elements to or from places that index arrays name: gather, scatter, indexing, embeddings.

All are one loop nest over an index space, in which

    target[own place + Σ index * step]  op=  source[own place + Σ index * step] (* factor)

and every index array belongs to the target or to the source. The caller promises indices from 0 to below the extents.

Loops run in the order of the index space, so that of several values for one place the last stays, and sums have one order. A dimension on
which no index depends and along which places differ may be shared out to threads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tocha.inductor.layout import Shape, merge
from tocha.inductor.loop_ir import (
    Binary,
    Buffer,
    Const,
    Expr,
    Index,
    Kernel,
    Load,
    Loop,
    Size,
    Statement,
    Store,
    convert,
    verify,
)  # fmt: skip

OPS = ("put", "add", "mul", "min", "max")
_PIECE = 16384  # elements that a piece of work moves, about
_ZERO = Const(0, "index")


class Key(NamedTuple):
    """What a kernel depends on. `sides` has a letter for each index array: "t"(arget) or "s"(ource); `indices` are their types; `shared` is
    the dimension that is cut in pieces; `inner` are the arrays' steps (0, 1, n) along the last dimension; `serial` says that iterations of
    the last loop may meet at one place."""

    op: str
    type: str
    factor: bool
    sides: str
    indices: tuple[str, ...]
    dimensions: int
    shared: int
    inner: str
    serial: bool


class Plan(NamedTuple):
    """The part of the key that shapes decide, and the sizes."""

    dimensions: int
    shared: int
    inner: str
    serial: bool
    work: Any


def plan(shape: Shape, strides: list[Shape], free: Shape, steps: list[int], reads: bool) -> Plan:
    """`strides` of target, source, the factor if there is one and the indices, in elements, over an index space of `shape` without empty
    dimensions. `free` dimensions have their own places in the target; for what only `reads` at indices these are all."""
    sizes: list[int] = []
    moves: list[list[int]] = [[] for _ in strides]
    kinds: list[bool] = []
    d = 0
    while d < len(shape):  # dimensions of one kind side by side merge
        stop = d + 1
        while stop < len(shape) and (stop in free) == (d in free):
            stop += 1
        if math.prod(shape[d:stop]) > 1:
            part = merge(shape, strides, tuple(range(d, stop)))
            sizes += part.shape
            kinds += [reads or d in free] * len(part.shape)
            for mine, found in zip(moves, part.strides, strict=True):
                mine += found
        d = stop
    total = math.prod(sizes)
    candidates = [i for i, own in enumerate(kinds) if own]
    if candidates:
        shared = max(candidates, key=lambda i: sizes[i])
    else:  # one piece; a second, which is empty, has the GIL released
        shared, sizes, kinds = 0, [1, *sizes], [True, *kinds]
        moves = [[0, *m] for m in moves]
    block = max(1, _PIECE * sizes[shared] // total) if candidates else 1
    if shared == len(sizes) - 1:
        block = max(block, 64)
    units = -(-sizes[shared] // block) if candidates else 2 if total > _PIECE else 1
    inner = "".join("0" if m[-1] == 0 else "1" if m[-1] == 1 else "n" for m in moves)
    numbers = [units, 1, *sizes, block]
    for m in moves:
        numbers += m
    return Plan(len(sizes), shared, inner, not kinds[-1], np.array([*numbers, *steps], np.int64))


class _Nest:
    def __init__(self, key: Key) -> None:
        self.key = key
        self.indices = [Buffer(f"i{k}", t) for k, t in enumerate(key.indices)]
        factor = [Buffer("factor", key.type)] if key.factor else []
        self.arrays = [Buffer("target", key.type), Buffer("source", key.type), *factor, *self.indices]

    def place(self, array: Buffer) -> Expr:
        """The array's own part of an offset."""
        number, last = self.arrays.index(array), self.key.dimensions - 1
        kind = self.key.inner[number]
        found = Index(f"j{last}") * (Size(f"s{number}_{last}") if kind == "n" else Const(int(kind), "index"))
        for d in range(last):
            found = Index(f"j{d}") * Size(f"s{number}_{d}") + found
        return found

    def body(self) -> tuple[Statement, ...]:
        key = self.key
        places: dict[str, Expr] = {"t": self.place(self.arrays[0]), "s": self.place(self.arrays[1])}
        for k, (array, side) in enumerate(zip(self.indices, key.sides, strict=True)):
            at = convert(Load(array.name, self.place(array), array.type), "index")
            places[side] = at * Size(f"t{k}") + places[side]
        value: Expr = Load("source", places["s"], key.type)
        if key.factor:
            value = value * Load("factor", self.place(self.arrays[2]), key.type)
        if key.op != "put":
            value = Binary(key.op, Load("target", places["t"], key.type), value)
        step: tuple[Statement, ...] = (Store("target", places["t"], value),)
        gathers = any(kind != "0" for kind in key.inner[-len(self.indices) :])  # one by one, which CPUs do faster than as vectors
        for d in range(key.dimensions - 1, -1, -1):
            size, low, high = Size(f"n{d}"), _ZERO, Size(f"n{d}")
            if d == key.shared:
                low, high = Size("lo") * Size("block"), Binary("min", Size("hi") * Size("block"), size)  # type: ignore[assignment]
            last = d == key.dimensions - 1
            step = (Loop(f"j{d}", low, high, step, "vector" if last and not key.serial and not gathers else "serial"),)
        return step


def make(key: Key) -> Kernel:
    """The kernel: target, source, factor if there is one, the indices, and the plan's work."""
    nest = _Nest(key)
    names = [f"n{d}" for d in range(key.dimensions)] + ["block"]
    names += [f"s{a}_{d}" for a in range(len(nest.arrays)) for d in range(key.dimensions)]
    names += [f"t{k}" for k in range(len(key.indices))]
    kernel = Kernel(f"index_{key.op}", tuple(nest.arrays), (), tuple(map(Size, names)), nest.body())
    verify(kernel)
    return kernel
