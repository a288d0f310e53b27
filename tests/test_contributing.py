"""The guide's example of a new operator gives all that the guide says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHECKS = """
import math
import tocha as torch
from tocha.dispatch.registry import NAMESPACES
from tocha.func import vmap

symlog = NAMESPACES["torch"]["symlog"]
x = torch.tensor([-3.0, 0.5], dtype=torch.float64, requires_grad=True)
expected = [-math.log(4.0), math.log(1.5)]
torch.testing.assert_close(symlog(x), torch.tensor(expected, dtype=torch.float64))
assert torch.equal(x.symlog(), symlog(x))
y = x.detach().clone()
assert torch.equal(y.symlog_(), symlog(x))
out = torch.empty(0, dtype=torch.float64)
assert symlog(x.detach(), out=out) is out and torch.equal(out, y)
assert symlog(torch.tensor([3])).dtype is torch.float32
assert symlog(torch.ones(2, dtype=torch.bfloat16)).dtype is torch.bfloat16
assert symlog(torch.empty(2, 3, device="meta")).shape == (2, 3)
assert torch.equal(vmap(symlog)(x), symlog(x))
assert torch.autograd.gradcheck(symlog, x) and torch.autograd.gradgradcheck(symlog, x)
assert symlog.__doc__ == "sign(input) * log(1 + |input|)." and symlog.__name__ == "symlog"
"""


def test_one_record_makes_an_operator() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(from tocha.prims.pointwise.*?)```", text, re.DOTALL)
    assert example is not None
    subprocess.run([sys.executable, "-c", "import tocha\n" + example.group(1) + CHECKS], cwd=ROOT, check=True)
