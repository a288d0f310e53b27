"""Kernels of cross entropy agree with NumPy's tier."""

import numpy as np
import pytest

import tocha as torch
from tocha.backends import cpu, native
from tocha.nn import functional as F
from tocha.prims import loss

RUNS = native.runs()


def _params(reduction="mean", smoothing=0.0):
    return {"reduction": reduction, "ignore_index": -100, "smoothing": smoothing}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, torch.bfloat16.np])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_forward_and_backward(reduction, smoothing, dtype):
    rng = np.random.default_rng(0)
    x, target = (rng.standard_normal((70, 130)) * 3).astype(dtype), rng.integers(0, 130, 70)
    params = _params(reduction, smoothing)
    got = RUNS["cross_entropy"]([x, target, None], params)
    wide = x.astype(np.float64)
    value, probability, total = loss.cross_entropy.impl(cpu, wide, target, None, **params)
    close = 1e-12 if dtype is np.float64 else 1e-5 if dtype is np.float32 else 1e-2
    for a, b in zip(got, (value, probability, total), strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=close, atol=close)
    if reduction == "none":
        return
    g = np.asarray(0.5, dtype)
    got = RUNS["cross_entropy_backward"]([got[1], g, target, None, got[2]], params)
    want = loss.cross_entropy_backward.impl(cpu, probability, np.asarray(0.5), target, None, total, **params)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=close, atol=close)


def test_a_class_of_no_probability():
    x = np.zeros((60, 100), np.float32)
    x[:, 3] = -np.inf
    target = np.full(60, 3)
    target[1] = 4
    losses = RUNS["cross_entropy"]([x, target, None], _params("none"))[0]
    assert np.isposinf(losses[0]) and losses[1] == pytest.approx(np.log(99), rel=1e-6)
    assert np.isposinf(RUNS["cross_entropy"]([x, target, None], _params("none", 0.1))[0]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1023, 1024, 5000])
def test_likelihoods_of_many_rows(rows: int, dtype: torch.dtype) -> None:
    x, y = torch.randn(rows, 37, dtype=dtype), torch.randint(0, 37, (rows,))
    losses = -x.numpy().astype(float)[np.arange(rows), y.numpy()]
    assert (F.nll_loss(x, y, reduction="none").numpy() == losses).all()
    assert F.nll_loss(x, y).item() == pytest.approx(losses.mean(), rel=1e-5, abs=1e-6)
    assert F.nll_loss(x, y, reduction="sum").item() == pytest.approx(losses.sum(), abs=1e-6 * np.abs(losses).sum())
    y[7] = -100  # counts for nothing
    assert F.nll_loss(x, y).item() == pytest.approx(np.delete(losses, 7).mean(), rel=1e-5, abs=1e-6)
    assert F.nll_loss(x, y, reduction="none")[7] == 0
    y[7] = 37
    with pytest.raises(IndexError, match="out of bounds"):
        F.nll_loss(x, y)
