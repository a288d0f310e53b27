"""Values of compiled graphs as data: what JSON holds, from which another process makes them again.

    data ::= null | bool | int | string | [kind, …]       kind: a name in `maker`

A function is data by where it is found in this package, machine code by the object it is in (tocha.inductor.memo), a node by what its kernels
are chosen by. What has no such description, closures and objects of a program's for example, is refused: Opaque.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.aot import run
from tocha.backends import _native_products
from tocha.backends.meta import MetaArray
from tocha.device import Size, device, layout
from tocha.dispatch.prim import REGISTRY, Prim
from tocha.dtypes import dtype
from tocha.fx import Graph, Node, map_arg
from tocha.inductor import memo

_LARGEST = 1 << 12  # elements of arrays that are kept
_MODULES = frozenset(("tocha", "builtins", "operator", "_operator", "math", "numpy"))


class Opaque(LookupError):
    """A value that nothing outside this process describes."""


@dataclasses.dataclass(frozen=True)
class Made:
    """How a value is made, to be described in its place: by `function(*args)`. Equal ones that are `shared` are made once for a graph."""

    function: Any
    args: tuple[Any, ...]
    shared: bool = False

    @functools.cached_property
    def data(self) -> Any:
        """What `described` gives."""
        return ["shared" if self.shared else "call", described(self.function), *map(described, self.args)]


def described(x: Any) -> Any:
    """A value as data. Opaque."""
    kind = x.__class__
    if x is None or kind is bool or kind is int or kind is str:
        return x
    return _rule(kind)(x)


@functools.lru_cache
def _rule(kind: type) -> Callable[[Any], Any]:
    for kinds, describe in _DESCRIBED:
        if issubclass(kind, kinds):
            return describe
    if hasattr(kind, "described"):
        return lambda x: described(x.described())
    if dataclasses.is_dataclass(kind):
        return lambda x: described(Made(kind, tuple([getattr(x, f.name) for f in dataclasses.fields(x)])))
    return _place


def ours(target: Any) -> bool:
    """Whether what a node calls is this package's, whose sources are known."""
    if isinstance(target, Prim):
        return REGISTRY.get(target.name) is target and (target.impl.__module__ or "").startswith("tocha.")
    return target is operator.getitem or getattr(target, "__module__", "") == run.__name__


def _place(x: Any) -> Any:
    """Module and name of a function, class or module of this package or the standard library's plainest."""
    module, name = str(getattr(x, "__module__", None) or getattr(x, "__name__", "")), getattr(x, "__qualname__", "")
    root, *rest = module.split(".")
    module = ".".join(["tocha" if root == "torch" else root, *rest])
    with contextlib.suppress(ImportError, AttributeError):
        if module.split(".")[0] in _MODULES and "<" not in name and _found(module, name) is x:
            return ["name", module, name]
    raise Opaque(x)


def _found(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split(".") if name else (), importlib.import_module(module))


@functools.lru_cache
def _type(found: Any) -> str:
    if np.dtype(found.name) is not found:
        raise Opaque(found)
    return str(found.name)


def _array(x: Any) -> Any:
    if x.size > _LARGEST or x.dtype.hasobject or any(s < 0 for s in x.strides):
        raise Opaque("an array")
    return ["array", _type(x.dtype), list(x.shape), list(x.strides), x.tobytes().hex()]


def _node(n: Node) -> Any:
    def leaf(a: Node) -> Made:
        return Made(_call, (run.constant if a.target is run.constant else run.window, (), {}, a.meta["val"], (), None))

    parts = [u.args[1] for u in n.users if u.target is operator.getitem]
    args = n.target, map_arg(n.args, leaf), map_arg(n.kwargs, leaf), n.meta.get("val"), parts, n.meta.get("winograd")
    return described(Made(_call, args))


def _call(target: Any, args: Any, kwargs: Any, value: Any, parts: Any, winograd: Any) -> Node:
    """A node as `_node` describes it; of its operands only their values' layout is known, and whether they are constant."""
    graph = Graph()
    node = Node(graph, "x", "call_function", target, args, kwargs)
    node.meta.update({k: v for k, v in (("val", value), ("winograd", winograd)) if v is not None})
    for part in parts:
        Node(graph, "x", "call_function", operator.getitem, (node, part), {})
    return node


#: The first that fits a value's class describes it.
_DESCRIBED: list[tuple[Any, Callable[[Any], Any]]] = [
    (Made, lambda x: x.data),
    ((types.FunctionType, type), functools.lru_cache(_place)),
    (list, lambda x: ["list", *map(described, x)]),
    (_native_products.Hole, lambda x: ["call", _place(x.__class__), ["code", memo.origins[x.finish]], *map(described, x[1:])]),
    (Size, lambda x: described(Made(Size, (tuple(x),)))),
    (tuple, lambda x: described(Made(type(x), tuple(x))) if hasattr(x, "_fields") else ["tuple", *map(described, x)]),
    (np.dtype, lambda x: ["dtype", _type(x)]),
    (MetaArray, lambda x: described(Made(MetaArray, (tuple(x.shape), x.dtype, tuple(x.strides))))),
    (Node, _node),
    (Prim, lambda x: ["prim", x.name] if ours(x) else _place(x)),
    (types.BuiltinFunctionType, lambda x: ["code", memo.origins[x]] if x in memo.origins else _place(x)),
    (np.ndarray, _array),
    (np.generic, lambda x: described(Made(operator.getitem, (np.asarray(x), ())))),
    (float, lambda x: ["float", x.hex()]),
    (dict, lambda x: ["dict", *[[described(k), described(v)] for k, v in x.items()]]),
    (frozenset, lambda x: described(Made(frozenset, (sorted(x),)))),
    (run.Constant, lambda x: described(Made(run.Constant, (x.array,)))),
    (device, lambda x: described(Made(device, (str(x),)))),
    ((dtype, layout), lambda x: described(Made(getattr, (sys.modules["tocha"], repr(x)[len("torch.") :])))),
]


def maker() -> Callable[[Any], Any]:
    """A function that makes values from data; it raises anything where those are wrong."""
    shared: dict[str, Any] = {}

    def call(function: Any, *args: Any) -> Any:
        return made(function)(*map(made, args))

    def once(*data: Any) -> Any:
        what = json.dumps(data)
        return shared[what] if what in shared else shared.setdefault(what, call(*data))

    def array(type: Any, shape: Any, strides: Any, text: str) -> Any:
        return run.laid_out(np.frombuffer(bytes.fromhex(text), np.dtype(type)).reshape(shape), tuple(strides), copy=True)

    kinds: dict[str, Callable[..., Any]] = {
        "tuple": lambda *x: tuple(map(made, x)), "list": lambda *x: list(map(made, x)), "dict": lambda *x: {made(k): made(v) for k, v in x},
        "float": float.fromhex, "dtype": np.dtype, "array": array, "call": call, "shared": once, "prim": REGISTRY.__getitem__,
        "code": memo.restored, "name": functools.cache(_found),
    }  # fmt: skip

    def made(data: Any) -> Any:
        return kinds[data[0]](*data[1:]) if data.__class__ is list else data

    return made
