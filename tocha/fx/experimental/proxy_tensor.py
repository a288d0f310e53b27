"""torch.fx.experimental.proxy_tensor: `make_fx`, a function run once on tensors without values and recorded as a graph of aten calls."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tocha.aot import run, trace
from tocha.aot.trace import TraceArray
from tocha.backends import device_of
from tocha.backends.meta import MetaArray
from tocha.fx import Graph, GraphModule, Node, map_arg
from tocha.fx.node import map_aggregate
from tocha.nn import Module
from tocha.tensor import Tensor, wrap, wrap_as
from tocha.utils._python_dispatch import TorchDispatchMode
from tocha.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["get_proxy_mode", "make_fx"]

_current: list[_Recording] = []


def get_proxy_mode() -> Any:
    """The recording under way, None outside `make_fx`."""
    return _current[-1] if _current else None


class _Recording(TorchDispatchMode):
    """Enters each call of an operator into a graph."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.table, self.graph = table, Graph()
        self.nodes: dict[int, Node] = {}
        self.kept: list[Any] = []  # so that ids stay theirs
        self.constants: dict[str, Any] = {}
        self.versions: dict[int, int] = {}  # of memory, after the writes that are in the graph

    def bind(self, value: Any, node: Node) -> None:
        if isinstance(value, Tensor):
            node.meta["val"] = wrap(MetaArray(value._a.shape, value._a.dtype, value._a.strides))
            self.nodes[id(value)] = node
            self.kept.append(value)
        elif isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                self.bind(item, self.graph.call_function(operator.getitem, (node, i)))

    def node(self, value: Any) -> Any:
        """A value in the graph; a tensor that nothing in it made is a constant."""
        if not isinstance(value, Tensor):
            return value
        found = self.nodes.get(id(value))
        if found is None:
            name = f"_tensor_constant{len(self.constants)}"
            self.constants[name] = value if value._a.__class__ is not TraceArray else wrap(_known(value._a.read()))
            found = self.nodes[id(value)] = self.graph.get_attr(name)
            self.kept.append(value)
        return found

    def check_writes(self, tensors: Sequence[Any]) -> None:
        """RuntimeError if memory was written to by what is not in the graph."""
        for t in tensors:
            if isinstance(t, Tensor) and t._a.__class__ is TraceArray:
                b = t._a.buffer
                if self.versions.get(id(b), 0) != b.version:
                    raise RuntimeError("make_fx: a traced tensor is written to by a call that is no operator of its own")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.table:
            with self:
                return self.table[func](*args, **kwargs)
        given = tree_leaves((args, kwargs))
        self.check_writes(given)
        out = func(*args, **kwargs)
        for t in (*given, *tree_leaves(out)):
            if isinstance(t, Tensor) and t._a.__class__ is TraceArray:
                self.versions[id(t._a.buffer)] = t._a.buffer.version
        given_args, given_kwargs = map_aggregate((args, kwargs), self.node)
        self.bind(out, self.graph.call_function(func, given_args, given_kwargs, name=func.overloadpacket._name))
        return out


def _known(node: Node) -> Any:
    """The array of a traced node that depends on no input and draws no number. RuntimeError if it does."""
    values: dict[Node, Any] = {}

    def compute(n: Node) -> Any:
        if n not in values:
            if n.op == "placeholder" or n.target in (run.draw, run.draw_into) or "random" in getattr(n.target, "tags", ()):
                raise RuntimeError(
                    "make_fx: a random mask or another tensor is made from traced values by a call that is no operator of its own "
                    "(as in dropout in training): it can't be part of the graph"
                )
            for read in n.all_input_nodes:
                compute(read)
            values[n] = run.compute(n, *map_arg((n.args, n.kwargs), values.__getitem__))
        return values[n]

    return compute(node)


def make_fx(
    f: Callable[..., Any], decomposition_table: Mapping[Any, Callable[..., Any]] | None = None, tracing_mode: str = "real", **options: Any
) -> Callable[..., GraphModule]:  # fmt: skip
    """`make_fx(f)(*args)` runs `f` and returns the GraphModule of the operators called, backward's too, for tensors of these sizes.

    RuntimeError for `tracing_mode="symbolic"`: sizes in the graph are numbers (torch docs: make_fx).
    """
    if tracing_mode == "symbolic":
        raise RuntimeError(
            'make_fx: tracing_mode="symbolic" is not supported: sizes in the graph are numbers; use "real" or "fake"'
        )
    if tracing_mode not in ("real", "fake"):
        raise AssertionError(f"make_fx: Unexpected tracing type: {tracing_mode}")

    @functools.wraps(f.forward if isinstance(f, Module) else f)
    def wrapped(*args: Any) -> GraphModule:
        leaves, spec = tree_flatten(args)
        names = [f"{name}_1" for name in _names(f, args)]
        title = getattr(f, "__name__", type(f).__name__)
        return record(lambda *fresh: f(*tree_unflatten(fresh, spec)), leaves, names, decomposition_table or {}, title)

    return wrapped


def record(
    function: Callable[..., Any], inputs: Sequence[Any], names: Sequence[str], table: Mapping[Any, Callable[..., Any]], title: str
) -> GraphModule:  # fmt: skip
    """The graph of the operators that `function(*inputs)` calls."""
    mode = _Recording(table)
    with trace.tracing(Graph()):
        fakes = []
        for leaf, wish in zip(inputs, names, strict=True):
            fake = _fake(leaf)
            mode.bind(fake, mode.graph.placeholder(wish))
            fakes.append(fake)
        _current.append(mode)
        try:
            with mode:
                out = function(*fakes)
            mode.check_writes([*fakes, *tree_leaves(out)])
            mode.graph.output(tree_map(mode.node, out))
        except trace.DataDependent as error:
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor - erroring out! It's likely that this is caused by "
                f"data-dependent control flow or similar: {error}"
            ) from error
        finally:
            _current.pop()
    return GraphModule(mode.constants, mode.graph, title)


def _fake(x: Any) -> Any:
    """A stand-in without data."""
    if not isinstance(x, Tensor):
        return x
    if device_of(x._a).type != "cpu" or any(n < 0 for n in x._a.strides):
        raise RuntimeError("make_fx: inputs must be tensors on the CPU without negative strides")
    fake: Any = wrap_as(type(x), trace.placeholder("x", x._a))
    fake._rg = x.requires_grad
    return fake.view_as(fake) if x.requires_grad and not x.is_leaf else fake


def _names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """A name for each leaf, by the parameter it is in."""
    try:
        parameters = list(inspect.signature(f.forward if isinstance(f, Module) else f).parameters)
    except (TypeError, ValueError):
        parameters = []
    found = []
    for i, arg in enumerate(args):
        name = parameters[i] if i < len(parameters) and parameters[i].isidentifier() else f"arg{i}"
        found += [name] * len(tree_flatten(arg)[0])
    return found
