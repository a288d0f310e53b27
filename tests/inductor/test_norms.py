"""Kernels of RMS normalisation and of batch normalisation with given statistics agree with NumPy's tier."""

import numpy as np
import pytest

import tocha as torch
from tocha.backends import cpu, native
from tocha.prims import norm

RUNS = native.runs()
FLOATS = [np.float32, np.float64, torch.float16.np, torch.bfloat16.np]
CLOSE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12, torch.float16.np: 2e-3, torch.bfloat16.np: 1e-2}


def _array(shape, dtype, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(dtype)


def _same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    close = CLOSE[got.dtype]
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=close, atol=10 * close)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "dims", "weighted"), [((70, 100), 1, True), ((3, 65, 17, 9), 2, True), ((130, 64), 1, False), ((5, 1500), 1, True)]
)
def test_rms_norm(shape, dims, weighted, dtype):
    x, g = _array(shape, dtype), _array(shape, dtype, 1)
    weight = _array(shape[-dims:], dtype, 2) if weighted else None
    params = {"dims": dims, "eps": 1e-5}
    _same(RUNS["rms_norm"]([x, weight], params), norm.rms_norm.impl(cpu, x, weight, **params))
    got = RUNS["rms_norm_backward"]([g, x, weight], params)
    want = norm.rms_norm_backward.impl(cpu, g, x, weight, **params)
    _same(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 6, 10, 9), (300, 40), (2, 5, 513)])
def test_batch_norm_with_given_statistics(shape, dtype):
    x, g = _array(shape, dtype), _array(shape, dtype, 1)
    weight, bias, mean = (_array(shape[1], np.float32, n) for n in (2, 3, 4))
    var = np.abs(_array(shape[1], np.float32, 5)) + 0.1
    for w, b in ((weight, bias), (None, bias), (weight, None), (None, None)):
        got = RUNS["batch_norm_given"]([x, w, b, mean, var], {"eps": 1e-5})
        _same(got, norm.batch_norm_given.impl(cpu, x, w, b, mean, var, eps=1e-5))
    got = RUNS["batch_norm_given_backward"]([g, x, weight, mean, var], {"eps": 1e-5})
    want = norm.batch_norm_given_backward.impl(cpu, g, x, weight, mean, var, eps=1e-5)
    _same(got[0], want[0])
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_gradients_of_batch_norm_in_inference():
    x = torch.randn(8, 6, 40, 30, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.randn(6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mean, var = torch.randn(6, dtype=torch.float64), torch.rand(6, dtype=torch.float64) + 0.5
    g = torch.randn_like(x)
    got = torch.autograd.grad(torch.nn.functional.batch_norm(x, mean, var, weight, bias, eps=0.0), (x, weight, bias), g)
    column = (1, 6, 1, 1)
    scale = var.rsqrt().view(column)
    expected = g * scale * weight.view(column), (g * (x - mean.view(column)) * scale).sum((0, 2, 3)), g.sum((0, 2, 3))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b.detach())


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_gradients_of_group_norm_share_their_sums(groups):
    x = torch.randn(4, 6, 30, 20, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.randn(6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    g = torch.randn_like(x)
    got = torch.autograd.grad(torch.nn.functional.group_norm(x, groups, weight, bias), (x, weight, bias), g)
    grouped = x.reshape(4, groups, -1)
    middle, spread = grouped.mean(-1, keepdim=True), grouped.var(-1, correction=0, keepdim=True)
    normal = ((grouped - middle) * (spread + 1e-5).rsqrt()).reshape(x.shape)
    out = normal * weight.view(1, 6, 1, 1) + bias.view(1, 6, 1, 1)
    for a, b in zip(got, torch.autograd.grad(out, (x, weight, bias), g), strict=True):
        torch.testing.assert_close(a, b)
