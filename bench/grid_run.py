"""Runs the grid (`./run bench --grid`): each framework in one process, rounds interleaved, outputs compared element by element.

The ratio of a row is the median over the rounds of tocha's CPU time / torch's; with several threads that of wall-clock time stands beside
it, and the row is judged by that: threads that wait by spinning are not worth CPU time to either side. On a machine that others use too,
OpenMP's barriers cost torch milliseconds; the ratio of the fastest rounds, shown as well, suffers least from that.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.grid import GRID, Row

ROOT = Path(__file__).resolve().parent.parent


class Server:
    """A process of one framework (bench.serve)."""

    def __init__(self, framework: str, python: str, threads: int, folder: Path) -> None:
        self.folder = folder / framework
        self.folder.mkdir()
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        env = dict(os.environ, PYTHONPATH=str(ROOT), **dict.fromkeys(names, str(threads)))
        command = [python, "-m", "bench.serve", framework, str(threads)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *request: str) -> dict[str, Any]:
        """The answer to a request; RuntimeError with the framework's error, if it has one."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write("\t".join(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"the process ended with status {self._process.wait()}"}
        if "error" in answer:
            raise RuntimeError(f"{self.folder.name}: {answer['error']}")
        return dict(answer)

    def close(self) -> None:
        self._process.communicate()


def difference(row: Row, got: Path, expected: Path, outputs: int) -> str | None:
    """What differs between the outputs saved in two folders, None if nothing does."""
    for number in range(outputs):
        x, y = (np.load(folder / f"{number}.npy", mmap_mode="r") for folder in (got, expected))
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"output {number} is {x.dtype} {x.shape}, expected {y.dtype} {y.shape}"
        relative, absolute = row.close
        scale = float(np.abs(y).max(where=np.isfinite(y), initial=0))
        bad = ~np.isclose(x, y, rtol=relative, atol=absolute * scale, equal_nan=True)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"output {number} differs at {int(bad.sum())} of {bad.size} places, first {where}: {x[where]} and {y[where]}"
    return None


def measure(row: Row, servers: dict[str, Server], rounds: int, seconds: float) -> dict[str, Any]:
    """A row's median times by framework, and the ratios."""
    result: dict[str, Any] = {"row": row.name, "group": row.group, "limit": row.limit}
    try:
        made = {name: server.ask("make", row.name, str(server.folder)) for name, server in servers.items()}
        if "torch" in servers:
            found = difference(row, servers["tocha"].folder, servers["torch"].folder, made["torch"]["outputs"])
            if found:
                return result | {"error": found}
        counts = {name: str(max(1, math.ceil(seconds / max(answer["cpu"], 1e-7)))) for name, answer in made.items()}
        times = [{name: server.ask("time", counts[name]) for name, server in servers.items()} for _ in range(rounds)]
    except RuntimeError as error:
        return result | {"error": str(error)}
    for clock in ("cpu", "wall"):
        result[clock] = {name: statistics.median(t[name][clock] for t in times) for name in servers}
        if "torch" in servers:
            result[f"{clock} ratio"] = statistics.median(t["tocha"][clock] / t["torch"][clock] for t in times)
    if "torch" in servers:
        result["fastest ratio"] = min(t["tocha"]["wall"] for t in times) / min(t["torch"]["wall"] for t in times)
    return result


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the rows that match `args.only`, printing each as it is done."""
    patterns = args.only or ["*"]
    chosen = [r for r in GRID.values() if any(fnmatch.fnmatch(r.name, p) or p in r.name for p in patterns)]
    results = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        servers = {"tocha": Server("tocha", sys.executable, args.threads, Path(folder))}
        if args.torch:
            servers["torch"] = Server("torch", args.torch, args.threads, Path(folder))
        try:
            for row in chosen:
                results.append(measure(row, servers, args.rounds, args.seconds))
                print(line(results[-1], args.threads), file=sys.stderr, flush=True)
        finally:
            for server in servers.values():
                server.close()
    return results


def judged(result: dict[str, Any], threads: int) -> float | None:
    """The ratio a row is judged by."""
    found = result.get("cpu ratio" if threads == 1 else "wall ratio")
    return None if found is None else float(found)


def line(result: dict[str, Any], threads: int) -> str:
    """A row as a line of text."""
    if "error" in result:
        return f"{result['row']:44} failed: {result['error']}"
    clock = "cpu" if threads == 1 else "wall"
    text = f"{result['row']:44} " + " ".join(f"{1e3 * t:9.3f} ms" for t in result[clock].values())
    ratio = judged(result, threads)
    if ratio is None:
        return text
    other = "" if threads == 1 else f" (CPU {result['cpu ratio']:.2f}, fastest {result['fastest ratio']:.2f})"
    return f"{text} {ratio:6.2f}{other}{' above ' + str(result['limit']) if ratio > result['limit'] else ''}"


def summary(results: list[dict[str, Any]], threads: int) -> str:
    """The geometric mean of each group, its worst row and those above their limit, as Markdown."""
    lines = ["| group | rows | geometric mean | above their aim | worst |", "| --- | ---: | ---: | ---: | --- |"]
    for group in dict.fromkeys(r["group"] for r in results):
        rows = [r for r in results if r["group"] == group]
        ratios = {r["row"]: ratio for r in rows if (ratio := judged(r, threads)) is not None}
        above = [r for r in rows if r["row"] in ratios and ratios[r["row"]] > r["limit"]]
        failed = sum("error" in r for r in rows)
        if not ratios:
            lines.append(f"| {group} | {len(rows)} | – | {failed} failed | |")
            continue
        mean = math.exp(statistics.fmean(math.log(v) for v in ratios.values()))
        worst = max(ratios, key=lambda name: ratios[name])
        count = f"{len(above)}" + (f", {failed} failed" if failed else "")
        lines.append(f"| {group} | {len(rows)} | {mean:.2f} | {count} | {worst.split('/')[1]} {ratios[worst]:.2f} |")
    return "\n".join(lines)


def merged(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    """The file's reports by number of threads, with this one in its place; a report of chosen rows replaces those only."""
    reports: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    key = f"{report['threads']} thread{'s' * (report['threads'] > 1)}"
    before = {r["row"]: r for r in reports.get(key, {}).get("rows", ()) if r["row"] in GRID}
    about = {name: report[name] for name in ("date", "load") if name in report}
    found = before | {r["row"]: r | about for r in report["rows"]}
    command = f"./run bench --grid --torch PYTHON --threads {report['threads']}"
    return reports | {key: report | {"command": command, "rows": [found[name] for name in GRID if name in found]}}
