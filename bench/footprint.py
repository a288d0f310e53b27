"""What importing and installing cost: CPU seconds and memory of a bare import, the wheel's size, the size on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_IMPORT = """
import resource, sys, time
started = time.process_time()
__import__(sys.argv[1])
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""

_INSTALLED = """
import importlib.metadata as m, os, re, sys
todo, seen, total = [sys.argv[1]], set(), 0
while todo:
    name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
    if name in seen:
        continue
    seen.add(name)
    try:
        d = m.distribution(name)
    except m.PackageNotFoundError:
        continue
    total += sum(os.path.getsize(p) for f in d.files or () if os.path.isfile(p := d.locate_file(f)))
    todo += [re.match(r"[\\w.-]+", r).group() for r in d.requires or () if "extra ==" not in r]
print(total)
"""


def _run(python: str, code: str, name: str) -> list[float]:
    # Installed packages have their bytecode, whatever this shell says.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([python, "-c", code, name], cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    return [float(x) for x in done.stdout.split()]


def _import_cost(python: str, name: str) -> tuple[float, float]:
    """(CPU seconds, peak MB), the best of five after one to warm the disk."""
    runs = [_run(python, _IMPORT, name) for _ in range(6)][1:]
    return min(r[0] for r in runs), min(r[1] for r in runs) / 1024


def _wheel_megabytes() -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            folder,
            str(ROOT),
        ]
        subprocess.run(command, check=True)
        return next(Path(folder).glob("*.whl")).stat().st_size / 1e6


def _installed_megabytes(python: str, name: str) -> float:
    """Size of the files of a distribution and all that it requires (the package itself, where installed as a link, by its wheel)."""
    return _run(python, _INSTALLED, name)[0] / 1e6


def footprint(torch: str | None) -> list[dict[str, Any]]:
    """Rows of the table: what, tocha, torch (where an interpreter with it is named), and what is aimed at."""
    mine = _import_cost(sys.executable, "tocha")
    rows = [
        {"what": "import, CPU time", "tocha": f"{mine[0]:.2f} s", "aim": "≤ 0.25 s"},
        {"what": "import, peak memory", "tocha": f"{mine[1]:.0f} MB", "aim": "≤ 60 MB"},
        {"what": "wheel", "tocha": f"{_wheel_megabytes():.2f} MB", "aim": "≤ 2 MB"},
        {
            "what": "installed with dependencies",
            "tocha": f"{_installed_megabytes(sys.executable, 'tocha'):.0f} MB",
            "aim": "≤ 400 MB",
        },
    ]
    if torch:
        theirs = _import_cost(torch, "torch")
        rows[0]["torch"], rows[1]["torch"] = f"{theirs[0]:.2f} s", f"{theirs[1]:.0f} MB"
        rows[3]["torch"] = f"{_installed_megabytes(torch, 'torch'):.0f} MB"
    return rows
