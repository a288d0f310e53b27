"""Views and rearrangements: view, reshape, permute, expand, squeeze, split, cat and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.autograd.names import AllDropped, Dropped, Turned
from tocha.backends import cpu, device_of, for_device, geometry, namespace
from tocha.device import Size
from tocha.dispatch.override import PLAIN
from tocha.dispatch.prim import record, view_of
from tocha.dispatch.promote import result_type
from tocha.dispatch.registry import op
from tocha.ops._views import (
    exchanged,
    plain,
    short_expand,
    short_like,
    short_permute,
    short_size,
    short_squeeze,
    short_transpose,
    short_unsqueeze,
    short_view,
)
from tocha.ops.arguments import check_int, check_tensor, infer_size, shape_of, wrap_dim, wrap_dims
from tocha.prims import move
from tocha.prims import view as prims
from tocha.prims.view import view_strides
from tocha.tensor import Tensor, wrap

Shape = tuple[int, ...]
_T = Turned((1, 0))


@op("method", short=short_view)
def view(input: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """The same memory under another shape or dtype (torch docs: Tensor.view)."""
    if dtype is not None or (len(shape) == 1 and isinstance(shape[0], dtypes.dtype)):
        return view_dtype(input, dtype or shape[0])
    return prims.view(input, shape=infer_size(shape_of(shape, "view"), input._a.size))


def view_dtype(input: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The same bytes as `dtype`; if item sizes differ the last dimension scales and must be contiguous."""
    have, want = input.itemsize, dtype.itemsize
    if input.dtype is dtype:
        return prims.slice_(input, index=())
    if input._rg and dtype.category not in (dtypes.FLOATING, dtypes.COMPLEX):
        input = input.detach()
    if have != want:
        if input.ndim == 0:
            raise RuntimeError(f"self.dim() cannot be 0 to view {input.dtype} as {dtype} (different element sizes)")
        if input._a.strides[-1] != have and input.shape[-1] > 1:
            raise RuntimeError(f"self.stride(-1) must be 1 to view {input.dtype} as {dtype} (different element sizes)")
        if want > have and input.shape[-1] * have % want:
            raise RuntimeError(f"self.size(-1) must be divisible by {want // have} to view {input.dtype} as {dtype}")
    return prims.view_dtype(input, dtype=dtype.np)


@op("method", short=short_like(short_view))
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.view(other.size())`."""
    return view(input, other.shape)


@op("torch method", short=short_view)
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """A view if possible, otherwise a copy, with the given shape (torch docs: torch.reshape)."""
    a = input._a
    wanted = infer_size(shape_of(shape, "reshape"), a.size)
    if (a.__class__ is np.ndarray and a.flags.c_contiguous) or view_strides(a.shape, a.strides, wanted) is not None:
        return prims.view(input, shape=wanted)
    return move.unsafe_view(input, shape=wanted)


@op("method", short=short_like(short_view))
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.reshape(other.size())`."""
    return reshape(input, other.shape)


@op("torch method", short=short_permute)
def permute(input: Tensor, *dims: Any) -> Tensor:
    """Dimensions in another order (torch docs: torch.permute)."""
    order = shape_of(dims, "permute")
    if len(order) != input.ndim:
        raise RuntimeError(
            f"permute: number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
            f"i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(order)}"
        )
    wrapped = tuple(wrap_dim(d, input.ndim, "permute") for d in order)
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return prims.permute(input, dims=wrapped)


@op("torch method", alias=("swapaxes", "swapdims"), short=short_transpose)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged (torch docs: torch.transpose)."""
    n = input._a.ndim
    d0, d1 = wrap_dim(dim0, n, "transpose"), wrap_dim(dim1, n, "transpose")
    return prims.permute(input, dims=exchanged(n, d0, d1))


@op("torch method", short=lambda x, *more: None if more or not plain(x) or x._a.ndim != 2 else view_of(x, x._a.T, prims.permute, {"dims": _T}))
def t(input: Tensor) -> Tensor:
    """Transpose of a matrix; 0-d and 1-d tensors as they are (torch docs: torch.t)."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return prims.permute(input, dims=_T) if input.ndim == 2 else prims.slice_(input, index=())


@op("method", short=short_expand)
def expand(input: Tensor, *size: Any, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated without copying; -1 keeps a size (torch docs: Tensor.expand)."""
    wanted = shape_of(size, "expand")
    have = input._a.shape
    lead = len(wanted) - len(have)
    if lead < 0:
        raise RuntimeError(
            f"expand(torch.{input.dtype.name}{list(have)}, size={list(wanted)}): the number of sizes provided ({len(wanted)}) must be "
            f"greater or equal to the number of dimensions in the tensor ({len(have)})"
        )
    shape = []
    for i, n in enumerate(wanted):
        own = have[i - lead] if i >= lead else None
        if n == -1 and own is None:
            raise RuntimeError(
                f"expand(torch.{input.dtype.name}{list(have)}, size={list(wanted)}): the expanded size of the tensor (-1) isn't allowed "
                f"in a leading, non-existing dimension {i}"
            )
        n = own if n == -1 and own is not None else n
        if n < 0 or (own is not None and own not in (1, n)):
            raise RuntimeError(
                f"expand: The expanded size of the tensor ({n}) must match the existing size ({own}) at non-singleton dimension {i}. "
                f"Target sizes: {list(wanted)}. Tensor sizes: {list(have)}"
            )
        shape.append(n)
    return prims.expand(input, shape=tuple(shape))


@op("method", short=short_like(short_expand))
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.expand(other.size())`."""
    return expand(input, other.shape)


@op("torch method", short=short_unsqueeze)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 inserted at `dim` (torch docs: torch.unsqueeze)."""
    return prims.unsqueeze(input, dim=wrap_dim(dim, input._a.ndim + 1, "unsqueeze"))


@op("torch method", short=short_squeeze)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Dimensions of size 1 removed: all, one, or those named (torch docs: torch.squeeze)."""
    shape = input._a.shape
    if dim is None:
        dims: tuple[int, ...] = tuple(i for i, n in enumerate(shape) if n == 1)
    else:
        named = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        if len(named) > 1:
            wrap_dims(named, len(shape), "squeeze", empty_is_all=False)
        kept = Dropped if named is not dim else AllDropped
        dims = kept([w for d in named if shape and shape[(w := wrap_dim(d, len(shape), "squeeze"))] == 1])
        if not shape:
            for d in named:
                wrap_dim(d, 0, "squeeze")
    return prims.squeeze(input, dims=dims)


@op("method")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Summed over dimensions that `size` would broadcast (torch docs: Tensor.sum_to_size)."""
    from tocha.prims.reduce import sum_

    wanted = shape_of(size, "sum_to_size")
    have = input._a.shape
    if wanted == have and wanted:
        return input
    if input._a.dtype.kind in "biu":
        input = input.to(dtypes.int64)
    lead = len(have) - len(wanted)
    if lead < 0 or any(w not in (1, h) for w, h in zip(wanted, have[lead:], strict=True)):
        raise RuntimeError(f"size {list(wanted)} is not expandable to size {list(have)}.")
    dims = tuple(range(lead)) + tuple(lead + i for i, w in enumerate(wanted) if w == 1 and have[lead + i] != 1)
    out = sum_(input, dim=dims, keepdim=True)
    return reshape(out, wanted) if lead else out


def _short_as_strided(input: Any, size: Any = None, stride: Any = None, offset: Any = 0, *more: Any) -> Tensor | None:
    """Of a plain tensor that is all of its storage."""
    if more or offset.__class__ is not int or offset < 0 or not plain(input) or input._view is not None:
        return None
    if not size.__class__ is stride.__class__ is tuple or len(size) != len(stride):
        return None
    a, last = input._a, offset
    for n, step in zip(size, stride, strict=True):
        if n.__class__ is not int or step.__class__ is not int or n < 1 or step < 0:
            return None
        last += (n - 1) * step
    if last >= a.size or not a.flags.c_contiguous or cpu.root(a).nbytes != a.nbytes:
        return None
    item = a.dtype.itemsize
    seen = cpu.restride(a, size, tuple([s * item for s in stride]), offset * item)
    own = a.shape, tuple([s // item for s in a.strides]), 0, a.size
    return view_of(input, seen, prims.as_strided, {"size": size, "stride": stride, "offset": offset, "own": own})


@op("torch method", short=_short_as_strided)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of input's storage with any size and stride, in elements (torch docs: torch.as_strided)."""
    shape, steps = tuple(size), tuple(stride)
    if len(shape) != len(steps):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(shape)}, stride {list(steps)}")
    if any(n < 0 for n in steps) or any(n < 0 for n in shape):
        raise RuntimeError(f"as_strided: Negative strides and sizes are not supported: size {list(shape)}, stride {list(steps)}")
    offset = storage_offset_of(input) if storage_offset is None else storage_offset
    available = storage_nbytes(input) // input.itemsize
    needed = offset + 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) if 0 not in shape else offset
    if offset < 0 or (needed > available and 0 not in shape):
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(steps)}, storage offset {offset}, and itemsize {input.itemsize} requiring a "
            f"storage size of {needed * input.itemsize} are out of bounds for storage of size {available * input.itemsize}"
        )
    out = prims.as_strided(input, size=shape, stride=steps, offset=offset)
    view = out._view
    if view is not None and view.base._a.dtype is out._a.dtype:
        view.chain = view.chain[-1:]  # it looks at the storage, so how `input` was made of the base doesn't matter
    return out


def storage_offset_of(input: Tensor) -> int:
    """Elements between the start of the storage and the first element."""
    return geometry(input._a)[2]


def storage_nbytes(input: Tensor) -> int:
    """Bytes of the memory the tensor is a view of."""
    root = namespace(input._a).root(input._a)
    return int(root.size) * int(root.dtype.itemsize)


def as_strided_backward(g: Tensor, own: Any, size: Shape, stride: Shape, offset: int) -> Tensor:
    """Gradient of as_strided for an input of geometry `own`: places of the storage collect from wherever they showed, and
    an input that shows a place several times shares its gradient among them."""
    from tocha.prims.indexing import index, index_put

    shape, steps, start, length = own
    xp = for_device(g.device)
    flat = g.new_zeros((max(length, 1),))
    seen = wrap(xp.from_host(_positions(size, stride, offset).reshape(-1)))
    flat = index_put(flat, g.reshape(-1), seen, dims=(0,), accumulate=True)
    places = _positions(shape, steps, start)
    if 0 in steps and any(n > 1 and s == 0 for n, s in zip(shape, steps, strict=True)):
        shown = np.bincount(places.reshape(-1), minlength=max(length, 1)).clip(1)
        flat = flat / wrap(xp.from_host(shown.astype(g._a.real.dtype)))
    return index(flat, wrap(xp.from_host(places)), dims=(0,))


def _positions(size: Shape, stride: Shape, offset: int) -> Any:
    """The place in the storage of every element of a geometry."""
    positions = np.full(size, offset, np.int64)
    for i, (n, s) in enumerate(zip(size, stride, strict=True)):
        positions += (np.arange(n) * s).reshape((n,) + (1,) * (len(size) - i - 1))
    return positions


def laid_out(values: Tensor, own: Any) -> Tensor:
    """The values of a tensor in memory of another one's geometry, so that as_strided finds them in the same places."""
    size, stride, offset, length = own
    out = prims.as_strided(values.new_zeros((max(length, 1),)), size=size, stride=stride, offset=offset)
    return out.copy_(values)


def diagonal_backward(g: Tensor, shape: Shape, offset: int, dim1: int, dim2: int) -> Tensor:
    """Zeros of `shape` with g on a diagonal."""
    out = g.new_zeros(shape)
    prims.diagonal(out, offset=offset, dim1=dim1, dim2=dim2).copy_(g)
    return out


def unfold_backward(g: Tensor, shape: Shape, dim: int, size: int, step: int) -> Tensor:
    """Overlapping windows added back where they came from."""
    if not shape:
        return g.reshape(())
    from tocha.prims.indexing import index_put

    windows = g._a.shape[dim]
    positions = step * np.arange(windows)[:, None] + np.arange(size)
    where = wrap(for_device(g.device).from_host(positions))
    order = (*range(dim + 1), g.ndim - 1, *range(dim + 1, g.ndim - 1))
    return index_put(g.new_zeros(shape), g.permute(order), where, dims=(dim,), accumulate=True)


@op("torch method")
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal, in a new last dimension (torch docs: torch.diagonal)."""
    d1, d2 = wrap_dim(dim1, input.ndim, "diagonal"), wrap_dim(dim2, input.ndim, "diagonal")
    if d1 == d2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return prims.diagonal(input, offset=check_int(offset, "diagonal", "offset"), dim1=d1, dim2=d2)


@op("method")
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size`, `step` apart, along a dimension, in a new last one (torch docs: Tensor.unfold)."""
    dim = wrap_dim(dimension, input.ndim, "unfold")
    length = input.shape[dim] if input.ndim else 1
    if size < 0 or step <= 0:
        raise RuntimeError(f"unfold: size is {size} but must be >= 0, step is {step} but must be > 0")
    if size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {length} but size is {size}")
    return prims.unfold(input, dim=dim, size=size, step=step)


@op("torch method")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """Elements start … start+length-1 of a dimension (torch docs: torch.narrow)."""
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, input.ndim, "narrow")
    if isinstance(start, Tensor) and (start.ndim or start._a.dtype.kind not in "iu"):
        raise RuntimeError("narrow: start must be an 0-dim integral Tensor.")
    start = check_int(start, "narrow", "start")
    size = input._a.shape[d]
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start += size if start < 0 else 0
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return prims.slice_(input, index=(slice(None),) * d + (slice(start, start + length),))


@op("torch method")
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of a dimension, which goes away (torch docs: torch.select)."""
    if input.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, input.ndim, "select")
    i, size = check_int(index, "select", "index"), input._a.shape[d]
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(input.shape)} at dimension {d}")
    return prims.slice_(input, index=(slice(None),) * d + (i,))


@op("torch method")
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along a dimension (torch docs: torch.unbind)."""
    if input._a.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return tuple(prims.unbind(input, dim=wrap_dim(dim, input._a.ndim, "unbind")))


@op("torch method")
def split(tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> tuple[Tensor, ...]:
    """Pieces of a size, or of given sizes, along a dimension (torch docs: torch.split)."""
    size = split_size if split_size_or_sections is None else split_size_or_sections
    if tensor._a.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, tensor._a.ndim, "split")
    n = tensor._a.shape[d]
    if isinstance(size, (tuple, list)):
        sizes = tuple(int(s) for s in size)
        if sum(sizes) != n or any(s < 0 for s in sizes):
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {d}), but got "
                f"split_sizes={list(sizes)}"
            )
    else:
        step = int(size)
        if step < 0 or (step == 0 and n):
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
        sizes = tuple(min(step, n - i) for i in range(0, n, step)) if n else (0,)
    return tuple(prims.split(tensor, sizes=sizes, dim=d))


@op("torch method")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size along a dimension, the last maybe smaller (torch docs: torch.chunk)."""
    if input._a.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = check_int(chunks, "chunk", "chunks")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = wrap_dim(dim, input._a.ndim, "chunk")
    n = input._a.shape[d]
    step = -(-n // chunks)
    if step == 0:
        return tuple(prims.split(input, sizes=(0,) * chunks, dim=d))
    return split(input, step, d)


def _arrays(tensors: Any, dim: Any, more: Any) -> list[Any] | None:
    """The arrays of few plain tensors of one type and rank, with the dimension to join them in; None for the general way."""
    if more or dim.__class__ is not int or tensors.__class__ not in (list, tuple) or not tensors or not plain(tensors[0]):
        return None
    first, arrays = tensors[0]._a, []
    if not -first.ndim <= dim < first.ndim:
        return None
    for x in tensors:
        a = x._a if x.__class__ in PLAIN else None
        if a.__class__ is not np.ndarray or a.dtype is not first.dtype or a.ndim != first.ndim or not 0 < a.size < 512:
            return None
        arrays.append(a)
    return arrays


def _joined(prim: Any, tensors: Any, found: Any, dim: int) -> Tensor:
    out = wrap(found)
    if state.grad and any(x._rg for x in tensors):
        record(prim, tensors, (out,), {"dim": dim})
    return out


def _short_cat(tensors: Any, dim: Any = 0, *more: Any) -> Tensor | None:
    arrays = _arrays(tensors, dim, more)
    try:
        found = None if arrays is None else np.concatenate(arrays, dim)
    except ValueError:
        return None  # the general way raises in words
    if arrays is None or found is None or not found.flags.c_contiguous:
        return None
    return _joined(move.cat, tensors, found, dim % found.ndim)


def _short_stack(tensors: Any, dim: Any = 0, *more: Any) -> Tensor | None:
    arrays = _arrays(tensors, dim, more)
    if arrays is None or dim < 0:
        return None
    shape = arrays[0].shape
    for a in arrays:
        if a.shape != shape:
            return None
    found = np.concatenate(arrays, dim)
    return _joined(move.stack, tensors, found.reshape((*shape[:dim], len(arrays), *shape[dim:])), dim) if found.flags.c_contiguous else None


@op("torch out", alias=("concat", "concatenate"), short=_short_cat)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along an existing dimension (torch docs: torch.cat)."""
    try:
        shapes = [x._a.shape for x in tensors] if isinstance(tensors, (list, tuple)) else []
    except AttributeError:
        shapes = []
    first = shapes[0] if shapes else ()
    if not first or first == (0,) or shapes.count(first) != len(shapes):
        d = _check_cat(tensors, dim)
    else:
        d = wrap_dim(dim, len(first), "cat")
    return move.cat(*_one_type(tensors), dim=d)


def _check_cat(tensors: Any, dim: int) -> int:
    """The wrapped dimension; TypeError, ValueError or RuntimeError unless the tensors can be joined along it."""
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"cat(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        check_tensor(x, "cat", "tensors", i)
    first = next((x for x in tensors if x._a.shape != (0,)), tensors[0])
    d = wrap_dim(dim, first.ndim, "cat")
    for i, x in enumerate(tensors):
        if x.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
        if x._a.shape == (0,):
            continue
        if x.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {x.ndim}")
        for axis, (a, b) in enumerate(zip(first._a.shape, x._a.shape, strict=True)):
            if axis != d and a != b:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size {a} but got size {b} for tensor number {i} in "
                    "the list."
                )
    return d


def _one_type(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors, cast to the type they promote to."""
    first = tensors[0]._a.dtype
    for x in tensors:
        if x._a.dtype is not first:
            kind = result_type(tensors)
            return [x if x._a.dtype is kind.np else x.to(kind) for x in tensors]
    return tensors


@op("torch out", short=_short_stack)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension (torch docs: torch.stack)."""
    if not isinstance(tensors, (tuple, list)) or not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    shape = tensors[0]._a.shape
    for i, x in enumerate(tensors):
        if check_tensor(x, "stack", "tensors", i)._a.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(x.shape)} at entry {i}"
            )
    d = wrap_dim(dim, len(shape) + 1, "stack")
    return move.stack(*_one_type(tensors), dim=d)


def _short_flatten(input: Any, start: Any = 0, end: Any = -1, *more: Any) -> Tensor | None:
    if more or start.__class__ is not int or end.__class__ is not int or not plain(input):
        return None
    shape = input._a.shape
    n = len(shape)
    start, end = start + n if start < 0 else start, end + n if end < 0 else end
    return short_view(input, *shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]) if 0 <= start < end < n else None


@op("torch method", short=_short_flatten)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start … end made one (torch docs: torch.flatten)."""
    start, end = wrap_dim(start_dim, input.ndim, "flatten"), wrap_dim(end_dim, input.ndim, "flatten")
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if input.ndim == 0:
        return reshape(input, 1)
    if start == end:
        return input
    shape = input._a.shape
    n = math.prod(shape[start : end + 1])
    wanted = (*shape[:start], n, *shape[end + 1 :])
    return reshape(input, wanted)


@op("torch method")
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as a real one with a last dimension of 2, sharing memory (torch docs: torch.view_as_real)."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return prims.view_as_real(input)


@op("torch method")
def view_as_complex(input: Tensor) -> Tensor:
    """The reverse of view_as_real; the last dimension has size 2 and stride 1 (torch docs: torch.view_as_complex)."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {input.dtype}"
        )
    if input.ndim == 0 or input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input._a.size and input._a.strides[-1] != input.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    return prims.view_as_complex(input)


@op("method", short=short_size)
def size(input: Tensor, dim: int | None = None) -> Any:
    """The shape, or one size of it."""
    if dim is None:
        return Size(input._a.shape)
    return input._a.shape[_needs_dims(dim, input, "size")]


@op("method")
def stride(input: Tensor, dim: int | None = None) -> Any:
    """Elements from one index to the next along each dimension, or along one."""
    item = input._a.dtype.itemsize
    if dim is None:
        return tuple([s // item for s in _strides(input)])
    return _strides(input)[_needs_dims(dim, input, "stride")] // item


def _strides(input: Tensor) -> Shape:
    """Byte strides; empty tensors, to which NumPy gives arbitrary ones, report row-major strides as torch does."""
    a = input._a
    if a.size == 0 and input._view is None and device_of(a).type != "meta":
        from tocha.backends.meta import contiguous_strides

        return contiguous_strides(a.shape, a.dtype.itemsize)
    return tuple(a.strides)


def _needs_dims(dim: int, input: Tensor, name: str) -> int:
    if input.ndim == 0:
        raise IndexError(f"{name}: Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, input.ndim, name)
