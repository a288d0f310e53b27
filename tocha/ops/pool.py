"""Pooling functions with torch's signatures (torch docs: torch.nn.functional, pooling functions)."""

from __future__ import annotations

import functools
import math
from typing import Any

from tocha import dtypes
from tocha.backends.pooling import CODES
from tocha.dispatch.prim import tie
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.convolution import spatial
from tocha.prims import pool as prims
from tocha.prims.contract import recording
from tocha.prims.resample import resample
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def _geometry(name: str, input: Tensor, n: int, *sizes: Any) -> dict[str, Shape]:
    """How windows lie, for `sizes` as given: kernel, stride, padding, dilation and whether to round their number up."""
    shape = check_tensor(input, name)._a.shape
    try:
        return _read_once(name, shape, n, *sizes)
    except TypeError:  # a list
        return _read(name, shape, n, *sizes)


def _read(
    name: str, shape: Shape, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, Shape]:
    """kernel, stride, padding, dilation and sizes as n ints each; everything checked."""
    kernel = spatial(kernel_size, n, name, "kernel_size")
    steps = kernel if stride is None or (isinstance(stride, (tuple, list)) and not stride) else spatial(stride, n, name, "stride")
    pads, spread = spatial(padding, n, name, "padding"), spatial(dilation, n, name, "dilation")
    if min(kernel) <= 0:
        raise RuntimeError(f"{name}: kernel size should be greater than zero, but got {list(kernel)}")
    if min(steps) <= 0:
        raise RuntimeError(f"{name}: stride should not be zero or negative, got {list(steps)}")
    if min(spread) <= 0:
        raise RuntimeError(f"{name}: dilation should be greater than zero, but got {list(spread)}")
    for k, p, d in zip(kernel, pads, spread, strict=True):
        if p < 0:
            raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(
                f"{name}: pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}"
            )
    _check_rank(name, shape, n)
    sizes = _sizes(name, shape, kernel, steps, pads, spread, ceil_mode)
    return {"kernel": kernel, "stride": steps, "padding": pads, "dilation": spread, "sizes": sizes}


_read_once = functools.lru_cache(1024, typed=True)(_read)


def _check_rank(name: str, shape: Shape, n: int) -> None:
    if len(shape) not in (n + 1, n + 2) or 0 in shape[len(shape) - n - 1 :]:
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got:{list(shape)}"
        )


def _sizes(name: str, shape: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool) -> Shape:
    n = len(kernel)
    sizes = []
    for m, k, s, p, d in zip(shape[-n:], kernel, stride, padding, dilation, strict=True):
        size = (m + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (size - 1) * s >= m + p:
            size -= 1  # a window may not start in the padding after the input
        sizes.append(size)
    if min(sizes) <= 0:
        c = shape[-n - 1]
        raise RuntimeError(
            f"{name}: Given input size: ({'x'.join(map(str, (c, *shape[-n:])))}). Calculated output size: "
            f"({'x'.join(map(str, (c, *(max(s, 0) for s in sizes))))}). Output size is too small"
        )
    return tuple(sizes)


def _max_pool(
    name: str, n: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Any:
    params = _geometry(name, input, n, kernel_size, stride, padding, dilation, ceil_mode)
    if input._a.dtype.kind in "bc":
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}' tensors")
    if indices:
        return prims.max_pool(input, **params)
    if not recording(input):
        return prims.max_pool_values(input, **params)
    return (prims.max_pool_coded if math.prod(params["kernel"]) <= CODES else prims.max_pool)(input, **params)[0]


def _avg_pool(
    name: str, n: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor: int | None,
) -> Tensor:  # fmt: skip
    params = _geometry(name, input, n, kernel_size, stride, padding, 1, ceil_mode)
    if input._a.dtype.kind == "b":
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")
    params = {key: value for key, value in params.items() if key != "dilation"}
    return prims.avg_pool(input, **params, include_pad=bool(count_include_pad), divisor=divisor)


def _output_size(name: str, input: Tensor, output_size: Any, n: int) -> Shape:
    sizes = (output_size,) * n if not isinstance(output_size, (tuple, list)) else tuple(output_size)
    if len(sizes) != n:
        raise RuntimeError(f"{name}: output_size must be {n} integers, got {list(sizes)}")
    shape = input._a.shape[input._a.ndim - n :]
    found = tuple(m if s is None else int(s) for s, m in zip(sizes, shape, strict=True))
    if min(found) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {list(found)}")
    return found


def _check_adaptive(name: str, input: Tensor, n: int) -> None:
    shape = check_tensor(input, name)._a.shape
    if len(shape) <= n:
        raise ValueError(f"{name}: Input dimension should be at least {n + 1}, got {list(shape)}")
    if len(shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got {list(shape)}")
    if 0 in shape[1:]:
        raise RuntimeError(
            f"{name}: Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(shape)}"
        )


def _adaptive_avg(name: str, n: int, input: Tensor, output_size: Any) -> Tensor:
    _check_adaptive(name, input, n)
    if input._a.dtype not in dtypes.FLOAT_NP:
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}' tensors")
    sizes = _output_size(name, input, output_size, n)
    dims = tuple(range(input._a.ndim - n, input._a.ndim))
    if 0 in sizes:
        return input.new_zeros((*input._a.shape[:-n], *sizes))
    if sizes == (1,) * n:
        return input.mean(dims, keepdim=True)
    specs = tuple(("area", m, s, False, 0.0) for m, s in zip(input._a.shape[-n:], sizes, strict=True))
    return tie(resample(input, specs=specs))


def _adaptive_max(name: str, n: int, input: Tensor, output_size: Any, indices: bool) -> Any:
    _check_adaptive(name, input, n)
    sizes = _output_size(name, input, output_size, n)
    shape = input._a.shape[input._a.ndim - n :]
    if all(m % s == 0 for m, s in zip(shape, sizes, strict=True) if s) and 0 not in sizes:
        kernel = tuple(m // s for m, s in zip(shape, sizes, strict=True))
        found = prims.max_pool(input, kernel=kernel, stride=kernel, padding=(0,) * n, dilation=(1,) * n, sizes=sizes)
    else:
        found = prims.adaptive_max_pool(input, sizes=sizes)
    return found if indices else found[0]


def _lp_pool(name: str, n: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    kernel = spatial(kernel_size, n, name, "kernel_size")
    count = math.prod(kernel)
    mean = _avg_pool(name, n, input**norm_type, kernel, stride, 0, ceil_mode, True, None)
    return (mean.sign() * mean.abs() * count) ** (1.0 / norm_type)


def _unpool_size(name: str, input: Tensor, kernel: Shape, stride: Shape, padding: Shape, output_size: Any) -> Shape:
    n = len(kernel)
    default = [(m - 1) * s + k - 2 * p for m, s, k, p in zip(input._a.shape[-n:], stride, kernel, padding, strict=True)]
    if output_size is None:
        return tuple(default)
    wanted = list(output_size)
    if len(wanted) == n + 2:
        wanted = wanted[2:]
    if len(wanted) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of '{len(wanted)}'"
        )
    for size, d, s in zip(wanted, default, stride, strict=True):
        if not d - s < size < d + s:
            raise ValueError(f'invalid output_size "{wanted}" (each dim must be within stride of {default})')
    return tuple(wanted)


def _unpool(
    name: str, n: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    kernel = spatial(kernel_size, n, name, "kernel_size")
    steps = kernel if stride is None else spatial(stride, n, name, "stride")
    pads = spatial(padding, n, name, "padding")
    _check_rank(name, input._a.shape, n)
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(f"{name}: elements in indices should be type int64 but got: {indices.dtype.name}")
    if indices._a.shape != input._a.shape:
        raise RuntimeError(
            f"{name}: Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got "
            f"indices tensor with shape: {list(indices.shape)}"
        )
    if min(steps) <= 0:
        raise RuntimeError(f"{name}: strides should be greater than zero, but got stride: {list(steps)}")
    size = _unpool_size(name, input, kernel, steps, pads, output_size)
    length = math.prod(size)
    if indices._a.size and not indices.is_meta:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= length:
            raise RuntimeError(
                f"{name}: Found an invalid max index: {high if high >= length else low} (output volumes are of size {'x'.join(map(str, size))})"
            )
    lead = tuple(input._a.shape[: input._a.ndim - n])
    flat = tie(input.new_zeros((*lead, length)).scatter(len(lead), indices.flatten(len(lead)), input.flatten(len(lead))))
    return flat.reshape((*lead, *size))


def _register(n: int) -> None:
    d = f"{n}d"

    def max_pool(with_indices: bool) -> Any:
        def pool(
            input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
            return_indices: bool = False,
        ) -> Any:  # fmt: skip
            indices = with_indices or return_indices
            return _max_pool(f"max_pool{d}", n, input, kernel_size, stride, padding, dilation, ceil_mode, indices)

        return pool

    def avg_pool(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:  # fmt: skip
        return _avg_pool(f"avg_pool{d}", n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def adaptive_avg_pool(input: Tensor, output_size: Any) -> Tensor:
        return _adaptive_avg(f"adaptive_avg_pool{d}", n, input, output_size)

    def adaptive_max_pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive_max(f"adaptive_max_pool{d}", n, input, output_size, return_indices)

    def adaptive_max_pool_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive_max(f"adaptive_max_pool{d}", n, input, output_size, True)

    def lp_pool(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        return _lp_pool(f"lp_pool{d}", n, input, norm_type, kernel_size, stride, ceil_mode)

    def max_unpool(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Tensor:
        return _unpool(f"max_unpool{d}", n, input, indices, kernel_size, stride, padding, output_size)

    for name, function, words, text in (
        (f"max_pool{d}", max_pool(False), "torch F", "Maximum of each window, with its place if asked"),
        (f"max_pool{d}_with_indices", max_pool(True), "F torch" if n == 1 else "F", "Maximum of each window and its place"),
        (f"avg_pool{d}", avg_pool, "torch F out" if n == 1 else "F out", "Mean of each window"),
        (f"adaptive_avg_pool{d}", adaptive_avg_pool, "torch F" if n == 1 else "F", "Means over as many windows as output_size says"),
        (f"adaptive_max_pool{d}", adaptive_max_pool, "F", "Maxima over as many windows as output_size says"),
        (f"adaptive_max_pool{d}_with_indices", adaptive_max_pool_with_indices, "F", "Maxima and places over output_size windows"),
        (f"lp_pool{d}", lp_pool, "F", "The norm_type-th root of each window's sum of powers"),
        (f"max_unpool{d}", max_unpool, "F", "Zeros with input at the places a max_pool found"),
    ):
        op(words, name=name, doc=f"{text}, over {n} dimensions (torch docs: torch.nn.functional.{name}).")(function)
    if n == 1:
        op("torch", name="adaptive_max_pool1d")(adaptive_max_pool_with_indices)


for _n in (1, 2, 3):
    _register(_n)


# ---- fractional


def _fractional(name: str, n: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any) -> Any:
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    kernel = spatial(kernel_size, n, name, "kernel_size")
    _check_rank(name, input._a.shape, n)
    shape = input._a.shape[-n:]
    if output_size is None:
        ratio = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
        sizes = tuple(int(m * r) for m, r in zip(shape, ratio, strict=True))
    else:
        sizes = spatial(output_size, n, name, "output_size")
    for m, k, o in zip(shape, kernel, sizes, strict=True):
        if o + k - 1 > m or o <= 0:
            raise RuntimeError(f"{name}: pool size ({k}) too large relative to input size ({m}) for output size {o}")
    batch = input._a.shape[0] if input.ndim == n + 2 else 1
    channels = input._a.shape[-n - 1]
    if samples is None:
        samples = input.detach().new_empty((batch, channels, n)).uniform_()
    if samples.ndim != 3 or samples._a.shape[0] < batch or samples._a.shape[1:] != (channels, n):
        raise RuntimeError(
            f"{name}: expected _random_samples of shape {[batch, channels, n]} (or more), got {list(samples.shape)}"
        )
    return prims.fractional_max_pool(input, samples[:batch], kernel=kernel, sizes=sizes)


def _register_fractional(n: int, with_indices: bool) -> None:
    name = f"fractional_max_pool{n}d"

    def fractional_max_pool(
        input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:  # fmt: skip
        found = _fractional(name, n, input, kernel_size, output_size, output_ratio, _random_samples)
        return found if with_indices or return_indices else found[0]

    doc = f"Maxima over windows placed at random (Graham 2014; torch docs: torch.nn.functional.{name})."
    if with_indices:
        op("F", name=f"{name}_with_indices", doc=f"{name} with the places of the maxima.")(fractional_max_pool)
    else:
        op("F", name=name, doc=doc)(fractional_max_pool)


for _n in (2, 3):
    _register_fractional(_n, False)
    _register_fractional(_n, True)
