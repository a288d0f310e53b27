"""Cut a joint graph in two: forward, which also returns what backward needs, and backward.

What to save is a minimum cut (Chen et al. 2016 recompute by hand; as a cut: torch's "min-cut rematerialization"): every value that
backward reads is saved or computed again from saved ones, so that the bytes saved are least. Only nodes that cost no more than
reading their inputs are computed again: pointwise rules, windows, casts, fills.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tocha.aot import run
from tocha.fx import Graph, Node
from tocha.prims.pointwise import Pointwise

if TYPE_CHECKING:
    from tocha.aot.joint import Traced

_INFINITE = 1 << 60
_CHEAP = frozenset(("cast", "clone", "keep", "where"))


@dataclasses.dataclass
class Parts:
    """`forward` returns values, new values of mutated inputs, then what is saved; `backward` takes the inputs numbered
    `saved_inputs`, what was saved, then gradients, and returns one (or None) for each input in `Traced.wanted`."""

    forward: Graph
    backward: Graph
    saved_inputs: list[int]
    saved: list[Node]  # other nodes of the joint graph


def partition(traced: Traced) -> Parts:
    """Split a joint graph."""
    graph = traced.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    tangents = placeholders[traced.inputs :]
    returned = graph.output_node().args[0]
    count = traced.values + len(traced.mutated)
    outputs, grads = returned[:count], returned[count:]
    late = _descendants(tangents)
    needed = ancestors([g for g in grads if g is not None])
    read, ends = late & needed, set(grads)
    boundary = [n for n in needed if n not in late and (n in ends or not read.isdisjoint(n.users))]
    saved = _least(boundary, late) if boundary else []
    kept = [i for i in range(traced.inputs) if placeholders[i] in saved and i not in traced.mutated and i not in traced.copied]
    inputs = [placeholders[i] for i in kept]
    saved = [n for n in saved if n not in inputs]
    effects = [n for n in graph.nodes if n.op == "call_function" and getattr(n.target, "impure", False) and n not in late]
    forward = _extract(graph, placeholders[: traced.inputs], [*outputs, *saved], effects)
    backward = _extract(graph, [*inputs, *saved, *tangents], list(grads))
    return Parts(forward, backward, kept, saved)


def _descendants(roots: list[Node]) -> set[Node]:
    seen, stack = set(roots), list(roots)
    while stack:
        for user in stack.pop().users:
            if user not in seen and user.op != "output":
                seen.add(user)
                stack.append(user)
    return seen


def ancestors(roots: list[Node]) -> set[Node]:
    """The nodes, and all that they are computed from."""
    seen, stack = set(roots), list(roots)
    while stack:
        for read in stack.pop().all_input_nodes:
            if read not in seen:
                seen.add(read)
                stack.append(read)
    return seen


def recomputable(node: Node) -> bool:
    """Whether a node may be computed a second time, in backward."""
    target = node.target
    return (
        isinstance(target, Pointwise) or target in (run.window, run.fill, run.constant) or getattr(target, "name", None) in _CHEAP
    )


def size(node: Node) -> int:
    """Bytes of a node's value; infinite for tuples, whose parts are saved instead."""
    value = node.meta.get("val")
    return _INFINITE if value is None or isinstance(value, tuple) else max(1, math.prod(value.shape) * value.itemsize)


def _least(boundary: list[Node], late: set[Node]) -> list[Node]:
    """The nodes to save so that all of `boundary` is known or can be computed again."""
    nodes = [n for n in ancestors(boundary) if n not in late]
    flow = _Flow(2 * len(nodes) + 2)
    number = {n: 2 * i for i, n in enumerate(nodes)}
    source, sink = 2 * len(nodes), 2 * len(nodes) + 1
    for node in nodes:
        into, out = number[node], number[node] + 1
        if node.op == "placeholder":
            flow.edge(source, into, _INFINITE)
            flow.edge(into, out, 1)  # inputs are alive anyway
            continue
        flow.edge(into, out, size(node))
        if not recomputable(node):
            flow.edge(source, into, _INFINITE)
        for read in node.all_input_nodes:
            flow.edge(number[read] + 1, into, _INFINITE)
    for node in boundary:
        flow.edge(number[node] + 1, sink, _INFINITE)
    flow.run(source, sink)
    reached = flow.reached(source)
    order = {n: i for i, n in enumerate(nodes[0].graph.nodes)}
    cut = [n for n in nodes if number[n] in reached and number[n] + 1 not in reached]
    return sorted(cut, key=order.__getitem__)


class _Flow:
    """Greatest flow by Dinic's algorithm (1970): shortest augmenting paths, a level at a time."""

    def __init__(self, count: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(count)]
        self.to: list[int] = []
        self.room: list[int] = []

    def edge(self, a: int, b: int, capacity: int) -> None:
        self.edges[a].append(len(self.to))
        self.to.append(b)
        self.room.append(capacity)
        self.edges[b].append(len(self.to))
        self.to.append(a)
        self.room.append(0)

    def levels(self, source: int) -> list[int]:
        level = [-1] * len(self.edges)
        level[source] = 0
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for e in self.edges[a]:
                b = self.to[e]
                if self.room[e] and level[b] < 0:
                    level[b] = level[a] + 1
                    queue.append(b)
        return level

    def reached(self, source: int) -> set[int]:
        return {i for i, level in enumerate(self.levels(source)) if level >= 0}

    def run(self, source: int, sink: int) -> None:
        while (level := self.levels(source))[sink] >= 0:
            following = [iter(e) for e in self.edges]
            while self._augment(source, sink, level, following):
                pass

    def _augment(self, source: int, sink: int, level: list[int], following: list[Iterator[int]]) -> bool:
        """Push flow along one path of rising levels, found without recursion."""
        path: list[int] = []
        at = source
        while at != sink:
            for e in following[at]:
                if self.room[e] and level[self.to[e]] == level[at] + 1:
                    path.append(e)
                    at = self.to[e]
                    break
            else:
                if not path:
                    return False
                level[at] = -1
                at = self.to[path.pop() ^ 1]
        amount = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= amount
            self.room[e ^ 1] += amount
        return True


def _extract(graph: Graph, inputs: list[Node], outputs: list[Node | None], effects: Sequence[Node] = ()) -> Graph:
    """The part of a graph that computes `outputs` from `inputs`, and nodes for the sake of their effects."""
    part = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = part.placeholder(node.name)
        copies[node].meta["val"] = node.meta["val"]
    wanted: set[Node] = set()
    stack = [*effects, *[n for n in outputs if n is not None]]
    while stack:
        node = stack.pop()
        if node not in wanted:
            wanted.add(node)
            if node not in copies:
                stack += node.all_input_nodes
    for node in graph.nodes:
        if node not in copies and node in wanted:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output([None if n is None else copies[n] for n in outputs])
    return part
