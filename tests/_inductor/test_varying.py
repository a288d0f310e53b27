"""Graphs whose sizes vary: kernels that serve all sizes, the plain result for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import described, varying
from tocha.inductor import entry
from tocha.inductor.loop_ir import Const, Size, walk

SIZES = [(2, 7), (3, 64), (5, 33), (4, 128), (2, 1500), (9, 8), (2, 65)]


def normed(x: Any) -> Any:
    """64 columns, which the second size has as rows too."""
    return F.layer_norm(x, (64,)) * torch.sigmoid(x.mean(1, keepdim=True))


def softmax_of_rows(x: Any) -> Any:
    return (x.transpose(1, 2) * 3 - 1).softmax(-1) + x.sum(2).unsqueeze(1)


def mean_of_rows(x: Any) -> Any:
    return (x * x + 1).mean(dim=(0, 1)), x.exp().mean(1), (x - x.amax(1, keepdim=True)).exp().sum(1).log()


def turned(x: Any) -> Any:
    b, t, d = x.shape
    y = x.view(b, t, 4, d // 4).permute(0, 2, 1, 3) + 1
    return torch.cat([y.reshape(b, -1), x.reshape(b, -1)], 1) * 2, torch.arange(t) + x[0, :, 0], F.pad(x, (1, 2))


def shifted(x: Any) -> Any:
    return torch.tanh(x[:, 1:] - x[:, :-1]) * x[:, :1], x.flip(1) + x, x.cumsum(1) * 2


def made(b: int, t: int) -> Any:
    count = b * t * 64
    return torch.from_numpy(np.sin(np.arange(count, dtype=np.float32) * 1.7)).view(b, t, 64)


@pytest.mark.parametrize("function", [normed, softmax_of_rows, mean_of_rows, turned, shifted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [False, True])
def test_every_size_has_the_plain_result(function: Any, grad: bool) -> None:
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for size in [*SIZES, *SIZES[::-1]]:
        x, y = made(*size).requires_grad_(grad), made(*size).requires_grad_(grad)
        got, expected = compiled(x), function(y)
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)
        if grad:
            for results in (got, expected):
                results = results if isinstance(results, tuple) else (results,)
                sum((r * r).sum() for r in results).backward()
            torch.testing.assert_close(x.grad, y.grad, rtol=2e-4, atol=2e-4 * float(y.grad.abs().max()))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Any]:
    """The kernels of graphs that are compiled from now on, with nothing known from before."""
    found: list[Any] = []

    def build(kernel: Any, grain: int, old: Any = entry.build) -> Any:
        if kernel.name == "fused":
            found.append(kernel)
        return old(kernel, grain)

    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(varying, "_families", {})
    monkeypatch.setattr(described, "_made", {})
    monkeypatch.setattr(entry, "build", build)
    return found


def test_a_new_size_needs_no_new_kernel(built: list[Any]) -> None:

    def block(x: Any) -> Any:
        h = F.gelu(x + x.mean(1, keepdim=True)).transpose(1, 2)
        return (h * 2).softmax(-1) + 0.125 * x.transpose(1, 2).flatten(1).unsqueeze(2).sum(1, keepdim=True)

    compiled = torch.compile(block, dynamic=True)
    with torch.no_grad():
        for t in (70, 90, 110):
            compiled(made(3, t))
        assert built
        built.clear()
        for t in (71, 82, 93, 104, 127):
            torch.testing.assert_close(compiled(made(3, t)), block(made(3, t)), rtol=2e-5, atol=2e-6)
    assert not built


def test_what_never_varies_stays_constant(built: list[Any]) -> None:
    compiled = torch.compile(lambda x: x.transpose(1, 2).reshape(3, -1) * 2, dynamic=True)
    for t in (20, 30, 40):
        compiled(made(3, t))
    sized = built[-1]
    assert sized.sizes and all(isinstance(s, Size) for s in sized.sizes)
    assert Const(64, "index") in set(walk(sized.body))


def test_the_latest_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from tocha._dynamo import backends

    monkeypatch.setattr(backends, "_MOST_SIZES", 2)
    planned: list[Any] = []
    monkeypatch.setattr(backends, "_ahead", lambda *args, old=backends._ahead: planned.append(1) or old(*args))
    compiled = torch.compile(lambda x: x * 2 + 1, dynamic=True)
    for t in (5, 6, 7, 7, 6, 5):
        torch.testing.assert_close(compiled(torch.ones(t)), torch.full((t,), 3.0))
    assert len(planned) == 1 + 4  # the graph itself, and 5, 6, 7, then 5 again
