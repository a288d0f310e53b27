"""Segments bound to the objects that they meet at every call: a model's guards are then a look at memory, and its parameters are at hand."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tocha._dynamo import words
from tocha._dynamo.guards import Prologue
from tocha._dynamo.settled import Settled

if TYPE_CHECKING:
    from tocha._dynamo.segments import Program, Segment

_LEAST = 8  # settled checks that are worth a look at memory
_MOST = 8  # bound segments of a program: the ones met last
_LONGEST = 256  # calls between two attempts to bind a segment


@dataclasses.dataclass(slots=True)
class Bound:
    """`check(local, None)` is (tensors for the graph, what the epilogue is given), or the number of what failed: `last` for the words."""

    segment: Segment
    environment: Any
    check: Callable[[Any, Any], Any]
    graph: Callable[..., Any] | None
    anchors: list[Any]
    prologue: Prologue
    last: int


def met(program: Program, segment: Segment, local: dict[str, Any]) -> None:
    """Note that the guards of an entry's segment held when asked one by one; bind it when that happens again and again."""
    segment.wait -= 1
    if segment.wait or not words.usable():
        return
    segment.again = segment.wait = min(2 * segment.again, _LONGEST)  # what it is bound to may change at every call
    bound = _bind(program, segment, local)
    if bound is not None:
        others = [
            b for b in program.bound if b.segment is not segment or [r() for r in b.anchors] != [r() for r in bound.anchors]
        ]
        program.bound = (bound, *others[: _MOST - 1])


def _bind(program: Program, segment: Segment, local: dict[str, Any]) -> Bound | None:
    guards, wanted = segment.prologue.guards, segment.prologue.wanted
    settled = Settled(guards, local)
    if len(settled.checks) < _LEAST or not settled.anchors:
        return None
    used = wanted[: segment.inputs]
    fixed = {i: settled.values[id(s)] for i, s in enumerate(used) if settled.has_tensor(s)}
    bind = getattr(segment.graph, "bind", None)
    graph = bind(fixed) if bind is not None and fixed else None
    free = used if graph is None else [s for i, s in enumerate(used) if i not in fixed]
    prologue = Prologue(guards, wanted, settled, free, "given[" in segment.epilogue_text)

    def gone(_: Any) -> None:
        program.bound = tuple([b for b in program.bound if b is not bound])

    anchors = [weakref.ref(v, gone) for v in settled.anchors.values() if not isinstance(v, types.CellType)]
    bound = Bound(
        segment,
        segment.environment,
        prologue.call,
        segment.graph if graph is None else graph,
        anchors,
        prologue,
        len(prologue.words) - 1,
    )
    given = bound.check(local, None)
    return bound if given.__class__ is tuple else None
