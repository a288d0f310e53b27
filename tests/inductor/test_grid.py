"""Kernels of grid_sample against the same in ordinary operators: results bit for bit, gradients up to the order of sums."""

from typing import Any

import numpy as np
import pytest

from tocha import from_numpy
from tocha.autograd.engine import grad
from tocha.ops import grid as ops
from tocha.prims import grid as prims

CASES = [
    (dimensions, mode, padding, (number + dimensions) % 2 == 0, np.float64 if number % 4 == 3 else np.float32)
    for dimensions in (2, 3)
    for number, (mode, padding) in enumerate(
        (m, p) for m in ("bilinear", "nearest", "bicubic")[: 5 - dimensions] for p in ("zeros", "border", "reflection")
    )
]


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for prim in (prims.grid_sample, prims.grid_sample_of_image, prims.grid_sample_of_grid):
        monkeypatch.setattr(prim, "native", 1)


def _arrays(rng: Any, dimensions: int, dtype: Any) -> tuple[Any, Any, Any]:
    batch, channels = int(rng.integers(1, 3)), int(rng.choice([1, 3, 17]))
    sizes = [int(rng.choice([1, 2, 5, 20])) for _ in range(dimensions)]
    out = [int(rng.choice([1, 3, 8, 11])) for _ in range(dimensions)]
    grid = rng.random((batch, *out, dimensions)) * rng.choice([2.2, 6, 1e4]) - 1.1
    if rng.random() < 0.5:
        grid = np.round(grid * 4) / 4  # places on borders, and halfway
    return (
        rng.standard_normal((batch, channels, *sizes)).astype(dtype),
        grid.astype(dtype),
        rng.standard_normal((batch, channels, *out)).astype(dtype),
    )


@pytest.mark.parametrize(("dimensions", "mode", "padding", "align", "dtype"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_results_and_gradients_are_those_of_operators(dimensions: int, mode: str, padding: str, align: bool, dtype: Any) -> None:
    rng = np.random.default_rng(dimensions)
    for _ in range(12):
        image, places, g = _arrays(rng, dimensions, dtype)
        found = []
        for native in (False, True):
            x, grid = from_numpy(image).requires_grad_(), from_numpy(places).requires_grad_()
            if native:
                out = prims.grid_sample(x, grid, mode=mode, padding=padding, align=align)
            else:
                out = ops.sampled(x, grid, mode, padding, align)
            of_x, of_grid = grad([out], [x, grid], [from_numpy(g)], allow_unused=True)
            found.append((out.detach().numpy(), of_x.numpy(), np.zeros_like(places) if of_grid is None else of_grid.numpy()))
        want, got = found
        np.testing.assert_array_equal(got[0], want[0])
        for mine, his in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(mine, his, rtol=1e-4, atol=1e-4 * max(1, np.abs(his).max(initial=0)))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.filterwarnings("ignore")
def test_places_that_are_no_numbers(padding: str) -> None:
    image = np.arange(16.0, dtype=np.float32).reshape(1, 1, 4, 4)
    image[0, 0, 0, 0], image[0, 0, 3, 3] = np.inf, np.nan
    values = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1, 1, 0.1], np.float32)
    places = np.stack(np.meshgrid(values, values), -1)[None]
    x, grid = from_numpy(image), from_numpy(places)
    for mode in ("bilinear", "nearest", "bicubic"):
        got = prims.grid_sample(x, grid, mode=mode, padding=padding, align=True)
        np.testing.assert_array_equal(got.numpy(), ops.sampled(x, grid, mode, padding, True).numpy())


def test_without_a_kernel_operators_compute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    image, places, g = _arrays(rng, 2, np.float32)
    found: list[list[Any]] = []
    for native in (1, 0):
        monkeypatch.setattr(prims.grid_sample, "native", native)
        monkeypatch.setattr(prims.grid_sample_of_image, "native", native)
        monkeypatch.setattr(prims.grid_sample_of_grid, "native", native)
        x, grid = from_numpy(image).requires_grad_(), from_numpy(places).requires_grad_()
        out = prims.grid_sample(x, grid, mode="bilinear", padding="zeros", align=False)
        found.append([out.detach().numpy(), *[v.numpy() for v in grad([out], [x, grid], [from_numpy(g)])]])
    for mine, his in zip(*found, strict=True):
        np.testing.assert_allclose(mine, his, rtol=1e-4, atol=1e-3)


def test_a_gradient_of_the_gradient_when_the_grid_is_made_of_the_image() -> None:
    from tocha import float64, randn
    from tocha.autograd import gradcheck, gradgradcheck
    from tocha.nn.functional import grid_sample

    x = randn(1, 1, 4, 5, dtype=float64).requires_grad_()

    def sample(x: Any) -> Any:
        return grid_sample(x, x[:, :, :2, :2].expand(1, 2, 2, 2).permute(0, 2, 3, 1) * 0.2, align_corners=True)

    assert gradcheck(sample, (x,))
    assert gradgradcheck(sample, (x,))
