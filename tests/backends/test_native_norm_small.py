"""Normalisations of few elements, and their gradients, against formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha.backends import _native_norm_small as small

F = torch.nn.functional
RNG = np.random.default_rng(7)


def reference(x: Any, g: Any, w: Any, b: Any, axes: tuple[int, ...], eps: float = 1e-5) -> list[Any]:
    """The output and the gradients of x, and of w and b before they are summed; w and b broadcast to x."""
    x, g = x.astype(np.float64), g.astype(np.float64)
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    rstd = 1 / np.sqrt(var + eps)
    normal = (x - mean) * rstd
    inner = g * w
    slope = rstd * (inner - inner.mean(axes, keepdims=True) - normal * (inner * normal).mean(axes, keepdims=True))
    return [normal * w + b, slope, g * normal, g]


def check(call: Any, x: Any, of_shape: tuple[int, ...], seen: Any, axes: tuple[int, ...], dtype: Any, affine: str) -> None:
    """`seen(a)`: weight or bias as it broadcasts to the shape that x is seen as, over whose axes moments are."""
    weight = RNG.standard_normal(of_shape).astype(dtype) if "w" in affine else None
    bias = RNG.standard_normal(of_shape).astype(dtype) if "b" in affine else None
    tensors = [None if a is None else torch.from_numpy(a.copy()).requires_grad_() for a in (x, weight, bias)]
    got = call(*tensors)
    g = RNG.standard_normal(got.shape).astype(dtype)
    got.backward(torch.from_numpy(g))
    w, b = (np.float64(fill) if a is None else seen(a.astype(np.float64)) for a, fill in ((weight, 1), (bias, 0)))
    view = call.view
    out, slope, of_w, of_b = reference(view(x), view(g), w, b, axes)
    close = {"rtol": 2e-5, "atol": 2e-5} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(view(got.detach().numpy()), out, **close)
    np.testing.assert_allclose(view(tensors[0].grad.numpy()), slope, **close)
    for tensor, each in ((tensors[1], of_w), (tensors[2], of_b)):
        if tensor is not None:
            like = np.broadcast_to(seen(np.arange(tensor.numel()).reshape(of_shape)), each.shape)
            sums = np.bincount(like.ravel(), each.ravel(), tensor.numel()).reshape(of_shape)
            np.testing.assert_allclose(tensor.grad.numpy(), sums, rtol=1e-4, atol=1e-4)


def made(function: Any, view: Any) -> Any:
    def call(*args: Any) -> Any:
        return function(*args)

    call.view = view  # type: ignore[attr-defined]
    return call


@pytest.fixture(autouse=True)
def _by_kernel(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Fails a test in which no kernel ran."""
    ran = []
    for name in ("standardize", "standardize_backward"):
        own = getattr(small, name)
        monkeypatch.setattr(small, name, lambda *a, own=own: ran.append(own(*a)) or ran[-1])
    yield
    if "expects_kernel" in request.fixturenames:
        assert ran and all(found is not None for found in ran)


@pytest.fixture
def expects_kernel() -> None:
    pass


@pytest.mark.usefixtures("expects_kernel")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("affine", ["wb", "w", ""])
@pytest.mark.parametrize("shape", [(4, 9), (2, 3, 11), (32, 1), (3, 2, 2, 5)])
def test_layers(shape: tuple[int, ...], affine: str, dtype: Any) -> None:
    x = (RNG.standard_normal(shape) * 3 + 5).astype(dtype)
    for dims in range(1, len(shape)):
        last = shape[-dims:]
        call = made(lambda x, w, b, last=last: F.layer_norm(x, last, w, b), lambda a: a)
        check(call, x, last, lambda a: a, tuple(range(len(shape) - dims, len(shape))), dtype, affine)


@pytest.mark.usefixtures("expects_kernel")
@pytest.mark.parametrize("affine", ["wb", ""])
@pytest.mark.parametrize(("shape", "groups"), [((3, 6, 5), 2), ((2, 4, 3, 3), 4), ((5, 8), 2), ((1, 6, 7, 1), 1)])
def test_groups(shape: tuple[int, ...], groups: int, affine: str) -> None:
    n, c = shape[:2]
    x = RNG.standard_normal(shape).astype(np.float32)
    call = made(lambda x, w, b: F.group_norm(x, groups, w, b), lambda a: a.reshape(n, groups, c // groups, -1))
    check(call, x, (c,), lambda a: a.reshape(groups, c // groups, 1), (2, 3), np.float32, affine)


@pytest.mark.usefixtures("expects_kernel")
@pytest.mark.parametrize("affine", ["wb", ""])
@pytest.mark.parametrize("shape", [(6, 7), (3, 5, 4), (2, 3, 4, 5), (1, 4, 8, 8)])
def test_batches_and_instances(shape: tuple[int, ...], affine: str) -> None:
    n, c = shape[:2]
    x = RNG.standard_normal(shape).astype(np.float32)
    check(
        made(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda a: a.reshape(n, c, -1)), x, (c,), lambda a: a[:, None], (0, 2),
        np.float32, affine,
    )  # fmt: skip
    if len(shape) > 2:
        call = made(lambda x, w, b: F.instance_norm(x, None, None, w, b), lambda a: a.reshape(n, c, -1))
        check(call, x, (c,), lambda a: a[:, None], (2,), np.float32, affine)


def test_running_statistics() -> None:
    x = RNG.standard_normal((4, 3, 5)).astype(np.float32)
    mean, var = torch.zeros(3), torch.ones(3)
    F.batch_norm(torch.from_numpy(x), mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1), rtol=1e-5)


def test_missing_numbers_and_other_memory_orders() -> None:
    x = RNG.standard_normal((9, 4)).astype(np.float32)
    want = F.layer_norm(torch.from_numpy(np.ascontiguousarray(x.T)), (9,)).numpy()
    np.testing.assert_allclose(F.layer_norm(torch.from_numpy(x).t(), (9,)).numpy(), want, rtol=1e-5, atol=1e-6)
    x[2, 1] = np.nan
    got = F.layer_norm(torch.from_numpy(x), (4,)).numpy()
    assert np.isnan(got[2]).all() and not np.isnan(got[[0, 1, 3]]).any()
    assert F.layer_norm(torch.empty(0, 4), (4,)).shape == (0, 4)
    half = F.layer_norm(torch.from_numpy(np.eye(8, dtype=np.float32)).half(), (8,))
    assert half.dtype is torch.float16 and half[0, 0].item() == pytest.approx(2.6457, abs=2e-3)
