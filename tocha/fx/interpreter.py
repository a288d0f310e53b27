"""Graphs run node by node (torch docs: torch.fx.Interpreter), and rewritten by running (torch.fx.Transformer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tocha.fx.graph import Graph
from tocha.fx.graph_module import GraphModule
from tocha.fx.node import Argument, Node, map_arg
from tocha.fx.proxy import Proxy, Tracer
from tocha.nn import Module


class Interpreter:
    """Runs a GraphModule; subclasses override what a kind of node does."""

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module: Any = module
        self.graph: Graph = graph if graph is not None else self.module.graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self.args_iter: Iterator[Any] = iter(())
        self._last: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for read in node.all_input_nodes:
                    if read not in seen:
                        seen.add(read)
                        self._last.setdefault(node, []).append(read)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The graph's result for these inputs; values in `initial_env` are not computed."""
        self.env = {} if initial_env is None else dict(initial_env)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                error.add_note(
                    f"While executing {node.format_node()}"
                    + (f"\nOriginal traceback:\n{node.stack_trace}" if node.stack_trace else "")
                )
                raise
            for read in self._last.get(node, ()):
                del self.env[read]
            if node.op == "output":
                return self.env[node]
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` that empties the list of its inputs, so that they can be freed."""
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """A node's value."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next input, or its default."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"fx: no value was given for input {target!r}") from None

    def get_attr(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The attribute."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The function's result."""
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The method's result."""
        this, *rest = args
        return getattr(this, target)(*rest, **kwargs)

    def call_module(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The submodule's result."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What is returned."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute at a path."""
        found: Any = self.module
        for i, part in enumerate(parts := target.split(".")):
            if not hasattr(found, part):
                raise RuntimeError(f"fx: the module has no {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """A node's arguments with values for nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """An argument with values for nodes."""
        return map_arg(args, lambda read: self.env[read])


class Transformer(Interpreter):
    """Runs a graph on proxies, so that overridden methods make the new graph's nodes."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _Into(self.new_graph, module)

    def placeholder(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A proxy for the input."""
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...), self.tracer)

    def get_attr(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A proxy for the attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the same submodule."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the same function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the same method."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            self.new_graph.output(map_arg(self.tracer.create_arg(result), lambda n: n))
        return GraphModule(self.module, self.new_graph)


class _Into(Tracer):
    """Records into a given graph."""

    def __init__(self, graph: Graph, root: Module) -> None:
        super().__init__()
        self.graph, self.root = graph, root
