"""Functions that the CUDA namespace makes itself: their formulas, and calls on the stand-in for CuPy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.special

from tocha.backends._cuda_functions import far_bessel

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
from tests.backends import fake_cupy
fake_cupy.install()
import tocha as torch
c = torch.tensor([0j, 1j, 1 + 0j], device="cuda")
x = torch.tensor([100.0, -100.0, 2.0, float("inf"), float("nan")], device="cuda")
got = {"not": torch.logical_not(c), "and": torch.logical_and(c, c.flip(0)), "xor": torch.logical_xor(c, c.flip(0))}
got |= {name: getattr(torch.special, name)(x) for name in ("i0e", "i1e", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1")}
def refused(call):
    try:
        call().cpu()
    except IndexError:
        return True
    return False
m, far, back = torch.ones(3, 2, device="cuda"), torch.tensor([[0, 3]], device="cuda"), torch.tensor([[0, -1]], device="cuda")
calls = {
    "gather": lambda i: m.gather(0, i), "scatter": lambda i: m.scatter(0, i, m), "scatter_add": lambda i: m.scatter_add(0, i, m),
    "index_select": lambda i: m.index_select(0, i[0]), "index_add": lambda i: m.index_add(0, i[0], m[:2]),
    "take_along_dim": lambda i: m.take_along_dim(i - 3 * (i < 0), 0), "embedding": lambda i: torch.nn.functional.embedding(i, m),
    "cross_entropy": lambda i: torch.nn.functional.cross_entropy(m[:2], i[0]), "read": lambda i: m[i - 3 * (i < 0)],
}
wrong = [f"{name} {i.tolist()}" for name, call in calls.items() for i in (far, back) if not refused(lambda: call(i))]
if wrong:
    raise SystemExit(f"not refused: {wrong}")
assert m.take_along_dim(back, 0).tolist() == [[1.0, 1.0]] and m.gather(0, far * 0).tolist() == [[1.0, 1.0]]
got["cast"] = torch.tensor([1.9, -1.9, 300.0], device="cuda").to(torch.int16)
print(json.dumps({name: v.cpu().tolist() for name, v in got.items()}))
"""


@pytest.mark.parametrize(("name", "order"), [("i0e", 0), ("i1e", 1), ("k0e", 0), ("k1e", 1)])
def test_expansion_at_large_arguments(name, order):
    x = np.array([50.1, 60.0, 1e3, 1e30])
    got = far_bessel(x, order, name.startswith("i")) / np.sqrt(x)
    np.testing.assert_allclose(got, getattr(scipy.special, name)(x), rtol=1e-15)
    assert far_bessel(np.array([np.inf]), order, True) / np.inf == 0


def test_calls():
    environment = {**os.environ, "TOCHA_EAGER": "cupy"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    got = json.loads(done.stdout)
    assert got["not"] == [True, False, False]
    assert got["and"] == [False, True, False]
    assert got["xor"] == [True, False, True]
    assert got["cast"] == [1, -1, 300]
    assert got["i0e"] == pytest.approx([0.03994438, 0.03994438, 0.3085083, 0.0, np.nan], nan_ok=True)
    assert got["i1e"] == pytest.approx([0.03974416, -0.03974416, 0.2152693, 0.0, np.nan], nan_ok=True)
    assert got["scaled_modified_bessel_k0"] == pytest.approx([0.1251756, np.nan, 0.8415682, 0.0, np.nan], nan_ok=True)
    assert got["scaled_modified_bessel_k1"] == pytest.approx([0.1257999, np.nan, 1.033477, 0.0, np.nan], nan_ok=True)
