"""Modules of settings, as torch._dynamo.config and torch._inductor.config are: known names only, `patch`, and a word about names that
are accepted for programs that set them although they change nothing here."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("torch")
_told: set[str] = set()


class Section:
    """A group of settings within a module: `config.cpp.threads`."""

    def __init__(self, owner: ConfigModule, prefix: str) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_prefix", prefix)

    def __getattr__(self, name: str) -> Any:
        return self._owner.get(f"{self._prefix}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._owner.put(f"{self._prefix}.{name}", value)


class ConfigModule(types.ModuleType):
    """A module whose globals are settings; those in `_unused` are accepted, those in `_heeded` of them without a word."""

    _unused: dict[str, Any]
    _sections: dict[str, Section]
    _heeded: frozenset[str]

    def get(self, name: str) -> Any:
        """A setting by name; sections by dots."""
        if name in self._unused:
            return self._unused[name]
        if name in self.__dict__ and not name.startswith("_"):
            return self.__dict__[name]
        raise AttributeError(f"{self.__name__.replace('tocha', 'torch', 1)}.{name} does not exist")

    def put(self, name: str, value: Any) -> None:
        """Set one."""
        old = self.get(name)
        if name not in self._unused:
            super().__setattr__(name, value)
            return
        self._unused[name] = value
        if name not in self._heeded and value != old and (self.__name__ + name) not in _told:
            _told.add(self.__name__ + name)
            log.warning("%s.%s is accepted, and changes nothing in tocha", self.__name__.replace("tocha", "torch", 1), name)

    def __getattr__(self, name: str) -> Any:
        sections = self.__dict__.get("_sections", {})
        if name in sections:
            return sections[name]
        if name.startswith("__") or "_unused" not in self.__dict__:
            raise AttributeError(name)
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            self.put(name, value)

    def names(self) -> list[str]:
        """Every setting's name."""
        own = [n for n, v in self.__dict__.items() if not n.startswith("_") and n.islower() and not _is_code(v)]
        return sorted({*own, *self._unused})

    def get_config_copy(self) -> dict[str, Any]:
        """All settings, copied."""
        return {n: copy.copy(self.get(n)) for n in self.names()}

    def load_config(self, config: Mapping[str, Any]) -> None:
        """Set what `get_config_copy` gave."""
        for name, value in config.items():
            if self.get(name) != value:
                self.put(name, value)

    def patch(self, name: str | Mapping[str, Any] | None = None, value: Any = None, /, **changes: Any) -> _Patch:
        """Settings in force inside a `with` block or a decorated function."""
        given = {} if name is None else {name: value} if isinstance(name, str) else dict(name)
        return _Patch(self, given | changes)


class _Patch(contextlib.ContextDecorator):
    def __init__(self, module: ConfigModule, changes: dict[str, Any]) -> None:
        self.module, self.changes = module, changes
        self.before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self.before.append({n: self.module.get(n) for n in self.changes})
        for name, value in self.changes.items():
            self.module.put(name, value)

    def __exit__(self, *exc: Any) -> None:
        for name, value in self.before.pop().items():
            self.module.put(name, value)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def patched(*args: Any, **kwargs: Any) -> Any:
            with _Patch(self.module, self.changes):
                return function(*args, **kwargs)

        return cast(F, patched)


def _is_code(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, type, types.ModuleType)) or type(value).__module__ == "__future__"


def install(name: str, unused: Mapping[str, Any], heeded: tuple[str, ...] = ()) -> None:
    """Make a module one of settings: its globals, and `unused` (`heeded` of them do what they say anyway)."""
    module: Any = sys.modules[name]
    module.__class__ = ConfigModule
    module._unused, module._heeded = dict(unused), frozenset(heeded)
    module._sections = {s: Section(module, s) for s in {n.partition(".")[0] for n in unused if "." in n}}
