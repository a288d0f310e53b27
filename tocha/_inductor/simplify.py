"""Clean a graph: equal nodes become one, dead ones go, outputs get memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha._inductor.decompose import decompose, rewrite
from tocha._inductor.nodes import kind_of, own_of, prim_name, shape_of
from tocha.aot import run
from tocha.backends.meta import MetaArray
from tocha.fx import Graph, Node
from tocha.prims.move import clone


def simplify(graph: Graph) -> None:
    """Change `graph` in place; what it computes stays."""
    rewrite(graph, _REWRITES)
    decompose(graph)
    _merge_equal(graph)
    _skip_copies(graph)
    _own_outputs(graph)
    graph.eliminate_dead_code()


def _call(graph: Graph, target: Any, args: tuple[Any, ...], value: MetaArray) -> Node:
    node = graph.call_function(target, args)
    node.meta["val"] = value
    return node


def _cat(graph: Graph, node: Node) -> Node:
    """Joined arrays: undefined memory, of which each piece overwrites a window."""
    whole = node.meta["val"]
    found = _call(graph, run.fill, (whole.shape, whole.dtype, None), whole)
    start, dim = 0, node.kwargs["dim"]
    for piece in node.args:
        if not piece.meta["val"].size:  # also 1-d ones among arrays of more dimensions
            continue
        length = piece.meta["val"].shape[dim]
        if length:
            part = whole[(slice(None),) * dim + (slice(start, start + length),)]
            found = _call(graph, run.put, (found, piece, whole.strides, part.shape, part.strides, part.offset), whole)
        start += length
    return found


def _index_scatter(graph: Graph, node: Node) -> Node:
    """Zeros of which a window is overwritten."""
    whole = MetaArray(node.meta["val"].shape, node.meta["val"].dtype)
    zeros = _call(graph, run.fill, (whole.shape, whole.dtype, 0), whole)
    part = whole[node.kwargs["index"]]
    if not part.size:
        return zeros
    return _call(graph, run.put, (zeros, node.args[0], whole.strides, part.shape, part.strides, part.offset), whole)


_EXACT = frozenset((int, bool, str, type(None)))  # equal ones of one of these types are the same; 0.0 and -0.0 are not
_REWRITES = {"cat": _cat, "index_scatter": _index_scatter}


def _merge_equal(graph: Graph) -> None:
    """One node for calls of the same target with the same arguments."""
    seen: dict[Any, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or getattr(node.target, "impure", False) or "random" in getattr(node.target, "tags", ()):
            continue
        key = (node.target, _key(node.args), _key(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _key(a: Any) -> Any:
    """Equal for equal arguments; numbers of other types or signs differ."""
    if isinstance(a, Node):
        return a
    if isinstance(a, (tuple, list)):
        return (a.__class__, *map(_key, a))
    if isinstance(a, dict):
        return tuple((k, _key(v)) for k, v in sorted(a.items()))
    if isinstance(a, slice):
        return ("slice", _key(a.start), _key(a.stop), _key(a.step))
    if isinstance(a, run.Constant):
        return (id(a.array), a.array.__class__)
    if a.__class__ in _EXACT or isinstance(a, np.dtype):
        return (a.__class__, a)
    return (a.__class__, repr(a))


def _skip_copies(graph: Graph) -> None:
    """Values don't change in a functional graph, so a clone of the same layout is its operand, and a window on all of it too."""
    for node in list(graph.nodes):
        if prim_name(node) == "clone" or node.target is run.window:
            x = node.args[0]
            if (
                not isinstance(x, Node)
                or x.meta["val"].dtype != node.meta["val"].dtype
                or shape_of(x) != shape_of(node)
                or own_of(x) != own_of(node)
            ):
                continue
            if prim_name(node) == "clone" or (node.args[1] == node.args[3] and node.args[4] == 0):
                node.replace_all_uses_with(x)
                graph.erase_node(node)


def _own_outputs(graph: Graph) -> None:
    """Copy outputs that are inputs, constants or twice the same."""
    output = graph.output_node()
    seen: set[Node] = set()
    returned: list[Node | None] = []
    for node in output.args[0]:
        if node is not None and (node in seen or kind_of(node) == "input"):
            with graph.inserting_before(output):
                copied = graph.call_function(clone, (node,), {"order": "K"})
            copied.meta["val"] = node.meta["val"]
            node = copied
        if node is not None:
            seen.add(node)
        returned.append(node)
    output.args = (returned,)
