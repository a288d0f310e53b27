"""A module whose forward is a graph (torch docs: torch.fx.GraphModule)."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import linecache
import os
import re
import types
from pathlib import Path
from typing import Any

from tocha.fx.graph import Graph
from tocha.fx.node import Node, map_aggregate
from tocha.nn import Module, Parameter
from tocha.tensor import Tensor

_count = 0


def compile_source(src: str, names: dict[str, Any]) -> Any:
    """Run generated source and return its `forward`; tracebacks show the source's lines."""
    global _count
    _count += 1
    filename = f"<graph {_count}>"
    linecache.cache[filename] = (len(src), None, src.splitlines(keepends=True), filename)
    scope = dict(names)
    exec(compile(src, filename, "exec"), scope)
    return scope["forward"]


class GraphModule(Module):
    """`root` (a module or a dict of attributes) supplies what the graph names; changing the graph asks for `recompile()`."""

    _code: str

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # forward belongs to the instance, but calls look it up in the class: so each instance has a class of its own.
        base = next(c for c in cls.__mro__ if "forward" not in c.__dict__ or not getattr(c, "_of_instance", False))
        made = type(base.__name__, (base,), {"_of_instance": True, "__module__": base.__module__})
        return super().__new__(made)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        wanted = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for target in wanted:
                _copy_attribute(root, self, target)
        elif isinstance(root, dict):
            missing = [t for t in wanted if t not in root]
            if missing:
                raise RuntimeError(f"fx: the graph names {missing[0]!r}, which root has not")
            for target in sorted(set(wanted), key=lambda t: t.count(".")):
                _set_attribute(self, target, root[target])
        else:
            raise RuntimeError(f"fx: GraphModule's root must be a Module or a dict, got {type(root).__name__}")
        self.graph = graph
        self.meta: dict[str, Any] = {}

    @property
    def graph(self) -> Graph:
        """The graph; assigning recompiles."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        object.__setattr__(self, "_graph", graph)
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        return self._code

    def recompile(self) -> Any:
        """Make forward anew from the graph."""
        printed = self._graph.python_code("self")
        object.__setattr__(self, "_code", printed.src)
        type(self).forward = compile_source(printed.src, printed.globals)
        return printed

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The source with types and shapes, printed and returned."""
        body = self._graph.python_code("self", verbose=True).src.replace("\n", "\n    ").rstrip()
        text = f"class {type(self).__name__}(torch.nn.Module):\n    {body}\n"
        if print_output:
            print(text)
        return text

    def add_submodule(self, target: str, m: Module) -> bool:
        """Install a submodule at a path, making modules on the way."""
        _set_attribute(self, target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the submodule at a path. Whether there was one."""
        parent, _, name = target.rpartition(".")
        try:
            owner = self.get_submodule(parent)
        except AttributeError:
            return False
        if name not in owner._modules:
            return False
        delattr(owner, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove submodules that no node names."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                if node.op == "call_module":
                    used.update(f"{node.target}.{n}" for n, _ in self.get_submodule(node.target).named_modules() if n)
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the source to folder/module.py and the state to folder/state_dict.pt."""
        import tocha

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        tocha.save(self.state_dict(), path / "state_dict.pt")
        (path / "module.py").write_text(self.print_readable(False).replace(type(self).__name__, module_name, 1))

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        attributes = {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        copied = GraphModule({}, Graph(), type(self).__name__)
        memo[id(self)] = copied
        copied.__dict__.update(attributes)
        copied.graph = copy.deepcopy(self._graph, memo)
        return copied

    __copy__ = None

    def __reduce__(self) -> Any:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _rebuild, (type(self).__name__, _plain(self._graph), state)


def _plain(graph: Graph) -> list[tuple[Any, ...]]:
    """A graph as data: nodes by number, functions by where they are found."""
    number = {node: i for i, node in enumerate(graph.nodes)}

    def leaf(a: Any) -> Any:
        if isinstance(a, Node):
            return _Numbered(number[a])
        return _Named(a.__module__, a.__qualname__) if isinstance(a, (types.FunctionType, types.BuiltinFunctionType)) else a

    return [(n.op, leaf(n.target), map_aggregate(n.args, leaf), map_aggregate(n.kwargs, leaf), n.name) for n in graph.nodes]


@dataclasses.dataclass
class _Numbered:
    """A node in pickled arguments."""

    number: int


@dataclasses.dataclass
class _Named:
    """A function in a pickled graph."""

    module: str
    path: str

    def find(self) -> Any:
        module = re.sub(r"^torch\b", "tocha", self.module)
        return functools.reduce(getattr, self.path.split("."), importlib.import_module(module))


def _rebuild(name: str, rows: list[tuple[Any, ...]], state: dict[str, Any]) -> GraphModule:
    graph = Graph()
    made: list[Node] = []

    def leaf(a: Any) -> Any:
        return made[a.number] if isinstance(a, _Numbered) else a.find() if isinstance(a, _Named) else a

    for op, target, args, kwargs, wish in rows:
        made.append(graph.create_node(op, leaf(target), map_aggregate(args, leaf), map_aggregate(kwargs, leaf), wish))
    module = GraphModule({}, Graph(), name)
    module.__dict__.update(state)
    module.graph = graph
    return module


def _copy_attribute(source: Any, to: Module, target: str) -> None:
    *path, name = target.split(".")
    for part in path:
        source = getattr(source, part)
        below = getattr(to, part, None)
        if below is source:  # a whole submodule is shared already
            return
        if below is None:
            below = Module()
            setattr(to, part, below)
        to = below
    if not hasattr(source, name):
        raise AttributeError(f"fx: the graph names {target!r}, which root has not")
    _install(to, name, getattr(source, name))


def _set_attribute(to: Module, target: str, value: Any) -> None:
    *path, name = target.split(".")
    for part in path:
        below = getattr(to, part, None)
        if below is None:
            below = Module()
            setattr(to, part, below)
        to = below
    _install(to, name, value)


def _install(to: Module, name: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to.register_buffer(name, value)
    else:
        setattr(to, name, value)
