"""A batch sample by sample, where that keeps what goes from one convolution to the next in the cache.

    simplify(graph); by_samples(graph, compile_graph)

The first layers of a network for images have arrays of some MB a sample. A stretch of such layers that passes a single array on becomes one
node, which runs a graph compiled for one sample again and again. Measured on Zen 4: the first convolution, pooling and block of ResNet-18 with
eight images take 61 ms so, 74 layer by layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha._inductor import calls
from tocha._inductor.nodes import kind_of, prim_name, shape_of
from tocha.aot import journal, run
from tocha.backends.meta import MetaArray
from tocha.fx import Graph, Node
from tocha.prims.pointwise import Pointwise

_LEAST = 512 * 1024  # bytes of an array's sample, below which layers gain by having all samples at once
_LAYERS = ("conv", "max_pool_values")


def by_samples(graph: Graph, compile: Callable[[Graph], Any]) -> None:
    """Put a node for the first such stretch of a graph, in place."""
    found = _stretch(graph)
    if sum(prim_name(n) in _LAYERS for n in found) < 2:
        return
    made, inner = set(found), Graph()
    outside = dict.fromkeys([a for node in found for a in _operands(node) if a[0] not in made])
    constants = [a for a in outside if a[0].target is run.constant and not a[1]]
    given: dict[tuple[Node, bool], Node] = {}
    for node, one in (arguments := [a for a in outside if a not in constants]):
        given[node, one] = x = inner.placeholder(f"x{len(given)}")
        value = node.meta["val"]
        x.meta["val"] = MetaArray((1, *value.shape[1:]) if one else value.shape, value.dtype, value.strides)
    given |= {a: inner.node_copy(a[0]) for a in constants}
    copies: dict[Node, Node] = {}
    for node in found:
        known = {a: copies.get(a) or given[a, one] for a, one in _operands(node)}
        copies[node] = inner.node_copy(node, known.__getitem__)
        copies[node].meta["val"] = MetaArray((1, *shape_of(node)[1:]), node.meta["val"].dtype)
    inner.output([copies[found[-1]]])
    inner.meta.update(graph.meta)
    text = inner.python_code("self").src if journal.listeners else ""
    stretch = Stretch(compile(inner), [one for _, one in arguments], found[-1].meta["val"])
    if journal.listeners:
        journal.note("compiled", part=f"{graph.meta.get('part')}, each sample", graph=text, made=stretch.runner)
    with graph.inserting_after(found[-1]):
        call = graph.call_function(stretch, tuple([n for n, _ in arguments]))
    call.meta["val"] = found[-1].meta["val"]
    found[-1].replace_all_uses_with(call)
    graph.eliminate_dead_code()


@dataclasses.dataclass(eq=False, repr=False)
class Stretch:
    """A function of whole arrays that runs another for each sample; `parts` says which arrays it takes a sample of."""

    runner: Any
    parts: list[bool]
    like: MetaArray
    dense = True

    def __call__(self, *arrays: Any) -> Any:
        out = np.empty(self.like.shape, self.like.dtype)
        for i in range(len(out)):
            given = [a[i : i + 1] if part else a for a, part in zip(arrays, self.parts, strict=True)]
            out[i] = self.runner(given)[0][0]
        return out

    def __repr__(self) -> str:
        return f"<a stretch for each of {self.like.shape[0]} samples>"


def _operands(node: Node) -> list[tuple[Node, bool]]:
    """A layer's operands, with whether the layer reads a sample of them for a sample."""
    if prim_name(node) in _LAYERS:
        return [(a, i == 0) for i, a in enumerate(node.args) if isinstance(a, Node)]
    shape = shape_of(node)
    return [(a, len(shape_of(a)) == len(shape) and shape_of(a)[0] == shape[0]) for a in node.all_input_nodes]


def _stretch(graph: Graph) -> list[Node]:
    """Nodes that compute a sample each from a sample, of which only the last is read by others."""
    found: list[Node] = []
    behind: set[Node] = set()  # what needs those, and isn't one of them
    best, samples = 0, 0
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "output" or any(a in behind for a in inputs):
            continue
        if _fits(node) and samples in (0, shape_of(node)[0]) and (prim_name(node) in _LAYERS or any(a in found for a in inputs)):
            found.append(node)
            samples = shape_of(node)[0]
            if not behind and all(u in found for n in found[:-1] for u in n.users):
                best = len(found)
        elif any(a in found for a in inputs):
            behind.add(node)
    return found[:best]


def _fits(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, MetaArray) or value.ndim != 4 or value.dtype not in calls.PLAIN or not calls.row_major(node):
        return False
    large = value.shape[0] > 1 and value.size * value.itemsize >= _LEAST * value.shape[0]
    return large and (prim_name(node) in _LAYERS or (isinstance(node.target, Pointwise) and kind_of(node) == "loop"))


__all__ = ["Stretch", "by_samples"]
