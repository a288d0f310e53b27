"""What capture did, in words. Everything goes through `tocha.aot.journal`, to counters, to explain(), to the page of `tocha compile-report`
and to the log, whose parts TOCHA_LOGS or TORCH_LOGS names (as `torch._logging.set_logs` does):

    guards, breaks (or graph_breaks), recompiles, graph_code, aot_graphs, output_code, kernel_code, schedule, times; dynamo and inductor for several
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import Any

from tocha._dynamo.utils import counters
from tocha.aot import journal
from tocha.aot.journal import Event

#: Depth of captures under way: is_compiling() asks.
capturing_now: list[bool] = []
#: Parts of the log asked for by set_logs.
chosen: set[str] = set()
_TOGETHER = {
    "dynamo": ("guards", "breaks", "recompiles", "graph_code"),
    "aot": ("aot_graphs",),
    "inductor": ("output_code", "schedule"),
    "graph_breaks": ("breaks",),
    "graph": ("graph_code",),
    "aot_joint_graph": ("aot_graphs",),
}
PARTS = frozenset(
    ("guards", "breaks", "recompiles", "graph_code", "aot_graphs", "output_code", "kernel_code", "schedule", "times")
)


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Say that a capture is under way."""
    capturing_now.append(True)
    try:
        yield
    finally:
        capturing_now.pop()


# ---- what happened


def segment(made: Any) -> None:
    """A segment was captured."""
    counters["frames"]["total"] += 1
    if made.module is not None:
        counters["stats"]["unique_graphs"] += 1
    if not made.returns:
        counters["graph_break"][made.reason] += 1
    journal.note("segment", made=made)


def graph_break(where: str, why: Any) -> None:
    """A break that fullgraph=True forbids."""
    counters["graph_break"][why.reason] += 1
    journal.note("forbidden break", where=where, reason=why.reason, hint=why.hint)


def recompile(where: str, failed: list[str]) -> None:
    """No kept segment fits."""
    counters["recompiles"][failed[0]] += 1
    journal.note("recompile", where=where, failed=list(failed))


def refused(where: str, why: str) -> None:
    """A stretch runs in plain Python."""
    counters["unimplemented"][why] += 1
    journal.note("refused", where=where, reason=why)


def uncompiled(why: str) -> None:
    """A graph is captured, but its operators run one by one."""
    journal.note("uncompiled", reason=why)


# ---- remedies

_REMEDIES = (
    ("a branch on a tensor's value", "torch.where computes both sides in the graph; torch.cond keeps both branches in it"),
    (".item() reaches outside", "keep the value as a tensor; compare and index with tensors"),
    (".tolist() reaches outside", "keep the values as a tensor"),
    (".numpy() reaches outside", "do it before or after the compiled function"),
    (".backward() reaches outside", "call backward outside the compiled function; its graph is compiled all the same"),
    ("builtin that looks or reaches outside", "move it (print, open, input …) out of the compiled function"),
    ("is disabled", "compile it too: take torch.compiler.disable off"),
    ("raises ", "the exception leaves the compiled code; raise it before the tensors' work, or catch it inside"),
    ("a class is made", "define the class outside the function"),
    ("import ", "import at the top of the module"),
    (
        "which exist only when the graph runs",
        "the program needs a value of a tensor: keep it in tensors (torch.where, masks, index_select)",
    ),
    ("a tensor from outside what was captured", "pass the tensor as an argument, or make it an attribute of the module"),
)


def remedy(reason: str, hint: str = "") -> str:
    """What to change so that a break is gone; "" if nothing general is known."""
    return hint or next((text for part, text in _REMEDIES if part in reason), "")


# ---- the log


def wanted() -> set[str]:
    """The parts of the log that are asked for."""
    asked = f"{os.environ.get('TOCHA_LOGS', '')},{os.environ.get('TORCH_LOGS', '')}".replace("+", "").split(",")
    return {part for name in (*asked, *chosen) for part in _TOGETHER.get(name.strip(), (name.strip(),))} & PARTS


def listen() -> None:
    """Have the log written if it is asked for now."""
    if bool(wanted()) is not (write_log in journal.listeners):
        (journal.listeners.remove if write_log in journal.listeners else journal.listeners.append)(write_log)


def write_log(event: Event) -> None:
    """Write an event's parts that are asked for to the standard error."""
    parts = wanted()
    for part, text in log_lines(event):
        if part in parts:
            print(f"[{part}] {text}", file=sys.stderr)


def log_lines(event: Event) -> Iterator[tuple[str, str]]:
    """What the log says of an event, by part."""
    data, name = event.data, event.subject[0]
    if event.kind == "segment":
        made = data["made"]
        yield "guards", "\n".join([f"guards of {name} {made.where or 'to its end'}:", *[f"  {w}" for w in made.prologue.words]])
        yield "graph_code", f"{name}:\n{made.text()}"
        if not made.returns:
            yield "breaks", _advised(f"{name}: {made.reason} ({made.where})", made.reason, made.hint)
    elif event.kind == "forbidden break":
        yield "breaks", _advised(f"{name}: {data['reason']} ({data['where']})", data["reason"], data["hint"])
    elif event.kind == "refused":
        yield "breaks", _advised(f"{name}: {data['where']} runs in plain Python: {data['reason']}", data["reason"])
    elif event.kind == "uncompiled":
        yield "breaks", f"{name}: a graph's operators run one by one: {data['reason']}"
    elif event.kind == "recompile":
        yield "recompiles", f"{name}: {data['where']}: no longer so: {'; '.join(data['failed'])}"
    elif event.kind == "compiled":
        yield "aot_graphs", f"{name}, {data['part']}:\n{data['graph']}"
        yield "output_code", f"{name}, {data['part']}:\n{code_of(data['made'])}"
        yield "schedule", "\n".join([f"{name}, {data['part']}:", *[f"  {line}" for line in schedule_of(data["made"])]])
        yield "kernel_code", "\n".join([f"{name}, {data['part']}:", *[text for _, text in kernels_of(data["made"])]])
    elif event.kind == "autotuned":
        times = ", ".join(f"{way} {1e6 * seconds:.0f} µs" for way, seconds in data["seconds"].items())
        yield "schedule", f"{name}: {data['what']}: {times}"
    elif event.kind == "time":
        yield "times", f"{name}: {data['stage']} {1000 * data['seconds']:.1f} ms"


def _advised(text: str, reason: str, hint: str = "") -> str:
    advice = remedy(reason, hint)
    return f"{text}; remedy: {advice}" if advice else text


# ---- what a graph was compiled to


def code_of(made: Any) -> str:
    """The Python function that calls the kernels; "" if nodes run one by one."""
    return getattr(made, "code", "")


def _kernels(made: Any) -> list[Any]:
    return getattr(getattr(made, "wrapper", None), "kernels", [])


def _shown(node: Any) -> str:
    value = node.meta.get("val")
    return f"{node.name}: {value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else node.name


def schedule_of(made: Any) -> list[str]:
    """A line for each kernel: what it writes and reads."""
    return [
        f"{k.kernel.name} -> {', '.join(map(_shown, k.outputs))}   from {', '.join(dict.fromkeys(_shown(n) for n, _ in k.inputs))}"
        for k in _kernels(made)
    ]


def kernels_of(made: Any) -> list[tuple[str, str]]:
    """Names and loop programs of the kernels."""
    from tocha.inductor.text import show

    return [(k.kernel.name, show(k.kernel)) for k in _kernels(made)]


def buffers_of(made: Any) -> list[tuple[str, str, int]]:
    """Name, type and bytes of each array that kernels write."""
    found = {n: n.meta["val"] for k in _kernels(made) for n in k.outputs}
    return [(n.name, f"{v.dtype}{list(v.shape)}", v.size * v.itemsize) for n, v in found.items()]


# ---- explain()


@dataclasses.dataclass
class Explanation:
    """What explain() found (torch docs: ExplainOutput). It listens to the journal."""

    segments: list[Any] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if event.kind == "segment":
            self.segments.append(event.data["made"])
        elif event.kind == "refused":
            self.refused.append(f"{event.data['reason']} ({event.data['where']})")

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
        for i, s in enumerate([s for s in self.segments if not s.returns], 1):
            lines.append(f"  {i}: {_advised(f'{s.reason} ({s.where})', s.reason, s.hint)}")
        return "\n".join([*lines, *[f"  runs in plain Python: {why}" for why in self.refused]])
