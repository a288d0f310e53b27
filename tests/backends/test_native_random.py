"""Kernels that draw have the bits of tocha.rng's NumPy forms and leave the stream where those do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha.backends import _native_random as kernels
from tocha.backends import native
from tocha.inductor import jit
from tocha.rng import continuous, discrete
from tocha.rng.mt19937 import MT19937

F32, F64, I64, BOOL = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_))
fused = pytest.mark.skipif(not jit.has_fma(), reason="this CPU rounds x * y + z twice")

# The type, the kernel's way, and NumPy's.
WAYS: list[Any] = [
    (F32, kernels.uniform(F32, 0.0, 1.0), lambda e, n: continuous.uniform(e, n, F32)),
    (F32, kernels.uniform(F32, -1.5, 2.7), lambda e, n: continuous.uniform(e, n, F32, -1.5, 2.7)),
    (F32, kernels.uniform(F32, 1.0, 1.0000001), lambda e, n: continuous.uniform(e, n, F32, 1.0, 1.0000001)),  # rounds to the end
    (F32, kernels.uniform(F32, 0.5, 0.5), lambda e, n: continuous.uniform(e, n, F32, 0.5, 0.5)),
    pytest.param(F64, kernels.uniform(F64, 0.0, 1.0), lambda e, n: continuous.uniform(e, n, F64), marks=fused),
    pytest.param(F64, kernels.uniform(F64, -1.3, 2.7), lambda e, n: continuous.uniform(e, n, F64, -1.3, 2.7), marks=fused),
    (BOOL, kernels.bernoulli(BOOL, 0.3), lambda e, n: discrete.bernoulli(e, n, 0.3)),
    (F32, kernels.bernoulli(F32, 0.9, 1.25), lambda e, n: discrete.bernoulli(e, n, 0.9) * np.float32(1.25)),
    (F64, kernels.bernoulli(F64, 1.0), lambda e, n: discrete.bernoulli(e, n, 1.0).astype(F64)),
    (I64, kernels.integers(I64, -5, 17), lambda e, n: discrete.integers(e, n, I64, -5, 17)),
    (I64, kernels.integers(I64, 3, 1 << 63), lambda e, n: discrete.integers(e, n, I64, 3, 1 << 63)),
    (I64, kernels.integers(I64, 0, (1 << 28) + 1), lambda e, n: discrete.integers(e, n, I64, 0, (1 << 28) + 1)),
]


@pytest.mark.parametrize(("dtype", "into", "by_numpy"), WAYS)
def test_bits_and_stream(
    dtype: Any, into: Callable[..., bool], by_numpy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    native.inductor()
    monkeypatch.setattr(continuous, "kernel", None)
    ours, theirs = MT19937(3), MT19937(3)
    for n in (1, 7, 617, 625, 2500, (1 << 16) + 3):
        out = np.empty(n, dtype)
        assert into(ours, out)
        want = by_numpy(theirs, n)
        assert want.dtype == dtype
        np.testing.assert_array_equal(out.view(np.uint8), want.view(np.uint8))
        assert (ours.get_state() == theirs.get_state()).all()


@fused
@pytest.mark.parametrize("n", [1, 700])
def test_what_is_made_of_uniforms(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native.inductor()
    ours = [continuous.exponential(MT19937(3), n, F32, 2.0), continuous.cauchy(MT19937(3), n, F64, 0.5, 2.0)]
    monkeypatch.setattr(continuous, "kernel", None)
    theirs = [continuous.exponential(MT19937(3), n, F32, 2.0), continuous.cauchy(MT19937(3), n, F64, 0.5, 2.0)]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@fused
@pytest.mark.parametrize("n", [16, 32, 33, 70_001])
def test_normals(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native.inductor()
    ours, theirs, into = MT19937(3), MT19937(3), kernels.normal(F32, 0.5, 2.3)
    out = np.empty(n, np.float32)
    assert into is not None and into(ours, out)
    monkeypatch.setattr("tocha.rng.box_muller.kernel", None)
    np.testing.assert_array_equal(out, continuous.normal(theirs, n, F32, 0.5, 2.3))
    assert (ours.get_state() == theirs.get_state()).all()


@pytest.mark.parametrize("n", [2, 3, 199, 2000])
def test_permutations(n: int) -> None:
    native.inductor()
    ours, theirs, out = MT19937(3), MT19937(3), np.empty(n, np.int64)
    assert kernels.permutation(ours, out)
    np.testing.assert_array_equal(out, discrete.permutation(theirs, n, I64))
    assert (ours.get_state() == theirs.get_state()).all()


def test_torchs_numbers() -> None:
    """Values of torch 2.13 for this seed, drawn one after the other."""
    native.inductor()
    torch.manual_seed(5)
    assert torch.randperm(100_003)[:5].tolist() == [24809, 92077, 29372, 25888, 60888]
    assert torch.randperm(300)[-3:].tolist() == [170, 200, 272]
    assert torch.randint(3, 90, (5,)).tolist() == [33, 27, 15, 80, 56]
    assert torch.empty(5).bernoulli_(0.3).tolist() == [1.0, 0.0, 0.0, 1.0, 1.0]
    want = [-0.0023353248834609985, -0.3557267487049103, -1.0238536596298218, 0.6820467710494995]
    assert torch.randn(35)[-4:].tolist() == pytest.approx(want, abs=1e-6)
    assert torch.empty(3, dtype=torch.float64).uniform_(2, 5).tolist() == [4.146195521935832, 3.7683992808613236, 3.010493633421599]
    assert torch.rand(2).tolist() == [0.26194435358047485, 0.959221601486206]
    assert torch.nn.functional.dropout(torch.ones(6), 0.5).tolist() == [2.0, 0.0, 2.0, 0.0, 2.0, 2.0]


def test_what_no_kernel_fills() -> None:
    """Strided memory, other types and no elements: the general way, with the same numbers."""
    native.inductor()
    torch.manual_seed(1)
    want = torch.empty(6).uniform_(2, 3)
    torch.manual_seed(1)
    strided = torch.zeros(6, 2)[:, 0].uniform_(2, 3)
    assert strided.tolist() == want.tolist()
    assert torch.empty(0).uniform_().shape == torch.rand(0, 3)[:, 0].shape == (0,)
    leaf = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.uniform_()
    with torch.no_grad():
        version = leaf._version
        assert leaf.uniform_(1, 1).tolist() == [1, 1, 1]
    assert leaf._version == version + 1
