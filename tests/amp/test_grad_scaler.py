"""GradScaler on the CPU: scaling, skipping, growth, saving. Expected numbers follow from its factors."""

from __future__ import annotations

import copy

import pytest

import tocha as torch
from tocha.amp import GradScaler


def made(**options):
    w = torch.ones(2, requires_grad=True)
    return w, torch.optim.SGD([w], lr=0.5), GradScaler("cpu", init_scale=8.0, growth_interval=2, **options)


def step(w, optimizer, scaler, factor=1.0):
    optimizer.zero_grad()
    scaler.scale((w * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_steps_use_unscaled_gradients():
    w, optimizer, scaler = made()
    step(w, optimizer, scaler)
    assert w.tolist() == [0.5, 0.5]
    assert w.grad.tolist() == [1.0, 1.0]


def test_the_factor_grows_and_shrinks_and_bad_steps_are_skipped():
    w, optimizer, scaler = made()
    step(w, optimizer, scaler)
    assert scaler.get_scale() == 8.0
    step(w, optimizer, scaler)
    assert scaler.get_scale() == 16.0
    held = w.tolist()
    step(w, optimizer, scaler, float("inf"))
    assert w.tolist() == held
    assert scaler.get_scale() == 8.0
    assert scaler.state_dict()["_growth_tracker"] == 0


def test_unscale_once_before_clipping():
    w, optimizer, scaler = made()
    scaler.scale(w.sum() * 3).backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_value_([w], 1.0)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    assert w.tolist() == [0.5, 0.5]


def test_iterables_and_half_gradients():
    _, _, scaler = made()
    assert [t.item() for t in scaler.scale([torch.tensor(1.0), torch.tensor(2.0)])] == [8.0, 16.0]
    w = torch.ones(2, dtype=torch.float16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale(w.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)


def test_state_survives_saving_and_copying():
    w, optimizer, scaler = made()
    step(w, optimizer, scaler)
    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == {
        "scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2, "_growth_tracker": 1,
    }  # fmt: skip
    assert copy.deepcopy(scaler).get_scale() == 8.0


def test_disabled_it_passes_everything_through():
    w, optimizer, scaler = made(enabled=False)
    step(w, optimizer, scaler)
    assert w.tolist() == [0.5, 0.5]
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}


def test_update_without_a_check_is_refused():
    _, _, scaler = made()
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.update()
    scaler.scale(torch.ones(1))
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
