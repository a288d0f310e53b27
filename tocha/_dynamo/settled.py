"""Guards that are settled: what a prologue found below objects that are the same call after call holds as long as some words of memory do.

A model of 150 parameters is asked some thousand questions. Once they were answered for a model, `Settled` walks its sources and collects the
words (tocha._dynamo.words) that the answers depend on, so that the next call compares those in one native loop, and has the parameters
at hand. The walk starts at anchors: objects that a local variable, a cell or a global holds, which each call must hold again. What isn't
known to depend on such words alone is asked in Python as before.
"""

from __future__ import annotations

import builtins
import types
import weakref
from typing import Any

from tocha._dynamo import guards as g
from tocha._dynamo.attributes import TABLES
from tocha._dynamo.calls import MODULE_GETATTR
from tocha._dynamo.guards import Guards
from tocha._dynamo.source import Constants, Source
from tocha._dynamo.words import Words
from tocha.device import Size, device
from tocha.nn import Module
from tocha.tensor import Tensor

#: Objects whose contents are words; others are kept, so that what is at their address stays what it is.
_OPEN = (dict, list, types.CellType, types.ModuleType, types.FunctionType)
_MISSING = object()


class Settled:
    """`values` of settled sources by id, those of `anchors` among them, and `checks` (source's id, words) that need not be asked."""

    def __init__(self, guards: Guards, local: dict[str, Any]) -> None:
        self.words = Words()
        self.values: dict[int, Any] = {}
        self.anchors: dict[int, Any] = {}
        self.checks: set[tuple[int, str]] = set()
        self.kept: list[Any] = []  # whose memory must not become something else's
        for root in guards.roots:
            if root.constants:
                value = root.constants[0]
                self._walk(root, value, type(value) is not dict or value is vars(builtins))  # globals change all the time
            elif root.template == "local":
                self._walk(root, local, False)

    def _walk(self, source: Source, value: Any, settled: bool) -> None:
        if not settled and _is_anchor(source, value):
            self.anchors[id(source)] = value
            settled = True
        if settled:
            self.values[id(source)] = value
            if type(value) not in _OPEN and (isinstance(value, (Tensor, type)) or not hasattr(value, "__dict__")):
                self.kept.append(value)
            for words, (condition, constants) in source.checks.items():
                if self._holds(condition, constants, value):
                    self.checks.add((id(source), words))
        for child in source.children.values():
            if child.step is not None:
                found = _taken(value, *child.step)
                if found is not _MISSING:
                    self._walk(child, found, settled and self._leads(value, *child.step, found))

    def _leads(self, obj: Any, how: str, name: Any, found: Any) -> bool:
        """Whether words say that `found` is still what is found there."""
        words, kind = self.words, type(obj)
        if how == "item":
            if isinstance(obj, tuple):
                return True
            return words.add_dict(obj) if kind is dict else words.add_list(obj) if kind is list else False
        if how == "class" or isinstance(obj, type):
            held = _defined(obj, name) if how == "attribute" else vars(obj).get(name, _MISSING)
            return type(obj) is type and held is found and words.add_version(obj)
        if kind is types.FunctionType:
            return words.add_field(obj, name)
        if kind is types.CellType:
            return words.add_cell(obj)
        if kind is types.MethodType or kind is slice:
            return name in ("__self__", "__func__", "start", "stop", "step")
        if isinstance(obj, Tensor):
            return False
        look: Any = kind.__getattribute__
        if kind is not types.ModuleType and (
            look is not object.__getattribute__ or hasattr(type(_defined(kind, name)), "__set__")
        ):
            return False
        own = words.own(obj)
        if own is None or not words.add_class(obj):
            return False
        return name == "__dict__" or (own.get(name, _MISSING) is found and words.add_dict(own))

    def _holds(self, condition: str, constants: tuple[Any, ...], value: Any) -> bool:
        """Whether words say that the outcome of a check is the same."""
        words, kind = self.words, type(value)
        if condition in ("{v} is None", "{v} is True", "{v} is False", "{v} is {c0}"):
            return True
        if condition == "type({v}) is {c0}":
            return words.add_class(value)
        if condition in ("type({v}) is {c0} and {v} == {c1}", "type({v}) is {c0} and repr({v}) == {c1}"):
            return kind in g.literal_types() or kind in (Size, device, range)
        if condition == g.ABSENT and isinstance(value, type):
            return words.add_version(value)
        if condition == g.ABSENT and not isinstance(value, Tensor):
            own = words.own(value)
            return own is not None and words.add_dict(own)
        if condition == g.LACKS:
            return self._lacks(value)
        if condition == "not {c0}":
            value, kind, condition = constants[0], type(constants[0]), "len({v}) == {c0}"
        if condition in ("len({v}) == {c0}", "[*{v}] == {c0}", "[*map(type, {v})] == {c0}"):
            return kind is tuple or (words.add_dict(value) if kind is dict else kind is list and words.add_list(value))
        if condition == "{v}.__dict__[{c0}] is {c1}":
            return isinstance(value, type) and words.add_version(value)
        if condition == g.SAME_ITEM:
            return kind is dict and words.add_dict(value)
        if condition == g.SAME_CODE and kind is types.FunctionType:  # nobody can set __globals__
            return words.add_field(value, "__code__")
        if condition in ("not {v}.__defaults__", "not {v}.__kwdefaults__") and kind is types.FunctionType:
            return words.add_field(value, condition.rpartition(".")[2])
        if condition == g.SAME_TENSOR:
            return isinstance(value, Tensor) and words.add_tensor(value)
        return False

    def _lacks(self, value: Any) -> bool:
        """Whether words say that an attribute is missing still: of objects that look nowhere but in their class and their own tables."""
        kind, words = type(value), self.words
        look: Any = kind.__getattribute__
        plain = not isinstance(value, (type, Tensor, types.ModuleType)) and look is object.__getattribute__
        fallback = _defined(kind, "__getattr__")
        if not plain or (fallback is not _MISSING and fallback is not MODULE_GETATTR):
            return False
        own = words.own(value)
        if own is None or not words.add_class(value) or not words.add_dict(own):
            return False
        tables = [own[name] for name in TABLES if name in own] if isinstance(value, Module) else []
        return all(words.add_dict(table) for table in tables)

    def anchor(self, source: Source, constants: Constants) -> str:
        """The expression of what the anchor was."""
        value = self.anchors[id(source)]
        return constants.name(value) if isinstance(value, types.CellType) else f"{constants.name(weakref.ref(value))}()"

    def covers(self, source: Source) -> bool:
        """Whether the source's value is known without a look."""
        return id(source) in self.values and id(source) not in self.anchors

    def has_tensor(self, source: Source) -> bool:
        """Whether it is a tensor about which all is settled."""
        return isinstance(self.values.get(id(source)), Tensor) and all(
            (id(source), words) in self.checks for words in source.checks
        )


def _is_anchor(source: Source, value: Any) -> bool:
    """Whether a value is worth recognising: an object that has an identity, below which something is asked."""
    if not source.children or isinstance(value, (Tensor, type)) or type(value) in g.literal_types():
        return False
    try:
        weakref.ref(value)
    except TypeError:
        return isinstance(value, types.CellType)
    return True


def _taken(obj: Any, how: str, name: Any) -> Any:
    try:
        return vars(obj)[name] if how == "class" else getattr(obj, name) if how == "attribute" else obj[name]
    except Exception:
        return _MISSING


def _defined(cls: type, name: str) -> Any:
    """What a class or one of its bases defines."""
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), _MISSING)
