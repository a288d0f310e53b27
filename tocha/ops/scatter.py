"""Reading and writing along a dimension at given indices: gather, scatter*, index_*, take, put."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.backends import cpu, native
from tocha.dispatch.inplace import overlaps_itself
from tocha.dispatch.overlap import check_in_place, has_history, one_memory
from tocha.dispatch.override import INTERPRETERS, PLAIN
from tocha.dispatch.prim import record
from tocha.dispatch.registry import F, op
from tocha.ops.arguments import Number, check_tensor, scalar_of, settle, wrap_dim
from tocha.ops.creation import make
from tocha.ops.indexing import INDEX_TYPES, check_broadcast, check_put, check_range, fill_of_mask, index_tensors, put, read_items
from tocha.ops.select import masked_fill, masked_fill_
from tocha.prims import indexing as prims
from tocha.prims.move import unsafe_view
from tocha.tensor import Tensor, wrap

Shape = tuple[int, ...]


def _check_index(index: Any, name: str, error: type[Exception] = RuntimeError, strict: bool = False) -> Tensor:
    check_tensor(index, name, "index", 2)
    if index._a.dtype not in INDEX_TYPES or (strict and index._a.dtype.itemsize < 8):
        if index._a.size or strict:
            raise error(f"{name}(): Expected dtype int64 for index")
        return index.long()
    return index


def _along(input: Tensor, dim: int, index: Any, src: Tensor | None, name: str) -> int:
    """The wrapped dimension, once index (and src) fit input."""
    _check_index(index, name)
    d = wrap_dim(dim, input.ndim, name)
    have, wanted = input._a.shape or (1,), index._a.shape or (1,)
    if index._a.size == 0:
        return d
    if len(have) != len(wanted):
        raise RuntimeError(f"{name}: Index tensor must have the same number of dimensions as self tensor")
    if wanted != have and any(n > h for i, (n, h) in enumerate(zip(wanted, have, strict=True)) if i != d):
        raise RuntimeError(
            f"{name}: Size does not match at some dimension: expected index {list(wanted)} to be no larger than self "
            f"{list(have)} apart from dimension {d}"
        )
    if src is not None:
        given = src._a.shape or (1,)
        if len(given) != len(wanted) or any(n > s for n, s in zip(wanted, given, strict=True)):
            raise RuntimeError(f"{name}: Expected index {list(wanted)} to be no larger than src {list(given)}")
        if src.dtype is not input.dtype:
            raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    check_range(index, have[d], d, error=RuntimeError)
    return d


def _lifted(*tensors: Tensor) -> tuple[Tensor, ...]:
    """0-d tensors as 1-d ones."""
    return tuple(t if t._a.ndim else t.reshape(1) for t in tensors)


def _restored(out: Tensor, input: Tensor) -> Tensor:
    """What `_lifted` did to the input, undone."""
    return out if out._a.shape == input._a.shape else unsafe_view(out, shape=tuple(input._a.shape))


def _short_gather(input: Any, dim: Any = None, index: Any = None, *more: Any) -> Tensor | None:
    """Of few elements, along the last dimension of a plain tensor, whose others are the index's."""
    if more or dim.__class__ is not int or input.__class__ not in PLAIN or index.__class__ is not Tensor or INTERPRETERS:
        return None
    a, i = input._a, index._a
    if not a.__class__ is i.__class__ is np.ndarray or i.dtype.char != "l" or not 0 < i.size < 512 or not a.flags.c_contiguous:
        return None
    if dim not in (-1, a.ndim - 1) or not a.ndim or a.shape[:-1] != i.shape[:-1] or i.view(np.uint64).max() >= a.shape[-1]:
        return None
    out = wrap(a.reshape(-1).take(i + _row_starts(a.shape)))
    if input._rg and state.grad:
        record(prims.gather, (input, index), (out,), {"dim": a.ndim - 1})
    return out


@functools.lru_cache(256)
def _row_starts(shape: Shape) -> Any:
    """The flat position of each row's first element, with a last dimension of size 1."""
    return np.arange(0, math.prod(shape), shape[-1]).reshape(*shape[:-1], 1)


@op("torch method strictout", short=_short_gather)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Values along a dimension at the index (torch docs: torch.gather)."""
    d = _along(input, dim, index, None, "gather")
    if index._a.size == 0:
        return prims.index(input.reshape(-1), index.long(), dims=(0,))
    if input._a.ndim and index._a.ndim:
        return prims.gather(input, index, dim=d)
    return _restored(prims.gather(*_lifted(input, index), dim=d), index)


@op("torch method")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather after broadcasting; flattened without a dimension (torch docs: torch.take_along_dim)."""
    check_tensor(indices, "take_along_dim", "indices", 2)
    if indices._a.dtype.kind not in "i":
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.name}")
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1).long())
    if input.ndim != indices.ndim:
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {input.ndim} dimensions "
            f"for input, and {indices.ndim} dimensions for indices"
        )
    d = wrap_dim(dim, input.ndim, "take_along_dim")
    from tocha.prims.pointwise import broadcast_shapes

    one = lambda s: (*s[:d], 1, *s[d + 1 :])  # noqa: E731
    shape = broadcast_shapes("take_along_dim", one(input._a.shape), one(indices._a.shape))
    spread = lambda t: t.expand((*shape[:d], t._a.shape[d], *shape[d + 1 :]))  # noqa: E731
    check_range(indices, input._a.shape[d], d, negative=True, error=RuntimeError)
    return gather(spread(input), d, spread(indices.long() % max(input._a.shape[d], 1)))


def _scatter(input: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None, name: str) -> Tensor:
    source = _source(input, index, src, name)
    d = _along(input, dim, index, source, name)
    if index._a.size == 0:
        return input.clone()
    if reduce is not None:
        kinds = {"add": "sum", "multiply": "prod"}
        if reduce not in kinds:
            raise RuntimeError("reduce argument must be either add or multiply.")
        return scatter_reduce(input, dim, index, source, kinds[reduce], include_self=True)
    lifted = _lifted(input, index, source)
    return _restored(prims.scatter(*lifted, dim=d), input)


def _source(input: Tensor, index: Tensor, src: Any, name: str) -> Tensor:
    if isinstance(src, Tensor):
        return src
    if not isinstance(src, (bool, int, float, complex, np.number, np.bool_)):
        raise TypeError(f"{name}(): argument 'src' must be Tensor or Number, not {type(src).__name__}")
    scalar_of(src, input.dtype)  # raises if it doesn't fit
    _check_index(index, name)
    return input.new_full((), src).expand(index.shape)


# ---- in place: straight into the memory of a plain tensor, nothing recorded; None for the general way


def _in_place(short: Any) -> Callable[[F], F]:
    """Gives an operator the short way of its in-place form."""

    def enter(function: F) -> F:
        function.in_place = short  # type: ignore[attr-defined]
        return function

    return enter


def _writable(input: Any, index: Any, source: Any) -> bool:
    if input.__class__ not in PLAIN or index.__class__ is not Tensor or source.__class__ is not Tensor or INTERPRETERS:
        return False
    a, i, s = input._a, index._a, source._a
    if not a.__class__ is i.__class__ is s.__class__ is np.ndarray or input._vc is UNCOUNTED or s.dtype is not a.dtype or not (a.ndim and i.size):
        return False
    if (state.grad and (source._rg or has_history(input))) or not a.flags.c_contiguous or not a.flags.writeable:
        return False
    return not one_memory(a, i) and not one_memory(a, s)


def _short_scatter(name: str, combine: str) -> Any:
    def short(input: Any, dim: Any = None, index: Any = None, src: Any = None, *more: Any) -> Tensor | None:
        if more or dim.__class__ is not int:
            return None
        if src.__class__ is float and input.__class__ is Tensor and index.__class__ is Tensor and input._a.dtype.char in "fd":
            src = wrap(np.broadcast_to(input._a.dtype.type(src), index._a.shape)) if abs(src) <= 1e38 else None
        if not _writable(input, index, src) or not input._a.ndim == index._a.ndim == src._a.ndim:
            return None
        d = _along(input, dim, index, src, name)
        source = src._a[tuple([slice(n) for n in index._a.shape])]
        if not native.indexing().combine_along(combine, input._a, index._a, d, source, True):
            state.run(prims.combine_into, cpu, combine, input._a, index._a, source, d)
        version_of(input).bump(name + "_")
        return input

    return short


def _short_slices(name: str, combine: str) -> Any:
    def short(input: Any, dim: Any = None, index: Any = None, source: Any = None, *more: Any) -> Tensor | None:
        if more or dim.__class__ is not int or not _writable(input, index, source) or index._a.ndim != 1:
            return None
        d, i = _one_index(input, dim, index, name)
        _check_slices(input, d, i, source, name)
        check_range(i, input._a.shape[d], d, error=RuntimeError if combine == "add" and input._a.ndim > 1 else IndexError)
        if not native.indexing().combine_indexed(combine, input._a, (i._a,), (d,), source._a, True):
            write = input._a.__setitem__ if combine == "put" else functools.partial(np.add.at, input._a)
            state.run(write, (slice(None),) * d + (i._a,), source._a)
        version_of(input).bump(name + "_")
        return input

    return short


@op("torch method inplace strictout")
@_in_place(_short_scatter("scatter", "put"))
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """src, or one value, written along a dimension at the index (torch docs: torch.scatter)."""
    return _scatter(input, dim, index, value if src is None else src, reduce, "scatter")


@op("torch method inplace strictout")
@_in_place(_short_scatter("scatter_add", "add"))
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """src added along a dimension at the index (torch docs: torch.scatter_add)."""
    d = _along(input, dim, index, check_tensor(src, "scatter_add", "src", 4), "scatter_add")
    if index._a.size == 0:
        return input.clone()
    return _restored(prims.scatter_add(*_lifted(input, index, src), dim=d), input)


_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@op("torch method inplace strictout")
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """src combined along a dimension at the index by sum, prod, mean, amax or amin (torch docs: torch.scatter_reduce)."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    d = _along(input, dim, index, check_tensor(src, "scatter_reduce", "src", 4), "scatter_reduce")
    kind = input._a.dtype.kind
    if (kind == "b" and reduce == "mean") or (kind == "c" and reduce in ("amax", "amin")):
        raise NotImplementedError(f"scatter_reduce: '{reduce}' is not defined for {input.dtype.name}")
    if index._a.size == 0:
        return input.clone()
    lifted = _lifted(input, index, src)
    return _restored(prims.scatter_reduce(*lifted, dim=d, reduce=reduce, include_self=include_self), input)


# ---- one index for a whole dimension


def _one_index(input: Tensor, dim: int, index: Any, name: str) -> tuple[int, Tensor]:
    of_type, of_shape = (IndexError, RuntimeError) if name == "index_fill" else (RuntimeError, IndexError)
    _check_index(index, name, of_type, name in ("index_fill", "index_copy"))
    if index._a.ndim > 1:
        raise of_shape(f"{name}(): Index is supposed to be a vector, but got a tensor of shape {list(index.shape)}")
    return wrap_dim(dim, input.ndim, name), index.reshape(1) if index._a.ndim == 0 else index


@op("torch method strictout")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices of a dimension at the given indices (torch docs: torch.index_select)."""
    d, i = _one_index(input, dim, index, "index_select")
    if input._a.ndim == 0:
        if i._a.size != 1 or int(i.item()) != 0:
            raise IndexError("index_select(): Index to scalar can have only 1 value, 0")
        return input.clone()
    check_range(i, input._a.shape[d], d, error=RuntimeError if d or not input._a.size else IndexError)
    return prims.index(input, i, dims=(d,))


def _check_slices(input: Tensor, d: int, index: Tensor, source: Tensor, name: str) -> Tensor:
    """source, if it is as long as the index along d and otherwise shaped like input."""
    if source.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): self ({input.dtype.name}) and source ({source.dtype.name}) must have the same scalar type")
    if source._a.ndim == 0 and input._a.ndim <= 1:
        source = source.reshape(1)
    have, given = input._a.shape or (1,), source._a.shape
    wanted = (*have[:d], index._a.size, *have[d + 1 :])
    if tuple(given) != wanted:
        kind = IndexError if name == "index_copy" else RuntimeError
        raise kind(
            f"{name}(): source of shape {list(given)} does not match self {list(have)} with {index._a.size} indices along dimension "
            f"{d}: {list(wanted)} is needed"
        )
    return source


def _write_slices(input: Tensor, dim: int, index: Tensor, source: Any, accumulate: bool, name: str) -> Tensor:
    d, i = _one_index(input, dim, index, name)
    value = _check_slices(input, d, i, check_tensor(source, name, "source", 4), name)
    error = RuntimeError if name == "index_add" and input._a.ndim > 1 else IndexError
    check_range(i, (input._a.shape or (1,))[d], d, error=error)
    lifted = _lifted(input)[0].contiguous()  # so the result is row-major, as in torch
    return _restored(prims.index_put(lifted, value, i, dims=(d,), accumulate=accumulate), input)


@op("torch method inplace strictout")
@_in_place(_short_slices("index_add", "add"))
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """alpha * source added to the slices at the indices (torch docs: torch.index_add)."""
    scaled = source if alpha.__class__ is int and alpha == 1 else source * _alpha(alpha, input)
    return _write_slices(input, dim, index, scaled, True, "index_add")


def _alpha(alpha: Any, input: Tensor) -> Any:
    if isinstance(alpha, float) and not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    return alpha


@op("torch method inplace strictout")
@_in_place(_short_slices("index_copy", "put"))
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Slices at the indices replaced by source's (torch docs: torch.index_copy)."""
    return _write_slices(input, dim, index, source, False, "index_copy")


@op("torch method")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Slices at the indices filled with a number or 0-d tensor (torch docs: Tensor.index_fill)."""
    out = masked_fill(input, _fill_mask(input, dim, index, value), value)
    return settle(out, input)


@op("method")
def index_fill_(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Slices at the indices filled in place (torch docs: Tensor.index_fill_)."""
    mask = _fill_mask(input, dim, index, value)
    check_in_place("index_fill_", input, (index,))
    if overlaps_itself(input):
        warnings.warn("Use of index_fill_ on expanded tensors is deprecated. Please clone() the tensor first.", stacklevel=2)
    return masked_fill_(input, mask, value)


def _fill_mask(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """The mask of the slices that index_fill fills."""
    d, i = _one_index(input, dim, index, "index_fill")
    if isinstance(value, Tensor):
        if value._a.ndim:
            raise RuntimeError(
                f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
            )
    elif isinstance(value, complex) and not input.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    shape = input._a.shape or (1,)
    check_range(i, shape[d], d, negative=True)
    chosen = make((shape[d],), dtypes.bool_, input.device, 0)
    put(chosen, (i,), (0,), wrap(np.array(True)), False, "index_fill")
    return chosen.reshape((-1,) + (1,) * (len(shape) - d - 1)) if input._a.ndim else chosen.reshape(())


@op("torch method inplace strictout")
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """source's slices combined into input's at the indices by prod, mean, amax or amin (torch docs: torch.index_reduce)."""
    if reduce not in _REDUCTIONS[1:]:
        raise RuntimeError(f"reduce argument must be either prod, mean, amax or amin, got {reduce}.")
    d, i = _one_index(input, dim, index, "index_reduce")
    source = _check_slices(input, d, i, source, "index_reduce")
    check_range(i, (input._a.shape or (1,))[d], d)
    shape = source._a.shape
    spread = i.reshape((-1,) + (1,) * (len(shape) - d - 1)).expand(shape)
    return scatter_reduce(input, dim, spread.long(), source, reduce, include_self=include_self)


# ---- index_put, take and put


def _put_operands(input: Tensor, indices: Any) -> tuple[Tensor, tuple[Tensor, ...], Shape]:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"index_put(): argument 'indices' must be tuple of Tensors, not {type(indices).__name__}")
    advanced: dict[int, Tensor] = {}
    dim = 0
    for position, i in enumerate(indices):
        if i is None:
            dim += 1
            continue
        if not isinstance(i, Tensor):
            raise TypeError(f"expected Tensor as element {position} in argument 0, but got {type(i).__name__}")
        (item,) = read_items((i,)) if not (isinstance(i, Tensor) and i._a.dtype.kind == "i") else (i,)
        taken = item.ndim if item._a.dtype.kind == "b" else 1
        if dim + taken > input.ndim:
            raise IndexError(f"too many indices for tensor of dimension {input.ndim}")
        for d, part in zip(range(dim, dim + taken), index_tensors(item, input, dim, position), strict=True):
            advanced[d] = part
        dim += taken
    if not advanced:
        raise IndexError("index_put: at least one index tensor is needed")
    tensors = tuple(advanced.values())
    check_broadcast(input, tensors, tuple(advanced))
    return input, tensors, tuple(advanced)


@op("torch method")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """values written, or added, at index tensors (None: a whole dimension) (torch docs: Tensor.index_put)."""
    seen, tensors, dims = _put_operands(input, indices)
    values = fill_of_mask(seen, tuple(indices), check_tensor(values, "index_put", "values", 3), accumulate)
    values = check_put(seen, tensors, dims, values, accumulate)
    for d, i in zip(dims, tensors, strict=True):
        check_range(i, seen._a.shape[d], d, negative=True)
    return prims.index_put(seen, values, *tensors, dims=dims, accumulate=accumulate)


@op("torch method")
def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put` in place (torch docs: Tensor.index_put_)."""
    seen, tensors, dims = _put_operands(input, indices)
    values = fill_of_mask(seen, tuple(indices), check_tensor(values, "index_put_", "values", 3), accumulate)
    return put(seen, tensors, dims, values, accumulate, "index_put_")


@op("torch method strictout")
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements at positions of the flattened input (torch docs: torch.take)."""
    if check_tensor(index, "take", "index", 2).dtype is not dtypes.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype.name}")
    if index._a.size and not input._a.size:
        raise IndexError("take(): tried to take from an empty tensor")
    flat = input.reshape(-1)
    check_range(index, flat._a.shape[0], 0, negative=True)
    return prims.index(flat, index, dims=(0,))


@op("torch method inplace", name="put")
def put_flat(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """source's elements written at positions of the flattened input (torch docs: Tensor.put_)."""
    if index.dtype is not dtypes.int64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {index.dtype.name}")
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {input.dtype.name} and "
            f"source.dtype = {source.dtype.name}"
        )
    if source._a.size != index._a.size:
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, but got {source._a.size} and {index._a.size}"
        )
    if index._a.size and not input._a.size:
        raise IndexError("put_(): tried to put elements into an empty tensor")
    check_range(index, input._a.size, 0, negative=True)
    flat = input.reshape(-1)
    return _restored(prims.index_put(flat, source.reshape(-1), index.reshape(-1), dims=(0,), accumulate=accumulate), input)


@op("torch method")
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat positions as one index for each dimension (torch docs: torch.unravel_index)."""
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if indices._a.dtype.kind not in "iu":
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    steps = prims.element_strides(sizes)
    return tuple((indices // max(s, 1)) % max(n, 1) for s, n in zip(steps, sizes, strict=True))
