"""CUDA on the stand-in for CuPy: every operator that `tools/gpu_check.py` knows gives the CPU's values and gradients, and
devices mix, move and fail as they should. It runs in a process of its own, where `import cupy` finds the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
from tests.backends import fake_cupy
fake_cupy.install()
from tools import gpu_check
print("RESULT" + json.dumps(gpu_check.PARTS[sys.argv[1]]((0, 1), float("inf"))))
"""


def run_part(part: str) -> dict[str, Any]:
    environment = {**os.environ, "TOCHA_EAGER": "cupy"}  # machine code for a GPU is of no use to the stand-in
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout.rpartition("RESULT")[2])
    return report


def test_operators_agree_with_the_cpu() -> None:
    report = run_part("operators")
    wrong = [f"{r['case']} [{r['dtype']}]: {r['why']}" for r in report["results"] if r["status"] in ("error", "differs")]
    assert not wrong
    assert report["without_parameters"] == []
    assert sum(r["status"] == "ok" for r in report["results"]) > 1000


def test_devices() -> None:
    results = run_part("devices")["results"]
    assert [f"{r['case']}: {r['why']}" for r in results if r["status"] != "ok"] == []


@pytest.mark.slow
def test_training() -> None:
    pytest.importorskip("sklearn")
    report = run_part("training")
    assert report["cuda"]["accuracy"] == pytest.approx(report["cpu"]["accuracy"], abs=0.02)


def test_public_flags() -> None:
    import tocha as torch
    import tocha.backends.cudnn as cudnn

    held = cudnn.benchmark
    cudnn.benchmark = True
    assert torch.backends.cudnn.benchmark
    with cudnn.flags(enabled=False, benchmark=False):
        assert not torch.backends.cudnn.enabled
        assert not torch.backends.cudnn.benchmark
    assert cudnn.benchmark
    cudnn.benchmark = held
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = False
    assert not torch.backends.mps.is_available()
    with pytest.raises(AttributeError, match=r"torch\.backends"):
        _ = torch.backends.nonsense
