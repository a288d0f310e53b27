"""Symbolic tracing: run a module on proxies that record what is done with them (torch docs: torch.fx.Tracer, torch.fx.Proxy)."""

from __future__ import annotations

import builtins
import inspect
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from tocha.device import device
from tocha.dtypes import dtype
from tocha.fx.codegen import _INFIX, _PREFIX
from tocha.fx.graph import Graph
from tocha.fx.graph_module import GraphModule
from tocha.fx.node import Argument, Node, map_aggregate
from tocha.nn import Module, ModuleList, Parameter, Sequential
from tocha.tensor import Tensor

_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


class TraceError(ValueError):
    """Python asked a proxy for something that only a real value has."""


class Proxy:
    """Stands for a node's value while a graph is recorded."""

    def __init__(self, node: Node, tracer: Tracer | None = None) -> None:
        self.node = node
        self.tracer = Tracer._of(node.graph) if tracer is None else tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k.startswith("__") and k.endswith("__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Proxy]:
        frame = inspect.currentframe()
        unpacked = _unpacks(frame.f_back) if frame is not None and frame.f_back is not None else None
        if unpacked is None:
            return self.tracer.iter(self)
        return iter([self[i] for i in range(unpacked)])

    def __getitem__(self, index: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, call torch.fx.wrap('len')"
        )

    def __contains__(self, item: Any) -> bool:
        raise TraceError("fx: `in` asks a proxy for its values, which symbolic tracing does not have")

    def keys(self) -> Any:
        """Asked for by ** of a proxy."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list[Tracer] = []
        map_aggregate((args, kwargs), lambda a: found.append(a.tracer) if isinstance(a, Proxy) else None)
        name = getattr(func, "__name__", "")
        if getattr(Tensor, name, None) is func or isinstance(func, _METHODS):
            return found[0].create_proxy("call_method", name, args, kwargs)
        return found[0].create_proxy("call_function", func, args, kwargs)


class Attribute(Proxy):
    """`x.name`, which is a node only if it isn't called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node of the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _unpacks(frame: types.FrameType) -> int | None:
    """How many values the running instruction unpacks."""
    code, at = frame.f_code.co_code, frame.f_lasti
    import dis

    return code[at + 1] if dis.opname[code[at]].startswith("UNPACK_SEQUENCE") else None


def _binary(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (other, self) if reflected else (self, other), {})

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: self.tracer.create_proxy("call_function", function, (self,), {})


for _name in _INFIX:
    _function, _plain = getattr(operator, _name), _name.strip("_")
    setattr(Proxy, f"__{_plain}__", _binary(_function, False))
    if _plain not in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Proxy, f"__r{_plain}__", _binary(_function, True))
for _name in (*_PREFIX, "abs"):
    setattr(Proxy, f"__{_name}__", _unary(getattr(operator, _name)))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


_WRAPPED: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have calls of a module-level function recorded as one node instead of traced through. Usable as a decorator."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(f"fx: wrap takes a global function or its name, got {type(fn_or_name).__name__}")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    if frame.f_back.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _WRAPPED[id(frame.f_back.f_globals), name] = (frame.f_back.f_globals, name)
    return fn_or_name


class _Patches:
    """Replaces globals and attributes while tracing, and puts them back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def item(self, scope: dict[str, Any], name: str, value: Any) -> None:
        missing, old = name not in scope, scope.get(name)
        scope[name] = value
        self._undo.append((lambda: scope.pop(name, None)) if missing else (lambda: scope.__setitem__(name, old)))

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        old = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, old))

    def __enter__(self) -> _Patches:
        return self

    def __exit__(self, *exc: Any) -> None:
        for undo in reversed(self._undo):
            undo()


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in that records a call if a proxy is among its arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
        if not found:
            return function(*args, **kwargs)
        return found[0].tracer.create_proxy("call_function", function, args, kwargs)

    return call


class Tracer:
    """Records graphs. Override `is_leaf_module` to choose which submodules stay calls."""

    def __init__(
        self,
        autowrap_modules: tuple[Any, ...] = (math,),
        autowrap_functions: tuple[Any, ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._wrapped_functions = {
            id(f): f for m in autowrap_modules for n, f in vars(m).items() if callable(f) and not n.startswith("_")
        }
        self._wrapped_functions.update({id(f): f for f in autowrap_functions})
        self.graph = Graph()
        self.root: Module = Module()
        self._paths: dict[int, str] = {}
        self._attributes: dict[int, Node] = {}
        self._constants: dict[int, str] = {}

    @classmethod
    def _of(cls, graph: Graph) -> Tracer:
        made = cls()
        made.graph = graph
        return made

    # ---- what subclasses override

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of this submodule is one node: torch's own layers are, containers not."""
        inside = type(m).__module__.startswith(("tocha.nn", "torch.nn"))
        return inside and not isinstance(m, (Sequential, ModuleList))

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a submodule does."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def iter(self, obj: Proxy) -> Any:
        """What iterating over a proxy does."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs function argument. "
            "See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control flow can be traced."
        )

    def keys(self, obj: Proxy) -> Any:
        """What ** of a proxy does."""
        return Attribute(obj, "keys")()

    def to_bool(self, obj: Proxy) -> bool:
        """What asking for a proxy's truth does."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def create_arg(self, a: Any) -> Argument:
        """A value as a node's argument."""
        return map_aggregate(a, self._leaf)

    # ---- recording

    def create_node(
        self, kind: str, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Argument], name: str | None = None, type_expr: Any = None
    ) -> Node:  # fmt: skip
        """A node in the graph that is recorded."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """What stands for a node."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None, type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """A node and what stands for it."""
        node = self.create_node(kind, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def _leaf(self, a: Any) -> Argument:
        if isinstance(a, Proxy):
            return a.node
        if (
            isinstance(a, Node)
            or a is None
            or isinstance(a, (bool, int, float, complex, str, bytes, dtype, device, type(Ellipsis), range))
        ):
            return a
        if isinstance(a, Tensor):
            return self._attribute(a)
        if isinstance(a, Module):
            raise NotImplementedError(f"fx: a module ({type(a).__name__}) can't be an argument of a node")
        if callable(a) or type(a).__module__.startswith("tocha"):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _attribute(self, a: Tensor) -> Node:
        """The get_attr node of a tensor: where root has it, or a constant put there."""
        path = self._paths.get(id(a)) or self._constants.get(id(a))
        if path is None:
            number = len(self._constants)
            while hasattr(self.root, f"_tensor_constant{number}"):
                number += 1
            path = self._constants[id(a)] = f"_tensor_constant{number}"
            setattr(self.root, path, a)
        return self.create_node("get_attr", path, (), {})

    def path_of_module(self, mod: Module) -> str:
        """The path of a submodule of root."""
        path = self._paths.get(id(mod))
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's forward or of a function. `concrete_args` fixes some of its arguments."""
        self.root = root if isinstance(root, Module) else Module()
        function: Any = type(root).forward if isinstance(root, Module) else root
        self.graph = Graph(self.root, tracer_cls=type(self))
        self._constants = {}
        self._paths = {id(m): name for name, m in self.root.named_modules()}
        held = (*self.root.named_parameters(), *self.root.named_buffers())
        self._paths.update({id(t): name for name, t in held})
        first = [self.root] if isinstance(root, Module) else []
        args, kwargs = self._inputs(function, bool(first), concrete_args or {})
        with _Patches() as patches:
            self._patch(patches, function)
            result = function(*first, *args, **kwargs)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    def _inputs(self, function: Any, is_method: bool, concrete: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Proxies (or given values) for a function's parameters."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        parameters = list(inspect.signature(function).parameters.values())[is_method:]
        for p in parameters:
            if p.name in concrete:
                value = concrete[p.name]
            elif p.kind is p.VAR_POSITIONAL:
                args.append(self.proxy(self.create_node("placeholder", f"*{p.name}", (), {})))
                continue
            elif p.kind is p.VAR_KEYWORD:
                kwargs[p.name] = self.proxy(self.create_node("placeholder", f"**{p.name}", (), {}))
                continue
            else:
                default = () if p.default is p.empty else (self.create_arg(p.default),)
                value = self.proxy(self.create_node("placeholder", p.name, default, {}))
            if p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _patch(self, patches: _Patches, function: Any) -> None:
        plain_call, plain_getattr = Module.__call__, Module.__getattr__

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            if id(module) not in self._paths:
                return plain_call(module, *args, **kwargs)
            return self.call_module(module, lambda *a, **k: plain_call(module, *a, **k), args, kwargs)

        def attribute(module: Module, name: str) -> Any:
            value = plain_getattr(module, name)
            if isinstance(value, (Parameter, Tensor)) and id(value) in self._paths:
                node = self._attributes.get(id(value)) if id(value) in self._attributes else None
                if node is None or node.graph is not self.graph:
                    node = self._attributes[id(value)] = self._attribute(value)
                return self.proxy(node)
            return value

        patches.attribute(Module, "__call__", call)
        patches.attribute(Module, "__getattr__", attribute)
        scope = function.__globals__
        for name, value in list(scope.items()):
            if id(value) in self._wrapped_functions and callable(value):
                patches.item(scope, name, _recorded(value))
        for frame_dict, name in _WRAPPED.values():
            original = frame_dict.get(name, getattr(builtins, name, None))
            if original is not None:
                patches.item(frame_dict, name, _recorded(original))


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A GraphModule of a module or function (torch docs: torch.fx.symbolic_trace)."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
