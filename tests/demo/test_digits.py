"""The demo trains, saves, reloads and predicts; the same seed gives the same numbers."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tocha as torch
from tocha.demo import digits

pytest.importorskip("sklearn")


def test_split_is_a_partition_and_repeats():
    train, test = digits.load_data(seed=3)
    assert (len(train), len(test)) == (1437, 360)
    images = torch.cat([train.tensors[0], test.tensors[0]])
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == torch.float32
    assert (images.min().item(), images.max().item()) == (0.0, 1.0)
    # The sum of all pixels is that of the data set, so no image is lost or taken twice.
    assert images.to(torch.float64).sum().item() * 16 == 561718
    again = digits.load_data(seed=3)[1].tensors[0]
    assert torch.equal(test.tensors[0], again)
    assert not torch.equal(test.tensors[0], digits.load_data(seed=4)[1].tensors[0])


def test_accuracy():
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    assert digits.accuracy(probabilities, torch.tensor([0, 1, 1, 1])) == 0.75


@pytest.mark.slow
def test_same_seed_same_numbers(tmp_path):
    settings = digits.Settings(epochs=1, seed=5, checkpoint=tmp_path / "a.pt")
    first = digits.train(settings)
    second = digits.train(replace(settings, checkpoint=tmp_path / "b.pt"))
    assert first == second
    one, two = (torch.load(tmp_path / name)["model"] for name in ("a.pt", "b.pt"))
    assert list(one) == list(two)
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


@pytest.mark.slow
def test_whole_demo(tmp_path):
    command = [sys.executable, "-m", "tocha", "demo", "--epochs", "6", "--checkpoint", "digits.pt"]
    environment = {**os.environ, "PYTHONPATH": str(Path(torch.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "digits.pt").exists()
    assert "epoch  6/6" in done.stdout
    assert "of 360 test images right" in done.stdout


@pytest.mark.slow
def test_a_missed_target_is_a_failure(tmp_path, capsys):
    settings = digits.Settings(epochs=1, target=1.0, checkpoint=tmp_path / "digits.pt")
    assert digits.main(settings) == 1
    assert "under the 100% asked for" in capsys.readouterr().err
