"""Sampling images at a grid's places in one piece, for backends that have a kernel; tocha.ops.grid says in ordinary operators what is computed,
which is also how it is computed elsewhere, and differentiated twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tocha.autograd.mode import enable_grad, no_grad, state
from tocha.backends import cpu
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.contract import recording
from tocha.tensor import Tensor, wrap


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


@contextlib.contextmanager
def _operators() -> Iterator[None]:
    """Around operators inside a kernel: it runs in a context (tocha.backends.cpu.quiet) already, which can't be entered twice."""
    before = state.run
    state.run = cpu.quiet.run = _call  # type: ignore[assignment]
    try:
        yield
    finally:
        state.run = cpu.quiet.run = before


def _sampled(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    from tocha.ops.grid import sampled

    return sampled(input, grid, mode, padding, align)


def _gradient(place: int, g: Tensor, input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """The gradient for input or grid, from ordinary operators."""
    from tocha.autograd.engine import grad

    with enable_grad():
        # Views: one argument may be made of the other, through which no gradient shall flow here.
        inputs = [x.view(x.shape) if x._rg else x.detach().requires_grad_() for x in (input, grid)]
        wanted, out = inputs[place], _sampled(inputs[0], inputs[1], mode, padding, align)
    found = grad([out], [wanted], [g], create_graph=recording(g, input, grid), allow_unused=True)[0]
    return wanted.new_zeros(wanted.shape) if found is None else found


def _vjp(place: int, backward: str) -> Any:
    def rule(g: Tensor, input: Tensor, grid: Tensor, *, mode: str, padding: str, align: bool) -> Any:
        if place and mode == "nearest":
            return grid.new_zeros(grid.shape)
        if recording(g, input, grid):
            return _gradient(place, g, input, grid, mode, padding, align)
        return globals()[backward](g, input, grid, mode=mode, padding=padding, align=align)

    return rule


def _infer(input: Any, grid: Any, *, mode: str, padding: str, align: bool) -> MetaArray:
    return MetaArray((*input.shape[:2], *grid.shape[1:-1]), input.dtype)


@prim(
    "grid_sample", "resample", vjp=(_vjp(0, "grid_sample_of_image"), _vjp(1, "grid_sample_of_grid")), infer=_infer
)  # fmt: skip
def grid_sample(xp: Any, input: Any, grid: Any, *, mode: str, padding: str, align: bool) -> Any:
    """Values of input (N, C, *sizes) at the places of grid (N, *out, dimensions)."""
    with _operators(), no_grad():
        return _sampled(wrap(input), wrap(grid), mode, padding, align)._a


@prim("grid_sample_of_image", "resample", infer=lambda g, input, grid, *, mode, padding, align: MetaArray(input.shape, g.dtype))
def grid_sample_of_image(xp: Any, g: Any, input: Any, grid: Any, *, mode: str, padding: str, align: bool) -> Any:
    """The gradient of grid_sample for the input."""
    with _operators():
        return _gradient(0, wrap(g), wrap(input), wrap(grid), mode, padding, align)._a


@prim("grid_sample_of_grid", "resample", infer=lambda g, input, grid, *, mode, padding, align: MetaArray(grid.shape, g.dtype))
def grid_sample_of_grid(xp: Any, g: Any, input: Any, grid: Any, *, mode: str, padding: str, align: bool) -> Any:
    """The gradient of grid_sample for the grid."""
    with _operators():
        return _gradient(1, wrap(g), wrap(input), wrap(grid), mode, padding, align)._a
