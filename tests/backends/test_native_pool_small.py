"""Kernels of small poolings have the bits of the NumPy forms: values, places and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha.backends import _native_pool_small as small
from tocha.backends import native

F = torch.nn.functional
SHAPES = {1: [(1, 2, 7), (3, 9)], 2: [(2, 3, 6, 7), (1, 3, 4), (3, 5, 4)], 3: [(1, 2, 4, 5, 3), (0, 2, 4, 4, 4)]}
WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 1, "padding": 1}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 1, "stride": 2},
]  # fmt: skip


def values(shape: tuple[int, ...], dtype: Any, seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).round(1).astype(dtype)
    flat = x.reshape(-1)
    flat[::5] = -0.0
    flat[1::11] = np.nan
    flat[2::7] = -np.inf
    return x


def everything(call: Any, x: Any) -> list[Any]:
    """Results and, of the first, the gradient."""
    leaf = torch.from_numpy(x).requires_grad_()
    got = call(leaf)
    outs = list(got) if isinstance(got, tuple) else [got]
    outs[0].backward(torch.from_numpy(values(tuple(outs[0].shape), x.dtype, 5)))
    with torch.no_grad():
        outs.append(call(torch.from_numpy(x))[0] if isinstance(got, tuple) else call(torch.from_numpy(x)))
    return [o.detach().numpy() for o in (*outs, leaf.grad)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["max", "max with places", "mean", "mean without padding", "mean over 3"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_bits(dims: int, kind: str, window: dict[str, Any], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    native.inductor()
    options = dict(window)
    if kind.startswith("max"):
        function = getattr(F, f"max_pool{dims}d")
        options["return_indices"] = kind != "max"
        if "padding" not in window:
            options["dilation"] = 1 if window["kernel_size"] == 1 else 2
    else:
        function = getattr(F, f"avg_pool{dims}d")
        options["count_include_pad"] = kind != "mean without padding"
        if kind == "mean over 3" and dims > 1:
            options["divisor_override"] = 3
    for shape in SHAPES[dims]:
        x = values(shape, dtype)
        for given in (x, np.ascontiguousarray(x.T).T):
            ours = everything(lambda t: function(t, **options), given)
            with monkeypatch.context() as patched:
                patched.setattr(small, "_builtin", lambda kind, x: None)
                theirs = everything(lambda t: function(t, **options), given)
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("no_compiler")
def test_a_few_small_calls_load_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "_known", {})
    assert F.max_pool2d(torch.arange(16.0).reshape(1, 4, 4), 2).tolist() == [[[5, 7], [13, 15]]]
    assert F.avg_pool2d(torch.arange(16.0).reshape(1, 4, 4), 2).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]


def test_sizes_are_read_anew_where_their_types_differ() -> None:
    x = torch.arange(16.0).reshape(1, 4, 4)
    assert F.max_pool2d(x, 2).shape == F.max_pool2d(x, [2, 2]).shape == F.max_pool2d(x, (2, 2)).shape == (1, 2, 2)
    with pytest.raises(TypeError, match="kernel_size"):
        F.max_pool2d(x, 2.0)
    with pytest.raises(RuntimeError, match="pad should be at most half"):
        F.max_pool2d(x, 2, padding=2)
