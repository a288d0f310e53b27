"""Native reductions and row kernels against float64 NumPy, for any dimensions and layouts."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha.backends import native

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
REFERENCE: dict[str, Any] = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min, "any": np.any, "all": np.all,
    "count_nonzero": np.count_nonzero, "var": np.var, "std": np.std,
}  # fmt: skip


def run(name: str, *arrays: Any, **params: Any) -> Any:
    return native.runs()[name](list(arrays), params)


@given(st.data())
@settings(max_examples=80)
def test_any_dimensions_and_layout(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 17, 40, 65]), min_size=1, max_size=4))
    axes = data.draw(st.permutations(range(len(shape))))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.float16, BFLOAT16]))
    x = rng.standard_normal([shape[d] for d in axes]).astype(np.float32).astype(dtype).transpose(np.argsort(axes))
    if data.draw(st.booleans()):
        x = np.broadcast_to(x[..., :1], x.shape)
    dim = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    name = data.draw(st.sampled_from(["sum", "mean", "amax", "amin", "any", "all", "count_nonzero", "var", "std"]))
    keepdim = data.draw(st.booleans())
    options = {"correction": 0} if name in ("var", "std") else {}
    got = run(name, x, dim=dim, keepdim=keepdim, **options)
    if got is None:
        return
    wide = x.astype(np.float64)
    want = REFERENCE[name](wide, axis=dim, keepdims=keepdim)
    assert got.shape == np.shape(want)
    if name in ("any", "all", "count_nonzero"):
        np.testing.assert_array_equal(got, want)
        return
    eps = float(ml_dtypes.finfo(dtype).eps)
    largest = np.sum(np.abs(wide), axis=dim, keepdims=keepdim) if name == "sum" else np.max(np.abs(wide)) + 1
    assert (np.abs(got.astype(np.float64) - want) <= 2 * eps * np.abs(want) + 4e-7 * largest).all() or dtype is np.float64
    if dtype is np.float64:
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3_000_000,), (7, 300_000), (300_000, 7), (40_000, 64), (4, 50, 3000)])
def test_float32_sums_are_nearly_exact_and_the_same_for_any_number_of_threads(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
    before = torch.get_num_threads()
    try:
        for dim in [tuple(range(len(shape))), (0,), (len(shape) - 1,)]:
            found = []
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                found.append(run("sum", x, dim=dim, keepdim=False))
            if found[0] is None:
                continue
            np.testing.assert_array_equal(found[0], found[1])
            np.testing.assert_array_equal(found[0], found[2])
            np.testing.assert_allclose(found[0], x.sum(dim, np.float64), rtol=2.5e-7)
    finally:
        torch.set_num_threads(before)


def test_integers_and_nan() -> None:
    x = np.arange(60_000, dtype=np.int64).reshape(300, 200) * 10**14
    np.testing.assert_array_equal(run("sum", x, dim=(1,), keepdim=False), x.sum(1))
    np.testing.assert_array_equal(run("sum", x, dim=(0, 1), keepdim=False), x.sum())
    for dtype in (np.int8, np.uint8, np.int32):
        y = np.random.default_rng(0).integers(0, 100, (70, 90)).astype(dtype)
        np.testing.assert_array_equal(run("amax", y, dim=(0,), keepdim=True), y.max(0, keepdims=True))
        np.testing.assert_array_equal(run("amin", y, dim=(1,), keepdim=False), y.min(1))
    z = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float32)
    z[3, 7] = np.nan
    z[4] = -np.inf
    for name, dim in (("amax", (1,)), ("amin", (0,)), ("sum", (1,)), ("mean", (0, 1))):
        np.testing.assert_array_equal(np.isnan(run(name, z, dim=dim, keepdim=False)), np.isnan(REFERENCE[name](z, axis=dim)))
    assert run("amax", z, dim=(1,), keepdim=False)[4] == -np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.float16])
def test_the_first_of_equal_extremes_is_found(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 9, (200, 70)).astype(dtype)
    values, indices = run("max_dim", x, dim=1, keepdim=False)
    np.testing.assert_array_equal(indices, x.argmax(1))
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(run("argmin", x, dim=1, keepdim=True), x.argmin(1, keepdims=True))
    if np.dtype(dtype).kind == "f":
        x[5, 11] = x[5, 30] = np.nan
        assert run("argmax", x, dim=1, keepdim=False)[5] == 11
        assert run("argmin", x, dim=1, keepdim=False)[5] == 11
        assert run("argmax", np.full((2, 40), -np.inf, dtype), dim=1, keepdim=False).tolist() == [0, 0]


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 100, 1024, 1025, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16])
def test_softmax_and_its_gradient(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    x, g = ((rng.standard_normal((9, n)) * 5).astype(np.float32).astype(dtype) for _ in range(2))
    eps = 4 * float(ml_dtypes.finfo(dtype).eps)
    wide, grad = x.astype("d"), g.astype("d")
    y = _softmax(wide)
    np.testing.assert_allclose(run("softmax", x, dim=1).astype("d"), y, rtol=2 * eps, atol=eps * 1e-3)
    np.testing.assert_allclose(run("log_softmax", x, dim=1).astype("d"), np.log(y), rtol=2 * eps, atol=4 * eps)
    out = y.astype(dtype)
    want = out.astype("d") * (grad - (grad * out.astype("d")).sum(1, keepdims=True))
    np.testing.assert_allclose(run("softmax_backward", g, out, dim=1).astype("d"), want, rtol=2 * eps, atol=4 * eps)
    log = np.log(y).astype(dtype)
    want = grad - np.exp(log.astype("d")) * grad.sum(1, keepdims=True)
    np.testing.assert_allclose(run("log_softmax_backward", g, log, dim=1).astype("d"), want, rtol=4 * eps, atol=20 * eps)


def test_softmax_of_infinities_and_nan() -> None:
    x = np.zeros((3, 20), np.float32)
    x[0, 3], x[1], x[2, 5] = -np.inf, -np.inf, np.nan
    got = run("softmax", x, dim=1)
    assert got[0, 3] == 0 and got[0, 0] == np.float32(1 / 19)
    assert np.isnan(got[1:]).all()


@pytest.mark.parametrize("n", [1, 7, 64, 1000, 3000])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_and_its_gradient(n: int, affine: bool) -> None:
    rng = np.random.default_rng(n)
    x, g = ((rng.standard_normal((12, n)) + 3).astype(np.float32) for _ in range(2))
    weight, bias = ((rng.standard_normal(n)).astype(np.float32) if affine else None for _ in range(2))
    params = {"shape": (12, n), "axes": (1,), "affine": (n,), "eps": 1e-5}
    out, mean, var = run("standardize", x, weight, bias, **params)
    wide = x.astype("d")
    middle, spread = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    normal = (wide - middle) / np.sqrt(spread + 1e-5)
    scale, shift = (1.0 if a is None else a.astype("d") for a in (weight, bias)) if affine else (1.0, 0.0)
    np.testing.assert_allclose(out, normal * scale + shift, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(mean, middle, rtol=1e-6)
    np.testing.assert_allclose(var, spread, rtol=2e-6, atol=1e-10)
    found = run("standardize_backward", g, x, weight, mean, var, **params)
    inner = g * scale
    want = (inner - inner.mean(1, keepdims=True) - normal * (inner * normal).mean(1, keepdims=True)) / np.sqrt(spread + 1e-5)
    if found is None:  # too few rows or columns for a kernel
        return
    np.testing.assert_allclose(found[0], want, rtol=1e-3, atol=2e-4 if n > 1 else 1e-2)
    np.testing.assert_allclose(found[1], (g * normal).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[2], g.astype("d").sum(0), rtol=1e-5)


def test_tensors_large_enough_use_kernels() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 300)
    np.testing.assert_allclose(x.sum(0).numpy(), x.numpy().astype("d").sum(0), atol=1e-4)
    np.testing.assert_allclose(
        torch.softmax(x.bfloat16(), -1).float().numpy(), _softmax(x.bfloat16().float().numpy().astype("d")), rtol=8e-3
    )
    built = {key[0] if key[0] != "reduce" else key[1] for key in native._built}
    assert {"sum", "softmax"} <= built


@pytest.mark.parametrize("shape", [(1 << 18,), ((1 << 18) + 1,), (256, 1024), (255, 1031), (1025, 1023), (8192, 40), (33, 9000)])
@pytest.mark.parametrize("kind", ["whole", "cut", "spread"])
def test_rows_in_far_memory(shape: tuple[int, ...], kind: str) -> None:
    """Rows that lie end to end are fetched ahead; others and short ones are not. The numbers are those of float64."""
    x = np.random.default_rng(5).standard_normal([*shape[:-1], shape[-1] + 7]).astype(np.float32)[..., 7:]
    x = {"whole": np.ascontiguousarray(x), "cut": x, "spread": np.broadcast_to(x[..., :1], x.shape)}[kind]
    for dim in {tuple(range(len(shape))), (len(shape) - 1,)}:
        got, again = (run("sum", x, dim=dim) for _ in range(2))
        want = np.sum(x, dim, np.float64)
        assert np.abs(got - want).max() <= 1e-6 * np.sum(np.abs(x), dim, np.float64).max() and got.tobytes() == again.tobytes()
        np.testing.assert_array_equal(run("amax", x, dim=dim), x.max(dim))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("kind", ["sum", "mean", "amax", "amin"])
def test_large_tensors_without_gradients_ask_once(kind: str, axis: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(native.LEAST, "reduce", 512)
    x = np.random.default_rng(0).standard_normal((40, 70))
    x[3, 5] = np.inf
    for values in (x, np.asfortranarray(x), np.where(x > 3.2, np.nan, x), x[::2, ::2]):
        expected = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min}[kind](values, axis)
        t = torch.from_numpy(values.copy("K"))
        for _ in range(2):
            got = getattr(torch, kind)(t) if axis is None else getattr(torch, kind)(t, axis)
            np.testing.assert_allclose(got.numpy(), expected, 1e-12)
            assert got.is_contiguous() and not got.requires_grad
    t.requires_grad_()
    assert (getattr(torch, kind)(t) if axis is None else getattr(torch, kind)(t, axis)).requires_grad
    assert torch.ones(40, 70).max().item() == 1 == torch.ones(40, 70).min().item()
