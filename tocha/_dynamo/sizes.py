"""Sizes that vary: integers known by an example only. What the program decides on them becomes a guard (for sizes of inputs) or a
check in the graph (for sizes of computed tensors), so that a decision taken for the example holds for every run of the graph.

    size ::= a dimension of an input | a dimension of a computed tensor | size op size        op: + - * // % neg
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tocha._dynamo.source import Source
from tocha.fx import Node


class SizeChanged(RuntimeError):
    """A check in a graph fails: the graph is not for these sizes."""


def check_value(found: Any, expected: Any) -> None:
    """A check in a graph."""
    if found != expected:
        raise SizeChanged(f"a size is {found}, and the graph was captured for {expected}")


def check_length(found: Any, expected: int) -> None:
    """A check in a graph: how many tensors an operator returned."""
    check_value(len(found), expected)


check_value.impure = check_length.impure = True  # type: ignore[attr-defined]


class VaryingSize:
    """An integer with an example `hint`. `text` is its expression in `sources` ({} each), None if only the graph knows it."""

    __slots__ = ("_node", "hint", "make", "sources", "text", "vm")

    def __init__(self, vm: Any, hint: int, make: Callable[[], Node], text: str | None, sources: tuple[Source, ...]) -> None:
        self.vm, self.hint, self.make, self.text, self.sources = vm, hint, make, text, sources
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The size in the graph."""
        if self._node is None:
            self._node = self.make()
        return self._node

    def assume(self, op: Callable[..., Any], symbol: str, other: Any, by_program: bool = True) -> Any:
        """The outcome of a comparison for the example, which later runs must share."""
        outcome = op(self.hint, hint(other))
        if by_program and op is operator.eq and outcome and type(other) is int and self.text == "{}":
            self.vm.world.check_marked(self.sources[0], other)
        text, sources = _joined(self, symbol, other)
        if text is not None:
            self.vm.world.guards.late.append(
                (f"{_words(self)} {symbol} {_words(other)} is {outcome}", f"({text}) is {outcome}", sources)
            )
        else:
            self.vm.recorder.check(
                check_value, self.vm.recorder.graph.call_function(op, (self.node, node_of(other)), {}), outcome
            )
        return outcome

    def fixed(self) -> int:
        """The example, which later runs must have too."""
        self.assume(operator.eq, "==", self.hint, False)
        return self.hint

    def __bool__(self) -> bool:
        return bool(self.assume(operator.ne, "!=", 0))

    def __index__(self) -> int:
        return self.fixed()

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.fixed())

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __repr__(self) -> str:
        return repr(self.fixed())

    def __format__(self, spec: str) -> str:
        return format(self.fixed(), spec)

    def __neg__(self) -> Any:
        return _operated(operator.sub, "-", 0, self)

    def __truediv__(self, other: Any) -> Any:
        return self.fixed() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.fixed()

    def __pow__(self, other: Any) -> Any:
        return self.fixed() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.fixed()


def hint(value: Any) -> Any:
    """The example of a size, anything else as it is."""
    return value.hint if value.__class__ is VaryingSize else value


def node_of(value: Any) -> Any:
    """A size as an argument of a node."""
    return value.node if value.__class__ is VaryingSize else value


def concrete(value: Any) -> Any:
    """Arguments with the examples of their sizes."""
    kind = value.__class__
    if kind is VaryingSize:
        return value.hint
    if kind is tuple or kind is list or kind is Sizes:
        return (list if kind is list else tuple)([concrete(v) for v in value])
    if kind is slice:
        return slice(concrete(value.start), concrete(value.stop), concrete(value.step))
    if kind is dict:
        return {k: concrete(v) for k, v in value.items()}
    return value


def _words(value: Any) -> str:
    return (
        value.text.format(*[s.label for s in value.sources])
        if value.__class__ is VaryingSize and value.text is not None
        else str(hint(value))
    )


def _joined(a: Any, symbol: str, b: Any) -> tuple[str | None, tuple[Source, ...]]:
    texts: list[str] = []
    sources: tuple[Source, ...] = ()
    for v in (a, b):
        if v.__class__ is VaryingSize:
            if v.text is None:
                return None, ()
            texts.append(v.text)
            sources += v.sources
        else:
            texts.append(repr(v))
    return f"({texts[0]} {symbol} {texts[1]})", sources


def _operated(op: Callable[..., Any], symbol: str, a: Any, b: Any) -> Any:
    varying = a if a.__class__ is VaryingSize else b
    if any(v.__class__ not in (VaryingSize, int) for v in (a, b)):
        other = b if varying is a else a
        if other.__class__ is float:
            return op(*[v.fixed() if v.__class__ is VaryingSize else v for v in (a, b)])
        return NotImplemented
    text, sources = _joined(a, symbol, b)
    graph = varying.vm.recorder.graph
    return VaryingSize(
        varying.vm, op(hint(a), hint(b)), lambda: graph.call_function(op, (node_of(a), node_of(b)), {}), text, sources
    )


def _add_operators() -> None:
    for name, op, symbol in (
        ("add", operator.add, "+"), ("sub", operator.sub, "-"), ("mul", operator.mul, "*"), ("floordiv", operator.floordiv, "//"),
        ("mod", operator.mod, "%"),
    ):  # fmt: skip

        def plain(self: Any, other: Any, op: Any = op, symbol: str = symbol) -> Any:
            return _operated(op, symbol, self, other)

        def reflected(self: Any, other: Any, op: Any = op, symbol: str = symbol) -> Any:
            return _operated(op, symbol, other, self)

        setattr(VaryingSize, f"__{name}__", plain)
        setattr(VaryingSize, f"__r{name}__", reflected)
    for name, op, symbol in (
        ("eq", operator.eq, "=="), ("ne", operator.ne, "!="), ("lt", operator.lt, "<"), ("le", operator.le, "<="), ("gt", operator.gt, ">"),
        ("ge", operator.ge, ">="),
    ):  # fmt: skip

        def compare(self: Any, other: Any, op: Any = op, symbol: str = symbol) -> Any:
            return self.assume(op, symbol, other) if other.__class__ in (int, float, bool, VaryingSize) else NotImplemented

        setattr(VaryingSize, f"__{name}__", compare)


_add_operators()


class Sizes(tuple[Any, ...]):
    """A shape some of whose dimensions vary."""

    def numel(self) -> Any:
        """The product."""
        total: Any = 1
        for n in self:
            total = total * n
        return total


def shape_of(vm: Any, t: Any) -> Any:
    """A tensor's shape as the program sees it in a trace with varying sizes."""
    world, recorder = vm.world, vm.recorder
    known = world.known.get(id(t))
    found = []
    for i, n in enumerate(t._a.shape):
        make = _reader(recorder.graph, recorder.nodes[id(t)], i)
        if known is not None:
            if i in world.varying.get(id(t), ()):
                found.append(VaryingSize(vm, n, make, "{}", (known.source.child(f"{{}}._a.shape[{i}]", f"{{}}.shape[{i}]"),)))
            else:
                found.append(n)
        elif n in world.examples or n not in world.fixed_sizes:
            size = VaryingSize(vm, n, make, None, ())
            _ = size.node  # now: an operator may change the tensor's shape later
            found.append(size)
        else:
            recorder.check(check_value, make(), n)
            found.append(n)
    return Sizes(found) if any(n.__class__ is VaryingSize for n in found) else t.shape


def _reader(graph: Any, node: Node, i: int) -> Callable[[], Node]:
    return lambda: graph.call_method("size", (node, i), {})
