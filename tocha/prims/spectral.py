"""Fourier transforms: complex to complex, real to half a spectrum, and back.

`norm` is NumPy's: 'backward' scales inverse transforms by 1/n, 'forward' forward ones, 'ortho' both by 1/sqrt(n). The
adjoint of a transform is the one in the other direction with the scaling kept, hence with 'backward' and 'forward'
exchanged.
"""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim

Shape = tuple[int, ...]
SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _set(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _complex_of(dtype: Any) -> Any:
    return f"c{2 * dtype.itemsize}"


def _c2c_vjp(g: Any, *, dims: Shape, norm: str, forward: bool) -> Any:
    return fft_c2c(g, dims=dims, norm=SWAPPED[norm], forward=not forward)


@prim("fft_c2c", "fft", vjp=_c2c_vjp, infer=lambda input, *, dims, norm, forward: MetaArray(input.shape, input.dtype))
def fft_c2c(xp: Any, input: Any, *, dims: Shape, norm: str, forward: bool) -> Any:
    """The transform of a complex array over dimensions."""
    if input.size == 0:
        return xp.zeros(input.shape, input.dtype)
    transform = xp.fft.fftn if forward else xp.fft.ifftn
    return transform(input, axes=dims, norm=norm)


def _r2c_vjp(g: Any, input_shape: Shape, *, dims: Shape, norm: str) -> Any:
    from tocha.prims.arrange import constant_pad

    pad = [(0, 0)] * len(input_shape)
    last = dims[-1]
    pad[last] = (0, input_shape[last] - g.shape[last])
    whole = constant_pad(g, pad=tuple(pad), value=0)
    return fft_c2c(whole, dims=dims, norm=SWAPPED[norm], forward=False).real


@prim("fft_r2c", "fft", vjp=_r2c_vjp,
      infer=lambda input, *, dims, norm: MetaArray(
          _set(input.shape, dims[-1], input.shape[dims[-1]] // 2 + 1), _complex_of(input.dtype)))  # fmt: skip
def fft_r2c(xp: Any, input: Any, *, dims: Shape, norm: str) -> Any:
    """The forward transform of a real array; of the last of `dims` the non-negative frequencies only."""
    if input.size == 0:
        return xp.zeros(_set(input.shape, dims[-1], input.shape[dims[-1]] // 2 + 1), _complex_of(input.dtype))
    return xp.fft.rfftn(input, axes=dims, norm=norm)


def _c2r_vjp(g: Any, *, dims: Shape, norm: str, size: int) -> Any:
    """Interior frequencies stand for two conjugate ones."""
    half = fft_r2c(g, dims=dims, norm=SWAPPED[norm])
    last, doubled = dims[-1], size - (size // 2 + 1)
    if doubled <= 0:
        return half
    weight = half.real.new_ones(half.shape[last])
    weight[1 : 1 + doubled] = 2
    return half * weight.reshape((-1,) + (1,) * (half.ndim - last - 1))


@prim("fft_c2r", "fft", vjp=_c2r_vjp,
      infer=lambda input, *, dims, norm, size: MetaArray(_set(input.shape, dims[-1], size), f"f{input.dtype.itemsize // 2}"))  # fmt: skip
def fft_c2r(xp: Any, input: Any, *, dims: Shape, norm: str, size: int) -> Any:
    """The inverse transform of half a spectrum (in the last of `dims`) to a real array of `size` there."""
    if input.size == 0:
        return xp.zeros(_set(input.shape, dims[-1], size), f"f{input.dtype.itemsize // 2}")
    sizes = [input.shape[d] for d in dims[:-1]] + [size]
    return xp.fft.irfftn(input, sizes, axes=dims, norm=norm)
