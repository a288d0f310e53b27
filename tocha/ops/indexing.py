"""`x[index]` and `x[index] = value` (torch docs: "Tensor Indexing API", Python side).

Integers, slices, None and Ellipsis select a view; masks, integer tensors, lists and NumPy arrays then gather a copy
from it. Basic indexing of plain tensors, by far the most frequent, takes a path of its own.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.backends import cpu, namespace
from tocha.backends.meta import MetaArray
from tocha.backends.native import LEAST
from tocha.dispatch.inplace import assign, check_writable, fill_by_mask, mutated
from tocha.dispatch.overlap import check_in_place, one_memory
from tocha.dispatch.override import (
    FUNCTION_MODES,
    INTERPRETERS,
    OVERRIDES,
    PLAIN,
    dispatch_function,
    in_memory,
)
from tocha.dispatch.prim import record, view_of
from tocha.dispatch.registry import name_it
from tocha.dtypes import HALF_NP
from tocha.prims import indexing as prims
from tocha.prims import view
from tocha.tensor import Tensor, wrap

_ndarray = np.ndarray
_FULL = slice(None)
INDEX_TYPES, _UINT8 = frozenset((np.dtype(np.int64), np.dtype(np.int32))), np.dtype(np.uint8)
_FLOAT32, _FLOAT64, _MOST = np.dtype(np.float32), np.dtype(np.float64), float(np.finfo(np.float32).max)
_BOOL, _INT64 = np.dtype(np.bool_), np.dtype(np.int64)
_QUICK_TYPES = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.int64, np.int32, np.uint8))
_USE_ITEM = (
    "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to "
    "a number"
)


def _is_basic(index: Any) -> bool:
    """Whether NumPy reads this index as torch does, giving a view."""
    cls = index.__class__
    if cls is int or index is None or index is Ellipsis:
        return True
    if cls is slice:
        step = index.step
        return (step is None or (step.__class__ is int and step > 0)) and _plain_ends(index)
    if cls is tuple:
        ellipses = 0
        for i in index:
            cls = i.__class__
            if cls is int or i is None:
                continue
            if i is Ellipsis:
                ellipses += 1
            elif cls is not slice or not _is_basic(i):
                return False
        return ellipses < 2
    return False


def _plain_ends(index: slice) -> bool:
    start, stop = index.start, index.stop
    return (start is None or start.__class__ is int) and (stop is None or stop.__class__ is int)


def getitem(input: Tensor, index: Any) -> Tensor:
    """`input[index]`: a view for integers, slices, None and Ellipsis; a copy if masks or index tensors take part."""
    if input.__class__ in PLAIN and not FUNCTION_MODES and not INTERPRETERS and _is_basic(index):
        return _select(input, index)
    if input.__class__ in PLAIN and not (FUNCTION_MODES or INTERPRETERS):
        got, wanted = None, state.grad and input._rg
        if index.__class__ in PLAIN and not (wanted and index._a.dtype is not _INT64):
            got = _take_plain(input._a, index._a)
        elif index.__class__ is tuple and not wanted:
            got = _take_several(input._a, index)
        if got is not None:
            out = wrap(got)
            if wanted:
                record(prims.index, (input, index), (out,), {"dims": (0,)})
            return out
    if FUNCTION_MODES or OVERRIDES[input.__class__] or OVERRIDES[index.__class__]:
        return dispatch_function(Tensor.__getitem__, _getitem, (input, index), {})
    return _getitem(input, index)


def _take_plain(a: Any, index: Any) -> Any:
    """a[index] for one mask or integer index in CPU memory; None where the general way must look closer."""
    if a.__class__ is not _ndarray or index.__class__ is not _ndarray or not index.ndim:
        return None
    try:
        if index.dtype is _BOOL and index.shape == a.shape[: index.ndim]:
            return a[index]
        if index.dtype is _INT64 and a.ndim:
            return a.take(index, 0)
    except IndexError:
        pass  # the general way raises in words
    return None


def _take_several(a: Any, index: tuple[Any, ...]) -> Any:
    """a[index] for masks, integer tensors and slices (of which NumPy and torch think alike), as a contiguous array; None
    where other items take part."""
    if a.__class__ is not _ndarray:
        return None
    key = []
    for i in index:
        if i.__class__ in PLAIN:
            i = i._a
            if i.__class__ is not _ndarray or not i.ndim or (i.dtype is not _INT64 and i.dtype is not _BOOL):
                return None
        elif i.__class__ is not slice or not _is_basic(i):
            return None
        key.append(i)
    if a.size >= LEAST["index"] and not any(k.__class__ is _ndarray and k.dtype is _BOOL for k in key):
        return None  # there is a kernel
    try:
        got = a[tuple(key)]
    except IndexError:
        return None
    return got if got.flags.c_contiguous and got.base is None else np.ascontiguousarray(got)


def _put_plain(input: Tensor, key: Any, value: Any) -> bool:
    """`input[key] = value` straight in CPU memory where no history is involved; False where it isn't that simple."""
    a = input._a
    if a.__class__ is not _ndarray or 0 in a.strides or not in_memory(input) or (input._vc is UNCOUNTED and not state.inference):
        return False
    if state.grad and input._view is not None and input._view.base._rg:
        return False
    if value.__class__ in PLAIN:
        if (state.grad and (input._rg or value._rg)) or value._a.dtype is not a.dtype or value._a.__class__ is not _ndarray:
            return False
        if value._vc is not None and one_memory(value._a, a):
            return False  # views of one tensor, which may overlap
        value = value._a
    elif value.__class__ is float or value.__class__ is int:
        if (state.grad and input._rg) or a.dtype not in _QUICK_TYPES:
            return False
        if value.__class__ is float and a.dtype is not _FLOAT64 and (a.dtype is not _FLOAT32 or not -_MOST <= value <= _MOST):
            return False
    else:
        return False
    try:
        state.run(a.__setitem__, key, value)
    except (IndexError, ValueError, OverflowError):
        return False  # nothing was written; the general way raises in words
    version_of(input).bump("__setitem__")
    return True


def _select(input: Tensor, index: Any) -> Tensor:
    """Basic indexing of a plain tensor: the view primitive `slice`, without the way through `bind`."""
    a = input._a
    key = index if index.__class__ is tuple else (index,)
    if Ellipsis not in key:
        key = (*key, Ellipsis)  # without it NumPy makes scalars of single elements
    try:
        got = a[key] if None not in key else view.basic_index(namespace(a), a, key)
    except IndexError as error:
        raise _reworded(error, input, key) from None
    return view_of(input, got, view.slice_, {"index": key})


def _reworded(error: IndexError, input: Tensor, key: Any = ()) -> IndexError:
    """NumPy's message in torch's words."""
    if input._a.ndim == 0:
        slices = any(isinstance(i, slice) for i in key)
        return IndexError("slice() cannot be applied to a 0-dim tensor." if slices else _USE_ITEM)
    text = str(error)
    if text.startswith("too many indices"):
        return IndexError(f"too many indices for tensor of dimension {input._a.ndim}")
    return IndexError(text.replace("for axis", "for dimension").replace("along axis", "for dimension"))


# ---- the general case: a list of items, one or more of them masks or index tensors


def _getitem(input: Tensor, index: Any) -> Tensor:
    if isinstance(index, Tensor) and index._a.dtype.kind == "b" and index.ndim and index._a.shape == input._a.shape:
        if index._a.__class__ is input._a.__class__ and not INTERPRETERS:
            return prims.masked_select(input, index, indexed=True)  # keeps the mask, an eighth of the places' memory or less
    seen, advanced = _resolve(input, index)
    if not advanced:
        return seen
    dims = tuple(advanced)
    indices = tuple(advanced.values())
    check_broadcast(seen, indices, dims)
    try:
        return prims.index(seen, *indices, dims=dims)
    except IndexError as error:
        raise _reworded(error, seen) from None


def check_broadcast(seen: Tensor, indices: tuple[Tensor, ...], dims: tuple[int, ...]) -> None:
    """IndexError unless the index tensors broadcast among themselves; an empty dimension has no valid index."""
    try:
        shape = np.broadcast_shapes(*[tuple(i._a.shape) for i in indices])
    except ValueError:
        shapes = ", ".join(str(list(i.shape)) for i in indices)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}") from None
    for d in dims:
        if seen._a.shape[d] == 0 and 0 not in shape:
            raise IndexError(f"index is out of bounds for dimension {d} with size 0")


def _resolve(input: Tensor, index: Any) -> tuple[Tensor, dict[int, Tensor]]:
    """The view that the basic items select, and for its dimensions the index tensors that remain."""
    items = read_items(index)
    rank = input._a.ndim
    used = sum(_consumes(i) for i in items)
    if used > rank:
        raise _reworded(IndexError("too many indices"), input, items)
    key: list[Any] = []
    advanced: dict[int, Tensor] = {}
    out = source = 0  # dimension of the view, and of the input, that comes next
    expanded = False
    for position, i in enumerate(items):
        if i is None:
            key.append(None)
            out += 1
        elif i is Ellipsis:
            if not expanded:
                key.extend([_FULL] * (rank - used))
                out += rank - used
                source += rank - used
                expanded = True
        elif isinstance(i, slice):
            key.append(i)
            out += 1
            source += 1
        elif isinstance(i, int):
            key.append(i)
            source += 1
        else:
            taken = _consumes(i)
            for d, part in zip(range(out, out + max(taken, 1)), index_tensors(i, input, source, position), strict=True):
                advanced[d] = part
            key.extend([_FULL] * taken if taken else [None])
            out += max(taken, 1)
            source += taken
    if all(k is _FULL for k in key) and key:
        return input if advanced else getitem_view(input, ()), advanced
    return getitem_view(input, tuple(key)), advanced


def getitem_view(input: Tensor, key: tuple[Any, ...]) -> Tensor:
    """The view primitive with torch's error texts."""
    if Ellipsis not in key:
        key = (*key, Ellipsis)
    try:
        return view.slice_(input, index=key)
    except IndexError as error:
        raise _reworded(error, input) from None


def _consumes(item: Any) -> int:
    """How many dimensions of the input an item stands for."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, Tensor) and item._a.dtype.kind == "b":
        return item.ndim
    return 1


def read_items(index: Any) -> list[Any]:
    """An index as a list of None, Ellipsis, int, slice and tensors."""
    if isinstance(index, tuple):
        return [_item(i) for i in index]
    if isinstance(index, list) and _reads_as_tuple(index):
        warnings.warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq].",
            UserWarning,
            stacklevel=6,
        )
        return [_item(i) for i in index]
    return [_item(index)]


def _reads_as_tuple(index: list[Any]) -> bool:
    """torch's rule for lists: short ones that hold a sequence, tensor, slice, None or Ellipsis are read as tuples."""
    if len(index) >= 32:
        return False
    return any(i is None or i is Ellipsis or isinstance(i, (list, tuple, slice, Tensor, np.ndarray)) for i in index)


def _item(i: Any) -> Any:
    if i is None or i is Ellipsis or i.__class__ is int:
        return i
    if isinstance(i, slice):
        return _read_slice(i)
    if isinstance(i, Tensor):
        return _read_tensor(i)
    if isinstance(i, bool):
        return wrap(np.array(i))
    if isinstance(i, np.ndarray):
        from tocha.ops.creation import as_tensor

        found = as_tensor(i.copy() if any(s < 0 for s in i.strides) else i)
        return _read_tensor(found.long() if found.ndim and found._a.dtype.kind == "f" else found)  # as of a list of numbers
    if isinstance(i, (list, tuple, range)):
        return _read_sequence(i)
    if isinstance(i, str):
        raise TypeError("new(): invalid data type 'str'")
    if hasattr(i, "__index__") and not isinstance(i, np.bool_):
        return i.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
        f"{type(i).__name__})"
    )


def _read_slice(i: slice) -> slice:
    try:
        start, stop, step = (None if v is None else v.__index__() for v in (i.start, i.stop, i.step))
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None
    if step is not None and step <= 0:
        raise ValueError("step must be greater than zero" if step else "slice step cannot be zero")
    return slice(start, stop, step)


def _read_tensor(i: Tensor) -> Any:
    dtype = i._a.dtype
    if dtype.kind == "b":
        return i
    if dtype is _UINT8:
        warnings.warn(
            "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.", UserWarning, stacklevel=7
        )
        return i.bool()
    if i.ndim == 0 and dtype.kind in "iu" and in_memory(i):
        return int(i.item())
    if dtype not in INDEX_TYPES:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return i


def _read_sequence(i: Any) -> Tensor:
    from tocha.ops.creation import tensor

    i = list(i)
    if not i:
        return wrap(np.zeros(0, np.int64))
    found = tensor(i)
    if found._a.dtype.kind in "fc":
        found = found.long()
    return _read_tensor(found) if found.ndim else found


def index_tensors(i: Tensor, input: Tensor, source: int, position: int) -> list[Tensor]:
    """The integer index tensors that one advanced item stands for: a mask gives one for each of its dimensions."""
    if i._a.dtype.kind != "b":
        return [_to_device(i, input)]
    shape = input._a.shape[source : source + i.ndim]
    for d, (n, m) in enumerate(zip(i._a.shape, shape, strict=False)):
        if n != m:
            raise IndexError(
                f"The shape of the mask {list(i.shape)} at index {d} does not match the shape of the indexed tensor "
                f"{list(input.shape)} at index {source + d}"
            )
    found = namespace(i._a).nonzero(i._a if i.ndim else i.reshape(1)._a)
    return [_to_device(wrap(f), input) for f in found]


def _to_device(i: Tensor, input: Tensor) -> Tensor:
    return i if i._a.__class__ is input._a.__class__ else i.to(input.device)


# ---- assignment


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """`input[index] = value`, broadcast; in the tape's books an in-place change of input."""
    if FUNCTION_MODES or OVERRIDES[input.__class__] or OVERRIDES[value.__class__] or OVERRIDES[index.__class__]:
        dispatch_function(Tensor.__setitem__, _setitem, (input, index, value), {})
    else:
        _setitem(input, index, value)


def _setitem(input: Tensor, index: Any, value: Any) -> None:
    if input.__class__ in PLAIN and not INTERPRETERS:
        if index.__class__ in PLAIN:
            key = index._a
            if key.__class__ is _ndarray and key.ndim and key.dtype in (_BOOL, _INT64) and _put_plain(input, key, value):
                return
            if fill_by_mask(input, index, value, _rounded):
                return
        elif _is_basic(index) and _put_plain(input, index, value):
            return
    if input.__class__ in PLAIN and not INTERPRETERS and _is_basic(index):
        target, advanced = _select(input, index), None
    else:
        target, advanced = _resolve(input, index)
    if not advanced:
        if isinstance(value, Tensor):
            target.copy_(_spread(_drop_leading(value, target), target))
        else:
            _check_value(value, input)
            check_writable(target, "__setitem__")
            target.fill_(_rounded(value, input))
        return
    dims, indices = tuple(advanced), tuple(advanced.values())
    check_broadcast(target, indices, dims)
    _check_byte_mask(index, value)
    if isinstance(value, Tensor):
        if index is True or index is False:
            if index:
                target.copy_(_drop_leading(value, target))
            return
        value = _drop_leading(value, target)
        value = fill_of_mask(target, index, value if value.ndim else value.clone())
    else:
        _check_value(value, input)
        value = target.new_full((), value)
    put(target, indices, dims, value, False, "index_put_")


def fill_of_mask(target: Tensor, index: Any, value: Tensor, accumulate: bool = False) -> Tensor:
    """A single value that goes where one mask says is filled in, so that it may be of another type than the target."""
    if not accumulate:
        _check_byte_mask(index, value)
    if value._a.dtype is target._a.dtype or value._a.size != 1 or accumulate or (value.is_complex() and not target.is_complex()):
        return value
    tensors = [i for i in read_items(index) if isinstance(i, Tensor)]
    return value.to(target.dtype) if len(tensors) == 1 and tensors[0]._a.dtype.kind == "b" else value


def _check_byte_mask(index: Any, value: Any) -> None:
    """RuntimeError for one value that goes where a uint8 mask says, which torch leaves to masked_fill_."""
    if isinstance(value, Tensor) and value._a.size != 1:
        return
    masks = [
        i for i in (index if isinstance(index, (tuple, list)) else (index,)) if isinstance(i, (Tensor, np.ndarray)) and i.ndim
    ]
    if len(masks) == 1 and masks[0].dtype in (_UINT8, dtypes.uint8):
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype unsigned char: use mask.bool()")


def _check_value(value: Any, input: Tensor) -> None:
    if not isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        module = "numpy." if isinstance(value, np.ndarray) else ""
        raise TypeError(f"can't assign a {module}{type(value).__name__} to a {input.type()}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"Overflow when unpacking long: {value}")


def _rounded(value: Any, input: Tensor) -> Any:
    """A number for a half-precision tensor: what is too large is cast as in `to`, where fill_ would refuse it."""
    if input._a.dtype not in HALF_NP or isinstance(value, complex):
        return value
    return float(cpu.rounded(float(value), input._a.dtype))


def _spread(value: Tensor, target: Tensor) -> Tensor:
    """Of a value that broadcasts over a target it is part of, a copy: that such a value is overwritten on the way is nobody's intention."""
    return value.clone() if value._a.shape != target._a.shape and one_memory(value._a, target._a) else value


def _drop_leading(value: Tensor, target: Tensor) -> Tensor:
    """Without leading dimensions of size 1 that the target doesn't have."""
    extra = value._a.ndim - target._a.ndim
    if extra > 0 and all(n == 1 for n in value._a.shape[:extra]):
        return view.squeeze(value, dims=tuple(range(extra)))
    return value


def put(target: Tensor, indices: tuple[Tensor, ...], dims: tuple[int, ...], value: Tensor, accumulate: bool, name: str) -> Tensor:
    """`index_put_` in the tensor's memory, with history where a gradient is wanted."""
    check_writable(target, name, one_value=True)
    check_in_place(name, target, (value,), apart=True)
    value = check_put(target, indices, dims, value, accumulate)
    if (state.grad and (target._rg or value._rg)) or isinstance(target._a, MetaArray) or not in_memory(target, value, *indices):
        return assign(target, prims.index_put(target, value, *indices, dims=dims, accumulate=accumulate), name)
    xp = namespace(target._a)
    arrays = tuple(i._a for i in indices)
    if xp.may_share_memory(target._a, value._a):
        value = value.clone()
    try:
        state.run(prims.put_into, xp, target._a, value._a, arrays, dims, accumulate)
    except IndexError as error:
        raise _reworded(error, target) from None
    mutated(target, None, name)
    return target


def check_put(target: Tensor, indices: tuple[Tensor, ...], dims: tuple[int, ...], value: Tensor, accumulate: bool) -> Tensor:
    """The value for an index_put, on the target's device and without surplus leading ones; errors as torch's."""
    if value._a.dtype is not target._a.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {target.dtype.name} for the destination and "
            f"{value.dtype.name} for the source."
        )
    index_shape = np.broadcast_shapes(*[tuple(i._a.shape) for i in indices])
    shape = prims.indexed_shape(tuple(target._a.shape), index_shape, dims)
    if value._a.ndim > len(shape) and all(n == 1 for n in value._a.shape[: value._a.ndim - len(shape)]):
        value = value.reshape(value._a.shape[value._a.ndim - len(shape) :])
    have = value._a.shape
    if len(have) > len(shape) or any(n not in (1, w) for n, w in zip(reversed(have), reversed(shape), strict=False)):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing result of shape {list(shape)}"
        )
    if accumulate:
        for d, i in zip(dims, indices, strict=True):
            check_range(i, target._a.shape[d], d, negative=True)
    return value if value._a.__class__ is target._a.__class__ or value.ndim else value.to(target.device)


def check_range(index: Tensor, size: int, dim: int, negative: bool = False, error: type[Exception] = IndexError) -> None:
    """Raise if an index tensor has a value outside a dimension; a no-op where reading the values would wait for a GPU."""
    namespace(index._a).check_range(index._a, size, dim, negative, error)


name_it(getitem, "__getitem__", "Tensor")
name_it(setitem, "__setitem__", "Tensor")
Tensor.__getitem__ = getitem  # type: ignore[method-assign, assignment]
Tensor.__setitem__ = setitem  # type: ignore[method-assign, assignment]
