"""`tocha compile-report`: what was compiled while a script ran, as one HTML page that needs nothing else."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import html
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tocha._dynamo import report
from tocha.aot import journal
from tocha.aot.journal import Event
from tocha.version import __version__


@dataclasses.dataclass
class Function:
    """What is known of a compiled function."""

    name: str
    segments: list[Any] = dataclasses.field(default_factory=list)
    breaks: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # place, reason, remedy
    recompiles: list[tuple[str, list[str]]] = dataclasses.field(default_factory=list)  # place, what failed
    compiled: list[tuple[str, str, str, Any]] = dataclasses.field(default_factory=list)  # place, part, graph, what it was made to
    seconds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Collection:
    """Listens to the journal and keeps what concerns each function. One of a name already there is the same function."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def __call__(self, event: Event) -> None:
        name, place = event.subject
        f = self.functions.setdefault(name, Function(name))
        data = event.data
        if event.kind == "segment":
            made = data["made"]
            f.segments.append(made)
            if not made.returns:
                f.breaks.append((made.where, made.reason, report.remedy(made.reason, made.hint)))
        elif event.kind == "forbidden break":
            f.breaks.append((data["where"], data["reason"], report.remedy(data["reason"], data["hint"])))
        elif event.kind == "refused":
            f.breaks.append((data["where"], f"runs in plain Python: {data['reason']}", report.remedy(data["reason"])))
        elif event.kind == "uncompiled":
            f.breaks.append((place, f"the graph's operators run one by one: {data['reason']}", report.remedy(data["reason"])))
        elif event.kind == "recompile":
            f.recompiles.append((data["where"], data["failed"]))
        elif event.kind == "compiled":
            f.compiled.append((place, data["part"], data["graph"], data["made"]))
        elif event.kind == "time":
            f.seconds[data["stage"]] += data["seconds"]


@contextlib.contextmanager
def collecting() -> Iterator[Collection]:
    """Collect what is compiled inside."""
    found = Collection()
    journal.listeners.append(found)
    try:
        yield found
    finally:
        journal.listeners.remove(found)


def main(script: str, args: list[str], output: str) -> int:
    """Run a script and write the page, also if the script fails. The script's exit status."""
    status: Any = 0
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        with collecting() as found:
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as stop:
                status = stop.code
            except Exception:
                sys.excepthook(*sys.exc_info())
                status = 1
    finally:
        sys.argv, sys.path[:] = argv, path
    Path(output).write_text(render(found, Path(script).name), encoding="utf-8")
    graphs = sum(len(f.segments) for f in found.functions.values())
    print(f"tocha compile-report: {len(found.functions)} functions, {graphs} captures: {output}", file=sys.stderr)
    return status if isinstance(status, int) else int(status is not None)


# ---- the page

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --mark: #c2410c }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line) } h3 { margin: 1.2rem 0 .3rem; font-size: 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top;
  padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right } code, pre { font: 13px/1.45 ui-monospace, monospace } td code { overflow-wrap: anywhere }
pre { overflow-x: auto; padding: .6rem; border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0 }
summary { cursor: pointer } details details { margin-left: 1rem } .break { color: var(--mark) } .quiet { opacity: .7 }
"""


def render(found: Collection, title: str) -> str:
    """The page of a collection."""
    functions = list(found.functions.values())
    rows = [
        (
            f'<a href="#{number}">{_text(f.name)}</a>',
            sum(s.module is not None for s in f.segments),
            len(f.breaks),
            len(f.recompiles),
            _milliseconds(sum(f.seconds.values())),
            _bytes(sum(size for *_, made in f.compiled for *_, size in report.buffers_of(made))),
        )
        for number, f in enumerate(functions)
    ]
    body = [f"<h1>Compilation of {_text(title)}</h1>"]
    if rows:
        body.append(_table(("function", "graphs", "breaks", "recompiles", "compile time", "memory of buffers"), rows, 1))
    else:
        body.append("<p>Nothing was compiled: no function given to torch.compile was called.</p>")
    body += [_function(number, f) for number, f in enumerate(functions)]
    body.append(f'<p class="quiet">tocha {__version__}, Python {sys.version.split()[0]}</p>')
    head = f'<meta charset="utf-8"><title>{_text(title)}: compile report</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _function(number: int, f: Function) -> str:
    parts = [f'<h2 id="{number}">{_text(f.name)}</h2>']
    if f.breaks:
        counted = collections.Counter(f.breaks)
        breaks = [(_code(w), f'<span class="break">{_text(r)}</span>', _text(a or "—"), n) for (w, r, a), n in counted.items()]
        parts += ["<h3>Breaks</h3>", _table(("where", "reason", "remedy", "times"), breaks, 3)]
    else:
        parts.append("<p>No breaks: each call is one graph.</p>")
    if f.recompiles:
        rows = [(_code(w), "<br>".join(_code(x) for x in failed)) for w, failed in f.recompiles]
        parts += ["<h3>Recompiles</h3>", _table(("where", "what no longer held, for each variant kept"), rows)]
    whole = sum(f.seconds.values()) or 1.0
    times = [(_text(n), _milliseconds(s), f"{100 * s / whole:.0f} %") for n, s in f.seconds.most_common()]
    parts += ["<h3>Time</h3>", _table(("stage", "time", "share"), times, 1)]
    parts.append("<h3>Captures</h3>")
    parts += [_segment(i, s) for i, s in enumerate(f.segments, 1)]
    if f.compiled:
        parts.append("<h3>Native code</h3>")
        parts += [_compiled(*one) for one in f.compiled]
    return "\n".join(parts)


def _segment(number: int, s: Any) -> str:
    operations = 0 if s.module is None else sum(n.op.startswith("call_") for n in s.module.graph.nodes)
    end = "to the end" if s.returns else f"to the break at {s.where}"
    inner = [
        _details(f"guards ({len(s.prologue.words)})", _pre("\n".join(s.prologue.words))),
        _details("prologue, graph and epilogue", _pre(s.text())),
    ]
    return _details(f"capture {number}, {operations} operations, {_text(end)}", "".join(inner), opened=number == 1)


def _compiled(place: str, part: str, graph: str, made: Any) -> str:
    inner = [_details("graph of primitives", _pre(graph))]
    if code := report.code_of(made):
        inner.append(_details("function that calls the kernels", _pre(code)))
        inner.append(_details("schedule", _pre("\n".join(report.schedule_of(made)))))
        inner += [_details(f"kernel {_text(name)}", _pre(text)) for name, text in report.kernels_of(made)]
        buffers = report.buffers_of(made)
        table = _table(("buffer", "type", "bytes"), [(_code(n), _code(t), f"{size:,}") for n, t, size in buffers], 2)
        inner.append(_details(f"buffers ({_bytes(sum(size for *_, size in buffers))})", table))
    else:
        inner.append("<p>Nodes run one by one.</p>")
    return _details(f"{_text(part)} from {_text(place)}: {len(report.schedule_of(made))} kernels", "".join(inner))


def _text(value: Any) -> str:
    return html.escape(str(value))


def _code(value: Any) -> str:
    return f"<code>{_text(value)}</code>"


def _pre(text: str) -> str:
    return f"<pre>{_text(text)}</pre>"


def _details(summary: str, inner: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{inner}</details>"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]], numbers_from: int = 99) -> str:
    """Cells are HTML; columns from `numbers_from` on are numbers."""

    def line(cells: Iterable[Any], tag: str) -> str:
        shown = [f"<{tag}{' class=n' if i >= numbers_from else ''}>{cell}</{tag}>" for i, cell in enumerate(cells)]
        return f"<tr>{''.join(shown)}</tr>"

    return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"


def _bytes(size: int) -> str:
    return f"{size:,} B" if size < 10_000 else f"{size / 1024:,.1f} KB" if size < 10_000_000 else f"{size / 2**20:,.1f} MB"
