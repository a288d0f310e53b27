"""Inference with constant parameters: what depends on constants alone is computed once, and scales and shifts go into convolutions.

    compiler = freezing({1: weight, 2: bias})        # tocha._inductor: arrays by the number of the graph's placeholder
    runtime.compile(function, inputs, compiler)

The arrays must not change afterwards. Weights of convolutions are also packed once (see `calls`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tocha._inductor import calls
from tocha._inductor.nodes import kind_of, prim_name, shape_of
from tocha.aot import run
from tocha.backends.meta import MetaArray
from tocha.fx import Graph, Node
from tocha.prims.pointwise import Pointwise


def freeze(graph: Graph, constants: Mapping[int, Any]) -> None:
    """Put constants in the place of placeholders (which stay, unused), and compute with them."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    first = next(n for n in graph.nodes if n.op != "placeholder")
    for number, array in constants.items():
        with graph.inserting_before(first):
            placeholders[number].replace_all_uses_with(_constant(graph, array))
    _fold(graph)
    for node in list(graph.nodes):
        if prim_name(node) == "conv":
            _scale_and_shift(graph, node)
    graph.eliminate_dead_code()


def _constant(graph: Graph, array: Any) -> Node:
    node = graph.call_function(run.constant, (run.Constant(array),))
    node.meta["val"] = MetaArray(array.shape, array.dtype, array.strides)
    return node


def value_of(node: Any) -> Any:
    """A constant node's array; None for other nodes."""
    return node.args[0].array if isinstance(node, Node) and node.target is run.constant else None


def _fold(graph: Graph) -> None:
    """Replace nodes whose operands are constants, unless they are larger than those."""
    for node in list(graph.nodes):
        inputs = node.all_input_nodes
        arrays = [value_of(n) for n in inputs]
        value = node.meta.get("val")
        if node.op != "call_function" or not inputs or any(a is None for a in arrays) or not isinstance(value, MetaArray):
            continue
        if getattr(node.target, "impure", False) or "random" in getattr(node.target, "tags", ()):
            continue
        if math.prod(value.shape) > sum(a.size for a in arrays):
            continue
        known = dict(zip(inputs, arrays, strict=True))
        with np.errstate(all="ignore"):
            found = run.compute(node, tuple(known[a] if isinstance(a, Node) else a for a in node.args), node.kwargs)
        found = run.laid_out(np.asarray(found), value.strides, copy=True)
        with graph.inserting_before(node):
            node.replace_all_uses_with(_constant(graph, found))
        graph.erase_node(node)


def _scale_and_shift(graph: Graph, conv: Node) -> None:
    """Put products and sums with a constant for each channel that follow a convolution into its weight and bias."""
    x, weight, bias = conv.args
    w, b = value_of(weight), value_of(bias)
    if w is None or (bias is not None and b is None) or w.dtype not in calls.PLAIN:
        return
    channels, scale = w.shape[0], np.ones(w.shape[0])
    shift = np.zeros(channels) if b is None else b.astype(np.float64)
    last, follows = conv, _next(conv)
    while follows is not None:
        node, name, other = follows
        factor = other.reshape(channels).astype(np.float64)
        scale, shift = (scale * factor, shift * factor) if name == "mul" else (scale, shift + factor)
        last, follows = node, _next(node)
    if last is conv:
        return
    scaled = (w * scale.reshape(-1, *[1] * (w.ndim - 1))).astype(w.dtype)
    with graph.inserting_before(conv):
        args = (x, _constant(graph, scaled), _constant(graph, shift.astype(w.dtype)))
        made = graph.call_function(conv.target, args, dict(conv.kwargs))
    made.meta["val"] = conv.meta["val"]
    last.replace_all_uses_with(made)


def _next(node: Node) -> tuple[Node, str, Any] | None:
    """The only user of a node, if it is a product or sum with a constant for each channel: itself, its name, the constant."""
    users = list(node.users)
    if len(users) != 1 or not isinstance(users[0].target, Pointwise) or prim_name(users[0]) not in ("mul", "add"):
        return None
    user, shape = users[0], shape_of(node)
    others = [value_of(a) for a in user.args if a is not node]
    if len(others) != 1 or others[0] is None or shape_of(user) != shape or kind_of(user) != "loop":
        return None
    other, dtype = others[0], node.meta["val"].dtype
    wanted = (shape[1], *[1] * (len(shape) - 2))
    plain = other.dtype == dtype == user.meta["val"].dtype and other.shape in (wanted, (1, *wanted))
    return (user, prim_name(user), other) if plain else None
