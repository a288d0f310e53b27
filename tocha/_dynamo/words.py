"""Words of memory that say whether Python objects are what they were.

A dictionary has a version that no other state of any dictionary ever has (PEP 509), a class has one too; the rest are pointers in the objects
themselves. Where they lie is that of CPython 3.11 to 3.13 and is tried out before it is relied on.
"""

from __future__ import annotations

import ctypes
import functools
import types
from typing import Any

import numpy as np

from tocha.inductor import entry, recall
from tocha.tensor import Tensor

_TYPE, _BEFORE, _CLASS_VERSION = (
    8,
    -24,
    384,
)  # where an object has its class, and its dictionary if that is the interpreter's matter
_USED, _VERSION, _KEYS, _VALUES = 16, 24, 32, 40  # of a dictionary
_COUNT, _ITEMS = 16, 24  # of a list
_CONTENTS = 16  # of a cell; a module's dictionary
_FUNCTION = {"__globals__": 16, "__code__": 48, "__defaults__": 56, "__kwdefaults__": 64, "__closure__": 72}
_ARRAY = (24, 32, 40, 56)  # an ndarray's number of dimensions, sizes, strides, type
_MANAGED, _IMMUTABLE = 1 << 4, 1 << 8  # flags of classes


def _read(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


class Words:
    """Collects words, each after those that say that its object is still there. `add_…` is False where an object isn't understood."""

    def __init__(self) -> None:
        self.pairs: list[int] = []
        self._seen: set[int] = set()

    def word(self, address: int) -> None:
        if address not in self._seen:
            self._seen.add(address)
            self.pairs += (address, _read(address))

    def add_version(self, cls: type) -> bool:
        """What a class and its bases define."""
        if cls.__flags__ & _IMMUTABLE:
            return True
        hasattr(cls, "__init__")  # a look gives it a version
        if not _read(id(cls) + _CLASS_VERSION) & 0xFFFFFFFF:
            return False
        self.word(id(cls) + _CLASS_VERSION)
        return True

    def add_class(self, obj: Any) -> bool:
        """Which class an object has, and what that defines."""
        self.word(id(obj) + _TYPE)
        return self.add_version(type(obj))

    def add_dict(self, table: Any) -> bool:
        """Keys and values."""
        at = id(table)
        if type(table) is not dict:
            return False
        values = _read(at + _VALUES)
        if not values or _layout()["counted"]:
            self.word(at + _VERSION)
            return True
        for word in (_USED, _KEYS, _VALUES):
            self.word(at + word)
        for i in range(_read(_read(at + _KEYS) + 24)):
            self.word(values + 8 + 8 * i)
        return True

    def add_list(self, items: Any) -> bool:
        """Length and items."""
        at = id(items)
        self.word(at + _COUNT)
        self.word(at + _ITEMS)
        for i in range(len(items)):
            self.word(_read(at + _ITEMS) + 8 * i)
        return True

    def add_cell(self, cell: Any) -> bool:
        """Contents."""
        self.word(id(cell) + _CONTENTS)
        return True

    def add_field(self, function: types.FunctionType, name: str) -> bool:
        """An attribute of a function."""
        if name not in _FUNCTION:
            return False
        self.word(id(function) + _FUNCTION[name])
        return True

    def own(self, obj: Any) -> dict[str, Any] | None:
        """An object's dictionary, of which it is noted that it is the same one; None if it has none that is plain."""
        found = getattr(obj, "__dict__", None)
        kind = type(obj)
        if isinstance(obj, types.ModuleType):
            at = id(obj) + _CONTENTS
        elif kind.__flags__ & _MANAGED:
            at = id(obj) + _BEFORE
        else:
            at = id(obj) + kind.__dictoffset__ if kind.__dictoffset__ > 0 else 0
        if type(found) is not dict or not at or _read(at) != id(found):
            return None
        self.word(at)
        return found

    def add_tensor(self, t: Tensor) -> bool:
        """What `guards.signature` looks at, its place on the tape, hooks and version counter."""
        a, slots = t._a, _layout()
        if type(a) is not np.ndarray or t._node is not None or t._rg.__class__ is not bool:
            return False
        for name in ("_a", "_rg", "_node", "_view", "_extra", "_vc"):
            self.word(id(t) + slots[name])
        self.word(id(t) + _TYPE)
        for word in _ARRAY:
            self.word(id(a) + word)
        for word in _ARRAY[1:3]:
            for i in range(a.ndim):
                self.word(_read(id(a) + word) + 8 * i)
        return True

    def check(self) -> tuple[Any, int, int]:
        """The pairs as an array, its address and their number."""
        pairs = self.pairs + self.pairs[-2:] * (-len(self.pairs) // 2 % recall.STEP)
        array = np.array(pairs, np.int64)
        return array, array.__array_interface__["data"][0], len(pairs) // 2


class _Probe:
    def __init__(self) -> None:
        self.x, self.y = 1, 2


@functools.cache
def _layout() -> dict[str, int]:
    """Offsets of tensors' slots, and whether storing an attribute counts in the version of its object's dictionary ("counted")."""
    found = {}
    t = object.__new__(Tensor)
    for name in ("_a", "_rg", "_node", "_view", "_extra", "_vc"):
        mark = object()
        setattr(t, name, mark)
        places = [at for at in range(16, Tensor.__basicsize__, 8) if _read(id(t) + at) == id(mark)]
        (found[name],) = places
        setattr(t, name, None)
    probe = _Probe()
    own = probe.__dict__
    before = _read(id(own) + _VERSION)
    probe.x = 3
    found["counted"] = _read(id(own) + _VERSION) != before
    return found


@functools.cache
def usable() -> bool:
    """Whether memory is as this file says. A Python or NumPy that is otherwise asks its guards one by one."""
    try:
        return entry.usable() and _holds()
    except (ImportError, ValueError, AttributeError, RuntimeError):
        return False


def _holds() -> bool:
    table, probe, items, cls = {"a": 1}, _Probe(), [1, 2], type("Other", (), {"x": 1})
    other, module = cls(), types.ModuleType("probe")
    other.x = module.x = 1  # type: ignore[attr-defined]
    a, cell = np.zeros((2, 3), np.float32), (lambda: table).__closure__[0]  # type: ignore[index]
    t = object.__new__(Tensor)
    t._a, t._rg, t._node, t._view, t._extra, t._vc = a, False, None, None, None, None

    def function(x: Any = 1, *, y: Any = 2) -> Any:
        return table, x, y

    def changes(add: Any, change: Any) -> bool:
        words = Words()
        ask = recall.unchanged()
        if not add(words):
            return False
        kept = words.check()
        before = ask(*kept[1:])
        change()
        return before and not ask(*kept[1:])

    def hot() -> None:
        for i in range(100):
            probe.x = i + 1000

    b = np.zeros((2, 3), np.float32)
    tried = [
        (lambda w: w.add_dict(table), lambda: table.update(a=2)),
        (lambda w: w.add_dict(table), lambda: table.pop("a")),
        (lambda w: w.add_dict(w.own(probe)), lambda: setattr(probe, "x", 5)),
        (lambda w: w.add_dict(w.own(probe)), hot),
        (lambda w: w.add_dict(w.own(probe)), lambda: setattr(probe, "z", 5)),
        (lambda w: w.add_dict(w.own(probe)), lambda: delattr(probe, "y")),
        (lambda w: w.own(probe) is not None, lambda: setattr(probe, "__dict__", {"x": 1})),
        (lambda w: w.add_dict(w.own(module)), lambda: setattr(module, "x", 2)),
        (lambda w: w.add_class(other), lambda: setattr(other, "__class__", _Probe)),
        (lambda w: w.add_version(cls), lambda: setattr(cls, "x", 2)),
        (lambda w: w.add_list(items), lambda: items.append(3)),
        (lambda w: w.add_list(items), lambda: items.__setitem__(0, 7)),
        (lambda w: w.add_cell(cell), lambda: setattr(cell, "cell_contents", 1)),
        (lambda w: w.add_tensor(t), lambda: setattr(t, "_a", b)),
        (lambda w: w.add_tensor(t), lambda: b.resize((3, 2), refcheck=False)),
        (lambda w: w.add_tensor(t), lambda: b.resize((6,), refcheck=False)),
        (lambda w: w.add_tensor(t), lambda: setattr(t, "_rg", True)),
        *[(lambda w, n=n: w.add_field(function, n), lambda n=n, v=v: setattr(function, n, v)) for n, v in (
            ("__code__", (lambda x, y: table).__code__), ("__defaults__", (5,)), ("__kwdefaults__", {}))],
    ]  # fmt: skip
    return all(changes(*t) for t in tried)
