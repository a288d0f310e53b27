"""A convolutional network trained on the scikit-learn digits against real torch's losses.

Training amplifies last bits: from step 31 on, torch's own losses depend on the instruction set and the number of threads its kernels are
chosen by (21 settings of ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA and threads gave the 17 runs in fixtures/digits_losses.json, up to 0.6
apart). So the first steps are compared with all of them. The whole run is that of torch on a CPU with AVX2 and one thread, whose order of
adding the kernels follow (tests/inductor/test_order.py), for any number of threads.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn
from tocha.backends import native
from tocha.inductor import jit

# torch 2.13, seed 0, learning rate 0.1, momentum 0.9, batches of 50, 5 epochs of 30 steps; by the settings that give each run.
RUNS = {k: np.array(v) for k, v in json.loads((Path(__file__).parent / "fixtures" / "digits_losses.json").read_text()).items()}
AGREEING = 30  # steps over which all of torch's runs agree


def losses() -> list[float]:
    """The losses of 150 steps."""
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    x = torch.tensor(pixels / 16.0, dtype=torch.float32).view(-1, 1, 8, 8)
    y = torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(5):
        for i in range(0, 1500, 50):
            loss = F.cross_entropy(model(x[i : i + 50]), y[i : i + 50])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found


@pytest.mark.parametrize("count", [1, 2])
def test_whole_run_is_that_of_torch(count: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        ours = np.array(losses())
    finally:
        torch.set_num_threads(before)
    for run in RUNS.values():
        np.testing.assert_allclose(ours[:AGREEING], run[:AGREEING], rtol=0, atol=5e-5)
    x86 = jit.host()[0].startswith("x86_64")  # where NumPy's exp, which serves so small a loss, has the same bits on every CPU
    if native.inductor() is not None and jit.has_fma() and x86:
        np.testing.assert_allclose(ours, RUNS["avx2_AVX2_1"], rtol=0, atol=1e-4)
