"""Clean a graph: equal nodes become one, dead ones go, outputs get memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha._inductor import calls
from tocha._inductor.nodes import kind_of, own_of, prim_name, shape_of
from tocha.aot import run
from tocha.backends.meta import MetaArray
from tocha.fx import Graph, Node
from tocha.prims.contract import mm
from tocha.prims.elementary import add
from tocha.prims.move import clone
from tocha.prims.reduce import sum_


def simplify(graph: Graph) -> None:
    """Change `graph` in place; what it computes stays."""
    for node in list(graph.nodes):
        rewrite = _REWRITES.get(prim_name(node))
        if rewrite is not None:
            _rewrite(graph, node, rewrite)
        elif prim_name(node) == "linear_backward":
            _linear_backward(graph, node)
    _merge_equal(graph)
    _skip_copies(graph)
    _own_outputs(graph)
    graph.eliminate_dead_code()


def _rewrite(graph: Graph, node: Node, rewrite: Callable[[Graph, Node], Node | None]) -> None:
    with graph.inserting_before(node):
        new = rewrite(graph, node)
    if new is None:
        return
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _call(graph: Graph, target: Any, args: tuple[Any, ...], value: MetaArray, **kwargs: Any) -> Node:
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = value
    return node


def _cat(graph: Graph, node: Node) -> Node:
    """Joined arrays: undefined memory, of which each piece overwrites a window."""
    whole = MetaArray(node.meta["val"].shape, node.meta["val"].dtype)
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


def _small_linear(graph: Graph, node: Node) -> Node | None:
    """A product that BLAS computes, and its bias as a pointwise sum, which fuses with what follows."""
    x, weight, bias = node.args
    a, b, out = x.meta["val"], weight.meta["val"], node.meta["val"]
    if a.ndim != 2 or b.ndim != 2 or bias is None or bias.meta["val"].dtype is not a.dtype:
        return None
    if not calls.is_small_product(a, b, *out.shape, a.shape[1]):
        return None
    product = _call(graph, mm, (x, weight), out, ta=False, tb=True)
    return _call(graph, add, (product, bias), out, given=a.dtype, compute=a.dtype, dtype=a.dtype)


def _linear_backward(graph: Graph, node: Node) -> None:
    """Its three gradients apart, so that those which nobody asks for go, and the others fuse with what is around them."""
    g, x, weight = node.args
    if g.meta["val"].dtype not in calls.PLAIN or not (g.meta["val"].size and x.meta["val"].size):
        return
    parts = {n.args[1]: n for n in node.users}
    makers = (
        lambda v: _call(graph, mm, (g, weight), v, ta=False, tb=False),
        lambda v: _call(graph, mm, (g, x), v, ta=True, tb=False),
        lambda v: _call(graph, sum_, (g,), v, dim=(0,), keepdim=False),
    )
    with graph.inserting_before(node):
        for number, part in parts.items():
            part.replace_all_uses_with(makers[number](part.meta["val"]))
            graph.erase_node(part)
    graph.erase_node(node)


_REWRITES: dict[str, Callable[[Graph, Node], Node | None]] = {
    "cat": _cat,
    "index_scatter": _index_scatter,
    "linear": _small_linear,
}


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
    if isinstance(a, (tuple, list)):
        return (a.__class__, *map(_key, a))
    if isinstance(a, dict):
        return tuple((k, _key(v)) for k, v in sorted(a.items()))
    if isinstance(a, slice):
        return ("slice", _key(a.start), _key(a.stop), _key(a.step))
    if isinstance(a, Node):
        return a
    if isinstance(a, run.Constant):
        return (id(a.array), a.array.__class__)
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
