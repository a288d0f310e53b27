"""Convolutions in compiled inference: which algorithm serves, and values that it can't compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph
from tocha.aot import runtime
from tocha.backends import _native_conv


@pytest.fixture
def by_winograd(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of calls that Winograd's algorithm was asked for."""
    found: list[Any] = []
    original = _native_conv.winograd

    def spy(*args: Any, **kwargs: Any) -> Any:
        found.append(original(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(_native_conv, "winograd", spy)
    return found


def conv(x: Any, w: Any, b: Any) -> list[Any]:
    return [F.conv2d(x, w, b, padding=1)]


def test_winograd_serves_inference_only(by_winograd: list[Any]) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 32, 28, 28), torch.randn(32, 32, 3, 3) / 16, torch.randn(32)
    with torch.no_grad():
        call = runtime.compile(conv, [x, w, b], compile_graph)
        torch.testing.assert_close(call(x, w, b), conv(x, w, b))
    assert len(by_winograd) == 1
    w.requires_grad_()
    call = runtime.compile(conv, [x, w, b], compile_graph)
    assert (call(x, w, b)[0] == conv(x, w, b)[0]).all()
    assert len(by_winograd) == 1


def test_numbers_that_are_not_finite(by_winograd: list[Any]) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(1, 32, 28, 28), torch.randn(32, 32, 3, 3), torch.randn(32)
    with torch.no_grad():
        call = runtime.compile(conv, [x, w, b], compile_graph)
        x[0, 3, 5, 5], x[0, 1, 20, 20] = np.inf, np.nan
        assert torch.equal(call(x, w, b)[0].isinf(), conv(x, w, b)[0].isinf())
        torch.testing.assert_close(call(x, w, b), conv(x, w, b), equal_nan=True)
    assert by_winograd == [None, None]
