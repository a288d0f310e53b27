"""Which nodes get memory, and which stores share a loop.

    item ::= Loops(targets)      one kernel: stores over one shape, and reductions over its last dimensions (a "row") or one scan
           | Reduction(node)     one kernel
           | Extern(node)        a call of an eager kernel, perhaps with what follows a product

A node that isn't given memory is computed inside the loops that read it. Loops over the same shape are merged greedily, in the order
of the program, where no item between them would have to run in the middle; a value that one merged loop stores and another reads at the
same place is then not loaded, and not stored at all if nobody else reads it. A reduction over the last dimensions joins loops over its
operand's shape as a store does, and what needs it follows: softmax and layer normalisation become one kernel with what is around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tocha._inductor.access import Access, Shape, contiguous
from tocha._inductor.kernels import Target
from tocha._inductor.nodes import Wraps, is_cheap, kind_of, operands, own_of, reads, row_dims, shape_of, size_of, view_of
from tocha._inductor.row_kernels import place_of, same_place
from tocha.aot import run
from tocha.fx import Graph, Node

_MOST_ARRAYS = 24  # in one kernel
_MOST_OPERATIONS = 64  # inlined into one expression


@dataclasses.dataclass(eq=False)
class Loops:
    """Stores over one shape; `reads` are the arrays they load, `values` the nodes they compute, stored or not.

    With `inner`, the last dimensions are a row: `reductions` are over them, those `wanted` elsewhere are stored, and values and targets
    may have an element for each row. What is made of a `scan` at the same place is stored where that is computed."""

    shape: Shape
    targets: list[Target]
    reads: dict[tuple[Node, Access], None]
    values: set[Node] = dataclasses.field(default_factory=set)
    inner: int = 0
    reductions: list[Node] = dataclasses.field(default_factory=list)
    wanted: list[Node] = dataclasses.field(default_factory=list)
    scan: Node | None = None

    def __post_init__(self) -> None:
        self.values.update(t.value for t in self.targets if t.value is t.buffer)
        self.values.update(self.reductions)

    def computes(self, node: Node, access: Access) -> bool:
        """Whether the loops know the element at `access`, for each index, without loading it."""
        return node in self.values and same_place(access, place_of(node, self.shape, self.inner), self.shape)

    def has_row(self, node: Node) -> bool:
        """Whether a node has one element for each row."""
        kept = len(self.shape) - self.inner
        shape = shape_of(node)
        return (
            bool(self.inner)
            and shape[:kept] == self.shape[:kept]
            and all(n == 1 for n in shape[kept:])
            and len(shape) <= len(self.shape)
        )

    def written(self) -> list[Node]:
        return [*dict.fromkeys([*[t.buffer for t in self.targets], *self.wanted])]


@dataclasses.dataclass(eq=False)
class Reduction:
    """A reduction of an expression."""

    node: Node
    reads: dict[tuple[Node, Access], None]


@dataclasses.dataclass(eq=False)
class Extern:
    """A call on arrays, which are those of `reads` or views of them. With `loops`, the call stores what they do instead of its own result
    (tocha._inductor.epilogues)."""

    node: Node
    reads: list[Node]
    loops: Loops | None = None
    fused: Any = None


Item = Loops | Reduction | Extern


@dataclasses.dataclass
class Schedule:
    """Items in the order they run; `memory` are the nodes that have an array."""

    items: list[Item]
    memory: set[Node]
    outputs: list[Node | None]

    def has_memory(self, loops: Loops) -> Callable[[Node, Access], bool]:
        """Whether an element is loaded inside loops, rather than computed."""
        return lambda node, access: node in self.memory and not loops.computes(node, access)


def schedule(graph: Graph, given_memory: set[Node]) -> Schedule:
    """Plan a graph, whose outputs are distinct nodes that are no inputs (see simplify). Raises Wraps for a node that needs memory."""
    return _Planner(graph, given_memory).plan()


class _Planner:
    def __init__(self, graph: Graph, wraps: set[Node]) -> None:
        self.graph = graph
        self.memory: set[Node] = set(wraps)
        self.outputs: list[Node | None] = list(graph.output_node().args[0])
        self.rowwise: set[Node] = set()  # reductions over rows, and what is computed from them with one element a row
        self.items: list[Item] = []
        self.made: dict[Node, int] = {}  # the item that last writes a node's memory
        self.before: list[int] = []  # for each item, the set (as bits) of those that must run before it

    def plan(self) -> Schedule:
        self._choose_memory()
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "output"):
                self._place(node)
        items = self._ordered()
        self._drop_unread(items)
        return Schedule(items, self.memory, self.outputs)

    # ---- memory

    def _choose_memory(self) -> None:
        self.memory.update(n for n in self.outputs if n is not None)
        weight: dict[Node, int] = {}
        for node in self.graph.nodes:
            kind = kind_of(node) if node.op != "output" else "output"
            if kind in ("input", "extern", "put", "reduce", "scan"):
                if "val" in node.meta:
                    self.memory.add(node)
                if kind == "extern":
                    self.memory.update(self._base(a) for a in node.all_input_nodes)
            if kind == "reduce" and row_dims(node):
                self.rowwise.add(node)
            if kind == "window" and node.args[0] in self.rowwise and size_of(node) == size_of(node.args[0]):
                self.rowwise.add(node)
            if kind == "loop":
                if any(a in self.rowwise and size_of(a) == size_of(node) for a in operands(node)):
                    self.rowwise.add(node)
                weight[node] = 1 + sum(weight.get(a, 0) for a in operands(node) if a not in self.memory)
                if self._worth_memory(node, weight[node]):
                    self.memory.add(node)

    def _worth_memory(self, node: Node, weight: int) -> bool:
        if node.target is run.fill:
            return False
        users = [u for u in node.users if u.op != "output"]
        if weight > _MOST_OPERATIONS:
            return True
        if node in self.rowwise:  # computed once for a row
            return False
        wider = any(_reach(u) > size_of(node) for u in users)
        return (len(users) > 1 or wider) and not (is_cheap(node) and weight <= 2)

    # ---- items

    def _place(self, node: Node) -> None:
        kind = kind_of(node)
        if kind == "extern" or node.target is run.constant:
            self._append(
                Extern(node, [self._base(a) for a in node.all_input_nodes]),
                [self.made[b] for a in node.all_input_nodes if (b := self._base(a)) in self.made],
                node,
            )
        elif kind == "reduce":
            self._reduce(node)
        elif kind == "scan":
            self._scan(node)
        elif kind == "put":
            self._put(node)
        elif node in self.memory:
            self._loops(node, shape_of(node), Target(node, node, Access(own_of(node), 0)))

    def _reduce(self, node: Node) -> None:
        x, inner = node.args[0], row_dims(node)
        shape = shape_of(x)
        found = self._reads(x, shape)
        if not inner:
            self._append(Reduction(node, found), self._makers(found), node)
            return
        for number in self._free(self._needed(found, [])):
            loops = self.items[number]
            if isinstance(loops, Loops) and loops.shape == shape and loops.inner in (0, inner) and not loops.scan:
                if self._fits(number, loops, found, node):
                    loops.inner = inner
                    loops.reductions.append(node)
                    self._join(number, node, found, [])
                    return
        self._append(Loops(shape, [], found, inner=inner, reductions=[node]), self._makers(found), node)

    def _scan(self, node: Node) -> None:
        shape, target = shape_of(node), Target(node, node, Access(own_of(node), 0))
        found = self._reads(node.args[0], shape)
        for number in self._free(self._needed(found, [])):
            loops = self.items[number]
            if isinstance(loops, Loops) and loops.shape == shape and not loops.inner and not loops.scan:
                if self._fits(number, loops, found, node):
                    loops.scan = node
                    loops.targets.append(target)
                    self._join(number, node, found, [])
                    return
        self._append(Loops(shape, [target], found, scan=node), self._makers(found), node)

    def _put(self, node: Node) -> None:
        base, value, _, shape, strides, offset = node.args
        item = node.meta["val"].itemsize
        if base.target is not run.fill or base.args[2] is not None:
            self._loops(base, shape_of(base), Target(base, node, Access(own_of(node), 0)))
        first = self.made.get(node)
        steps = tuple(s // item for s in strides)
        after = [] if first is None else [first]
        self._loops(value, shape, Target(value, node, Access(steps, offset // item)), after)

    def _base(self, node: Node) -> Node:
        return view_of(node, self._has_memory)[0]

    def _has_memory(self, node: Node) -> bool:
        return node in self.memory

    def _makers(self, found: Iterable[tuple[Node, Access]]) -> list[int]:
        return [self.made[n] for n, _ in found if n in self.made]

    def _append(self, item: Item, after: list[int], node: Node) -> None:
        self.items.append(item)
        bits = 0
        for i in after:
            bits |= self.before[i] | (1 << i)
        self.before.append(bits)
        self.made[node] = len(self.items) - 1

    def _loops(self, value: Node, shape: Shape, target: Target, after: list[int] | None = None) -> None:
        """Put a store into the latest loops it can share, or into new ones."""
        if own_of(value) != contiguous(shape) and shape_of(value) != shape:
            raise Wraps(value)
        own = target.value is target.buffer
        found = reads(value, shape, self._has_memory) if own else self._reads(value, shape)
        after = after or []
        for number in self._free(self._needed(found, after)):
            loops = self.items[number]
            if not isinstance(loops, Loops) or number in after:
                continue
            here, put = found, target
            if loops.shape != shape:
                if not own or not loops.has_row(value):
                    continue
                place = place_of(value, loops.shape, loops.inner)
                try:
                    here, put = reads(value, loops.shape, self._has_memory, place), Target(value, value, place)
                except Wraps:
                    continue
                if self._needed(here, after) >> number & 1:
                    continue
            if self._fits(number, loops, here, target.buffer):
                loops.targets.append(put)
                self._join(number, target.buffer, here, after)
                return
        self._append(Loops(shape, [target], found), [*self._makers(found), *after], target.buffer)

    def _needed(self, found: Iterable[tuple[Node, Access]], after: list[int]) -> int:
        """The set (as bits) of items before the makers of `found` and those in `after`, which can't be joined by what needs these."""
        bits = 0
        for i in (*self._makers(found), *after):
            bits |= self.before[i]
        return bits

    def _free(self, taken: int) -> Iterator[int]:
        """The numbers of items that aren't in a set of bits, the latest first."""
        left = ((1 << len(self.items)) - 1) & ~taken
        while left:
            number = left.bit_length() - 1
            left ^= 1 << number
            yield number

    def _fits(self, number: int, loops: Loops, found: dict[tuple[Node, Access], None], buffer: Node) -> bool:
        """Whether what reads `found` and writes `buffer`, and needs nothing that runs after the loops, should be computed in them."""
        makes = [(n, access) for n, access in found if self.made.get(n) == number]
        if not all(loops.computes(n, access) for n, access in makes):
            return False
        mine = {t.buffer for t in loops.targets}
        if any(n in mine for n, _ in loops.reads) or buffer in mine:
            return False
        count = len(loops.reads.keys() | found.keys()) + len(loops.targets) + len(loops.reductions)
        return count < _MOST_ARRAYS and (bool(makes) or _related(loops, found))

    def _reads(self, value: Node, shape: Shape) -> dict[tuple[Node, Access], None]:
        """What is read to have a value that is somebody else's operand: the value itself if it has memory."""
        if value in self.memory:
            return {(value, Access(own_of(value), 0)): None}
        return reads(value, shape, self._has_memory)

    def _join(self, number: int, made: Node, found: dict[tuple[Node, Access], None], after: list[int]) -> None:
        """Note what joined loops read and must run after."""
        loops = self.items[number]
        assert isinstance(loops, Loops)
        mine = set(loops.values)
        loops.__post_init__()
        loops.reads.update({at: None for at in found if at[0] not in mine})
        bits = self.before[number]
        for i in (*self._makers(found), *after):
            if i != number:
                bits |= self.before[i] | (1 << i)
        self.made[made] = number
        if bits == self.before[number]:
            return
        self.before[number] = bits
        for i, before in enumerate(self.before):
            if before >> number & 1:
                self.before[i] |= bits

    def _drop_unread(self, items: list[Item]) -> None:
        """Values that only their own loops use are not stored; a reduction among no others is a kernel of its own kind."""
        read = {n for item in items for n in arrays_of(item)} | set(self.outputs)
        for number, item in enumerate(items):
            if isinstance(item, Loops):
                item.targets = [t for t in item.targets if t.buffer in read]
                item.wanted = [n for n in item.reductions if n in read]
                if not item.targets and item.values == set(item.wanted) and len(item.wanted) == 1:
                    items[number] = Reduction(item.reductions[0], item.reads)
                if (scan := item.scan) is not None and {t.value for t in item.targets} == {scan}:
                    x = self._base(scan.args[0])
                    if x is not None and x in self.memory:
                        items[number] = Extern(scan, [x])
        items[:] = [item for item in items if not isinstance(item, Loops) or item.targets or item.wanted]

    def _ordered(self) -> list[Item]:
        """Items sorted so that each comes after those before it."""
        done, order = 0, []
        pending = list(range(len(self.items)))
        while pending:
            ready = next((i for i in pending if not self.before[i] & ~done), None)
            if ready is None:
                raise AssertionError("inductor: the schedule has a cycle")
            pending.remove(ready)
            order.append(self.items[ready])
            done |= 1 << ready
        return order


def arrays_of(item: Item) -> list[Node]:
    """The nodes whose arrays an item reads."""
    if isinstance(item, Extern):
        beside = () if item.loops is None else [n for n, _ in item.loops.reads if n is not item.node]
        return list(dict.fromkeys((*item.reads, *beside)))
    return list(dict.fromkeys(n for n, _ in item.reads))


def _reach(user: Node) -> int:
    """How many elements a user computes from the ones it reads: a reduction's or put's own operand counts as one to one."""
    value = user.meta.get("val")
    return 0 if value is None or isinstance(value, tuple) or kind_of(user) not in ("loop", "window") else int(value.size)


def _related(loops: Loops, found: dict[tuple[Node, Access], None]) -> bool:
    """Whether merging saves memory traffic, or the loops are so small that a call saved counts."""
    small = 1
    for n in loops.shape:
        small *= n
    return bool(loops.reads.keys() & found.keys()) or small <= 16384
