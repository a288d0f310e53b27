"""Kernels of a compiled graph: one loop nest with several stores, and reductions of expressions.

Shapes and strides are constants of the kernel; dimensions are merged where all arrays allow it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from tocha._inductor.access import Access, Shape, contiguous
from tocha._inductor.nodes import Elements, Wraps, make_extern, own_of, reduction, shape_of, type_of
from tocha.fx import Node
from tocha.inductor import reduce
from tocha.inductor.layout import Layout, memory_order, merge
from tocha.inductor.loop_ir import (
    Binary,
    Buffer,
    Const,
    Convert,
    Expr,
    Index,
    Kernel,
    Loop,
    Size,
    Statement,
    Store,
    convert,
    verify,
)  # fmt: skip
from tocha.inductor.pointwise import Renamer, checked, grain_of

_BLOCK = 8192  # elements of a long row that one unit takes
_CHECK = 1024  # elements between looks at whether some need the exact computation
_FEW_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a loop's element goes: the memory of `buffer`, at `access`."""

    value: Node
    buffer: Node
    access: Access


@dataclasses.dataclass
class Built:
    """A kernel, what it is given (nodes whose arrays, written ones first), and how much work there is."""

    kernel: Kernel
    outputs: list[Node]
    inputs: list[tuple[Node, int]]  # with the offset, in elements, that the array starts at
    work: Any
    grain: int
    scratch: int = 0  # partial results of a reduction
    once: bool = False  # whether the element that a store is to replace is read by that iteration only, and before its last store


def build(name: str, loop: Shape, targets: Sequence[Target], has_memory: Callable[[Node, Access], bool]) -> Built:
    """The kernel that stores every target's value for all indices of `loop`. Raises Wraps, Unsupported."""
    elements = Elements(loop, has_memory)
    values = [elements.element(t.value, Access(own_of(t.value), 0)) for t in targets]
    hard, exact = elements.hard, list(values)
    if hard:
        elements.exact = True
        exact = [elements.element(t.value, Access(own_of(t.value), 0)) for t in targets]
    outputs = list(dict.fromkeys(t.buffer for t in targets))
    read = list(dict.fromkeys(node for node, _ in elements.arrays))
    names = {n: f"out{i}" for i, n in enumerate(outputs)} | {n: f"in{i}" for i, n in enumerate(read)}
    accesses = [*[t.access for t in targets], *[a for _, a in elements.arrays]]
    steps = [a.steps for a in accesses]
    order = memory_order(loop, steps)
    layout = merge(loop, steps, order)
    nest = _Nest(layout)
    places = [nest.position(i, a.offset) for i, a in enumerate(accesses)]
    renames: dict[Any, Any] = {}
    for k, (node, _) in enumerate(elements.arrays):
        renames[Index(f"at{k}")] = places[len(targets) + k]
        renames[f"x{k}"] = names[node]
    rename = Renamer(renames)
    stores = [
        (Store(names[t.buffer], places[i], stored(rename(v), t.buffer)), stored(rename(e), t.buffer))
        for i, (t, v, e) in enumerate(zip(targets, values, exact, strict=True))
    ]
    condition: Expr | None = None
    for h in hard:
        condition = rename(h) if condition is None else condition | rename(h)
    body = nest.loops(stores, condition)
    buffers = [Buffer(names[n], type_of(n)) for n in (*outputs, *read)]
    kernel = Kernel(name, tuple(buffers), (), (), body)
    verify(kernel)
    return Built(
        kernel, outputs, [(n, 0) for n in read], nest.units, max(1, grain_of(body) // nest.block), once=condition is None
    )


def stored(value: Expr, buffer: Node) -> Expr:
    type = type_of(buffer)
    if isinstance(value, Convert) and value.x.type == type:  # rounded already
        return value.x
    return convert(value, type)


def row_index(shape: Sequence[int], number: Expr) -> list[Expr]:
    """The index in each dimension of what has a number in row-major order."""
    found: list[Expr] = []
    for d in range(len(shape) - 1, -1, -1):
        size = Const(shape[d], "index")
        found.insert(0, number if d == 0 else Binary("rem", number, size))
        number = Binary("div", number, size)
    return found


class _Nest:
    """Loops over a merged layout with constant sizes. A unit of work is an element, or a block of a row."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        *outer, inner = layout.shape
        self.outer, self.inner = outer, inner
        rows = math.prod(outer)
        self.flat = not outer
        self.block = 1 if self.flat or not inner else inner if rows >= _FEW_ROWS else min(inner, _BLOCK)
        self.blocks = 1 if self.flat else -(-inner // self.block)
        self.units = inner if self.flat else rows * self.blocks
        self.element = Index("j")

    def position(self, array: int, offset: int) -> Expr:
        *outer, last = self.layout.strides[array]
        found: Expr = self.element * last if last != 1 else self.element
        if last == 0:
            found = Const(0, "index")
        for place, step in zip(self._rows(), outer, strict=True):
            if step:
                found = place * step + found
        return found + offset if offset else found

    def _rows(self) -> list[Expr]:
        if self.flat:
            return []
        unit = Index("unit")
        return row_index(self.outer, Binary("div", unit, Const(self.blocks, "index")) if self.blocks > 1 else unit)

    def loops(self, stores: list[tuple[Store, Expr]], hard: Expr | None) -> tuple[Statement, ...]:
        start: Expr = Size("lo")
        stop: Expr = Size("hi")
        if self.flat:
            if hard is None:
                return (Loop("j", start, stop, tuple(s for s, _ in stores), "vector"),)
            low = start + Index("check") * _CHECK
            count = Binary("div", stop - start + (_CHECK - 1), Const(_CHECK, "index"))
            return (
                Loop(
                    "check", Const(0, "index"), count, checked(self.element, low, Binary("min", low + _CHECK, stop), stores, hard)
                ),
            )
        first: Expr = Const(0, "index")
        last: Expr = Const(self.inner, "index")
        if self.blocks > 1:
            first = Binary("rem", Index("unit"), Const(self.blocks, "index")) * self.block
            last = Binary("min", first + self.block, last)
        body = (
            (Loop("j", first, last, tuple(s for s, _ in stores), "vector"),)
            if hard is None
            else checked(self.element, first, last, stores, hard)
        )
        return (Loop("unit", start, stop, body),)


def build_reduction(name: str, node: Node, has_memory: Callable[[Node, Access], bool]) -> Built:
    """The kernel of a reduction whose elements are computed where they are needed. Raises Wraps where an eager kernel serves as well."""
    x = node.args[0]
    loop = shape_of(x)
    kind = reduction(node)
    assert kind is not None
    dims = node.kwargs.get("dim")
    dims = tuple(range(len(loop))) if dims is None else tuple(dims)
    elements = Elements(loop, has_memory)
    value = elements.element(x, Access(own_of(x), 0))
    kept = [1 if d in dims else n for d, n in enumerate(loop)]
    out = tuple(0 if d in dims else s for d, s in enumerate(contiguous(tuple(kept))))
    steps = [a.steps for _, a in elements.arrays]
    if elements.picks:
        raise Wraps(elements.picks[0])
    plan = reduce.plan(loop, steps, out, dims) if steps and not elements.hard else None
    if plan is None:
        make_extern(node)
        raise Wraps(node)
    fused = kind._replace(element=lambda *loaded: kind.element(_with_loads(value, elements, loaded)))
    kernel = reduce.make_kind(name, fused, tuple(type_of(n) for n, _ in elements.arrays), None, type_of(node), plan.key)
    inputs = [(n, a.offset) for n, a in elements.arrays]
    return Built(kernel, [node], inputs, plan.work, 1, plan.partial)


def _with_loads(value: Expr, elements: Elements, loaded: tuple[Expr, ...]) -> Expr:
    """The expression with loaded values in place of its loads."""
    replaced = {elements.element(node, access): loaded[k] for (node, access), k in elements.arrays.items()}
    return Renamer(replaced)(value)
