"""What CuPy lacks, or means differently, under the names of the CPU namespace: `cuda.NAME` finds these before CuPy's.

Importing this file needs no CuPy: its functions ask for it when they run. Functions that copy through the host say so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.backends import _cpu_checks, _cuda_rules, cpu, cuda
from tocha.backends.cuda import bits
from tocha.backends.shared import cut, no_kernel, values_for

cupy: Any = cuda.cupy
_BYTES: Any = cuda.BYTES
_BITS: Any = cuda._BITS
_FLOAT32 = np.dtype(np.float32)
# Types on which CuPy has atomic operations, by NumPy's name of the function; float extremes go by their bits.
_ATOMIC = {
    "add": frozenset(map(np.dtype, ("i4", "i8", "u4", "u8", "f4", "f8"))),
    "maximum": frozenset(map(np.dtype, ("i4", "i8", "u4", "u8"))),
    "minimum": frozenset(map(np.dtype, ("i4", "i8", "u4", "u8"))),
}


_THROUGH = {"int8": "int32", "int16": "int32", "uint8": "int64", "uint16": "uint32"}
_FAR = 50.0  # from where on Bessel functions times exponentials are summed by their expansion, with an error of 1e-15


def _of_truth(name: str) -> Callable[..., Any]:
    """A logical function of arrays of any type: CuPy's has none for complex numbers."""

    def function(*operands: Any) -> Any:
        return getattr(cupy, name)(*[x != 0 if x.dtype.kind == "c" else x for x in operands])

    return function


def far_bessel(x: Any, order: int, growing: bool) -> Any:
    """exp(-x) I(x), or exp(x) K(x), at large x without the factor 1 / sqrt(x) (DLMF 10.40.1 and 10.40.2)."""
    total, term = 1.0, 1.0
    for k in range(1, 13):
        term = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k) / x
        total = total + (term * (-1) ** k if growing else term)
    return total * (math.sqrt(0.5 / math.pi) if growing else math.sqrt(0.5 * math.pi))


def _scaled(name: str, order: int) -> Callable[..., Any]:
    """A modified Bessel function times the exponential that keeps it in range: CuPy's overflows where the function itself does."""
    growing = name.startswith("i")

    def function(x: Any) -> Any:
        import cupyx.scipy.special

        size = cupy.abs(x) if growing else x
        far = size > _FAR
        near, wide = cupy.where(far, x.dtype.type(1), size), cupy.where(far, size, x.dtype.type(_FAR))
        small = getattr(cupyx.scipy.special, name)(near) * cupy.exp(-near if growing else near)
        got = cupy.where(far, far_bessel(wide, order, growing) / cupy.sqrt(wide), small).astype(x.dtype)
        return cupy.copysign(got, x) if growing and order else got

    return function


# ---- running kernels

run_prim, run_rule = _cuda_rules.run_prim, _cuda_rules.run_rule


# ---- reductions, always called with axis= and keepdims=


def add_reduce(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    if axis == ():
        return a.astype(a.dtype if dtype is None else dtype)
    return a.sum(axis=axis, keepdims=keepdims, dtype=a.dtype if dtype is None else dtype)


def reduce_mul(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    if axis == ():
        return a.astype(a.dtype if dtype is None else dtype)
    return a.prod(axis=axis, keepdims=keepdims, dtype=a.dtype if dtype is None else dtype)


def max_reduce(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return a.copy() if axis == () else a.max(axis=axis, keepdims=keepdims)


def min_reduce(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return a.copy() if axis == () else a.min(axis=axis, keepdims=keepdims)


def reduce_or(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return a.astype(bool) if axis == () else a.any(axis=axis, keepdims=keepdims)


def reduce_and(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return a.astype(bool) if axis == () else a.all(axis=axis, keepdims=keepdims)


def total(a: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    """The sum over `dim`."""
    return add_reduce(a, dim, keepdim)


def keeping_range(function: Callable[..., Any], x: Any, *args: Any) -> Any:
    """`function(xp, x, *args)`. Whether squares left float32's range isn't looked at: that would wait for the device."""
    return function(cuda, x, *args)


reduce_add, reduce_max, reduce_min = add_reduce, max_reduce, min_reduce


# ---- arrays of types that CuPy only stores


def empty(shape: Any, dtype: Any = float) -> Any:
    kind = np.dtype(dtype)
    return cupy.empty(shape, _BYTES[kind]).view(kind) if kind in _BYTES else cupy.empty(shape, kind)


def zeros(shape: Any, dtype: Any = float) -> Any:
    kind = np.dtype(dtype)
    return cupy.zeros(shape, _BITS[kind]).view(kind) if kind in _BITS else cupy.zeros(shape, kind)


def full(shape: Any, value: Any, dtype: Any = None) -> Any:
    kind = np.asarray(value).dtype if dtype is None else np.dtype(dtype)
    if kind not in _BITS:
        return cupy.full(shape, value, kind)
    return cupy.full(shape, np.asarray(value).astype(kind).view(_BITS[kind])[()], _BITS[kind]).view(kind)


def ones(shape: Any, dtype: Any = float) -> Any:
    return full(shape, 1, dtype)


def filled(shape: Any, dtype: Any, value: Any, index: int | None) -> Any:
    """A new array of one value on device `index`, uninitialised if the value is None."""
    with cuda.on(index):
        return empty(shape, dtype) if value is None else full(shape, value, dtype)


def made_on_host(function: Callable[..., Any], shape: Any, dtype: Any, index: int | None, *args: Any) -> Any:
    """The array that `function(shape, dtype, *args)` makes by NumPy, copied to device `index`."""
    return cuda.from_host(function(shape, dtype, *args), index)


def overwrite(target: Any, at_once: bool, function: Callable[..., Any], *args: Any) -> None:
    """Fill an array with values that `function(count, dtype, dense, *args)` makes by NumPy, in the order of its memory."""
    ordered, values = values_for(target, function, args)
    cuda.store(ordered, cuda.from_host(values, target.device.id))


def where(condition: Any, input: Any, other: Any) -> Any:
    """CuPy's has no loop for bfloat16: its bits are chosen instead."""
    kind = next((x.dtype for x in (input, other) if getattr(x, "dtype", None) in _BITS), None)
    if kind is None:
        return cupy.where(condition, input, other)
    return cupy.where(condition, _as_bits(input, kind), _as_bits(other, kind)).view(kind)


def converted(a: Any, dtype: Any) -> Any:
    """The values as another type, in memory of their own."""
    return a.copy() if a.dtype == dtype else cast(a, dtype)


def cast(a: Any, dtype: Any) -> Any:
    """The values as another type. Through float32 where an exotic type takes part; float8 is made on the host."""
    have = a.dtype
    if have == dtype:
        return a
    if not isinstance(a, cupy.ndarray):  # a NumPy scalar standing for a 0-d tensor of the CPU
        return a.astype(dtype)
    if have in _BYTES:
        table = cupy.asarray(np.arange(256, dtype=np.uint8).view(have).astype(np.float32))
        return cast(table[a.view(np.uint8).astype(np.int32)], dtype)
    if dtype in _BYTES:
        values = cuda.to_host(a if have.kind == "f" else a.astype(_FLOAT32))
        return cuda.from_host(cpu.cast(values, dtype), a.device.id)
    if (have in _BITS and dtype != _FLOAT32) or (dtype in _BITS and have != _FLOAT32):
        return a.astype(_FLOAT32).astype(dtype)
    return a.astype(dtype)


# ---- memory


def may_share_memory(a: Any, b: Any) -> bool:
    """Whether the stretches of memory that two arrays span overlap. CuPy's refuses types that it only stores."""
    if a.__class__ is not b.__class__ or not a.size or not b.size:
        return False
    x, y = a.data.mem, b.data.mem
    if x.ptr + x.size <= y.ptr or y.ptr + y.size <= x.ptr:
        return False
    (low, high), (other_low, other_high) = _span(a), _span(b)
    return low < other_high and other_low < high


# ---- reading and writing at indices


def check_index(index: Any, size: int) -> None:
    """CuPy wraps indices outside an array around. A kernel notes one here, without waiting for it; the next copy to
    the host or synchronisation raises IndexError, as torch's asserts on the device do."""
    if index.size:
        FAULTS.look(index, -size, size)


def check_classes(target: Any, count: int) -> None:
    """IndexError, sooner or later, unless every target is one of `count` classes."""
    check_range(target, count)


def check_rows(indices: Any, name: str, rows: int) -> None:
    """IndexError, sooner or later, unless every index is one of `rows` rows."""
    check_range(indices, rows)


def check_range(index: Any, size: int, dim: int = 0, negative: bool = False, error: type[Exception] = IndexError) -> None:
    """IndexError, sooner or later, unless every index lies in a dimension of `size` elements; `negative` ones may count from its end."""
    if index.size:
        FAULTS.look(index, -size if negative else 0, size)


def take(a: Any, indices: Any, axis: int) -> Any:
    check_index(indices, a.shape[axis])
    return cupy.take(a, indices, axis=axis)


def put_along_axis(a: Any, indices: Any, values: Any, axis: int) -> None:
    grid = [cupy.arange(n).reshape((-1,) + (1,) * (a.ndim - d - 1)) for d, n in enumerate(a.shape)]
    grid[axis] = indices
    a[tuple(grid)] = values


def combine_at(name: str, flat: Any, positions: Any, values: Any) -> None:
    """`flat[positions] = name(flat[positions], values)` one after the other, on arrays of one dimension. Products,
    and sums on types without atomic operations, are rare: products go through the host."""
    kind = flat.dtype
    if values.dtype != kind:
        values = values.astype(kind)
    if name == "logical_or":
        flat[positions[values]] = True
    elif kind.kind == "c" and name == "add":
        parts = flat.real, flat.imag
        combine_at(name, parts[0], positions, values.real)
        combine_at(name, parts[1], positions, values.imag)
    elif kind.kind == "f" and name in ("maximum", "minimum") and kind.itemsize >= 4:
        _extreme_at(name, flat, positions, values)
    elif kind in _ATOMIC.get(name, ()):
        getattr(cupy, name).at(flat, positions, values)
    elif name in _ATOMIC and kind.kind in "biu":
        wide = flat.astype(np.int64)
        combine_at(name, wide, positions, values.astype(np.int64))
        flat[...] = wide.astype(kind)
    elif name in _ATOMIC:
        wide = flat.astype(_FLOAT32)
        combine_at(name, wide, positions, values.astype(_FLOAT32))
        flat[...] = wide.astype(kind)
    else:
        host = cuda.to_host(flat)
        getattr(np, name).at(host, cuda.to_host(positions), cuda.to_host(cupy.broadcast_to(values, positions.shape)))
        flat[...] = cuda.from_host(host, flat.device.id)


combine_along = combine_indexed = add_rows = resampled = no_kernel


# ---- values


def float_to_int(a: Any, dtype: Any) -> Any:
    """Floats as integers, through the types that torch's kernels go through: those end at their limits, narrow ones wrap around."""
    through = _THROUGH.get(dtype.name)
    return cuda.cast(a, dtype) if through is None else cuda.cast(a, np.dtype(through)).astype(dtype)


logical_not, logical_and = _of_truth("logical_not"), _of_truth("logical_and")
logical_or, logical_xor = _of_truth("logical_or"), _of_truth("logical_xor")
i0e, i1e = _scaled("i0", 0), _scaled("i1", 1)
k0e, k1e = _scaled("k0", 0), _scaled("k1", 1)


# ---- order and scans


def extreme_places(a: Any, k: int, axis: int, largest: bool) -> Any:
    """Where the k largest (or smallest) elements along an axis are, in any order."""
    n = a.shape[axis]
    found = cupy.argpartition(a, n - k if largest else k - 1, axis=axis)
    return found[(slice(None),) * axis + (slice(n - k, n) if largest else slice(0, k),)]


def lexsort(keys: Sequence[Any]) -> Any:
    """CuPy's takes one array of keys."""
    return cupy.lexsort(cupy.stack(tuple(keys)))


def scan(name: str, a: Any, axis: int, dtype: Any = None) -> Any:
    """The function's `accumulate`. Those CuPy has no kernel for double the span in each of log n steps."""
    if dtype is not None:
        a = a.astype(dtype, copy=False)
    if name in ("add", "multiply"):
        return (cupy.cumsum if name == "add" else cupy.cumprod)(a, axis=axis, dtype=a.dtype)
    combine: Callable[..., Any] = getattr(cuda, name)
    out = a.copy()
    lead = (slice(None),) * (axis % a.ndim)
    step, n = 1, a.shape[axis]
    while step < n:
        joined = combine(out[(*lead, slice(0, n - step))], out[(*lead, slice(step, n))])
        out[(*lead, slice(step, n))] = joined
        step *= 2
    return out


def reduce_runs(rows: Any, starts: Any) -> Any:
    """Sums over runs of rows that begin at `starts`."""
    return cupy.add.reduceat(rows, starts, axis=0)


# ---- losses and products

cross_entropy = cross_entropy_backward = no_kernel
convolve = convolve_input = convolve_weight = no_kernel
require, truth = _cpu_checks.require, bool


def pieces(count: int, bytes_each: int) -> list[slice]:
    """`range(count)` in one piece, unless its working memory is more than a GPU has to spare."""
    return cut(count, bytes_each, 16 << 30)


def shifts_pay() -> bool:
    """Whether a call for every tap of a convolution's kernel costs less than gathering columns: at 10 µs a call, no (on an H200
    columns take 0.2 to 0.8 of the time)."""
    return False


# ---- host and device


def on_host(function: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
    """The kernel `function(xp, *arrays, **params)` run by NumPy on copies, its results copied back."""
    got = cpu.quiet.run(function, cpu, *[None if a is None else cuda.to_host(a) for a in arrays], **params)
    return tuple(map(cuda.from_host, got)) if isinstance(got, tuple) else cuda.from_host(got)


# ---- special functions without a CuPy version


def airy(x: Any) -> tuple[Any, ...]:
    """Copies through the host."""
    import scipy.special

    return tuple(cuda.from_host(np.asarray(part), x.device.id) for part in scipy.special.airy(cuda.to_host(x)))


def _span(a: Any) -> tuple[int, int]:
    """The addresses of the first byte and behind the last."""
    steps = [(n - 1) * s for n, s in zip(a.shape, a.strides, strict=True)]
    start = cuda.data_ptr(a)
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + a.dtype.itemsize


def _as_bits(x: Any, kind: Any) -> Any:
    if isinstance(x, cupy.ndarray):
        return bits(x if x.dtype == kind else cast(x, kind))
    return np.asarray(x).astype(kind).view(_BITS[kind])[()]


def _extreme_at(name: str, flat: Any, positions: Any, values: Any) -> None:
    """Float extremes by atomic operations on integers that are ordered as the floats are. (CuPy's float atomics ignore
    NaN, and round float64 to float32.) NaN goes to the end that wins."""
    kind = np.dtype(np.int32 if flat.dtype.itemsize == 4 else np.int64)
    keys = _ordered(flat, kind, name)
    getattr(cupy, name).at(keys, positions, _ordered(values, kind, name))
    flat[...] = _flip(keys).view(flat.dtype)


def _ordered(x: Any, kind: Any, name: str) -> Any:
    keys = _flip(cupy.ascontiguousarray(x).view(kind))
    info = np.iinfo(kind)
    # The ends of the range are the keys of NaNs whose bits are all set, apart from the sign.
    return cupy.where(cupy.isnan(x), kind.type(info.max if name == "maximum" else info.min), keys)


def _flip(keys: Any) -> Any:
    """The bits of a float as an integer of the same order, and back."""
    info = np.iinfo(keys.dtype)
    return cupy.where(keys < 0, cupy.bitwise_xor(keys, keys.dtype.type(info.max)), keys)


class Faults:
    """Bad indices seen by kernels: a flag for each device, and whether any check ran since it was last read."""

    def __init__(self) -> None:
        self.flags: dict[int, Any] = {}
        self.pending = False

    def look(self, index: Any, low: int, size: int) -> None:
        """Queue a check that every index is in [low, size)."""
        device_id = index.device.id
        flag = self.flags.get(device_id)
        if flag is None:
            with cupy.cuda.Device(device_id):
                flag = self.flags[device_id] = cupy.zeros(1, np.int32)
        _checker()(index, low, size, flag)
        self.pending = True

    def report(self) -> None:
        """IndexError if a check failed; waits for those that are queued."""
        self.pending = False
        for flag in self.flags.values():
            if int(flag[0]):
                flag.fill(0)
                raise IndexError(
                    "index out of bounds: an operator on CUDA tensors since the last synchronization was given an index outside "
                    "its dimension (run it on the CPU to see which)"
                )


@functools.cache
def _checker() -> Any:
    return cupy.ElementwiseKernel(
        "I index, int64 low, int64 size", "raw int32 flag", "if (index < low || index >= size) flag[0] = 1;", "tocha_check_index"
    )


FAULTS = Faults()
