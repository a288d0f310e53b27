"""A graph of primitives as an fx module of tensors, for compilers that read torch.fx graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tocha.aot import run
from tocha.fx import Graph, GraphModule, Node, map_arg
from tocha.fx.node import map_aggregate
from tocha.tensor import Tensor, wrap


class OnTensors:
    """A node's target (a primitive, a rule, or a function of tocha.aot.run) as a function of tensors."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.__name__ = getattr(target, "name", None) or target.__name__
        self.__module__ = "prims"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        read_args, read_kwargs = map_aggregate((args, kwargs), lambda a: a._a if isinstance(a, Tensor) else a)
        with np.errstate(all="ignore"):
            got: Any = run.compute(SimpleNamespace(target=self.target), read_args, read_kwargs)  # type: ignore[arg-type]
        if isinstance(got, tuple):
            return tuple([wrap(a) for a in got])
        return wrap(got) if isinstance(got, (np.ndarray, np.generic)) else got


def as_module(graph: Graph) -> GraphModule:
    """The module; a node's `meta["val"]` is a tensor of the meta device. It returns a tuple."""
    new = Graph()
    copies: dict[Node, Node] = {}
    wrapped: dict[Any, OnTensors] = {}
    for node in graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__module__", "") != "_operator":
            args, kwargs = map_arg((node.args, node.kwargs), copies.__getitem__)
            target = wrapped.setdefault(node.target, OnTensors(node.target))
            made: Node = new.call_function(target, args, kwargs, name=node.name)
        elif node.op == "output":
            made = new.output(tuple([None if n is None else copies[n] for n in node.args[0]]))
        else:
            made = new.node_copy(node, copies.__getitem__)
        copies[node] = made
        if "val" in node.meta:
            made.meta["val"] = map_aggregate(node.meta["val"], _shown)
    return GraphModule({}, new)


def _shown(value: Any) -> Any:
    return wrap(value) if hasattr(value, "strides") else value
