"""Kernels of scans (running sums and products) with the stores before and after them.

Rows go a stretch at a time: elements are computed side by side into a small array beside the stack, the chains of several rows run over it one
after the other, and what is made of the totals is computed side by side again. Where a scan isn't along the rows of memory, columns are scanned
side by side. Each chain has the order and the types of `tocha.inductor.scan`, and so its bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tocha._inductor.access import Access, Shape
from tocha._inductor.kernels import Built, Target, row_index, stored
from tocha._inductor.nodes import SCANS, Elements, Wraps, make_extern, own_of, prim_name, rounded, type_of
from tocha.fx import Node
from tocha.inductor.layout import memory_order, merge
from tocha.inductor.loop_ir import (
    HALVES,
    Assign,
    Binary,
    Buffer,
    Const,
    Declare,
    Expr,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Prefetch,
    Read,
    Size,
    Statement,
    Store,
    convert,
    verify,
    walk,
)  # fmt: skip
from tocha.inductor.pointwise import Renamer
from tocha.inductor.reduce import START
from tocha.inductor.scan import rows_at_once

_STRETCH = 256  # elements of a row
_PIECE = 16384  # elements worth a thread's while
_LINE_SIZE = 16  # elements for which memory is asked at once
_COLUMNS = 2048  # the most of a unit: what is read along memory
_FEW = 8  # columns that are better taken for rows
_ZERO, _FIRST, _LINE = Const(0, "index"), Index("first"), Index("line")


def build_scan(
    name: str, loop: Shape, scan: Node, targets: Sequence[Target], has_memory: Callable[[Node, Access], bool]
) -> Built:
    """The kernel that scans an expression and stores every target's value for all indices of `loop`. Raises Wraps."""
    kind, type = SCANS[prim_name(scan)], type_of(scan)
    held = "f32" if type in HALVES else type
    wide = "f64" if held == "f32" else held
    total = Read("result", held)  # stands for what the chain has reached
    here = rounded(total, type)
    elements = Elements(loop, has_memory, lambda n, a: here if n is scan and not has_memory(n, a) else None)
    element = elements.element(scan.args[0], Access(own_of(scan.args[0]), 0))
    values = [elements.element(t.value, Access(own_of(t.value), 0)) for t in targets]
    if elements.hard:
        make_extern(scan)
        raise Wraps(scan)
    outputs = list(dict.fromkeys(t.buffer for t in targets))
    read = list(dict.fromkeys(node for node, _ in elements.arrays))
    names = {n: f"out{i}" for i, n in enumerate(outputs)} | {n: f"in{i}" for i, n in enumerate(read)}
    space = _Space(loop, scan, [*[t.access for t in targets], *[a for _, a in elements.arrays]])
    places = space.places()
    rename = Renamer(
        {Index(f"at{k}"): places[len(targets) + k] for k in elements.arrays.values()}
        | {f"x{k}": names[n] for (n, _), k in elements.arrays.items()}
    )
    stores = [Store(names[t.buffer], places[i], stored(rename(v), t.buffer)) for i, (t, v) in enumerate(zip(targets, values, strict=True))]
    after = [s for s in stores if total in set(walk([s]))]
    before = [s for s in stores if s not in after]
    body = (space.in_columns if space.columns else space.in_rows)(kind, rename(element), wide, total, before, after)
    buffers = [Buffer(names[n], type_of(n)) for n in (*outputs, *read)]
    kernel = Kernel(name, tuple(buffers), (), (), (Loop("unit", Size("lo"), Size("hi"), body),))
    verify(kernel)
    grain = max(1, _PIECE // (space.n * space.lines))
    once = not before or not any(isinstance(e, Load) for e in walk(after))
    return Built(kernel, outputs, [(n, 0) for n in read], space.units, grain, once=once)


class _Space:
    """A loop's indices: those of outer dimensions, the `line` (a row, or a column) and the place on it, which is counted from its end where
    sums are `reversed`. A unit of work is some `lines` side by side."""

    def __init__(self, loop: Shape, scan: Node, accesses: Sequence[Access]) -> None:
        dim = scan.kwargs["dim"]
        self.n, self.reversed, self.accesses, self.dim = loop[dim], prim_name(scan).startswith("reversed"), accesses, dim
        rest = loop[:dim] + loop[dim + 1 :]
        steps = [a.steps[:dim] + a.steps[dim + 1 :] for a in accesses]
        self.layout = merge(rest, steps, memory_order(rest, steps))
        *self.outer, self.inner = self.layout.shape
        self.columns = own_of(scan)[dim] != 1 and self.inner >= _FEW
        most = min(_COLUMNS, max(64, math.prod(rest) // 256 * 64)) if self.columns else rows_at_once(SCANS[prim_name(scan)], type_of(scan))
        self.lines = min(self.inner, most)
        self.blocks = -(-self.inner // self.lines)
        self.units = math.prod(self.outer) * self.blocks
        self.start: Expr = Binary("rem", Index("unit"), Const(self.blocks, "index")) * self.lines
        self.width = Binary("min", self.inner - self.start, Const(self.lines, "index"))

    def places(self) -> list[Expr]:
        """Where each access is at the indices `first` + `place` and `line`."""
        indices = row_index(self.outer, Binary("div", Index("unit"), Const(self.blocks, "index")))
        along = _FIRST + Index("place")
        indices += [self.start + _LINE, self.n - 1 - along if self.reversed else along]
        found: list[Expr] = []
        for access, steps in zip(self.accesses, self.layout.strides, strict=True):
            place: Expr = Const(access.offset, "index")
            for index, step in zip(indices, (*steps, access.steps[self.dim]), strict=True):
                place = place + index * step if step else place
            found.append(place)
        return found

    def in_rows(
        self, kind: str, element: Expr, wide: str, total: Read, before: list[Store], after: list[Store]
    ) -> tuple[Statement, ...]:
        line, other, place, later = Index("row"), Index("row_again"), Index("j"), Index("again")
        begin = Renamer({_FIRST: Index("stretch") * _STRETCH, _LINE: line, Index("place"): place})
        end = Renamer({
            _FIRST: Index("stretch") * _STRETCH, _LINE: other, Index("place"): later,
            total: convert(Load("totals", other * _STRETCH + later, wide), total.type),
        })  # fmt: skip
        width = Binary("min", self.n - Index("stretch") * _STRETCH, Const(_STRETCH, "index"))
        computed = (Store("kept", line * _STRETCH + place, begin(element)), *map(begin, before))
        starts: list[Statement] = [Local("kept", total.type, _STRETCH * self.lines), Local("totals", wide, _STRETCH * self.lines)]
        chains: list[list[Statement]] = [[], []]
        for r in range(self.lines):  # rows that aren't there run over what the array happens to hold
            name, at = f"total{r}", Index("k") + r * _STRETCH
            now = Read(name, wide)
            starts += [Declare(name, wide, START[kind](wide)), Assign(name, START[kind](wide))]
            chains[0].append(Assign(name, Binary(kind, now, convert(Load("kept", at, total.type), wide))))
            chains[1].append(Store("totals", at, now))
        piece, coming = Index("piece") * _LINE_SIZE, (Index("stretch") + 1) * _STRETCH
        ahead: list[Statement] = []
        for r in range(self.lines):
            there = Renamer({_FIRST: coming, _LINE: Const(r, "index"), Index("place"): piece})
            ahead += [Prefetch(e.buffer, there(e.offset), e.type) for e in walk([element]) if isinstance(e, Load)]
        stretch = (
            Loop("row", _ZERO, self.width, (Loop("j", _ZERO, width, computed, "vector"),)),
            Loop("piece", _ZERO, Binary("div", width + (_LINE_SIZE - 1), Const(_LINE_SIZE, "index")), (
                *ahead, Loop("k", piece, Binary("min", piece + _LINE_SIZE, width), (*chains[0], *chains[1])),
            )),
            Loop("row_again", _ZERO, self.width, (Loop("again", _ZERO, width, tuple(map(end, after)), "vector"),)),
        )
        return (*starts, Loop("stretch", _ZERO, Const(-(-self.n // _STRETCH), "index"), stretch))

    def in_columns(
        self, kind: str, element: Expr, wide: str, total: Read, before: list[Store], after: list[Store]
    ) -> tuple[Statement, ...]:
        z, column, later = Index("z"), Index("j"), Index("again")
        here = {_FIRST: _ZERO, Index("place"): Index("k")}
        begin, end = Renamer(here | {_LINE: column}), Renamer(here | {_LINE: later})
        computed = (Store("kept", column, begin(element)), *map(begin, before))
        reached = Binary(kind, Load("total", later, wide), convert(Load("kept", later, total.type), wide))
        chain = (
            Declare("reached", wide, START[kind](wide)), Assign("reached", reached), Store("total", later, Read("reached", wide)),
            Declare(total.name, total.type, START[kind](total.type)), Assign(total.name, convert(Read("reached", wide), total.type)),
            *map(end, after),
        )  # fmt: skip
        return (
            Local("kept", total.type, _COLUMNS), Local("total", wide, _COLUMNS),
            Loop("z", _ZERO, self.width, (Store("total", z, START[kind](wide)),), "vector"),
            Loop("k", _ZERO, Const(self.n, "index"), (
                Loop("j", _ZERO, self.width, computed, "vector"), Loop("again", _ZERO, self.width, chain, "vector"),
            )),
        )  # fmt: skip
