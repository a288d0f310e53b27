"""What compilation did, as events for whoever listens: the log, `explain()`, `tocha compile-report`. Nobody listening costs one look.

event ::= kind, subject, data      kind: see the calls of `note` in tocha._dynamo.report, tocha.aot.runtime
subject: the compiled function and the place in it, as `about` says; "time" events carry the seconds of a stage without its parts
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Event:
    """One thing that happened while `subject` (a function's name and a place in it) was compiled or called."""

    kind: str
    subject: tuple[str, str]
    data: dict[str, Any]


#: Who is told.
listeners: list[Callable[[Event], None]] = []
_subject: list[tuple[str, str]] = [("", "")]
_inside: list[float] = []  # seconds of the stages within each stage under way


def subject() -> tuple[str, str]:
    """What is being compiled."""
    return _subject[-1]


@contextlib.contextmanager
def about(found: tuple[str, str]) -> Iterator[None]:
    """Events inside are about `found`."""
    _subject.append(found)
    try:
        yield
    finally:
        _subject.pop()


def note(kind: str, **data: Any) -> None:
    """Tell the listeners."""
    if listeners:
        event = Event(kind, _subject[-1], data)
        for listener in list(listeners):
            listener(event)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage inside: a compiler makes many objects that stay, and each collection would look at all of the program's."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Time what is inside, without the stages within it."""
    if not listeners:
        yield
        return
    start = time.perf_counter()
    _inside.append(0.0)
    try:
        yield
    finally:
        whole = time.perf_counter() - start
        within = _inside.pop()
        if _inside:
            _inside[-1] += whole
        note("time", stage=name, seconds=whole - within)
