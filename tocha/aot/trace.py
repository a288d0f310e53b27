"""The tracing backend: arrays without data whose primitives become nodes of a graph.

Under `tracing(graph)` new CPU tensors hold `TraceArray`s. Everything above the backends stays as it is, so one run of ordinary
operators, of the tape and of its backward yields a graph of primitives (`tocha.prims`), with broadcasting, promotion and gradients
already decided. The graph is functional although programs write in place: memory is a `Buffer` whose value is a node; an array is
a window on a buffer; reading a window of a changed buffer makes a `window` node, writing one a `put` node.

    node ::= prim(nodes…, **static)                      a primitive; several outputs are taken apart by getitem
           | rule(operands…, *, compute, dtype, **static) a pointwise rule on nodes and numbers
           | window(node, own, shape, strides, offset, dtype)  what a view shows of the node's array, laid out with strides `own`
           | put(node, value, own, shape, strides, offset)     the node's array with the window's elements replaced
           | constant | fill | draw | draw_into           see tocha.aot.run, which says what each node computes

Strides and offsets are in bytes. A node's `meta["val"]` is its MetaArray (a tuple of them where a primitive has several outputs).
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tocha import backends
from tocha.aot.run import Constant, check, constant, draw, draw_into, fill, put, window
from tocha.autograd.mode import state
from tocha.backends import _cpu_checks, meta, shared
from tocha.backends.meta import MetaArray, WrapperArray
from tocha.device import CPU
from tocha.dispatch.prim import REGISTRY
from tocha.fx import Graph, Node

name = "trace"
Shape = tuple[int, ...]
#: The graph that is recorded; None outside `tracing`.
_graph: Graph | None = None


class DataDependent(RuntimeError):
    """The program asked for a value that exists only when the graph runs."""


class Buffer:
    """Memory: `node` is the value that its `shape` and `strides` (bytes) hold now."""

    __slots__ = ("node", "offset", "shape", "strides", "version")

    def __init__(self, node: Node, shape: Shape, strides: Shape, offset: int = 0) -> None:
        self.node, self.shape, self.strides, self.offset, self.version = node, shape, strides, offset, 0


class TraceArray(WrapperArray):
    """A window on a buffer. `read` gives the node of what it shows now."""

    __slots__ = ("_node", "_seen", "buffer")

    def __init__(self, buffer: Buffer, shape: Shape, dtype: Any, strides: Shape, offset: int) -> None:
        self.shape, self.dtype, self.strides, self.offset = tuple(shape), np.dtype(dtype), tuple(strides), offset
        self.buffer, self.device = buffer, CPU
        self._node: Node | None = None
        self._seen = -1

    def whole(self) -> bool:
        """Whether the window shows all of its buffer as it lies."""
        b = self.buffer
        return (
            self.shape == b.shape
            and self.strides == b.strides
            and self.offset == b.offset
            and self.dtype == b.node.meta["val"].dtype
        )

    def read(self) -> Node:
        """The node of the present value."""
        b = self.buffer
        if self._seen != b.version or self._node is None:
            self._node = b.node if self.whole() else _window(b, self)
            self._seen = b.version
        return self._node

    def _shown(self, a: MetaArray) -> TraceArray:
        return TraceArray(self.buffer, a.shape, a.dtype, a.strides, a.offset)

    @property
    def real(self) -> TraceArray:
        return self._shown(super().real)

    def transpose(self, axes: Shape) -> TraceArray:
        return self._shown(super().transpose(axes))

    def reshape(self, shape: Shape) -> TraceArray:
        return self._shown(super().reshape(shape))

    def view(self, dtype: Any) -> TraceArray:
        return self._shown(super().view(dtype))

    def __getitem__(self, index: Any) -> TraceArray:
        return self._shown(super().__getitem__(index))

    def with_strides(self, strides: Shape) -> TraceArray:
        return made(self.read(), MetaArray(self.shape, self.dtype, strides))

    def astype(self, dtype: Any, copy: bool = True) -> TraceArray:
        if not copy and np.dtype(dtype) == self.dtype:
            return self
        from tocha.prims.move import cast

        return run_prim(cast, [self], {"dtype": np.dtype(dtype)})[0]

    def conjugate(self) -> TraceArray:
        return run_rule(REGISTRY["conj_physical"], [self], self.dtype, self.dtype, self.dtype, {})

    def __neg__(self) -> TraceArray:
        return run_rule(REGISTRY["neg"], [self], self.dtype, self.dtype, self.dtype, {})

    def copy(self) -> TraceArray:
        """New memory with the present value."""
        return made(self.read(), MetaArray(self.shape, self.dtype))


def _asked(name: str) -> Any:
    def ask(self: TraceArray, *args: Any, **kwargs: Any) -> Any:
        raise DataDependent(f"the values of a tensor are asked for ({name}), which exist only when the graph runs")

    return ask


for _name in (
    "__array__", "__add__", "__and__", "__bool__", "__float__", "__ge__", "__gt__", "__index__", "__int__", "__invert__", "__le__", "__lt__",
    "__mul__", "__or__", "__setitem__", "__sub__", "__truediv__", "all", "any", "argmax", "argmin", "argsort", "item", "max", "mean", "min",
    "nonzero", "sort", "sum", "tobytes", "tolist",
):  # fmt: skip
    setattr(TraceArray, _name, _asked(_name))


# ---- making nodes


def graph() -> Graph:
    """The graph being recorded."""
    if _graph is None:
        raise RuntimeError("tracing: a tensor of a finished trace is used; its values exist only inside the graph")
    return _graph


def made(node: Node, value: MetaArray) -> TraceArray:
    """An array in memory of its own that holds the node's value."""
    node.meta["val"] = value
    strides = value.strides
    return TraceArray(Buffer(node, value.shape, strides), value.shape, value.dtype, strides, 0)


def _window(b: Buffer, a: TraceArray) -> Node:
    node = graph().call_function(window, (b.node, b.strides, a.shape, a.strides, a.offset - b.offset, a.dtype))
    node.meta["val"] = MetaArray(a.shape, a.dtype)
    return node


def _node_of(a: Any) -> Any:
    """An operand as a node's argument."""
    if a.__class__ is TraceArray:
        return a.read()
    if isinstance(a, np.ndarray):
        return lift(a).read()
    return a


def lift(a: Any) -> TraceArray:
    """An array of the CPU as a constant of the graph. It must not change afterwards."""
    if a.__class__ is TraceArray:
        return a
    return made(graph().call_function(constant, (Constant(a),)), MetaArray(a.shape, a.dtype))


def run_prim(prim: Any, arrays: list[Any], params: dict[str, Any]) -> tuple[TraceArray, ...]:
    """A primitive's node, and arrays for its outputs."""
    if "dynamic" in prim.tags:
        raise DataDependent(f"{prim.name}: the shape of the result depends on values, which exist only when the graph runs")
    values = meta.run_prim(prim, [None if a is None else MetaArray(a.shape, a.dtype, a.strides) for a in arrays], params)
    node = graph().call_function(prim, tuple([None if a is None else _node_of(a) for a in arrays]), dict(params))
    if len(prim.outputs) == 1:
        return (made(node, values[0]),)
    node.meta["val"] = values
    return tuple([made(graph().call_function(operator.getitem, (node, i)), v) for i, v in enumerate(values)])


def run_rule(rule: Any, operands: list[Any], given: Any, compute: Any, target: Any, params: dict[str, Any]) -> TraceArray:
    """A pointwise rule's node."""
    shape = rule.broadcast([np.shape(x) for x in operands])
    node = graph().call_function(
        rule, tuple(map(_node_of, operands)), {"given": given, "compute": compute, "dtype": target, **params}
    )
    return made(node, MetaArray(shape, target))


# ---- the namespace of a backend


def restride(a: TraceArray, shape: Shape, strides: Shape, offset: int = 0) -> TraceArray:
    return TraceArray(a.buffer, shape, a.dtype, strides, a.offset + offset)


def store(target: TraceArray, value: Any) -> None:
    """Overwrite what the window shows."""
    if target.__class__ is not TraceArray:
        raise DataDependent("tracing: a value of the graph is written into a tensor outside it")
    b = target.buffer
    node = _node_of(value) if isinstance(value, (TraceArray, np.ndarray)) else _filling(target, value)
    have = node.meta["val"]
    if have.dtype != target.dtype or have.shape != target.shape:
        node = _fitted(node, target)
    if target.whole():
        b.node = node
    else:
        old = b.node
        b.node = graph().call_function(put, (old, node, b.strides, target.shape, target.strides, target.offset - b.offset))
        b.node.meta["val"] = MetaArray(b.shape, old.meta["val"].dtype, b.strides)
    b.version += 1


def _filling(target: TraceArray, value: Any) -> Node:
    return filled(target.shape, target.dtype, value, None).read()


def _fitted(node: Node, target: TraceArray) -> Node:
    """The node's value broadcast and cast to a target."""
    have = node.meta["val"]
    if have.shape != target.shape:
        lead = len(target.shape) - len(have.shape)
        strides = (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(have.shape, have.strides, strict=True))
        node = graph().call_function(window, (node, have.strides, target.shape, strides, 0, have.dtype))
        node.meta["val"] = MetaArray(target.shape, have.dtype)
    if have.dtype != target.dtype:
        from tocha.prims.move import cast

        node = graph().call_function(cast, (node,), {"dtype": target.dtype})
        node.meta["val"] = MetaArray(target.shape, target.dtype)
    return node


def empty(shape: Shape, dtype: Any) -> TraceArray:
    return filled(shape, dtype, None, None)


def filled(shape: Shape, dtype: Any, value: Any, index: int | None) -> TraceArray:
    node = graph().call_function(fill, (tuple(shape), np.dtype(dtype), value))
    return made(node, MetaArray(shape, dtype))


def made_on_host(function: Any, shape: Shape, dtype: Any, index: int | None, *args: Any) -> TraceArray:
    return made(graph().call_function(draw, (function, tuple(shape), dtype, _nodes_of(args))), MetaArray(shape, dtype))


def _nodes_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([a.read() if a.__class__ is TraceArray else a for a in args])


def overwrite(target: TraceArray, at_once: bool, function: Any, *args: Any) -> None:
    node = graph().call_function(draw_into, (function, target.shape, target.dtype, at_once, _nodes_of(args), target.strides))
    node.meta["val"] = MetaArray(target.shape, target.dtype)
    store(target, made(node, node.meta["val"]))


def from_host(a: Any, index: int | None = None) -> TraceArray:
    return lift(np.array(a))


def to_host(a: TraceArray) -> Any:
    raise DataDependent("the value of a tensor is asked for, which exists only when the graph runs")


def cast(a: TraceArray, dtype: Any) -> TraceArray:
    return a.astype(dtype, copy=False)


def converted(a: TraceArray, dtype: Any) -> TraceArray:
    return a.astype(dtype, copy=False)


def nonzero(a: TraceArray) -> Any:
    raise DataDependent("nonzero: the size of the result depends on values, which exist only when the graph runs")


def root(a: TraceArray) -> TraceArray:
    """All of the memory: its size is that of the buffer's extent."""
    b = a.buffer
    return TraceArray(b, (_extent(b) // a.itemsize,), a.dtype, (a.itemsize,), b.offset)


def _extent(b: Buffer) -> int:
    item = b.node.meta["val"].itemsize
    if 0 in b.shape:
        return 0
    return item + sum((n - 1) * s for n, s in zip(b.shape, b.strides, strict=True))


def owns_memory(a: TraceArray) -> bool:
    return a.whole()


def memory_id(a: TraceArray) -> int:
    return id(a.buffer)


def may_share_memory(a: TraceArray, b: TraceArray) -> bool:
    return a.__class__ is b.__class__ and a.buffer is b.buffer


def data_ptr(a: TraceArray) -> int:
    return a.offset


def check_rows(indices: TraceArray, name: str, rows: int) -> None:
    graph().call_function(check, (_cpu_checks.check_rows, indices.read(), name, rows))


def check_range(index: TraceArray, size: int, dim: int, negative: bool, error: type[Exception]) -> None:
    graph().call_function(check, (_cpu_checks.check_range, index.read(), size, dim, negative, error))


def require(holds: TraceArray, error: type[Exception], text: str) -> None:
    graph().call_function(check, (_cpu_checks.require, holds.read(), error, text))


truth = meta.truth


def opaque(operator: Any, args: tuple[Any, ...]) -> Any:
    """A call of a library's operator, whose kernel isn't looked into."""
    from tocha.aot.opaque import enter

    return enter(operator, args)


def synchronize() -> None:
    """Nothing runs while tracing."""


keeps_half = shared.no_kernel


@contextlib.contextmanager
def tracing(into: Graph | None) -> Iterator[None]:
    """Record into `into`: new CPU tensors hold trace arrays. Hooks on saved tensors are for those with data."""
    global _graph
    before, _graph = _graph, into
    hooks, state.saved_hooks = state.saved_hooks, []
    state.refresh()
    backends.trace_into(None if into is None else _NAMESPACE)
    try:
        yield
    finally:
        _graph, state.saved_hooks = before, hooks
        state.refresh()
        backends.trace_into(None if before is None else _NAMESPACE)


class Scratch(Graph):
    """What to record into if only arrays are wanted: its nodes don't say what they read."""

    def create_node(
        self, op: str, target: Any, args: Any = None, kwargs: Any = None, name: str | None = None, type_expr: Any = None
    ) -> Node:
        node = Node(self, "", op, target, (), {})
        self._insert(node)
        self._count += 1
        return node


def placeholder(wish: str, like: Any) -> TraceArray:
    """An input of the graph, laid out as `like`."""
    return made(graph().placeholder(wish), MetaArray(like.shape, like.dtype, tuple(like.strides)))


_NAMESPACE: Any = sys.modules[__name__]
backends.NAMESPACES[TraceArray] = _NAMESPACE
