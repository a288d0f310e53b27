"""Runs the shared conformance vectors and cases and compares them with .ci/thresholds.toml.

They lie in a folder beside the project (../shared, or $TOCHA_SHARED); without it there is nothing to check.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
THRESHOLDS = ROOT / ".ci" / "thresholds.toml"
CASE_SECONDS = 240


def environment() -> dict[str, str]:
    """This environment with the project importable and tocha as the framework under test."""
    return dict(os.environ, PYTHONPATH=str(ROOT), FRAMEWORK="tocha", PYTHONDONTWRITEBYTECODE="1")


@dataclasses.dataclass(frozen=True)
class Way:
    """How the vectors are run: which threshold holds, what to call it, settings of the environment, options of the runner."""

    key: str
    words: str
    settings: dict[str, str]
    options: tuple[str, ...] = ("--framework", "tocha")


EAGER = Way("importance_1", "", {})
# Kernels serve arrays of any size, and their defects are errors.
NATIVE = Way("native_importance_1", " in kernels", {"TOCHA_NATIVE_MIN": "1", "TOCHA_COMPILE": "strict"})
# Every call of a function is traced and compiled (tools/compiled_tocha.py).
COMPILED = Way(
    "compiled_importance_1",
    " compiled",
    {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tools")))},
    ("--framework", "compiled_tocha", "--importance", "1"),
)


def run_vectors(folder: Path, half: str, jobs: int, way: Way) -> dict[str, Any]:
    """Summary of the conformance runner; its own report goes to the terminal."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "run.py", *way.options, "--half", half, "--quiet"]
        command += ["--jobs", str(jobs), "--json", str(report)]
        subprocess.run(command, cwd=folder, env={**environment(), **way.settings}, check=False)
        if not report.exists():
            raise SystemExit("conformance: the runner wrote no report")
        summary: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["summary"]
        return summary


def run_case(path: Path) -> tuple[str, str]:
    """Number of a case and its last line of error output ('' where it passed)."""
    try:
        done = subprocess.run(
            [sys.executable, path.name],
            cwd=path.parent,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=CASE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return path.name[:3], f"no end after {CASE_SECONDS} s"
    if done.returncode == 0:
        return path.name[:3], ""
    return path.name[:3], (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def run_cases(folder: Path) -> dict[str, str]:
    """Outcome of every case by number."""
    paths = sorted(folder.glob("[0-9][0-9][0-9]_*.py"))
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(run_case, paths))


def record(key: str, share: float | None, passing: list[str] | None) -> None:
    """Write what was measured as the new thresholds; `key` is the share's."""
    text = THRESHOLDS.read_text(encoding="utf-8")
    if share is not None:
        # Rounded down: a threshold must be one that was reached.
        text = re.sub(rf"(?m)^{key} = .*", f"{key} = {int(share * 1000) / 1000}", text)
    if passing is not None:
        numbers = ", ".join(f'"{number}"' for number in passing)
        text = re.sub(r"passing = \[[^\]]*\]", f"passing = [{numbers}]", text)
    THRESHOLDS.write_text(text, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="make the measured results the new thresholds")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes of the vectors (default: 2)")
    parser.add_argument("--only", choices=["vectors", "cases"], help="run one of the two")
    parser.add_argument(
        "--native",
        dest="way",
        action="store_const",
        const=NATIVE,
        default=EAGER,
        help="the vectors with kernels for arrays of any size",
    )
    parser.add_argument(
        "--compile",
        dest="way",
        action="store_const",
        const=COMPILED,
        help="the vectors with every function compiled (importance 1)",
    )
    args = parser.parse_args(argv)
    way: Way = args.way

    thresholds = tomllib.loads(THRESHOLDS.read_text(encoding="utf-8"))
    shared = Path(os.environ.get("TOCHA_SHARED", ROOT.parent / "shared"))
    failures: list[str] = []
    share: float | None = None
    passing: list[str] | None = None

    vectors = shared / "conformance"
    if args.only != "cases" and (vectors / "run.py").exists():
        wanted = thresholds["conformance"]
        summary = run_vectors(vectors, wanted["half"], args.jobs, way)
        passed, total = summary["by_importance"]["1"]
        if not total:
            raise SystemExit("conformance: no operator was checked")
        share = passed / total
        least = wanted[way.key]
        print(f"importance 1{way.words}: {passed} of {total} ({share:.2%}), at least {least:.2%} wanted")
        if share < least:
            failures.append(f"importance 1: {share:.2%} is under {least:.2%}")

    cases = shared / "cases"
    if args.only != "vectors" and way is EAGER and cases.is_dir():
        outcome = run_cases(cases)
        passing = [number for number, error in outcome.items() if not error]
        listed = thresholds["cases"]["passing"]
        print(f"cases: {len(passing)} of {len(outcome)} pass, {len(listed)} wanted")
        for number, error in outcome.items():
            if error:
                print(f"  {number} fails{' (wanted)' if number in listed else ''}: {error[:200]}")
        failures += [f"case {number}" for number in listed if outcome.get(number)]

    if share is None and passing is None:
        print(f"conformance: nothing at {shared}, nothing checked")
    if args.record:
        record(way.key, share, passing)
    for failure in failures:
        print("conformance: worse than .ci/thresholds.toml:", failure)
    return 1 if failures and not args.record else 0


if __name__ == "__main__":
    sys.exit(main())
