"""What was missing while a function was captured, and comes to be later, is noticed: attributes, globals, methods of derived classes."""

from __future__ import annotations

import builtins
import types
from typing import Any

import pytest

import tocha as torch
from tocha import nn

X = torch.ones(1)


class Plain:
    base = 1.0

    def method(self, x: Any) -> Any:
        return x * 2


class Derived(Plain):
    pass


class Slots:
    __slots__ = ("a",)


class Falls:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 3.0


class Layer(nn.Module):
    def forward(self, x: Any) -> Any:
        scale = getattr(self, "scale", None)
        return x if scale is None else x * scale


def _attempt(p: Any) -> float:
    try:
        return p.q
    except AttributeError:
        return 1.0


def layer(set_it: Any) -> Any:
    made = Layer()
    return made, lambda: set_it(made), lambda x: made(x)


def instance(read: Any, make: Any = Plain) -> Any:
    p = make()
    return p, lambda: setattr(p, "q", 4.0), lambda x: x * read(p)


def of_class(read: Any, name: str, value: Any) -> Any:
    cls = type("Own", (Derived,), {})
    p = cls()
    return p, lambda: setattr(cls, name, value), lambda x: read(p, x)


def outer(make: Any, name: str, value: Any, read: Any) -> Any:
    obj = make()
    return obj, lambda: setattr(obj, name, value), lambda x: x * read(obj)


def slots() -> Any:
    p = Slots()
    return p, lambda: setattr(p, "a", 5.0), lambda x: x * getattr(p, "a", 1.0)


def fallback_hidden(where: str) -> Any:
    cls = type("OwnFalls", (Falls,), {})
    p = cls()
    place = p if where == "instance" else cls
    return p, lambda: setattr(place, "other", 5.0), lambda x: x * p.other


def fallback_replaced() -> Any:
    cls = type("OwnFalls", (Falls,), {"__getattr__": lambda s, n: 3.0})
    p = cls()
    return p, lambda: setattr(cls, "__getattr__", lambda s, n: -1.0), lambda x: x * p.other


def own_getattribute() -> Any:
    cls = type("Own", (Plain,), {})
    p = cls()
    return p, lambda: setattr(cls, "__getattribute__", lambda s, n: 7.0 if n == "base" else object.__getattribute__(s, n)), lambda x: x * p.base


CASES = [
    own_getattribute,
    lambda: layer(lambda m: setattr(m, "scale", 4.0)),
    lambda: layer(lambda m: setattr(m, "scale", nn.Parameter(3 * torch.ones(1)))),
    lambda: layer(lambda m: m.register_buffer("scale", 5 * torch.ones(1))),
    lambda: instance(lambda p: getattr(p, "q", 1.0)),
    lambda: instance(_attempt),
    lambda: instance(lambda p: 2.0 if hasattr(p, "q") else 1.0),
    lambda: of_class(lambda p, x: x * getattr(p, "z", 1.0), "z", 5.0),
    lambda: of_class(lambda p, x: x * getattr(type(p), "z", 1.0), "z", 5.0),
    lambda: of_class(lambda p, x: x * p.base, "base", 5.0),
    lambda: of_class(lambda p, x: p.method(x), "method", lambda self, x: x * 9),
    lambda: outer(lambda: types.ModuleType("made"), "z", 5.0, lambda m: getattr(m, "z", 1.0)),
    lambda: outer(lambda: lambda: None, "z", 5.0, lambda f: getattr(f, "z", 1.0)),
    slots,
    lambda: fallback_hidden("instance"),
    lambda: fallback_hidden("class"),
    fallback_replaced,
]


@pytest.mark.parametrize("calls", [1, 12])  # from the eighth call on guards are words of memory
@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_was_missing_is_noticed(number: int, calls: int) -> None:
    kept, change, function = CASES[number]()
    compiled = torch.compile(function, backend="eager")
    for _ in range(calls):
        assert compiled(X).item() == function(X).item()
    before = function(X).item()
    change()
    assert function(X).item() != before
    assert compiled(X).item() == function(X).item(), kept


def function_of_a_global(x: Any) -> Any:
    try:
        return x * NOT_YET  # type: ignore[name-defined]
    except NameError:
        return x


@pytest.mark.parametrize("calls", [1, 12])
def test_a_global_defined_later_is_noticed(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(function_of_a_global, backend="eager")
    for _ in range(calls):
        assert compiled(X).item() == 1
    monkeypatch.setitem(globals(), "NOT_YET", 4.0)
    assert compiled(X).item() == 4


@pytest.mark.parametrize("calls", [1, 12])
def test_a_replaced_builtin_is_noticed(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(lambda x: x * sum([1.0, 2.0]), backend="eager")
    for _ in range(calls):
        assert compiled(X).item() == 3
    monkeypatch.setattr(builtins, "sum", lambda items: 5.0)
    assert compiled(X).item() == 5
