"""torch.fx.experimental.proxy_tensor: `make_fx`, a function run once on real tensors and recorded as a graph of aten calls."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.fx import Graph, GraphModule, Node
from tocha.fx.node import map_aggregate
from tocha.nn import Module
from tocha.overrides import BaseTorchFunctionMode
from tocha.tensor import Tensor, wrap
from tocha.utils._python_dispatch import TorchDispatchMode
from tocha.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["get_proxy_mode", "make_fx"]

_ASKS = frozenset(
    (
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__array__",
        "item",
        "tolist",
        "numpy",
        "equal",
        "is_nonzero",
        "allclose",
    )
)
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
            self.constants[name] = value
            found = self.nodes[id(value)] = self.graph.get_attr(name)
            self.kept.append(value)
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.table:
            with self:
                return self.table[func](*args, **kwargs)
        out = func(*args, **kwargs)
        given_args, given_kwargs = map_aggregate((args, kwargs), self.node)
        self.bind(out, self.graph.call_function(func, given_args, given_kwargs, name=func.overloadpacket._name))
        return out


class _Questions(BaseTorchFunctionMode):
    """Refuses to say what values traced tensors have: the graph would hold for these values alone."""

    def __init__(self, recording: _Recording) -> None:
        self.recording = recording

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _ASKS and any(id(a) in self.recording.nodes for a in args):
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor with {name} - erroring out! It's likely that "
                "this is caused by data-dependent control flow or similar."
            )
        return func(*args, **(kwargs or {}))


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
    fresh = []
    for leaf, wish in zip(inputs, names, strict=True):
        node = mode.graph.placeholder(wish)
        if isinstance(leaf, Tensor) and id(leaf) in mode.nodes:
            leaf = leaf.view_as(leaf)  # given twice: two inputs
        mode.bind(leaf, node)
        fresh.append(leaf)
    _current.append(mode)
    try:
        with mode, _Questions(mode):
            out = function(*fresh)
    finally:
        _current.pop()
    mode.graph.output(tree_map(mode.node, out))
    return GraphModule(mode.constants, mode.graph, title)


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
