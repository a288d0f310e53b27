"""A node of a graph: one call, one input, one attribute or the output (torch docs: torch.fx.Node)."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocha.fx.graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
Argument = Any  # a node, a number, string, None, dtype, device …, or tuples, lists, dicts and slices of them


class Node:
    """`op` says what `target` means.

    placeholder: an input, target its name. get_attr: an attribute of the owning module, target its path. call_function: target is the
    function. call_method: target is a method's name, args[0] the object. call_module: target is a submodule's path. output: args[0] is
    what the graph returns. `users` are the nodes that read this one, `meta` is for passes to keep what they know of it.
    """

    def __init__(
        self, graph: Graph, name: str, op: str, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Argument], return_type: Any = None
    ) -> None:  # fmt: skip
        if op not in OPS:
            raise AssertionError(f"fx: op {op!r} is none of {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"fx: a call_function node's target must be callable, got {target!r}")
        if op not in ("call_function", "output") and not isinstance(target, str):
            raise ValueError(f"fx: a {op} node's target must be a string, got {target!r}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.stack_trace: str | None = None
        self._prev = self._next = self
        self._erased = False
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._input_nodes: dict[Node, None] = {}
        self._set_inputs(args, kwargs)

    # ---- position

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move or insert `x` before this node."""
        if x.graph is not self.graph:
            raise AssertionError("fx: a node can only be moved within its graph")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move or insert `x` after this node."""
        self._next.prepend(x) if x is not self._next else None

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # ---- inputs

    @property
    def args(self) -> tuple[Argument, ...]:
        """Positional arguments; assigning keeps `users` right."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._set_inputs(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """Keyword arguments; assigning keeps `users` right."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._set_inputs(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def _set_inputs(self, args: Any, kwargs: Any) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        found: dict[Node, None] = {}

        def see(node: Node) -> Node:
            found[node] = None
            node.users.setdefault(self)
            return node

        self._args, self._kwargs = map_arg(tuple(args), see), map_arg(dict(kwargs), see)
        self._input_nodes = found

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put a positional argument before the one at `idx`."""
        args = list(self._args)
        args.insert(idx, arg)
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read `new_input` wherever `old_input` is read."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set_inputs(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Make every user (for which `delete_user_cb` holds) read `replace_with`. Returns the users changed."""
        if propagate_meta:
            replace_with.meta.update({k: v for k, v in self.meta.items() if k not in replace_with.meta})
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node must stay even if nobody reads it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_method":
            name = self.target
            return name.endswith("_") and not name.endswith("__")
        if self.op == "call_function":
            if getattr(self.target, "impure", False):
                return True
            name = getattr(self.target, "__name__", "")
            return (
                (name.endswith("_") and not name.endswith("__"))
                or name in ("setitem", "delitem", "setattr")
                or "out" in self._kwargs
            )
        if self.op == "call_module":
            module = self.graph.owning_module
            return bool(getattr(module.get_submodule(self.target), "is_impure", False)) if module is not None else True
        return False

    def format_node(self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None) -> str:
        """One line in the form of the graph's listing."""
        if self.op == "placeholder":
            default = f"(default={self._args[0]!r})" if self._args else ""
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "output":
            return f"return {show(self._args[0], '%')}" if self._args else "return"
        target = self.target if isinstance(self.target, str) else qualified_name(self.target)
        line = f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
        if self.op == "get_attr":
            return line
        given = ", ".join(f"{k}: {show(v, '%')}" for k, v in self._kwargs.items())
        return f"{line}(args = {show(self._args, '%')}, kwargs = {{{given}}})"

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.get(id(self), self)

    # Nodes are compared and hashed by identity; names sort them in their graph's order.
    def __lt__(self, other: Node) -> bool:
        return self._position() < other._position()

    def _position(self) -> int:
        return next(i for i, node in enumerate(self.graph.nodes) if node is self)


_LEAVES = frozenset((int, float, bool, str, type(None)))


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """The argument with every node replaced by `fn(node)`."""
    kind = a.__class__
    if kind is Node:
        return fn(a)
    if kind in _LEAVES:
        return a
    if kind is tuple:
        return tuple([map_arg(x, fn) for x in a])
    if kind is dict:
        return {k: map_arg(v, fn) for k, v in a.items()}
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Argument:
    """The argument with every leaf replaced by `fn(leaf)`; containers are rebuilt."""
    kind = a.__class__
    if kind is tuple:
        return tuple([map_aggregate(x, fn) for x in a])
    if kind is list:
        return [map_aggregate(x, fn) for x in a]
    if kind is dict:
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if kind is slice:
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return kind(*items) if hasattr(a, "_fields") else kind(items)
    if isinstance(a, list):
        return kind([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return kind({k: map_aggregate(v, fn) for k, v in a.items()})
    return fn(a)


def qualified_name(function: Any) -> str:
    """Where a function is found: `torch.relu`, `math.sqrt`, `len`."""
    name = getattr(function, "__name__", None) or type(function).__name__
    module = getattr(function, "__module__", None)
    if module is None or module == builtins.__name__ or getattr(builtins, name, None) is function:
        return str(name)
    if isinstance(function, (types.BuiltinFunctionType, types.BuiltinMethodType)) and module == "_operator":
        module = "operator"
    return f"{str(module).replace('tocha', 'torch', 1)}.{name}"


def show(a: Any, prefix: str = "") -> str:
    """An argument as source text, nodes as `prefix` and their name."""
    if isinstance(a, Node):
        return prefix + a.name
    kind = a.__class__
    if kind is tuple:
        return "(" + ", ".join([show(x, prefix) for x in a]) + (",)" if len(a) == 1 else ")")
    if kind is list:
        return "[" + ", ".join([show(x, prefix) for x in a]) + "]"
    if kind is dict:
        return "{" + ", ".join([f"{k!r}: {show(v, prefix)}" for k, v in a.items()]) + "}"
    if kind is slice:
        return f"slice({show(a.start, prefix)}, {show(a.stop, prefix)}, {show(a.step, prefix)})"
    if isinstance(a, (types.FunctionType, types.BuiltinFunctionType, type)):
        return qualified_name(a)
    return repr(a)
