"""What capture did, in words: counters, the log (TOCHA_LOGS or TORCH_LOGS=guards,graph_breaks,recompiles,graph_code), and explain()."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import Any

from tocha._dynamo.utils import counters

#: Depth of captures under way: is_compiling() asks.
capturing_now: list[bool] = []
#: Receivers of segments and breaks, for explain().
listeners: list[Explanation] = []


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Say that a capture is under way."""
    capturing_now.append(True)
    try:
        yield
    finally:
        capturing_now.pop()


def wanted(kind: str) -> bool:
    """Whether the environment asks for this part of the log."""
    asked = f"{os.environ.get('TOCHA_LOGS', '')},{os.environ.get('TORCH_LOGS', '')}".replace("+", "").split(",")
    return kind in asked or "dynamo" in asked


def _say(kind: str, text: str) -> None:
    if wanted(kind):
        print(f"[{kind}] {text}", file=sys.stderr)


def segment(made: Any) -> None:
    """A segment was captured."""
    counters["frames"]["total"] += 1
    if made.module is not None:
        counters["stats"]["unique_graphs"] += 1
    _say("guards", "\n".join([f"guards of {made.where or 'a whole call'}:", *[f"  {w}" for w in made.prologue.words]]))
    _say("graph_code", made.text())
    for listener in listeners:
        listener.segments.append(made)
    if not made.returns:
        counters["graph_break"][made.reason] += 1
        _say("graph_breaks", f"{made.reason} ({made.where})")
        _say("breaks", f"{made.reason} ({made.where})")


def graph_break(where: str, why: Any) -> None:
    """A break that fullgraph=True forbids."""
    counters["graph_break"][why.reason] += 1


def recompile(where: str, failed: list[str]) -> None:
    """No kept segment fits."""
    counters["recompiles"][failed[0]] += 1
    _say("recompiles", f"{where}: no longer so: {'; '.join(failed)}")


def refused(where: str, why: str) -> None:
    """A stretch runs in plain Python."""
    counters["unimplemented"][why] += 1
    _say("graph_breaks", f"{where} runs in plain Python: {why}")
    for listener in listeners:
        listener.refused.append(f"{why} ({where})")


@dataclasses.dataclass
class Explanation:
    """What explain() found (torch docs: ExplainOutput)."""

    segments: list[Any] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)

    @property
    def graphs(self) -> list[Any]:
        """The captured graphs, in order."""
        return [s.module for s in self.segments if s.module is not None]

    @property
    def graph_count(self) -> int:
        """How many graphs."""
        return len(self.graphs)

    @property
    def break_reasons(self) -> list[str]:
        """Why and where graphs broke."""
        return [f"{s.reason} ({s.where})" for s in self.segments if not s.returns]

    @property
    def graph_break_count(self) -> int:
        """How many breaks."""
        return len(self.break_reasons)

    @property
    def op_count(self) -> int:
        """Operations in all graphs."""
        return sum(n.op.startswith("call_") for g in self.graphs for n in g.graph.nodes)

    @property
    def out_guards(self) -> list[str]:
        """Every check, in words."""
        return [w for s in self.segments for w in s.prologue.words]

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        lines += [f"  {i}: {why}" for i, why in enumerate(self.break_reasons, 1)]
        return "\n".join([*lines, *[f"  runs in plain Python: {why}" for why in self.refused]])
