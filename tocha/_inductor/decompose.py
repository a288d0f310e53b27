"""Composite primitives as graphs of smaller ones, where those fuse with what is around them: `decompose(graph)`.

A rule gets the graph (which inserts before the node) and the node, and returns its values, or None where the eager kernel is better. A
primitive of several outputs gives a list of them. Half types are computed in float32 and rounded at the end, as the kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tocha._inductor import calls
from tocha._inductor.access import contiguous
from tocha._inductor.nodes import kind_of, own_of, prim_name, shape_of
from tocha._inductor.picks import picking
from tocha.aot import run
from tocha.backends.meta import MetaArray
from tocha.dtypes import HALF_NP
from tocha.fx import Graph, Node
from tocha.inductor.lower import NP_TYPES
from tocha.prims import elementary, reduce
from tocha.prims.contract import mm
from tocha.prims.move import cast

Values = Node | list[Node] | None
Shape = tuple[int, ...]
_LONGEST = 8192  # elements of a row whose values stay at hand; longer rows are for the eager kernels
_FLOAT32 = np.dtype(np.float32)


def decompose(graph: Graph) -> None:
    """Replace the nodes that have a rule."""
    rewrite(graph, _RULES)


def rewrite(graph: Graph, rules: Mapping[str, Callable[[Graph, Node], Values]]) -> None:
    """Put what a rule returns in the place of each node of its primitive: a node, a list for one with several outputs, None for no change."""
    for node in list(graph.nodes):
        rule = rules.get(prim_name(node))
        if rule is None:
            continue
        with graph.inserting_before(node):
            values = rule(graph, node)
        if isinstance(values, list):
            for part in list(node.users):
                part.replace_all_uses_with(values[part.args[1]])
                graph.erase_node(part)
        elif values is not None:
            node.replace_all_uses_with(values)
        if values is not None:
            graph.erase_node(node)


class _Maker:
    """Makes nodes that compute in one float type."""

    def __init__(self, graph: Graph, dtype: Any) -> None:
        self.graph, self.dtype = graph, _FLOAT32 if dtype in HALF_NP else dtype

    def call(self, target: Any, args: tuple[Any, ...], value: MetaArray, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = value
        return node

    def rule(self, name: str, *operands: Any) -> Node:
        """A pointwise rule of nodes and numbers."""
        target: Any = getattr(elementary, name)
        shape = np.broadcast_shapes(*[shape_of(a) for a in operands if isinstance(a, Node)])
        kind = self.dtype
        return self.call(target, operands, MetaArray(shape, kind), given=kind, compute=kind, dtype=kind)

    def total(self, name: str, x: Node, dims: Shape, keepdim: bool = True) -> Node:
        """A reduction."""
        shape = reduce.reduced_shape(shape_of(x), dims, keepdim)
        return self.call(getattr(reduce, name), (x,), MetaArray(shape, x.meta["val"].dtype), dim=dims, keepdim=keepdim)

    def seen(self, x: Node, shape: Shape) -> Node:
        """A row-major array in another shape."""
        value = x.meta["val"]
        if value.shape == shape:
            return x
        steps = tuple(s * value.itemsize for s in contiguous(shape))
        own = tuple(s * value.itemsize for s in contiguous(value.shape))
        if own != value.strides:
            x = self.call(
                run.window, (x, value.strides, value.shape, value.strides, 0, value.dtype), MetaArray(value.shape, value.dtype)
            )
        return self.call(run.window, (x, own, shape, steps, 0, value.dtype), MetaArray(shape, value.dtype))

    def wide(self, x: Node) -> Node:
        """As the type computed in."""
        value = x.meta["val"]
        return x if value.dtype == self.dtype else self.call(cast, (x,), MetaArray(value.shape, self.dtype), dtype=self.dtype)

    def narrow(self, x: Node, dtype: Any) -> Node:
        """As the type of the node that is replaced."""
        return x if dtype == self.dtype else self.call(cast, (x,), MetaArray(shape_of(x), dtype), dtype=dtype)


def _rows(node: Node, x: Node, dim: Any) -> bool:
    """Whether a float primitive works along x's last dimension, which is short enough, and all is row-major."""
    value = x.meta["val"]
    dims = dim if isinstance(dim, tuple) else (dim,)
    return (
        value.ndim > 0 and dims in ((value.ndim - 1,), (-1,)) and value.size > 0 and value.shape[-1] <= _LONGEST and value.dtype in NP_TYPES
        and (value.dtype.kind == "f" or value.dtype in HALF_NP) and calls.row_major(x) and _enough_rows(value.shape, 1)
    )  # fmt: skip


def _enough_rows(shape: Shape, inner: int) -> bool:
    return math.prod(shape[: len(shape) - inner]) >= 16 or math.prod(shape) <= 32768


# ---- softmax


def _softmax(graph: Graph, node: Node) -> Values:
    (x,) = node.args
    if not _rows(node, x, node.kwargs["dim"]):
        return None
    m, last = _Maker(graph, x.meta["val"].dtype), (len(shape_of(x)) - 1,)
    x = m.wide(x)
    e = m.rule("exp", m.rule("sub", x, m.total("amax", x, last)))
    return m.narrow(m.rule("true_divide", e, m.total("sum_", e, last)), node.meta["val"].dtype)


def _log_softmax(graph: Graph, node: Node) -> Values:
    (x,) = node.args
    if not _rows(node, x, node.kwargs["dim"]):
        return None
    m, last = _Maker(graph, x.meta["val"].dtype), (len(shape_of(x)) - 1,)
    x = m.wide(x)
    apart = m.rule("sub", x, m.total("amax", x, last))
    return m.narrow(m.rule("sub", apart, m.rule("log", m.total("sum_", m.rule("exp", apart), last))), node.meta["val"].dtype)


def _softmax_backward(graph: Graph, node: Node) -> Values:
    g, out = node.args
    if not _rows(node, out, node.kwargs["dim"]) or not calls.row_major(g):
        return None
    m, last = _Maker(graph, out.meta["val"].dtype), (len(shape_of(out)) - 1,)
    g, out = m.wide(g), m.wide(out)
    return m.narrow(m.rule("mul", out, m.rule("sub", g, m.total("sum_", m.rule("mul", g, out), last))), node.meta["val"].dtype)


def _log_softmax_backward(graph: Graph, node: Node) -> Values:
    g, out = node.args
    if not _rows(node, out, node.kwargs["dim"]) or not calls.row_major(g):
        return None
    m, last = _Maker(graph, out.meta["val"].dtype), (len(shape_of(out)) - 1,)
    g, out = m.wide(g), m.wide(out)
    return m.narrow(m.rule("sub", g, m.rule("mul", m.rule("exp", out), m.total("sum_", g, last))), node.meta["val"].dtype)


# ---- normalisation


def _standardize(graph: Graph, node: Node) -> Values:
    """Layer normalisation; other normalisations have their moments in kernels of their own."""
    x, weight, bias = node.args
    kwargs, value = node.kwargs, x.meta["val"]
    axes, shape = kwargs["axes"], tuple(kwargs["shape"])
    first = len(shape) - len(axes)
    if shape != value.shape or not axes or axes != tuple(range(first, len(shape))) or not value.size or not calls.row_major(x):
        return None
    if math.prod(shape[first:]) > _LONGEST or not _enough_rows(shape, len(axes)) or value.dtype not in NP_TYPES:
        return None
    if any(a is not None and (not calls.row_major(a) or a.meta["val"].dtype not in NP_TYPES) for a in (weight, bias)):
        return None
    m = _Maker(graph, value.dtype)
    x = m.wide(x)
    mean = m.total("mean", x, axes)
    apart = m.rule("sub", x, mean)
    var = m.total("mean", m.rule("mul", apart, apart), axes)
    out = m.rule("mul", apart, m.rule("true_divide", 1.0, m.rule("sqrt", m.rule("add", var, float(kwargs["eps"])))))
    if weight is not None:
        out = m.rule("mul", out, m.seen(m.wide(weight), tuple(kwargs["affine"])))
    if bias is not None:
        out = m.rule("add", out, m.seen(m.wide(bias), tuple(kwargs["affine"])))
    return [m.narrow(out, value.dtype), mean, var]


def _rms_norm(graph: Graph, node: Node) -> Values:
    x, weight = node.args
    dims, value = node.kwargs["dims"], x.meta["val"]
    inner = math.prod(value.shape[value.ndim - dims :])
    if not dims or not value.size or inner > _LONGEST or not calls.row_major(x) or not _enough_rows(value.shape, dims):
        return None
    if value.dtype not in NP_TYPES or (
        weight is not None and (not calls.row_major(weight) or weight.meta["val"].dtype not in NP_TYPES)
    ):
        return None
    m = _Maker(graph, value.dtype)
    x = m.wide(x)
    square = m.total("mean", m.rule("mul", x, x), tuple(range(value.ndim - dims, value.ndim)))
    out = m.rule("mul", x, m.rule("true_divide", 1.0, m.rule("sqrt", m.rule("add", square, float(node.kwargs["eps"])))))
    return m.narrow(out if weight is None else m.rule("mul", out, m.wide(weight)), node.meta["val"].dtype)


def _batch_norm_given(graph: Graph, node: Node) -> Values:
    """x * scale + shift, with both for each channel computed first."""
    x, weight, bias, mean, var = node.args
    value = x.meta["val"]
    if value.ndim < 2 or not value.size or value.dtype not in NP_TYPES or own_of(node) != own_of(x):
        return None
    vectors = [v for v in (weight, bias, mean, var) if v is not None]
    if any(v.meta["val"].dtype not in NP_TYPES or not calls.row_major(v) for v in vectors):
        return None
    m = _Maker(graph, value.dtype)
    scale = m.rule("true_divide", 1.0, m.rule("sqrt", m.rule("add", m.wide(var), float(node.kwargs["eps"]))))
    scale = scale if weight is None else m.rule("mul", scale, m.wide(weight))
    along = m.rule("mul", m.wide(mean), scale)
    shift = m.rule("neg", along) if bias is None else m.rule("sub", m.wide(bias), along)
    shape = (value.shape[1], *[1] * (value.ndim - 2))
    out = m.narrow(m.rule("add", m.rule("mul", m.wide(x), m.seen(scale, shape)), m.seen(shift, shape)), value.dtype)
    out.meta["val"] = node.meta["val"]  # in its memory order
    return out


# ---- products


def _linear(graph: Graph, node: Node) -> Values:
    """A product, and its bias as a pointwise sum, where that fuses with what follows, or BLAS multiplies and would add it apart."""
    x, weight, bias = node.args
    a, b, out = x.meta["val"], weight.meta["val"], node.meta["val"]
    if a.dtype not in calls.PLAIN or a.ndim < 2 or b.ndim != 2 or not out.size or not a.size:
        return None
    if b.dtype is not a.dtype or (bias is not None and bias.meta["val"].dtype is not a.dtype):
        return None
    small = a.ndim == 2 and calls.is_small_product(a, b, a.shape[0], b.shape[0], a.shape[1])
    if not small and not (_only_in_loops(node) and calls.row_major(x)):
        return None
    m = _Maker(graph, a.dtype)
    product = m.call(mm, (x, weight), out, ta=False, tb=True)
    return product if bias is None else m.rule("add", product, bias)


def _only_in_loops(node: Node) -> bool:
    """Whether a value is read inside kernels only, directly or through views."""
    users = list(node.users)
    return bool(users) and all(
        u.op != "output" and (kind_of(u) in ("loop", "reduce") or (kind_of(u) == "window" and _only_in_loops(u))) for u in users
    )


def _linear_backward(graph: Graph, node: Node) -> Values:
    """Its three gradients apart, so that those which nobody asks for go, and the others fuse with what is around them."""
    g, x, weight = node.args
    if g.meta["val"].dtype not in calls.PLAIN or not (g.meta["val"].size and x.meta["val"].size):
        return None
    m, values = _Maker(graph, g.meta["val"].dtype), node.meta["val"]
    return [
        m.call(mm, (g, weight), values[0], ta=False, tb=False),
        m.call(mm, (g, x), values[1], ta=True, tb=False),
        m.total("sum_", g, (0,), False),
    ]


def _embedding(graph: Graph, node: Node) -> Values:
    table, index = node.args
    return _picked(graph, node, table, index, 0, False)


def _index(graph: Graph, node: Node) -> Values:
    table, *indices = node.args
    return None if len(indices) > 1 else _picked(graph, node, table, indices[0], node.kwargs["dims"][0], False)


def _gather(graph: Graph, node: Node) -> Values:
    table, index = node.args
    return _picked(graph, node, table, index, node.kwargs["dim"], True)


def _picked(graph: Graph, node: Node, table: Node, index: Node, dim: int, along: bool) -> Values:
    """Elements looked up in an array where they are read, if that is in one place: reading them again would cost what it cost before."""
    a, b = table.meta["val"], index.meta["val"]
    ready = kind_of(table) in ("input", "extern") and a.dtype in NP_TYPES and b.dtype.kind == "i" and a.ndim and a.size and b.size
    if not ready or len(node.users) != 1 or not _only_in_loops(node):
        return None
    return picking(graph, table, index, dim, along)


_RULES: dict[str, Callable[[Graph, Node], Values]] = {
    "softmax": _softmax, "log_softmax": _log_softmax, "softmax_backward": _softmax_backward, "log_softmax_backward": _log_softmax_backward,
    "standardize": _standardize, "rms_norm": _rms_norm, "batch_norm_given": _batch_norm_given,
    "linear": _linear, "linear_backward": _linear_backward, "embedding": _embedding, "index": _index, "gather": _gather,
}  # fmt: skip
