"""Native kernels for sampling images at a grid's places (tocha.inductor.grid)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends import native

_FLOATS = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_PIECE = 4096  # elements of the result worth a thread's while


def _run(name: str, out: Any, image_shape: tuple[int, ...], grid: Any, given: list[Any], params: dict[str, Any]) -> Any:
    """Run the kernel `name` on the `given` arrays and the grid, its result being `out`; None where there is none."""
    modules = native.inductor()
    sizes = image_shape[2:]
    if modules is None or grid.dtype not in _FLOATS or any(a.dtype is not grid.dtype for a in given):
        return None
    batch, channels, points = image_shape[0], image_shape[1], math.prod(grid.shape[1:-1])
    if not batch * channels * points or max(sizes) >= 1 << 24 or math.prod(sizes) >= 1 << 31:
        return None
    kernels = modules.grid
    key = kernels.Key(modules.lower.NP_TYPES[grid.dtype], len(sizes), params["mode"], params["padding"], params["align"])
    builtin = native.kernel((name, key), lambda: getattr(kernels, name)(key))
    if builtin is None:
        return None
    parts = -(-channels // kernels.GROUP) if name == "of_image" else -(-points // kernels.BLOCK)
    units = batch * parts
    grain = max(1, _PIECE * units // (batch * channels * points))
    contiguous = [np.ascontiguousarray(a) for a in (*given, grid)]
    builtin(out, *contiguous, np.array([units, grain, channels, points, parts, *sizes], np.int64))
    return out


def forward(arrays: list[Any], params: dict[str, Any]) -> Any:
    image, grid = arrays
    out = np.empty((*image.shape[:2], *grid.shape[1:-1]), image.dtype)
    return _run("forward", out, image.shape, grid, [image], params)


def of_image(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, image, grid = arrays
    return _run("of_image", np.zeros(image.shape, image.dtype), image.shape, grid, [g], params)


def of_grid(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, image, grid = arrays
    return _run("of_grid", np.empty(grid.shape, grid.dtype), image.shape, grid, [g, image], params)


RUNS = {"grid_sample": forward, "grid_sample_of_image": of_image, "grid_sample_of_grid": of_grid}
