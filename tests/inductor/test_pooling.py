"""Pooling kernels against the NumPy tier, on shapes that no vector or box fits evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha
from tocha import threads
from tocha.backends import _native_pool as kernels
from tocha.backends import cpu, native
from tocha.inductor.templates import gemm
from tocha.prims import pool


def call(rng: Any, dims: int) -> dict[str, Any]:
    """Parameters of a pooling, with the size it fits."""
    kernel, stride, dilation = (tuple(map(int, rng.integers(1, high, dims))) for high in (5, 5, 4))
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    sizes = tuple(map(int, rng.integers(1, {1: 200, 2: 40, 3: 12}[dims], dims)))
    spare = rng.integers(0, 3, dims)  # elements after the last window; a window may also end in padding
    size = tuple(
        max(1, (o - 1) * s + d * (k - 1) + 1 - p - int(rng.integers(0, p + 1)) + int(e))
        for o, s, d, k, p, e in zip(sizes, stride, dilation, kernel, padding, spare, strict=True)
    )
    return {"size": size, "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "sizes": sizes}


def values(rng: Any, shape: Any, dtype: str) -> Any:
    """Few different numbers, so that there are ties, with some NaN and signed zeros."""
    x = rng.integers(-3, 4, shape).astype(dtype)
    x[rng.random(shape) < 0.02] = np.nan
    x[rng.random(shape) < 0.05] = -0.0
    return x


def arranged(rng: Any, lead: tuple[int, ...], size: Any, dtype: str) -> Any:
    layout = rng.choice(["dense", "wide rows", "channels last", "expanded"])
    if layout == "wide rows":
        return values(rng, (*lead, *size[:-1], size[-1] + 3), dtype)[..., 2:-1]
    if layout == "channels last":
        return np.moveaxis(values(rng, (*lead[:-1], *size, lead[-1]), dtype), -1, len(lead) - 1)
    if layout == "expanded":
        return np.broadcast_to(values(rng, (1, *lead[1:], *size), dtype), (*lead, *size))
    return values(rng, (*lead, *size), dtype)


def same(got: Any, want: Any) -> None:
    assert got is not None
    for a, b in zip(got, want, strict=True) if isinstance(got, tuple) else ((got, want),):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_maxima_and_their_gradients(dims: int, dtype: str) -> None:
    rng = np.random.default_rng(dims)
    for _ in range(25):
        params = call(rng, dims)
        size = params.pop("size")
        lead = tuple(map(int, rng.integers(1, 5, int(rng.integers(1, 4)))))
        x = arranged(rng, lead, size, dtype)
        want = pool.max_pool_coded.impl(cpu, x, **params)
        same(kernels.RUNS["max_pool_coded"]([x], params), want)
        same(kernels.RUNS["max_pool_values"]([x], params), want[0])
        indices = pool.max_pool.impl(cpu, x, **params)[1]
        same(kernels.RUNS["max_pool"]([x], params), (want[0], indices))
        g = rng.integers(-9, 9, want[0].shape).astype(dtype)  # whose sums are exact
        of_input = pool.max_pool_backward.impl(cpu, g, want[1], size=size, **params)
        same(kernels.RUNS["max_pool_backward"]([g, want[1]], {"size": size, **params}), of_input)
        same(kernels.RUNS["place"]([g, indices], {"size": size, "apart": False}), of_input)
        same(pool.place.impl(cpu, g, indices, size=size, apart=False), of_input)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_means_and_their_gradients(dims: int) -> None:
    rng = np.random.default_rng(10 + dims)
    for number in range(25):
        params = call(rng, dims)
        params["dilation"] = (1,) * dims
        size = params.pop("size")
        size = tuple(max(m, k) for m, k in zip(size, params["kernel"], strict=True))
        del params["dilation"]
        params |= {"include_pad": bool(number & 1), "divisor": 7 if number % 5 == 0 else None}
        dtype = "fd"[number % 2]
        x = rng.standard_normal((3, 2, *size)).astype(dtype)
        want = pool.avg_pool.impl(cpu, x, **params)
        got = kernels.RUNS["avg_pool"]([x], params)
        assert got.dtype == x.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 if dtype == "f" else 1e-14)
        g = rng.standard_normal(want.shape).astype(dtype)
        del params["sizes"]
        np.testing.assert_allclose(
            kernels.RUNS["avg_pool_backward"]([g], {"size": size, **params}), pool.avg_pool_backward.impl(cpu, g, size=size, **params),
            rtol=0, atol=3e-6 if dtype == "f" else 1e-14,
        )  # fmt: skip


def test_uneven_windows() -> None:
    rng = np.random.default_rng(3)
    for size, sizes in (
        ((13, 17), (6, 5)),
        ((5, 3), (5, 3)),
        ((7,), (5,)),
        ((4, 5, 6), (3, 2, 5)),
        ((2, 3), (5, 7)),
        ((9, 40), (1, 3)),
    ):
        x = values(rng, (3, 4, *size), "f")
        same(kernels.RUNS["adaptive_max_pool"]([x], {"sizes": sizes}), pool.adaptive_max_pool.impl(cpu, x, sizes=sizes))


_PLAIN = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "sizes": (5, 9)}


def test_windows_of_minus_infinity_are_left_to_numpy() -> None:
    x = np.full((2, 3, 9, 17), -np.inf, "f")
    assert kernels.RUNS["max_pool_coded"]([x], _PLAIN) is None
    x[:] = 1
    x[:, :, 3:5, 2:9] = -np.inf
    same(kernels.RUNS["max_pool_coded"]([x], _PLAIN), pool.max_pool_coded.impl(cpu, x, **_PLAIN))
    out, at = tocha.nn.functional.max_pool2d(tocha.full((1, 1, 40, 40), -tocha.inf), 2, padding=1, stride=2, return_indices=True)
    assert bool((out == -tocha.inf).all()) and at[0, 0, 0, :3].tolist() == [0, 1, 3]


def test_other_types_sizes_and_empty_batches_are_left_to_numpy() -> None:
    for name in ("max_pool", "max_pool_values", "max_pool_coded"):
        assert kernels.RUNS[name]([np.zeros((1, 1, 9, 17), np.int32)], _PLAIN) is None
        assert kernels.RUNS[name]([np.zeros((0, 1, 9, 17), "f")], _PLAIN) is None
        assert (
            kernels.RUNS[name]([np.zeros((1, 9, 600), "f")], _PLAIN | {"kernel": (1, 257), "padding": (0, 0), "sizes": (5, 9)})
            is None
        )
    x = tocha.arange(400.0).reshape(1, 1, 400).requires_grad_()
    tocha.nn.functional.max_pool1d(x, 300, 50).sum().backward()
    assert x.grad.flatten().nonzero().flatten().tolist() == [299, 349, 399]


def test_indices_outside_are_not_written_to() -> None:
    g, indices = np.ones((2, 3), "f"), np.array([[0, -1, 4], [3, 3, 1 << 40]])
    assert kernels.RUNS["place"]([g, indices], {"size": (4,), "apart": False}).tolist() == [[1, 0, 0, 0], [0, 0, 0, 2]]
    codes = np.array([[0, 255, 1]], np.uint8)
    params = {"size": (4,), "kernel": (2,), "stride": (2,), "padding": (0,), "dilation": (1,), "sizes": (3,)}
    assert kernels.RUNS["max_pool_backward"]([g[:1], codes], params).tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize("shape", [(6, 2, 32), (12, 4, 16), (6, 2, 16)])
def test_other_machines_vectors(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]) -> None:
    rows, granule, size = shape
    monkeypatch.setattr(gemm, "geometry", lambda scalar: gemm.Geometry(scalar, size // gemm.ITEM[scalar], rows, granule, False))
    monkeypatch.setattr(native, "_built", {})
    monkeypatch.setattr(native, "_remembered", {})
    test_maxima_and_their_gradients(2, "f")


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((9, 33, 31, 40)).astype("f")
    params = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "sizes": (16, 20)}
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            out, codes = kernels.RUNS["max_pool_coded"]([x], params)
            results.append([out, codes, kernels.RUNS["max_pool_backward"]([out, codes], {"size": (31, 40), **params})])
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", [tocha.bfloat16, tocha.float16])
def test_half_types(dtype: Any) -> None:
    x = tocha.arange(1024.0).reshape(1, 1, 32, 32).sin().to(dtype).requires_grad_()
    for function in (tocha.nn.functional.max_pool2d, tocha.nn.functional.avg_pool2d):
        out = function(x, 3, 2, 1)
        assert out.dtype == dtype
        want = function(x.detach().float(), 3, 2, 1).to(dtype)
        assert bool((out == want).all())
        (grad,) = tocha.autograd.grad(out.sum(), x)
        assert (
            grad.dtype == dtype
            and abs(float(grad.float().sum()) - (256 if function is tocha.nn.functional.max_pool2d else 245.4)) < 2
        )


def test_gradients_of_gradients() -> None:
    x = tocha.randn(2, 3, 7, 6, dtype=tocha.float64, requires_grad=True)
    assert tocha.autograd.gradcheck(lambda a: tocha.nn.functional.max_pool2d(a, 3, 2, 1), (x,))
    assert tocha.autograd.gradgradcheck(lambda a: tocha.nn.functional.max_pool2d(a, 3, 2, 1), (x,))
    assert tocha.autograd.gradgradcheck(lambda a: tocha.nn.functional.avg_pool2d(a, 3, 2, 1), (x,))
