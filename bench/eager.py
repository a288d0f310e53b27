"""`./run bench`: times eager cases on tocha and, where an interpreter with torch is named, on torch beside it.

Rounds of the two are interleaved, so both see the same machine; a ratio is the median over the rounds of tocha's time / torch's
time (under 1: tocha is faster). Results are compared, and a row whose results differ fails. Differences under ten percent are
ties. `--sizes` adds what importing and installing cost. `--grid` runs the rows of bench.grid instead of the cases: operators by size.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import grid_run
from bench.cases import CASES
from bench.footprint import footprint

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


class Worker:
    """A process that times one case."""

    def __init__(self, python: str, framework: str, case: str, args: argparse.Namespace) -> None:
        threads = str(args.threads)
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        env = dict(os.environ, PYTHONPATH=str(ROOT), **dict.fromkeys(names, threads))
        command = [python, "-m", "bench.worker", framework, case, args.device, threads, str(args.seconds)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self.result = [float(x) for x in self._answer().split()]

    def _answer(self) -> str:
        line = self._out.readline()
        if not line:
            errors = self._process.communicate()[1].strip().splitlines()
            raise RuntimeError(errors[-1] if errors else f"exit status {self._process.returncode}")
        return line.strip()

    def measure(self) -> float:
        """Seconds of a step."""
        self._in.write("\n")
        self._in.flush()
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate()


def measure(case: str, args: argparse.Namespace) -> dict[str, Any]:
    """Median seconds of a step by framework, and the ratio."""
    frameworks = {"tocha": sys.executable, **({"torch": args.torch} if args.torch else {})}
    workers: dict[str, Worker] = {}
    row: dict[str, Any] = {"case": case, "limit": CASES[case].limit}
    try:
        for name, python in frameworks.items():
            workers[name] = Worker(python, name, case, args)
        rounds = [{name: worker.measure() for name, worker in workers.items()} for _ in range(args.rounds)]
    except RuntimeError as error:
        return row | {"error": f"{name}: {error}"}
    finally:
        for worker in workers.values():
            worker.close()
    for name in frameworks:
        row[name] = statistics.median(r[name] for r in rounds) / CASES[case].per
    if "torch" in frameworks:
        row["ratio"] = statistics.median(r["tocha"] / r["torch"] for r in rounds)
        got, expected = workers["tocha"].result, workers["torch"].result
        # Sums of up to 10^6 float32 results: relative to the sum of magnitudes, rounding is far below this.
        if not all(math.isclose(g, e, rel_tol=1e-4, abs_tol=1e-5 * expected[1]) for g, e in zip(got, expected, strict=True)):
            row["error"] = f"results differ: {got} and {expected}"
    return row


def versions(args: argparse.Namespace) -> dict[str, str]:
    """What was measured, and on what."""
    show = "import {0}; print({0}.__version__)"
    found = {"python": platform.python_version(), "machine": f"{os.cpu_count()} cores, {processor()}"}
    for name, python in (("tocha", sys.executable), ("torch", args.torch)):
        if python:
            command = [python, "-c", show.format(name)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found[name] = done.stdout.strip()
    return found


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for scale, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    about = ", ".join(f"{name} {value}" for name, value in report["versions"].items())
    lines = [
        f"{report['date']}, {about}; {report['device']}, {report['threads']} thread(s); `{report['command']}`.",
        "",
        "| case | tocha | torch | tocha / torch | aim |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in report["rows"]:
        if "error" in row:
            lines.append(f"| {row['case']} | failed: {row['error']} | | | |")
        else:
            ratio = f"{row['ratio']:.2f}" if "ratio" in row else "–"
            times = f"{duration(row['tocha'])} | {duration(row.get('torch'))}"
            aim = "–" if row.get("limit") is None else f"≤ {row['limit']}"
            lines.append(f"| {row['case']} | {times} | {ratio} | {aim} |")
    for row in report.get("sizes", ()):
        lines.append(f"| {row['what']} | {row['tocha']} | {row.get('torch', '–')} | – | {row['aim']} |")
    return "\n".join(lines)


def _grid(args: argparse.Namespace) -> int:
    """Run the grid; 1 if a row fails."""
    args.seconds = 0.05 if args.seconds is None else args.seconds
    report = _report(args)
    report["rows"] = rows = grid_run.run(args)
    print(grid_run.summary(rows, args.threads))
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{args.save}.json"
        path.write_text(json.dumps(grid_run.merged(path, report), indent=1) + "\n", encoding="utf-8")
    return int(any("error" in row for row in rows))


def _report(args: argparse.Namespace) -> dict[str, Any]:
    """What a report says besides its rows."""
    return {
        "date": datetime.date.today().isoformat(),
        "versions": versions(args),
        "device": args.device,
        "threads": args.threads,
        "load": round(os.getloadavg()[0], 1),
        "command": "./run bench " + " ".join("PYTHON" if a == args.torch else a for a in sys.argv[1:]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, help="length of a round (default: 0.2; of the grid: 0.05)")
    parser.add_argument("--sizes", action="store_true", help="also import time, memory and installed size")
    parser.add_argument("--save", metavar="NAME", help="keep the report as bench/results/NAME.json")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    parser.add_argument("--grid", action="store_true", help="the grid of operators by size")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="with --grid: rows whose name matches or contains it")
    args = parser.parse_args()
    if args.grid:
        return _grid(args)
    args.seconds = 0.2 if args.seconds is None else args.seconds
    unknown = sorted(set(args.cases) - set(CASES))
    if unknown:
        parser.error(f"no case {', '.join(unknown)}")

    report, rows = _report(args), []
    for case in args.cases or [c for c in CASES if not c.endswith("_both_compiled")]:  # torch compiles for a minute each
        print(f"{case} ...", file=sys.stderr)
        rows.append(measure(case, args))
    report["rows"] = rows
    if args.sizes:
        report["sizes"] = footprint(args.torch)
    print(table(report))
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{args.save}.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.readme:
        readme = ROOT / "README.md"
        block = f"{BEGIN}\n{table(report)}\n{END}"
        text = re.sub(f"{BEGIN}.*{END}", lambda _: block, readme.read_text(encoding="utf-8"), flags=re.DOTALL)
        readme.write_text(text, encoding="utf-8")
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
