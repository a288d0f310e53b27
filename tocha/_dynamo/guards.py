"""Guards: the sources' checks as one Python function, the prologue.

prologue(local, frames) -> the wanted values, as a tuple, or the number of the check that failed

`local` are the variables of the outermost frame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tocha._dynamo.source import Constants, Source
from tocha.autograd.mode import state
from tocha.device import get_default_device
from tocha.dispatch.override import stacks
from tocha.dtypes import get_default_dtype
from tocha.inductor import recall
from tocha.tensor import Tensor

if TYPE_CHECKING:
    from tocha._dynamo.settled import Settled

SAME_TENSOR = "{c1}({v}) == {c0}"  # of `check_tensor`
SAME_CODE = "{v}.__code__ is {c0} and {v}.__globals__ is {c1}"
SAME_ITEM = "{v}[{c0}] is {c1}"
ABSENT, LACKS = "{c0} not in {v}.__dict__", "not hasattr({v}, {c0})"
_ERRORS = "(AttributeError, KeyError, IndexError, TypeError, ValueError, NameError)"


class Guards:
    """All roots and cross checks of a segment."""

    def __init__(self) -> None:
        self.roots: list[Source] = []
        self._found: dict[str, Source] = {}
        self._constants: dict[int, Source] = {}
        self.late: list[tuple[str, str, tuple[Source, ...]]] = []  # words, condition, the sources it compares

    def root(self, template: str, label: str) -> Source:
        """A source with no parent."""
        if template not in self._found:
            self._found[template] = Source(None, template, (), label)
            self.roots.append(self._found[template])
        return self._found[template]

    def constant(self, value: Any, label: str) -> Source:
        """The source of an object that is always the same one."""
        found = self._constants.get(id(value))
        if found is None:
            found = self._constants[id(value)] = Source(None, "{0}", (value,), label)
            self.roots.append(found)
        return found

    def compile(self, wanted: list[Source]) -> Prologue:
        """The prologue, which returns the values of `wanted`."""
        return Prologue(self, wanted)


class Prologue:
    """The compiled function and its text; `words[i]` says what check i asks. With `settled` it asks only what is left, and whether the rest
    is as it was; it returns the wanted values that are `free`, and those of `wanted` if `all_wanted`."""

    def __init__(
        self, guards: Guards, wanted: list[Source], settled: Settled | None = None, free: list[Source] | None = None,
        all_wanted: bool = True,
    ) -> None:  # fmt: skip
        self.words: list[str] = []
        self.guards, self.wanted, self.settled = guards, wanted, settled
        self._constants = Constants()
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        for source in (*wanted, *[s for _, _, sources in guards.late for s in sources]):
            source.want()
        for root in guards.roots:
            self._emit(root)
        for words, condition, sources in guards.late:
            if settled is None or not all(id(s) in settled.values for s in sources):
                self._condition(words, condition.format(*[self._name(s) for s in sources]))
        values = f"({''.join(self._name(s) + ', ' for s in wanted) if all_wanted else ''})"
        if settled is not None:
            values = f"({''.join(self._name(s) + ', ' for s in free or ())}), {values}"
            self._constants.scope["pairs"], address, count = settled.words.check()
            self._constants.scope["kept"], self.settled = settled.kept, None
            self._condition("all else is as it was", f"{self._constants.name(recall.unchanged())}({address}, {count})")
        self._lines.append(f"return {values}")
        body = "".join(f"        {line}\n" for line in self._lines)
        self.text = f"def prologue(local, frames):\n    try:\n{body}    except {_ERRORS}:\n        return -1\n"
        scope = self._constants.scope
        exec(compile(self.text, "<prologue>", "exec"), scope)
        self.call: Callable[[Any, Any], Any] = scope["prologue"]

    def _emit(self, source: Source) -> None:
        settled, parent = self.settled, source.parent
        if not _live(source):
            return
        if settled is None or not settled.covers(source):
            names = [self._constants.name(c) for c in source.constants]
            expression = _fill(source.template, None if parent is None else self._name(parent), names)
            if parent is None and (source.constants or source.template.isidentifier()):
                name = expression
            else:
                name = f"v{len(self._names)}"
                self._lines.append(f"{name} = {expression}")
            self._names[id(source)] = name
            if settled is not None and id(source) in settled.anchors:
                self._condition(f"{source.label} is the same object", f"{name} is {settled.anchor(source, self._constants)}")
        for words, (condition, constants) in source.checks.items():
            if settled is None or (id(source), words) not in settled.checks:
                given = {"v": self._name(source), **{f"c{i}": self._constants.name(c) for i, c in enumerate(constants)}}
                self._condition(f"{source.label}: {words}", condition.format(**given))
        for child in source.children.values():
            self._emit(child)

    def _name(self, source: Source) -> str:
        """The variable with a source's value; a constant's if it is settled."""
        found = self._names.get(id(source))
        if found is None:
            assert self.settled is not None
            found = self._names[id(source)] = self._constants.name(self.settled.values[id(source)])
        return found

    def _condition(self, words: str, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return {len(self.words)}")
        self.words.append(words)

    def failure(self, number: int) -> str:
        """What check `number` asks, in words."""
        return self.words[number] if number >= 0 else "a value that was there is no longer found"


def _fill(template: str, parent: str | None, names: list[str]) -> str:
    text = template if parent is None else template.replace("{}", parent)
    for i, name in enumerate(names):
        text = text.replace(f"{{{i}}}", name)
    return text


def _live(source: Source) -> bool:
    return source.needed or bool(source.checks) or any(_live(c) for c in source.children.values())


# ---- checks by kind


def check_is(source: Source, value: Any) -> None:
    """The very same object."""
    if value is None or value is True or value is False:
        source.check(f"is {value}", f"{{v}} is {value}")
    else:
        source.check(f"is {_short(value)}", "{v} is {c0}", value)


def check_type(source: Source, value: Any) -> None:
    """The same class."""
    source.check(f"is a {type(value).__name__}", "type({v}) is {c0}", type(value))


def check_equal(source: Source, value: Any) -> None:
    """The same class and an equal value (of floats: the same bits, or both NaN)."""
    kind = type(value)
    if kind is int or kind is str:
        source.check(f"== {value!r}", "type({v}) is {c0} and {v} == {c1}", kind, value)
    elif kind in (float, complex) or issubclass(kind, np.inexact):
        source.check(f"== {value!r}", "type({v}) is {c0} and repr({v}) == {c1}", kind, repr(value))
    else:
        source.check(f"== {_short(value)}", "type({v}) is {c0} and {v} == {c1}", kind, value)


def check_length(source: Source, value: Any) -> None:
    """As many items."""
    source.check(f"has {len(value)} items", "len({v}) == {c0}", len(value))


def check_keys(source: Source, value: dict[Any, Any]) -> None:
    """The same keys in the same order."""
    source.check(f"has keys {_short(list(value))}", "[*{v}] == {c0}", list(value))
    if any(type(k) is not str for k in value):
        source.check("has keys of the same classes", "[*map(type, {v})] == {c0}", [*map(type, value)])


def check_members(source: Source, value: Any) -> None:
    """A set with the same members, of the same classes."""
    source.check(f"== {_short(value)}", "{v} == {c0}", type(value)(value))
    if any(type(m) is not str for m in value):
        condition = "frozenset((type(m), m) for m in {v}) == {c0}"
        source.check("has members of the same classes", condition, frozenset((type(m), m) for m in value))


def check_varying(source: Source, t: Tensor, dims: set[int]) -> None:
    """As `check_tensor` for a contiguous tensor some of whose sizes vary (from 2 on)."""
    a = t._a
    words = (
        f"is a contiguous {type(t).__name__} of shape {[f's{i}' if i in dims else n for i, n in enumerate(a.shape)]}, {t.dtype}"
    )
    key = (type(t), a.__class__, a.ndim, a.dtype, not t._rg, t._node is None)
    source.check(f"{words}, requires_grad={t.requires_grad}", "{c1}({v}) == {c0} and {v}._a.flags.c_contiguous", key, outline)
    for i, n in enumerate(a.shape):
        if i in dims:
            source.check(f"has a size {i} of at least 2", f"{{v}}._a.shape[{i}] >= 2")
        else:
            source.check(f"has size {n} in dimension {i}", f"{{v}}._a.shape[{i}] == {n}")


def outline(t: Any) -> tuple[Any, ...]:
    """`signature` without sizes."""
    a = t._a
    return type(t), a.__class__, a.ndim, a.dtype, not t._rg, t._node is None


def check_tensor(source: Source, t: Tensor) -> None:
    """Class, shape, type, layout and place on the tape."""
    a = t._a
    words = f"is a {type(t).__name__} of shape {list(a.shape)}, {t.dtype}, strides {list(t.stride())}, requires_grad={t.requires_grad}"
    key = (type(t), a.__class__, tuple(a.shape), a.dtype, tuple(a.strides), not t._rg, t._node is None)
    source.check(words, SAME_TENSOR, key, signature)


def signature(t: Any) -> tuple[Any, ...]:
    """What of a tensor a graph depends on."""
    a = t._a
    return type(t), a.__class__, a.shape, a.dtype, a.strides, not t._rg, t._node is None


def environment() -> tuple[Any, ...]:
    """The state around a call that graphs depend on."""
    around, modes = stacks.__dict__, state.__dict__  # of this thread; vars() takes twice as long
    cast, inference = around["autocast"], modes["inference"]
    return (
        modes["grad"], inference, inference and modes["enabled"], get_default_dtype(), get_default_device(),
        len(around["function_modes"]), around["subclass_functions_disabled"], around["functions_disabled"], len(around["interpreters"]),
        None if cast is None else _autocast_key(around["autocast_state"] or cast),
    )  # fmt: skip


def _autocast_key(current: Any) -> Any:
    enabled, kinds = getattr(current, "enabled", None), getattr(current, "dtypes", None)
    return (
        tuple(enabled.items()) if enabled else None,
        tuple(kinds.items()) if kinds else None,
        getattr(current, "cache_enabled", None),
    )


def _short(value: Any) -> str:
    text = getattr(value, "__qualname__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@functools.cache
def literal_types() -> frozenset[type]:
    """Classes whose values are compared by value and copied by writing them down."""
    return frozenset((int, float, complex, str, bytes, *[np.dtype(c).type for c in "?bhilqBHILQefdFD"]))
