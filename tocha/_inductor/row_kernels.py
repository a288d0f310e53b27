"""Kernels of rows: reductions over a loop's last dimensions, with stores before, between and after them, one row at a time.

A row is gone over once for each *level*: level 0 computes what needs no reduction, level 1 what needs those of level 0, and so on. What is
expensive and wanted at several levels is kept in a small array beside the stack; what is the same along the row is computed before it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tocha._inductor.access import Access, Shape
from tocha._inductor.kernels import Built, Target, row_index, stored
from tocha._inductor.nodes import Elements, is_cheap, kind_of, own_of, reduction, rounded, shape_of, type_of
from tocha.fx import Node
from tocha.inductor import reduce
from tocha.inductor.layout import memory_order, merge
from tocha.inductor.loop_ir import (
    BITS,
    Accumulate,
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
    Param,
    Read,
    Size,
    Statement,
    Store,
    convert,
    verify,
    walk,
)  # fmt: skip
from tocha.inductor.pointwise import Renamer

_BLOCK = 1024  # elements over which float32 is summed
_PIECE = 16384  # elements worth a thread's while
_KEPT = 32768  # bytes of a row of values that are kept for later levels; twice that in all
_ZERO = Const(0, "index")


class Alone(Exception):
    """Reductions that can't be computed a row at a time; each needs a kernel of its own."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)


def place_of(node: Node, loop: Shape, inner: int) -> Access:
    """Where a node's element is for an index of the loop: its own, or the row's if it has one for each row."""
    if shape_of(node) == loop:
        return Access(own_of(node), 0)
    return Access((*own_of(node)[: len(loop) - inner], *(0,) * inner), 0)


def same_place(a: Access, b: Access, loop: Shape) -> bool:
    """Whether two accesses are one; steps along dimensions of one element don't count."""
    if a.picked or b.picked:
        return False
    return a.offset == b.offset and all(n == 1 or x == y for n, x, y in zip(loop, a.steps, b.steps, strict=True))


@dataclasses.dataclass
class _Sum:
    """A reduction: the elements it accumulates at its level, and its result, which later levels read."""

    node: Node
    kind: reduce.Kind
    name: str
    element: Expr
    level: int
    value: Expr


def build_rows(
    name: str,
    loop: Shape,
    inner: int,
    targets: Sequence[Target],
    reductions: Sequence[Node],
    wanted: Sequence[Node],
    has_memory: Callable[[Node, Access], bool],
) -> Built:
    """The kernel of a loop whose last `inner` dimensions are a row: it stores `targets`, and those of `reductions` that are `wanted`.

    Raises Wraps, Alone."""
    return _Rows(loop, inner, targets, reductions, wanted, has_memory).built(name)


class _Rows:
    def __init__(
        self,
        loop: Shape,
        inner: int,
        targets: Sequence[Target],
        reductions: Sequence[Node],
        wanted: Sequence[Node],
        has_memory: Callable[[Node, Access], bool],
    ) -> None:
        self.loop, self.inner, self.kept = loop, inner, len(loop) - inner
        self.reductions, self.wanted = reductions, wanted
        self.elements = Elements(loop, has_memory, self._given)
        self.sums: dict[Node, _Sum] = {}
        self.levels: dict[str, int] = {}
        self.full, self.row = self._split(targets)
        for node in reductions:
            self._sum(node)
        self.statements: list[Statement] = []
        self.lets: dict[Expr, Expr] = {}

    def _split(self, targets: Sequence[Target]) -> tuple[list[tuple[Target, Expr]], list[tuple[Target, Expr]]]:
        full: list[tuple[Target, Expr]] = []
        row: list[tuple[Target, Expr]] = []
        for t in targets:
            found = self.elements.element(t.value, place_of(t.value, self.loop, self.inner))
            (full if shape_of(t.value) == self.loop else row).append((t, found))
        return full, row

    # ---- values

    def _given(self, node: Node, access: Access) -> Expr | None:
        if node not in self.reductions:
            return None
        if not same_place(access, place_of(node, self.loop, self.inner), self.loop):
            raise Alone(self.reductions)
        return self._sum(node).value

    def _sum(self, node: Node) -> _Sum:
        found = self.sums.get(node)
        if found is None:
            x, kind = node.args[0], reduction(node)
            assert kind is not None
            element = kind.element(self.elements.element(x, place_of(x, self.loop, self.inner)))
            name, type = f"sum{len(self.sums)}", type_of(node)
            level = self.level(element)
            self.levels[name] = level
            value = Read(name, "f32" if type in ("f16", "bf16") else type)
            found = self.sums[node] = _Sum(node, kind, name, element, level, value)
        return found

    def level(self, value: Expr) -> int:
        """How many times the row must have been gone over before a value is known."""
        return max((self.levels[e.name] + 1 for e in walk([value]) if isinstance(e, Read) and e.name in self.levels), default=0)

    # ---- the kernel

    def built(self, name: str) -> Built:
        if self.elements.hard:
            raise Alone(self.reductions)
        written = list(dict.fromkeys([*[t.buffer for t, _ in (*self.full, *self.row)], *self.wanted]))
        read = list(dict.fromkeys(node for node, _ in self.elements.arrays))
        names = {n: f"out{i}" for i, n in enumerate(written)} | {n: f"in{i}" for i, n in enumerate(read)}
        full_places, row_places, sum_places, loads = self._places()
        renames: dict[Any, Any] = {}
        for (node, _), k in self.elements.arrays.items():
            renames[Index(f"at{k}")], renames[f"x{k}"] = loads[k], names[node]
        rename = Renamer(renames)
        levels: dict[int, list[Statement]] = {}
        for (t, value), at in zip(self.full, full_places, strict=True):
            levels.setdefault(self.level(value), []).append(Store(names[t.buffer], at, stored(rename(value), t.buffer)))
        sums = list(self.sums.values())
        for s in sums:
            levels.setdefault(s.level, []).append(Accumulate(s.kind.op, f"{s.name}_small", rename(s.element)))
        self._share(levels, rename)
        ends: dict[int, list[Statement]] = {}
        for (t, value), at in zip(self.row, row_places, strict=True):
            ends.setdefault(self.level(value), []).append(Store(names[t.buffer], at, stored(rename(value), t.buffer)))
        for s, at in zip(sums, sum_places, strict=True):
            if s.node in self.wanted:
                ends.setdefault(s.level + 1, []).append(Store(names[s.node], at, stored(s.value, s.node)))
        for level in range(max([*levels, *ends], default=0) + 1):
            self.statements += ends.get(level, ())
            if level in levels:
                self._go_over(level, levels[level], [s for s in sums if s.level == level])
        rows = math.prod(self.loop[: self.kept])
        body = (Loop("unit", Size("lo"), Size("hi"), tuple(self.statements)),)
        kernel = Kernel(name, tuple(Buffer(names[n], type_of(n)) for n in (*written, *read)), (), (), body)
        verify(kernel)
        return Built(kernel, written, [(n, 0) for n in read], rows, max(1, _PIECE // self.length))

    def _places(self) -> tuple[list[Expr], list[Expr], list[Expr], list[Expr]]:
        """Positions of stored elements, of rows' stored values, of reductions, and of loads; the element's index is j."""
        row_places = [place_of(t.value, self.loop, self.inner) for t, _ in self.row]
        sum_places = [place_of(s.node, self.loop, self.inner) for s in self.sums.values()]
        accesses = [*[t.access for t, _ in self.full], *row_places, *sum_places, *[a for _, a in self.elements.arrays]]
        order = memory_order(self.loop[: self.kept], [a.steps[: self.kept] for a in accesses])
        outer = merge(self.loop[: self.kept], [a.steps[: self.kept] for a in accesses], order)
        last = merge(self.loop[self.kept :], [a.steps[self.kept :] for a in accesses], tuple(range(self.inner)))
        if len(last.shape) != 1 or any(s[0] not in (0, 1) for s in last.strides):
            raise Alone(self.reductions)
        self.length = last.shape[0]
        rows = row_index(outer.shape, Index("unit"))
        found: list[Expr] = []
        for number, access in enumerate(accesses):
            place: Expr = Const(access.offset, "index")
            for index, step in zip(rows, outer.strides[number], strict=True):
                place = place + index * step
            found.append(place + Index("j") if last.strides[number][0] and self.length > 1 else place)
        a, b, c = len(self.full), len(self.full) + len(row_places), len(self.full) + len(row_places) + len(sum_places)
        return found[:a], found[a:b], found[b:c], found[c:]

    def _share(self, levels: dict[int, list[Statement]], rename: Callable[[Expr], Expr]) -> None:
        """Keep expensive values that several levels want."""
        candidates = [
            rename(e)
            for (node, _, _), e in self.elements.known.items()
            if kind_of(node) == "loop" and not is_cheap(node) and not isinstance(e, (Const, Read, Load))
        ]
        room, taken = 2 * _KEPT, set[str]()
        for number, value in enumerate(reversed(candidates)):
            size = self.length * BITS[value.type] // 8
            if value.type == "bool" or not _varying([value], Index("j"))[value]:
                continue
            used = sorted(level for level, statements in levels.items() if value in set(walk(statements)))
            if len(used) < 2:
                continue
            place = self._spare(levels[used[-1]], value, taken)
            if place is None and size > min(room, _KEPT):
                continue
            if place is None:
                room -= size
                place = Load(f"kept{number}", Index("j"), value.type)
                self.statements.append(Local(place.buffer, value.type, 1 << (self.length - 1).bit_length()))
            taken.add(place.buffer)
            replace = Renamer({value: place})
            for level in used[1:]:
                levels[level] = [replace(s) for s in levels[level]]
            levels[used[0]].append(Store(place.buffer, place.offset, value))

    @staticmethod
    def _spare(last: list[Statement], value: Expr, taken: set[str]) -> Load | None:
        """The place of a result that is computed from the value, last of all: until then the value is kept there."""
        readers = [s for s in last if value in set(walk([s]))]
        s = readers[0]
        if len(readers) > 1 or not isinstance(s, Store) or s.buffer in taken or s.value.type != value.type:
            return None
        return Load(s.buffer, s.offset, value.type)

    def _go_over(self, level: int, statements: list[Statement], sums: list[_Sum]) -> None:
        j = Index(f"j{level}")
        renamed = [Renamer({Index("j"): j})(s) for s in statements]
        varying, known = _varying(renamed, j), dict[Expr, Expr]()
        body = [
            s.__class__(*[self._fixed(v, varying, known) if isinstance(v, Expr) else v for v in s.__dict__.values()])
            for s in renamed
        ]
        totals = [(s, f"{s.name}_small", f"{s.name}_total", s.element.type, s.kind.wide(s.element.type)) for s in sums]
        start = reduce.START
        for s, small, total, type, wide in totals:
            self.statements += [Declare(small, type, start[s.kind.op](type)), Declare(total, wide, start[s.kind.op](wide))]
            self.statements.append(Assign(total, start[s.kind.op](wide)))
        if self.length <= _BLOCK or not sums:
            self.statements += self._block(totals, Loop(j.name, _ZERO, Const(self.length, "index"), tuple(body), "vector"))
        else:
            block = Index(f"block{level}")
            low = block * _BLOCK
            high = Binary("min", low + _BLOCK, Const(self.length, "index"))
            inside = self._block(totals, Loop(j.name, low, high, tuple(body), "vector"))
            self.statements.append(Loop(block.name, _ZERO, Const(-(-self.length // _BLOCK), "index"), tuple(inside)))
        for s, _, total, _, wide in totals:
            out = type_of(s.node)
            value = rounded(convert(s.kind.end(Read(total, wide), Const(self.length, "index")), s.value.type), out)
            self.statements += [Declare(s.name, s.value.type, value), Assign(s.name, value)]

    @staticmethod
    def _block(totals: list[Any], loop: Loop) -> list[Statement]:
        starts: list[Statement] = [Assign(small, reduce.START[s.kind.op](type)) for s, small, _, type, _ in totals]
        ends = [Accumulate(s.kind.op, total, convert(Read(small, type), wide)) for s, small, total, type, wide in totals]
        return [*starts, loop, *ends]

    def _fixed(self, value: Expr, varying: dict[Expr, bool], known: dict[Expr, Expr]) -> Expr:
        """The expression with its largest parts that don't vary along the row computed before it."""
        if value.type == "index" or isinstance(value, (Const, Read, Param)):
            return value
        found = known.get(value)
        if found is None:
            found = known[value] = self._parts_fixed(value, varying, known) if varying[value] else self._let(value)
        return found

    def _parts_fixed(self, value: Expr, varying: dict[Expr, bool], known: dict[Expr, Expr]) -> Expr:
        def fixed(v: Any) -> Any:
            if v.__class__ is tuple:
                return tuple(map(fixed, v))
            return self._fixed(v, varying, known) if isinstance(v, Expr) else v

        return value.__class__(*map(fixed, value.__dict__.values()))

    def _let(self, value: Expr) -> Expr:
        found = self.lets.get(value)
        if found is None:
            name = f"row{len(self.lets)}"
            self.statements += [Declare(name, value.type, value), Assign(name, value)]
            found = self.lets[value] = Read(name, value.type)
        return found


def _varying(roots: Iterable[Any], j: Index) -> dict[Expr, bool]:
    """For each expression below, whether it varies with j."""
    found: dict[Any, bool] = {}
    for node in walk(roots):  # children first
        found[node] = node is j or any(found[c] for c in node.children())
    return found
