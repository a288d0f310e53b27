"""Graphs printed as Python functions."""

from __future__ import annotations

import builtins
import dataclasses
import operator
import re
import sys
from typing import TYPE_CHECKING, Any

from tocha.fx.node import Node, qualified_name

if TYPE_CHECKING:
    from tocha.fx.graph import Graph


@dataclasses.dataclass
class PythonCode:
    """`src` defines `forward`; `globals` are the names it uses."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int] | None = None


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and_": "&", "or_": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PREFIX = {"neg": "-", "pos": "+", "invert": "~"}
_BY_FUNCTION = {getattr(operator, name): sign for name, sign in _INFIX.items()}
_BY_FUNCTION_1 = {getattr(operator, name): sign for name, sign in _PREFIX.items()}
_PLAIN = (bool, int, str, bytes, type(None), type(Ellipsis))


class _Printer:
    """Writes expressions and collects the globals they name."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.globals: dict[str, Any] = {}

    def name(self, value: Any, wish: str) -> str:
        """A global name that stands for `value`."""
        wish = re.sub(r"[^0-9a-zA-Z_]+", "_", wish)
        found, number = wish, 1
        while found in self.globals and self.globals[found] is not value:
            found, number = f"{wish}_{number}", number + 1
        self.globals[found] = value
        return found

    def function(self, target: Any) -> str:
        """A function by where it is found (`torch.cat`, `math.sqrt`, `len`), or by a global name."""
        if hasattr(target, "overloadpacket"):
            self.globals["torch"] = sys.modules["tocha"]
            return f"torch.ops.{target.namespace}.{target.__name__}"
        path = qualified_name(target)
        head, *rest = path.split(".")
        if not rest:
            return path if getattr(builtins, path, None) is target else self.name(target, path)
        module = sys.modules.get("tocha" if head == "torch" else head)
        found = module
        for part in rest:
            found = getattr(found, part, None)
        if found is not target or self.globals.get(head, module) is not module:
            return self.name(target, path)
        self.globals[head] = module
        return path

    def argument(self, a: Any) -> str:
        """Source text of an argument."""
        if isinstance(a, Node):
            return a.name
        kind = a.__class__
        if kind in _PLAIN:
            return repr(a)
        if kind is float:
            return repr(a) if a - a == 0 else f"float('{a}')"
        if kind is tuple:
            return "(" + ", ".join([self.argument(x) for x in a]) + (",)" if len(a) == 1 else ")")
        if kind is list:
            return "[" + ", ".join([self.argument(x) for x in a]) + "]"
        if kind is dict:
            return "{" + ", ".join([f"{self.argument(k)}: {self.argument(v)}" for k, v in a.items()]) + "}"
        if kind is slice:
            return f"slice({self.argument(a.start)}, {self.argument(a.stop)}, {self.argument(a.step)})"
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.name(kind, kind.__name__)}({', '.join([self.argument(x) for x in a])})"
        if callable(a):
            return self.function(a)
        return self.name(a, str(a) if re.fullmatch(r"[^\W\d][\w.]*", str(a)) else f"_{kind.__name__}")

    def call(self, target: str, node: Node, skip: int = 0) -> str:
        given = [self.argument(a) for a in node.args[skip:]]
        given += [
            f"{k}={self.argument(v)}" if k.isidentifier() else f"**{{{k!r}: {self.argument(v)}}}" for k, v in node.kwargs.items()
        ]
        return f"{target}({', '.join(given)})"

    def expression(self, node: Node) -> str:
        """What a node computes."""
        if node.op == "get_attr":
            return _path(self.root, node.target)
        if node.op == "call_module":
            return self.call(_path(self.root, node.target), node)
        if node.op == "call_method":
            return self.call(f"{self.argument(node.args[0])}.{node.target}", node, 1)
        target, args = node.target, node.args
        if not node.kwargs:
            if len(args) == 2 and target in _BY_FUNCTION:
                return f"{self.argument(args[0])} {_BY_FUNCTION[target]} {self.argument(args[1])}"
            if len(args) == 1 and target in _BY_FUNCTION_1:
                return f"{_BY_FUNCTION_1[target]}{self.argument(args[0])}"
            if target is operator.getitem:
                return f"{self.argument(args[0])}[{self.argument(args[1])}]"
            if target is getattr and isinstance(args[1], str) and args[1].isidentifier() and len(args) == 2:
                return f"{self.argument(args[0])}.{args[1]}"
        return self.call(self.function(target), node)


def _path(root: str, target: str) -> str:
    """An attribute path; parts that are no identifiers (a Sequential's "0") are asked for by getattr."""
    found = root
    for part in target.split("."):
        found = f"{found}.{part}" if part.isidentifier() else f"getattr({found}, {part!r})"
    return found


def _annotation(value: Any) -> str:
    """A node's type and shape, for readers."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return "" if shape is None or dtype is None else f"  # {str(dtype).replace('torch.', '')}{list(shape)}"


def python_code(graph: Graph, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
    """See Graph.python_code. Values are dropped after their last use, so that memory is freed as in an eager run."""
    printer = _Printer(root_module)
    last: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        for read in node._input_nodes:
            if read not in seen:
                seen.add(read)
                last.setdefault(node, []).append(read)
    parameters, lines = [root_module], []
    for node in graph.nodes:
        if node.op == "placeholder":
            default = f" = {printer.argument(node.args[0])}" if node.args else ""
            parameters.append(f"{node.target}{default}")
            name = node.target.lstrip("*")
            if name != node.name:
                lines.append(f"{node.name} = {name}")
            continue
        if node.op == "output":
            lines.append(f"return {printer.argument(node.args[0])}" if node.args else "return None")
            continue
        freed = [n for n in last.get(node, ()) if n is not node]
        drop = f"; {' = '.join(n.name for n in freed)} = None" if freed else ""
        note = _annotation(node.meta.get("val")) if verbose else ""
        if node.users or not freed:
            lines.append(f"{node.name} = {printer.expression(node)}{drop}{note}")
        else:
            lines.append(f"{printer.expression(node)}{drop}{note}")
    body = "\n".join(f"    {line}" for line in lines or ["pass"])
    return PythonCode(f"def forward({', '.join(parameters)}):\n{body}\n", printer.globals)
