"""Kernels along any dimension agree with NumPy's tier."""

import numpy as np
import pytest

import tocha as torch
from tocha.backends import cpu, native
from tocha.prims import activation, reduce

RUNS = native.runs()
SHAPES = [
    ((40, 33, 37), 1), ((97, 300), 0), ((5, 17, 256), 1), ((3, 100, 8), 1), ((2, 65, 3, 257), 1), ((20, 1, 300), 1), ((6, 16, 255), -2),
    ((50, 90), 1),
]  # fmt: skip
FLOATS = [np.float32, np.float64, torch.float16.np, torch.bfloat16.np]
CLOSE = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-13, torch.float16.np: 2e-3, torch.bfloat16.np: 1e-2}


def _array(shape, dtype, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


def _expected(prim, arrays, params):
    wide = [a if a.dtype.itemsize > 2 else a.astype(np.float32) for a in arrays]
    with np.errstate(all="ignore"):
        return prim.impl(cpu, *wide, **params)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_backward", "log_softmax_backward"])
def test_softmax_family(name, shape, dim, dtype):
    dtype = np.dtype(dtype)
    arrays = [_array(shape, dtype)]
    if name.endswith("backward"):
        forward = getattr(activation, name.removesuffix("_backward"))
        arrays.append(_expected(forward, [_array(shape, dtype, 1)], {"dim": dim}).astype(dtype))
    got = RUNS[name](arrays, {"dim": dim})
    assert got.dtype == dtype
    want = _expected(getattr(activation, name), arrays, {"dim": dim}).astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=CLOSE[dtype], atol=CLOSE[dtype] * 10)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_of_special_values(dim):
    x = _array((30, 40, 50), np.float32)
    x[3], x[:, 4], x[..., 5], x[0, 0, 0] = -np.inf, np.nan, 1e30, np.inf
    for name in ("softmax", "log_softmax"):
        got = RUNS[name]([x], {"dim": dim})
        np.testing.assert_allclose(got, _expected(getattr(activation, name), [x], {"dim": dim}), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_logsumexp(shape, dim):
    x = _array(shape, np.float32)
    got = RUNS["logsumexp"]([x], {"dim": (dim % x.ndim,), "keepdim": False})
    np.testing.assert_allclose(got, np.log(np.exp(x.astype(np.float64)).sum(dim)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint8, torch.bfloat16.np])
@pytest.mark.parametrize("keepdim", [False, True])
def test_extremes_and_their_first_places(shape, dim, dtype, keepdim):
    x = np.random.default_rng(2).integers(0, 9, shape).astype(dtype)  # many ties
    params = {"dim": dim % x.ndim, "keepdim": keepdim}
    for name, arg in (("max_dim", np.argmax), ("min_dim", np.argmin)):
        values, indices = RUNS[name]([x], params)
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(indices, arg(wide, dim, keepdims=keepdim))
        want = wide.max(dim, keepdims=keepdim) if name == "max_dim" else wide.min(dim, keepdims=keepdim)
        np.testing.assert_array_equal(values.astype(np.float64), want)
        assert values.dtype == x.dtype and indices.dtype == np.int64


@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_the_first_nan_is_the_extreme(dim):
    x = _array((40, 50, 60), np.float32)
    x[7, 8, 9] = x[7, 30, 9] = x[20, 8, 9] = x[0, 0, 5] = x[7, 8, 50] = np.nan
    x[1] = -np.inf
    for name, arg in (("argmax", np.argmax), ("argmin", np.argmin)):
        np.testing.assert_array_equal(RUNS[name]([x], {"dim": dim, "keepdim": False}), arg(x, dim))


@pytest.mark.parametrize("size", [300_001, 1 << 19, 999_999])
def test_place_in_a_large_array(size):
    x = _array((size,), np.float32)
    x[size // 2] = x[-1] = 100
    got = RUNS["argmax"]([x.reshape(-1, 1)], {"dim": None, "keepdim": True})
    assert got.shape == (1, 1) and got.item() == size // 2


def test_results_do_not_depend_on_threads():
    x = torch.randn(64, 300, 128)
    before = torch.get_num_threads()
    try:
        got = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            got.append([f(x, 1) for f in (torch.softmax, torch.log_softmax, torch.logsumexp, torch.argmax)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*got, strict=True))


def test_what_has_no_kernel_is_left_to_numpy():
    x = _array((300, 400), np.float32)
    assert RUNS["softmax"]([x.T], {"dim": 0}) is None
    assert RUNS["softmax"]([_array((1000, 7), np.float32)], {"dim": 0}) is None
    assert native.PRIMS["softmax"] == "model" and reduce.max_dim.native


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_place_one(shape, dim, dtype):
    dim %= len(shape)
    kept = (*shape[:dim], 1, *shape[dim + 1 :])
    g, indices = _array(kept, dtype), np.random.default_rng(3).integers(0, shape[dim], kept)
    got = RUNS["place_one"]([g, indices], {"shape": shape, "dim": dim})
    want = reduce.place_one.impl(cpu, g, indices, shape=shape, dim=dim)
    assert got is None or got.dtype == want.dtype
    np.testing.assert_array_equal((want if got is None else got).astype(np.float64), want.astype(np.float64))
    assert (got is None) == (np.prod(shape) < native.LEAST["row"])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gradients_of_extremes_and_variance(dim):
    x = torch.randn(50, 60, 70, dtype=torch.float64, requires_grad=True)
    values, indices = x.max(dim)
    g = torch.randn_like(values)
    expected = torch.zeros_like(x).scatter(dim, indices.unsqueeze(dim), g.unsqueeze(dim))
    assert torch.equal(torch.autograd.grad(values, x, g)[0], expected)
    got = torch.autograd.grad(x.var(dim), x, g)[0]
    n = x.shape[dim]
    torch.testing.assert_close(got, (g.unsqueeze(dim) * (x - x.mean(dim, True)) * 2 / (n - 1)).detach())
    twice = torch.autograd.grad(torch.autograd.grad(x.var(dim).sum(), x, create_graph=True)[0].square().sum(), x)[0]
    torch.testing.assert_close(twice, (8 * (x - x.mean(dim, True)) / (n - 1) ** 2).detach())
