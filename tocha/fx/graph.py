"""Graphs: programs without control flow, as a list of nodes (torch docs: torch.fx.Graph).

    graph ::= placeholder* node* output        a node reads only nodes before it; names are unique

`lint` verifies it; `python_code` prints it as a Python function.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

from tocha.fx.codegen import PythonCode, python_code
from tocha.fx.node import Argument, Node, map_arg, qualified_name


class Names:
    """Hands out identifiers that are unique in a graph."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wish: str) -> str:
        """`wish` made an identifier, with a number if it is taken."""
        wish, stem, free = _identifier(wish)
        if free and wish not in self._used:
            self._used.add(wish)
            return wish
        number = self._next.get(stem, 0) + 1
        while f"{stem}_{number}" in self._used:
            number += 1
        self._next[stem] = number
        self._used.add(f"{stem}_{number}")
        return f"{stem}_{number}"


_RESERVED = frozenset((*dir(builtins), "self", "torch", "inf", "nan", "device", "dtype"))


@functools.lru_cache(maxsize=4096)
def _identifier(wish: str) -> tuple[str, str, bool]:
    """`wish` made an identifier, what numbers are put to, and whether it may be used as it is."""
    wish = re.sub(r"[^0-9a-zA-Z_]+", "_", wish) or "node"
    if wish[0].isdigit():
        wish = f"_{wish}"
    return wish, re.sub(r"_\d+$", "", wish), not keyword.iskeyword(wish) and wish not in _RESERVED


@functools.lru_cache(maxsize=4096)
def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).strip("_").lower()


class NodeList:
    """The nodes in order; reversed() works, and erasing while iterating too."""

    def __init__(self, graph: Graph, forwards: bool = True) -> None:
        self.graph, self._forwards = graph, forwards

    def __len__(self) -> int:
        return self.graph._count

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._next if self._forwards else root._prev
        while node is not root:
            if not node._erased:
                yield node
            node = node._next if self._forwards else node._prev

    def __reversed__(self) -> NodeList:
        return NodeList(self.graph, not self._forwards)


class Graph:
    """See the module's text. `owning_module` holds what get_attr and call_module nodes name."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: dict[str, Any] | None = None) -> None:
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras
        self._names = Names()
        self._count = 0
        self._root = Node(self, "", "output", "root", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self.meta: dict[str, Any] = {}

    # ---- reading

    @property
    def nodes(self) -> NodeList:
        """The nodes in order."""
        return NodeList(self)

    def output_node(self) -> Node:
        """The output."""
        last = self._root._prev
        if last.op != "output" or last is self._root:
            raise AssertionError("fx: the graph has no output")
        return last

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """Nodes of one kind, in order."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def __str__(self) -> str:
        placeholders = ", ".join(f"%{n.name}" for n in self.nodes if n.op == "placeholder")
        body = "\n".join(f"    {n.format_node()}" for n in self.nodes)
        return f"graph({placeholders}):\n{body}"

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        for row in rows:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    # ---- building

    def create_node(
        self, op: str, target: Any, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A new node at the insertion point (the end, or as `inserting_before` says)."""
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise AssertionError("fx: args must be a tuple and kwargs a dict")
        node = Node(self, self._names.take(name or self._wish(op, target)), op, target, args, kwargs, type_expr)
        for read in node._input_nodes:
            if read.graph is not self:
                raise RuntimeError(
                    f"fx: argument {read.name!r} of {node.name!r} is a node of another graph; use node_copy or graph_copy"
                )
        self._insert(node)
        self._count += 1
        return node

    @staticmethod
    def _wish(op: str, target: Any) -> str:
        if isinstance(target, str):
            return target.lstrip("*").replace(".", "_") if op != "output" else "output"
        name = getattr(target, "__name__", None) or getattr(target, "name", None) or type(target).__name__
        return _snake_case(str(name))

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input."""
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """An attribute of the owning module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None, type_expr: Any = None
    ) -> Node:  # fmt: skip
        """A call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None, type_expr: Any = None
    ) -> Node:  # fmt: skip
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What the graph returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    @contextlib.contextmanager
    def inserting_before(self, n: Node | None = None) -> Iterator[None]:
        """New nodes come before `n` (the first node if it is None)."""
        at = self._root._next if n is None else n
        with self._inserting(at.prepend):
            yield

    @contextlib.contextmanager
    def inserting_after(self, n: Node | None = None) -> Iterator[None]:
        """New nodes come after `n`, in the order they are made (before everything if it is None)."""
        last = [self._root if n is None else n]

        def insert(node: Node) -> None:
            last[0]._next.prepend(node)
            last[0] = node

        with self._inserting(insert):
            yield

    @contextlib.contextmanager
    def _inserting(self, insert: Callable[[Node], None]) -> Iterator[None]:
        before, self._insert = self._insert, insert
        try:
            yield
        finally:
            self._insert = before

    # ---- changing

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nobody reads."""
        if to_erase.users:
            raise RuntimeError(
                f"fx: tried to erase node {to_erase.name!r}, but it still has {len(to_erase.users)} users: "
                f"{', '.join(u.name for u in to_erase.users)}"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"fx: node {to_erase.name!r} belongs to another graph")
        if to_erase._erased:
            return
        to_erase._set_inputs((), {})
        to_erase._unlink()
        to_erase._erased = True
        self._count -= 1

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda n: n) -> Node:
        """A copy of a node of any graph; `arg_transform` maps the nodes it reads to this graph's."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta, copied.stack_trace = copy.copy(node.meta), node.stack_trace
        return copied

    def graph_copy(self, g: Graph, val_map: dict[Node, Argument], return_output_node: bool = False) -> Any:
        """Copy all nodes of `g` (those not in `val_map`) here. Returns what g's output would be, or None."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase what nobody reads and has no effect. Whether there was any."""
        impure = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        copied = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = copied
        val_map: dict[Node, Argument] = {}
        got = copied.graph_copy(self, val_map, return_output_node=True)
        if got is not None:
            result, old = got
            copied.output(result, old.type).meta = copy.copy(old.meta)
        return copied

    # ---- checking and printing

    def lint(self) -> None:
        """Raise RuntimeError where the grammar at the top of this file doesn't hold."""
        seen: set[Node] = set()
        names: set[str] = set()
        body = False
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"fx: node {node.name!r} belongs to another graph")
            if node.name in names:
                raise RuntimeError(f"fx: two nodes are called {node.name!r}")
            if node.op == "placeholder" and body:
                raise RuntimeError(f"fx: placeholder {node.name!r} comes after other nodes")
            body = body or node.op not in ("placeholder", "get_attr")
            for read in node._input_nodes:
                if read not in seen:
                    raise RuntimeError(f"fx: node {node.name!r} reads {read.name!r}, which is not defined before it")
                if node not in read.users:
                    raise RuntimeError(f"fx: node {read.name!r} doesn't know its user {node.name!r}")
            if node.op in ("get_attr", "call_module") and self.owning_module is not None:
                _find(self.owning_module, node)
            seen.add(node)
            names.add(node.name)

    def python_code(self, root_module: str = "self", *, verbose: bool = False, **options: Any) -> PythonCode:
        """The graph as source of a function `forward`, with the globals it needs."""
        return python_code(self, root_module, verbose=verbose)


def _find(module: Any, node: Node) -> Any:
    """What a get_attr or call_module node names."""
    found = module
    for part in node.target.split("."):
        if not hasattr(found, part):
            raise RuntimeError(
                f"fx: node {node.name!r} names {node.target!r}, which the owning module has not ({part!r} is missing)"
            )
        found = getattr(found, part)
    return found


__all__ = ["Graph", "Names", "NodeList", "qualified_name"]
