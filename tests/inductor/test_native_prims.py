"""Primitives with kernels of their own, against float64 NumPy: normalisation over any axes, losses, copies, in-place operators."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tocha as torch
from tests.inductor.test_pointwise import run as pointwise
from tests.inductor.test_reduce import run
from tocha.backends import native
from tocha.dispatch.prim import REGISTRY

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(5)


def _normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16])
@pytest.mark.parametrize(
    ("shape", "axes", "affine"),
    [((4, 6, 30), (0, 2), (6, 1)), ((4, 2, 3, 20), (2, 3), (2, 3, 1)), ((12, 20), (1,), (20,)), ((5, 4, 40), (2,), (4, 1))],
)
@pytest.mark.parametrize("weighted", [True, False])
def test_normalisation_over_any_axes(shape: Any, axes: Any, affine: Any, weighted: bool, dtype: Any) -> None:
    x, g = _normal(*shape, dtype=dtype), _normal(*shape, dtype=dtype)
    count = int(np.prod(affine))
    weight, bias = (_normal(count), _normal(count)) if weighted else (None, None)
    params = {"shape": shape, "axes": axes, "affine": affine, "eps": 1e-5}
    found = run("standardize", x, weight, bias, **params)
    assert found is not None
    wide, grad = x.astype("d"), g.astype("d")
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    normal = (wide - mean) / np.sqrt(var + 1e-5)
    scale, shift = (weight.astype("d").reshape(affine), bias.astype("d").reshape(affine)) if weighted else (1.0, 0.0)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype is BFLOAT16 else {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(found[0].astype("d"), normal * scale + shift, **tolerance)
    np.testing.assert_allclose(found[1], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], var, rtol=1e-5)
    back = run("standardize_backward", g, x, weight, found[1], found[2], **params)
    assert back is not None
    inner = grad * scale
    want = (inner - inner.mean(axes, keepdims=True) - normal * (inner * normal).mean(axes, keepdims=True)) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(back[0].astype("d"), want, **tolerance)
    lead = len(shape) - len(affine)
    summed = (*range(lead), *(lead + i for i, s in enumerate(affine) if s == 1))
    np.testing.assert_allclose(back[1].ravel(), (grad * normal).sum(summed).ravel(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(back[2].ravel(), grad.sum(summed).ravel(), rtol=1e-4, atol=1e-4)


def test_variance_of_a_large_mean_keeps_its_digits() -> None:
    x = (1e4 + RNG.standard_normal((40, 500)) * 0.01).astype(np.float32)
    np.testing.assert_allclose(run("var", x, dim=(1,), keepdim=False, correction=1), x.astype("d").var(1, ddof=1), rtol=1e-6)
    huge = np.array([[1e30, -1e30, 2e30, 0.0] * 10], np.float32)
    np.testing.assert_allclose(run("std", huge, dim=(1,), keepdim=False, correction=0), huge.astype("d").std(1), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16])
def test_cross_entropy(dtype: Any) -> None:
    x, target = _normal(33, 70, dtype=dtype), RNG.integers(0, 70, 33)
    wide = x.astype("d")
    p = np.exp(wide - wide.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    params = {"ignore_index": -100, "smoothing": 0.0}
    losses = -np.log(p[np.arange(33), target])
    eps = 8 * float(ml_dtypes.finfo(dtype).eps)
    for reduction, want in (("mean", losses.mean()), ("sum", losses.sum()), ("none", losses)):
        out, probability, total = run("cross_entropy", x, target, None, reduction=reduction, **params)
        np.testing.assert_allclose(out.astype("d"), want, rtol=eps)
        np.testing.assert_allclose(probability.astype("d"), p, rtol=eps, atol=eps * 1e-2)
        assert total == 33 and out.dtype == x.dtype
    g = np.asarray(2.0).astype(dtype)
    got = run("cross_entropy_backward", p.astype(dtype), g, target, None, total, reduction="mean", **params)
    want = p.copy()
    want[np.arange(33), target] -= 1
    np.testing.assert_allclose(got.astype("d"), want * 2 / 33, rtol=2 * eps, atol=eps * 0.05)


def test_cross_entropy_leaves_other_targets_to_numpy() -> None:
    x = _normal(20, 10)
    params = {"reduction": "mean", "ignore_index": -100, "smoothing": 0.0}
    for target in (np.full(20, 10), np.full(20, -100), np.full(20, -1)):
        assert run("cross_entropy", x, target, None, **params) is None
    assert run("cross_entropy", x, np.zeros(20, np.int64), None, **{**params, "ignore_index": 3}) is None


def test_mean_squared_error_and_log_of_sums() -> None:
    x, y = _normal(30, 40), _normal(30, 40)
    np.testing.assert_allclose(run("mse", x, y, reduction="mean"), ((x.astype("d") - y) ** 2).mean(), rtol=1e-6)
    np.testing.assert_allclose(run("mse", x, y, reduction="sum"), ((x.astype("d") - y) ** 2).sum(), rtol=1e-6)
    np.testing.assert_allclose(
        run("mse_backward", np.float32(3).reshape(()), x, y, reduction="mean"), 6 * (x - y) / x.size, rtol=1e-5
    )
    x[0, :], x[1, 3], x[2, 5] = -np.inf, np.inf, np.nan
    with np.errstate(all="ignore"):
        want = np.log(np.exp(x.astype("d")).sum(1))
    np.testing.assert_allclose(run("logsumexp", x, dim=(1,), keepdim=False), want, rtol=1e-6)


SOURCES = (np.float32, np.float64, np.float16, BFLOAT16, np.int8, np.uint8, np.int32, np.int64, np.bool_)


@pytest.mark.parametrize("target", [np.float32, np.float64, np.float16, BFLOAT16])
@pytest.mark.parametrize("source", SOURCES)
def test_casts_round_as_numpy_does(source: Any, target: Any) -> None:
    source, target = np.dtype(source), np.dtype(target)
    if source.itemsize == 2:
        x = np.arange(1 << 16, dtype=np.uint16).view(source)
    elif source.kind == "f":
        x = np.concatenate(
            [
                _normal(4000),
                _normal(4000) * np.float32(1e-40),
                np.array([0, -0.0, np.inf, -np.inf, 3e38, 65504, 65520, 1e-8], "f"),
            ]
        ).astype(source)
    else:
        x = RNG.integers(-100, 100, 5000).astype(source)
    got = run("cast", x, dtype=target)
    if got is None:
        return
    with np.errstate(all="ignore"):
        want = x.astype(target)
        nan = np.isnan(want.astype("f"))
        np.testing.assert_array_equal(np.isnan(got.astype("f")), nan)
    number = ~nan
    np.testing.assert_array_equal(got[number].view(f"u{target.itemsize}"), want[number].view(f"u{target.itemsize}"))


def test_copies_and_choices() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    big = np.tile(x, (8, 1))
    copy = run("clone", big.T, order="K")
    assert copy.strides == big.T.copy("K").strides
    np.testing.assert_array_equal(copy.view(np.uint16), big.T.view(np.uint16))  # the bits of NaN too
    a, b, mask = _normal(20, 30), _normal(30), _normal(20, 1) > 0
    np.testing.assert_array_equal(run("where", mask, a, b, dtype=a.dtype), np.where(mask, a, b))
    a[0, 0] = np.nan
    np.testing.assert_array_equal(run("keep", a, np.broadcast_to(mask, a.shape)), np.where(mask, a, 0))
    n = np.arange(600, dtype=np.int64).reshape(20, 30) << 40
    np.testing.assert_array_equal(run("where", mask, n, -n, dtype=n.dtype), np.where(mask, n, -n))


def test_in_place_on_operands_that_overlap() -> None:
    rule: Any = REGISTRY["add"]

    def into(out: Any, *operands: Any) -> Any:
        return native.pointwise(rule, list(operands), out.dtype, out.dtype, {}, rule.broadcast, "ufunc", out)

    x = np.arange(3000, dtype=np.float32)
    assert into(x, x, x) is x
    np.testing.assert_array_equal(x, np.arange(3000) * 2)
    assert into(x[1:], x[1:], x[:-1]) is None  # NumPy makes a copy first
    y = np.arange(3000, dtype=np.float32).reshape(50, 60)
    assert into(y, y, y.T[:50, :1]) is None
    view = y[:, ::2]
    assert into(view, view, np.float32(1)) is view
    np.testing.assert_array_equal(y, np.arange(3000).reshape(50, 60) + (np.arange(60) % 2 == 0))
    assert into(y[:1], y, y) is None  # the result doesn't fit
    z = np.array([1e7, 1.0] * 100, np.float32)
    sine: Any = REGISTRY["sin"]
    wanted = native.pointwise(sine, [z], z.dtype, z.dtype, {}, sine.broadcast, "ufunc")
    assert (
        native.pointwise(sine, [z], z.dtype, z.dtype, {}, sine.broadcast, "ufunc", z) is z
    )  # though large arguments are reduced again
    np.testing.assert_array_equal(z, wanted)


def test_errors_are_torchs_for_large_tensors_too() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(300, 400) + torch.ones(300, 399)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.ones(70_000, dtype=torch.int64) // torch.zeros(70_000, dtype=torch.int64)
    x = torch.ones(100_000)
    x += torch.ones(100_000)
    assert x.sum().item() == 200_000 and pointwise("neg", [x.numpy()])[0] == -2
