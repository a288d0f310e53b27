"""A convolutional network trained on the scikit-learn digits against real torch's losses.

The run is chaotic: after some 30 steps torch itself differs between machines by more than any tolerance, so
only the first ones are compared.
"""

from __future__ import annotations

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn

# torch 2.13, seed 0, learning rate 0.1, momentum 0.9, batches of 50.
LOSSES = [
    2.2947674, 2.2267313, 2.1010199, 1.8248911, 1.5609558, 1.3737473,
    1.2869639, 1.6176091, 1.2709502, 0.4833039, 0.7551790, 0.3560216,
    0.3229843, 0.2948463, 0.1934469, 0.5744016, 0.5131666, 1.0656704,
    0.5635787, 0.1308557, 0.1565500, 0.1341041, 0.2796786, 0.1902284,
]  # fmt: skip


def test_first_steps() -> None:
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
    losses = []
    for i in range(0, 50 * len(LOSSES), 50):
        loss = F.cross_entropy(model(x[i : i + 50]), y[i : i + 50])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(losses, LOSSES, rtol=0, atol=1e-5)
