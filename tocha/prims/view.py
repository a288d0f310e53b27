"""The view family: new shapes and strides over the same memory. Kernels use only `transpose`, basic indexing and
`restride`, which every backend's arrays have, so one rule serves cpu, cuda and meta."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from tocha.backends import geometry
from tocha.backends.lazy import lazy
from tocha.backends.meta import contiguous_strides
from tocha.dispatch.bind import bind
from tocha.dispatch.prim import Prim, prim

Shape = tuple[int, ...]
_ALL = slice(None)


def _inverse(dims: Shape) -> Shape:
    out = [0] * len(dims)
    for i, d in enumerate(dims):
        out[d] = i
    return tuple(out)


@prim("permute", "view", vjp=lambda g, *, dims: g.permute(_inverse(dims)), half="native")
def permute(xp: Any, input: Any, *, dims: Shape) -> Any:
    return input.transpose(dims)


def view_strides(shape: Shape, strides: Shape, new_shape: Shape, item: int = 1) -> Shape | None:
    """Strides that show an array of `shape` and `strides` as `new_shape` without copying, or None. `item`: the stride of one element."""
    if not shape or 0 in shape:
        return strides if shape == new_shape else contiguous_strides(new_shape, item)
    result = [0] * len(new_shape)
    i = len(new_shape) - 1
    count, step = 1, strides[-1]
    for d in range(len(shape) - 1, -1, -1):  # take runs of old dimensions that are contiguous among themselves
        count *= shape[d]
        if d and (shape[d - 1] == 1 or strides[d - 1] == count * step):
            continue
        taken = 1
        while i >= 0 and (taken < count or new_shape[i] == 1):
            result[i] = taken * step
            taken *= new_shape[i]
            i -= 1
        if taken != count:
            return None
        count, step = 1, strides[d - 1]
    return tuple(result)


@prim("view", "view", vjp=lambda g, input_shape: g.reshape(input_shape), half="native")
def view(xp: Any, input: Any, *, shape: Shape) -> Any:
    if input.flags.c_contiguous and input.size > 1:
        return input.reshape(shape)
    strides = view_strides(input.shape, input.strides, shape, input.dtype.itemsize)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            f"contiguous subspaces). Use .reshape(...) instead. (shape {list(input.shape)}, wanted {list(shape)})"
        )
    return xp.restride(input, shape, strides)


@prim("expand", "view", vjp=lambda g, input_shape: g.sum_to_size(input_shape), half="native")
def expand(xp: Any, input: Any, *, shape: Shape) -> Any:
    lead = len(shape) - len(input.shape)
    strides = (0,) * lead + tuple(
        0 if have == 1 and want != 1 else s for have, want, s in zip(input.shape, shape[lead:], input.strides, strict=True)
    )
    return xp.restride(input, shape, strides)


@prim("unsqueeze", "view", vjp=lambda g, *, dim: g.squeeze(dim), half="native")
def unsqueeze(xp: Any, input: Any, *, dim: int) -> Any:
    strides = input.strides
    step = strides[dim] * input.shape[dim] if dim < len(strides) else input.dtype.itemsize
    return xp.restride(input, (*input.shape[:dim], 1, *input.shape[dim:]), (*strides[:dim], step, *strides[dim:]))


@prim("squeeze", "view", vjp=lambda g, input_shape, *, dims: g.reshape(input_shape), half="native")
def squeeze(xp: Any, input: Any, *, dims: Shape) -> Any:
    """Drop dimensions of size 1 (the caller names only such)."""
    return input[(*(0 if i in dims else slice(None) for i in range(len(input.shape))), Ellipsis)]


def _pad_back(g: Any, shape: Shape, index: tuple[Any, ...]) -> Any:
    """Zeros of `shape` with g in place of the part that `index` (basic) selects."""
    return index_scatter(g, shape=tuple(shape), index=index)


def basic_index(xp: Any, input: Any, key: tuple[Any, ...]) -> Any:
    """input[key] for a key of integers, slices with positive steps, None and one Ellipsis."""
    got = input[key]
    if None not in key:
        return got
    if input.size > 1 and input.flags.c_contiguous and not [k for k in key if k is not None and k is not Ellipsis and k != _ALL]:
        return input.reshape(got.shape)  # whose strides are torch's then
    return _with_new_dims(xp, input, key, got)


def _with_new_dims(xp: Any, input: Any, key: tuple[Any, ...], got: Any) -> Any:
    """`got` with torch's strides where None made dimensions: those that span input's next dimension (NumPy: 0)."""
    strides, shape, rank = list(got.strides), input.shape, len(input.shape)
    used = sum(k is not None and k is not Ellipsis for k in key)
    out = d = 0
    for k in key:
        if k is None:
            strides[out] = shape[d] * input.strides[d] if d < rank else input.dtype.itemsize
            out += 1
        elif k is Ellipsis:
            out += rank - used
            d += rank - used
        else:
            out += isinstance(k, slice)
            d += 1
    return xp.restride(got, got.shape, tuple(strides))


@prim("slice", "view", vjp=lambda g, input_shape, *, index: _pad_back(g, input_shape, index), half="native")
def slice_(xp: Any, input: Any, *, index: tuple[Any, ...]) -> Any:
    """Basic indexing: integers, slices with positive steps and None, in a tuple."""
    return basic_index(xp, input, index if Ellipsis in index else (*index, Ellipsis))


@prim("index_scatter", "index", vjp=lambda g, *, index: slice_(g, index=index), half="native",
      infer=lambda input, *, shape, index: _meta_like(input, shape))  # fmt: skip
def index_scatter(xp: Any, input: Any, *, shape: Shape, index: tuple[Any, ...]) -> Any:
    """Zeros of `shape` with input at a basic index."""
    out = xp.zeros(shape, input.dtype)
    out[index] = input
    return out


def _meta_like(input: Any, shape: Shape) -> Any:
    from tocha.backends.meta import MetaArray

    return MetaArray(shape, input.dtype)


def _listed(g: Any) -> Any:
    """The gradients of several outputs (a lone output's comes bare)."""
    return g if isinstance(g, (list, tuple)) else [g]


def _split_vjp(g: Any, input_shape: Shape, input_dtype: Any, *, sizes: Shape, dim: int) -> Any:
    from tocha.ops.shape import cat

    g = _listed(g)
    given = next(x for x in g if x is not None)
    shape = list(input_shape)
    parts = []
    for x, size in zip(g, sizes, strict=True):
        shape[dim] = size
        parts.append(given.new_zeros(shape) if x is None else x)
    return cat(parts, dim)


@prim("split", "view", vjp=_split_vjp, half="native")
def split(xp: Any, input: Any, *, sizes: Shape, dim: int) -> Any:
    """Consecutive pieces of a dimension, all views."""
    start, pieces, lead = 0, [], (slice(None),) * dim
    for size in sizes:
        pieces.append(input[(*lead, slice(start, start + size))])
        start += size
    return pieces


@functools.lru_cache(1024)
def _pieces(count: int, sizes: Shape, dim: int) -> Any:
    """The view that each piece is, with its parameters."""
    ends = itertools.accumulate(sizes)
    return [(slice_, {"index": (_ALL,) * dim + (slice(end - size, end),)}) for size, end in zip(sizes, ends, strict=True)]


split.steps = _pieces  # type: ignore[attr-defined]


def _unbind_vjp(g: Any, input_shape: Shape, *, dim: int) -> Any:
    from tocha.ops.shape import stack

    g = _listed(g)
    given = next(x for x in g if x is not None)
    return stack([given.new_zeros(given.shape) if x is None else x for x in g], dim)


@prim("unbind", "view", vjp=_unbind_vjp, half="native")
def unbind(xp: Any, input: Any, *, dim: int) -> Any:
    lead = (slice(None),) * dim
    return [input[(*lead, i, Ellipsis)] for i in range(input.shape[dim])]


@functools.lru_cache(1024)
def _slices(count: int, dim: int) -> Any:
    return [(slice_, {"index": (_ALL,) * dim + (i,)}) for i in range(count)]


unbind.steps = _slices  # type: ignore[attr-defined]


def _as_strided_vjp(g: Any, *, size: Shape, stride: Shape, offset: int, own: Any) -> Any:
    from tocha.ops.shape import as_strided_backward

    return as_strided_backward(g, own, size, stride, offset)


class AsStrided(Prim):
    """as_strided notes the geometry of the tensor it is called on (`own`), also when replayed on another: its gradient
    needs it, and saving the tensor itself would forbid changing it."""

    def __call__(self, input: Any, *, size: Shape, stride: Shape, offset: int, own: Any = None) -> Any:
        return bind(self, input, size=size, stride=stride, offset=offset, own=geometry(input._a))


def _as_strided(xp: Any, input: Any, *, size: Shape, stride: Shape, offset: int, own: Any) -> Any:
    """Any geometry over input's storage; stride and offset in elements, offset from the storage's start."""
    item = input.dtype.itemsize
    return xp.restride(input, size, tuple(s * item for s in stride), (offset - own[2]) * item)


as_strided = AsStrided("as_strided", "view", _as_strided, vjp=_as_strided_vjp, half="native")


@prim(
    "diagonal",
    "view",
    half="native",
    vjp=lambda g, input_shape, *, offset, dim1, dim2: _diagonal_vjp(g, input_shape, offset, dim1, dim2),
)
def diagonal(xp: Any, input: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    rows, columns = input.shape[dim1], input.shape[dim2]
    step1, step2 = input.strides[dim1], input.strides[dim2]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    keep = [i for i in range(len(input.shape)) if i not in (dim1, dim2)]
    start = (offset * step2 if offset >= 0 else -offset * step1) if length else 0
    shape = (*(input.shape[i] for i in keep), length)
    return xp.restride(input, shape, (*(input.strides[i] for i in keep), step1 + step2), start)


def _diagonal_vjp(g: Any, shape: Shape, offset: int, dim1: int, dim2: int) -> Any:
    from tocha.ops.shape import diagonal_backward

    return diagonal_backward(g, shape, offset, dim1, dim2)


@prim(
    "unfold", "view", half="native", vjp=lambda g, input_shape, *, dim, size, step: _unfold_vjp(g, input_shape, dim, size, step)
)
def unfold(xp: Any, input: Any, *, dim: int, size: int, step: int) -> Any:
    """Sliding windows of a dimension, in a new last one."""
    if not input.shape:
        return xp.restride(input, (size,), (input.dtype.itemsize,))
    windows = (input.shape[dim] - size) // step + 1
    shape = (*input.shape[:dim], windows, *input.shape[dim + 1 :], size)
    strides = (*input.strides[:dim], input.strides[dim] * step, *input.strides[dim + 1 :], input.strides[dim])
    return xp.restride(input, shape, strides)


def _unfold_vjp(g: Any, shape: Shape, dim: int, size: int, step: int) -> Any:
    from tocha.ops.shape import unfold_backward

    return unfold_backward(g, shape, dim, size, step)


@prim("view_dtype", "view", half="native")
def view_dtype(xp: Any, input: Any, *, dtype: Any) -> Any:
    """The same bytes as another type; the last dimension scales with the item sizes."""
    return input.view(dtype)


@prim("conj", "view", half="native", vjp=lambda g: g.conj_physical())
def conj(xp: Any, input: Any) -> Any:
    """The complex conjugate, which is left to whoever reads the elements."""
    return lazy(input, conj=True)


@prim("neg_view", "view", half="native", vjp=lambda g: -g)
def neg_view(xp: Any, input: Any) -> Any:
    """The negative, which is left to whoever reads the elements."""
    return lazy(input, neg=True)


def _to_complex(g: Any) -> Any:
    from tocha.ops.shape import view_as_complex

    return view_as_complex(g.contiguous())


@prim("view_as_real", "view", half="native", vjp=_to_complex)
def view_as_real(xp: Any, input: Any) -> Any:
    half = input.dtype.itemsize // 2
    shape, strides = (*input.shape, 2), (*input.strides, half)
    return xp.restride(input.real, shape, strides)


@prim("view_as_complex", "view", half="native", vjp=lambda g: view_as_real(g))
def view_as_complex(xp: Any, input: Any) -> Any:
    return input.view(f"c{2 * input.dtype.itemsize}")[..., 0]
