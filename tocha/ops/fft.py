"""torch.fft: discrete Fourier transforms over one, two or all dimensions (torch docs: torch.fft)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor, wrap_dim
from tocha.ops.creation import from_host, options, with_grad
from tocha.prims import spectral as prims
from tocha.prims.arrange import constant_pad
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def _norm(norm: str | None, name: str) -> str:
    if norm is None:
        return "backward"
    if norm not in prims.SWAPPED:
        raise RuntimeError(f'Invalid normalization mode: "{norm}" ({name} takes "backward", "ortho" or "forward")')
    return norm


def _input(input: Any, name: str, kind: str) -> Tensor:
    """The input in the type that is transformed: complex for 'c', real for 'r'."""
    check_tensor(input, name)
    dtype = input.dtype
    if dtype in dtypes.HALF:
        raise RuntimeError(f"Unsupported dtype {dtype.name}: {name} takes float32, float64 and complex tensors")
    if kind == "r":
        if dtype.is_complex:
            raise RuntimeError(f"{name} expects a real input tensor, but got {dtype.name}")
        return input if dtype.is_floating_point else input.to(dtypes.get_default_dtype())
    if dtype.is_complex:
        return input
    return input.to((dtype if dtype.is_floating_point else dtypes.get_default_dtype()).to_complex())


def _dims(input: Tensor, s: Any, dim: Any, name: str) -> tuple[Shape, list[int]]:
    """The dimensions transformed, and their sizes."""
    sizes = None if s is None else [s] if isinstance(s, int) else [int(n) for n in s]
    rank = input.ndim
    if dim is not None:
        named = (dim,) if isinstance(dim, int) else tuple(dim)
        if rank == 0 and named:
            raise IndexError(f"Dimension specified as {named[0]} but tensor has no dimensions")
        dims = tuple(wrap_dim(d, rank, name) for d in named)
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif sizes is not None:
        if len(sizes) > rank:
            raise RuntimeError(f"Got shape with {len(sizes)} values but input tensor only has {rank} dimensions.")
        dims = tuple(range(rank - len(sizes), rank))
    else:
        dims = tuple(range(rank))
    have = [input._a.shape[d] for d in dims]
    wanted = have if sizes is None else [h if n == -1 else n for n, h in zip(sizes, have, strict=True)]
    return dims, wanted


def _resize(input: Tensor, dims: Shape, sizes: list[int], name: str) -> Tensor:
    """Cropped, or padded with zeros, to `sizes`."""
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
    pad = [(0, 0)] * input.ndim
    for d, n in zip(dims, sizes, strict=True):
        pad[d] = (0, n - input._a.shape[d])
    return constant_pad(input, pad=tuple(pad), value=0) if any(p != (0, 0) for p in pad) else input


def _c2c(input: Any, s: Any, dim: Any, norm: str | None, forward: bool, name: str) -> Tensor:
    x = _input(input, name, "c")
    dims, sizes = _dims(x, s, dim, name)
    mode = _norm(norm, name)
    x = _resize(x, dims, sizes, name)
    return prims.fft_c2c(x, dims=dims, norm=mode, forward=forward) if dims else x.clone()


def _r2c(input: Any, s: Any, dim: Any, norm: str, name: str) -> Tensor:
    x = _input(input, name, "r")
    dims, sizes = _dims(x, s, dim, name)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    return prims.fft_r2c(_resize(x, dims, sizes, name), dims=dims, norm=norm)


def _c2r(input: Any, s: Any, dim: Any, norm: str, name: str, conjugate: bool = False) -> Tensor:
    x = _input(input, name, "c")
    dims, sizes = _dims(x, s, dim, name)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    given = None if s is None else s if isinstance(s, int) else s[-1]
    size = sizes[-1] if given is not None and given != -1 else 2 * (x._a.shape[dims[-1]] - 1)
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    x = _resize(x, dims, [*sizes[:-1], size // 2 + 1], name)
    return prims.fft_c2r(x.conj() if conjugate else x, dims=dims, norm=norm, size=size)


# ---- the functions, from one table: base name -> (kind, forward)


def _transform(base: str) -> Any:
    """`run(input, s, dim, norm, name)` for fft, ifft, rfft, irfft, hfft, ihfft."""
    if base == "fft":
        return lambda x, s, d, norm, name: _c2c(x, s, d, norm, True, name)
    if base == "ifft":
        return lambda x, s, d, norm, name: _c2c(x, s, d, norm, False, name)
    if base == "rfft":
        return lambda x, s, d, norm, name: _r2c(x, s, d, _norm(norm, name), name)
    if base == "irfft":
        return lambda x, s, d, norm, name: _c2r(x, s, d, _norm(norm, name), name)
    if base == "hfft":  # the forward transform of a signal Hermitian in time
        return lambda x, s, d, norm, name: _c2r(x, s, d, prims.SWAPPED[_norm(norm, name)], name, True)
    return lambda x, s, d, norm, name: _r2c(x, s, d, prims.SWAPPED[_norm(norm, name)], name).conj()


_TEXT = {
    "fft": "The discrete Fourier transform", "ifft": "The inverse transform",
    "rfft": "The non-negative frequencies of a real signal's transform", "irfft": "The inverse of rfft",
    "hfft": "The transform of a signal Hermitian in time", "ihfft": "The inverse of hfft",
}  # fmt: skip


def _register(base: str) -> None:
    run = _transform(base)

    def one(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        return run(input, None if n is None else (n,), (dim,), norm, base)

    def two(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
        return run(input, s, dim, norm, base + "2")

    def several(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
        return run(input, s, dim, norm, base + "n")

    for function, suffix, over in ((one, "", "one dimension"), (two, "2", "two dimensions"), (several, "n", "several dimensions")):
        doc = f"{_TEXT[base]}, over {over} (torch docs: torch.fft.{base}{suffix})."
        # torch casts what the transforms to real signals give
        op("fft out" if base in ("irfft", "hfft") else "fft strictout", name=base + suffix, doc=doc)(function)


for _base in _TEXT:
    _register(_base)


@op("fft typedout")
def fftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Frequencies of fft's bins (torch docs: torch.fft.fftfreq)."""
    found, where = options(dtype, device, layout, "fftfreq")
    return with_grad(from_host(np.fft.fftfreq(n, d), found, where), requires_grad)


@op("fft typedout")
def rfftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Frequencies of rfft's bins (torch docs: torch.fft.rfftfreq)."""
    found, where = options(dtype, device, layout, "rfftfreq")
    return with_grad(from_host(np.fft.rfftfreq(n, d), found, where), requires_grad)


def _shift_dims(input: Tensor, dim: Any, name: str) -> Shape:
    if dim is None:
        return tuple(range(input.ndim))
    return tuple(wrap_dim(d, input.ndim, name) for d in ((dim,) if isinstance(dim, int) else dim))


@op("fft")
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The zero frequency moved to the middle (torch docs: torch.fft.fftshift)."""
    dims = _shift_dims(input, dim, "fftshift")
    return input.roll(tuple(input._a.shape[d] // 2 for d in dims), dims) if dims else input.clone()


@op("fft")
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """fftshift undone (torch docs: torch.fft.ifftshift)."""
    dims = _shift_dims(input, dim, "ifftshift")
    return input.roll(tuple((input._a.shape[d] + 1) // 2 for d in dims), dims) if dims else input.clone()
