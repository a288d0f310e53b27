"""Layers that a graph runs sample by sample: which do, and their values."""

from __future__ import annotations

from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph, freezing, samples
from tocha.aot import runtime


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The stretches made, for arrays of a few KB a sample too."""
    found: list[Any] = []

    class Spy(samples.Stretch):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(samples, "_LEAST", 4096)
    monkeypatch.setattr(samples, "Stretch", Spy)
    return found


torch.manual_seed(0)
X, W1, W2 = torch.randn(3, 3, 32, 31), torch.randn(8, 3, 5, 5) / 8, torch.randn(8, 8, 3, 3) / 8
GAIN, SHIFT, OTHER, WHOLE = torch.rand(8), torch.randn(8), torch.randn(3, 8, 16, 16), torch.randn(1, 8, 1, 16)


def normal(x: Any) -> Any:
    return F.batch_norm(x, SHIFT, GAIN + 1, GAIN, SHIFT)


def stem(x: Any, other: Any) -> Any:
    x = F.max_pool2d(F.relu(normal(F.conv2d(x, W1, None, 1, 2))), 3, 2, 1)
    return F.relu(normal(F.conv2d(x, W2, SHIFT, 1, 1)) * WHOLE + x + other)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stretch_of_layers(stretches: list[Any], threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with torch.no_grad():
        call = runtime.compile(lambda x, other: [stem(x, other).mean((2, 3)), other + 1], [X, OTHER], compile_graph)
        torch.testing.assert_close(call(X, OTHER), [stem(X, OTHER).mean((2, 3)), OTHER + 1])
        x = X.clone()
        x[1, 2, 5, 5], x[2, 0, 20, 20] = torch.inf, torch.nan
        torch.testing.assert_close(call(x, OTHER)[0], stem(x, OTHER).mean((2, 3)), equal_nan=True)
    torch.set_num_threads(before)
    (stretch,) = stretches
    assert stretch.parts.count(True) == 2 and stretch.like.shape == (3, 8, 16, 16)


def test_what_else_reads_a_layer_ends_the_stretch_before(stretches: list[Any]) -> None:
    def both(x: Any, other: Any) -> list[Any]:
        y = stem(x, other)
        return [F.conv2d(y, W2, None, 1, 1), y.sum((0, 2, 3))]

    with torch.no_grad():
        call = runtime.compile(both, [X, OTHER], compile_graph)
        torch.testing.assert_close(call(X, OTHER), both(X, OTHER))
        (stretch,) = stretches
        assert stretch.like.shape == (3, 8, 16, 16)
        runtime.compile(lambda x: [F.conv2d(x, W1, None, 1, 2), F.conv2d(x, W1, None, 1, 2).relu()], [X], compile_graph)
        runtime.compile(lambda x, other: [stem(x, other)], [X[:1], OTHER[:1]], compile_graph)  # one sample
    assert len(stretches) == 1
    w = W2.clone().requires_grad_()
    call = runtime.compile(lambda x, w: [F.conv2d(F.conv2d(x, W1, None, 1, 2), w).relu()], [X, w], compile_graph)
    torch.testing.assert_close(call(X, w)[0], F.conv2d(F.conv2d(X, W1, None, 1, 2), w).relu())
    assert len(stretches) == 1  # backward needs what is between the convolutions


def test_constants(stretches: list[Any]) -> None:
    """Frozen weights are packed once, and a constant that has samples is read a sample at a time."""

    def layers(x: Any, w1: Any, w2: Any, other: Any) -> list[Any]:
        x = F.conv2d(x, w1, None, 2, 2)
        return [F.conv2d(x + other * 2, w2, None, 1, 1) * other]

    values = (W1, W2, OTHER)
    with torch.no_grad():
        compiler = freezing({i: t.numpy() for i, t in enumerate(values, 1)})
        call = runtime.compile(layers, [X, *values], compiler)
        for x in (X, X * 2):
            torch.testing.assert_close(call(x, *values), layers(x, *values))
    (stretch,) = stretches
    assert stretch.parts == [True, True, True]


def test_samples_of_a_view_in_another_order(stretches: list[Any]) -> None:
    turned = X.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    with torch.no_grad():
        call = runtime.compile(lambda x, other: [stem(x, other)], [turned, OTHER], compile_graph)
        torch.testing.assert_close(call(turned, OTHER)[0], stem(X, OTHER))
    assert len(stretches) == 1
