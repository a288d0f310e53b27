"""Tensors from data, from shapes and like others: tensor, zeros, arange, full_like, …"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.backends import cpu, for_device, namespace
from tocha.device import CPU, Size, get_default_device, preserve_format, strided
from tocha.device import device as Device
from tocha.dispatch.inplace import assign, check_writable, mutated, store
from tocha.dispatch.overlap import has_history
from tocha.dispatch.override import INTERPRETERS, PLAIN, in_memory
from tocha.dispatch.promote import SMALL
from tocha.dispatch.registry import op
from tocha.dtypes import dtype as DType
from tocha.ops.arguments import Number, check_array, check_dtype, check_sizes, scalar_of, settle, shape_of, to_device
from tocha.tensor import Tensor, wrap, wrap_as

Shape = tuple[int, ...]


def make(shape: Shape, dtype: DType, device: Device, fill: Any = None) -> Tensor:
    """A new contiguous tensor; `fill` None leaves it uninitialised."""
    if fill is not None and (fill or fill.__class__ is not int):
        too_large_is_inf = dtype in dtypes.HALF and not isinstance(fill, complex)
        fill = cpu.rounded(float(fill), dtype.np) if too_large_is_inf else scalar_of(fill, dtype)
    try:
        return wrap(for_device(device).filled(shape, dtype.np, fill, device.index))
    except ValueError:
        if math.prod(shape) * dtype.itemsize < 1 << 63:
            raise
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}") from None


def options(dtype: Any, device: Any, layout: Any, name: str) -> tuple[DType, Device]:
    if layout not in (None, strided):
        raise RuntimeError(f"{name}: only torch.strided layout is supported, got {layout}")
    return check_dtype(dtype, name) or dtypes.get_default_dtype(), to_device(device)


def with_grad(out: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        out.requires_grad = True
    return out


def _factory(name: str, fill: Any, doc: str) -> Any:
    def make_it(
        *size: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        pin_memory: bool = False, memory_format: Any = None, names: Any = None, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        if "size" in kwargs:
            size = (kwargs.pop("size"),)
        if kwargs:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if not size:
            raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
        shape = check_sizes(shape_of(size, name), name)
        return with_grad(make(shape, *options(dtype, device, layout, name), fill), requires_grad)

    def short(*size: Any) -> Tensor | None:
        shape = size[0] if len(size) == 1 and size[0].__class__ in (tuple, list, Size) else size
        return _filled(tuple(shape), dtypes.get_default_dtype().np, fill) if size and plain_sizes(shape) else None

    return op("torch typedout", name=name, short=short, doc=doc)(make_it)


def plain_sizes(size: Any) -> bool:
    """Whether these are sizes of a tensor on the CPU that no interpreter is to see: whole numbers."""
    for n in size:
        if n.__class__ is not int or n < 0:
            return False
    return get_default_device() is CPU and not INTERPRETERS


def _filled(shape: Shape, np_dtype: Any, fill: Any) -> Tensor | None:
    try:
        return wrap(for_device(CPU).filled(shape, np_dtype, fill, None))
    except ValueError:
        return None  # the general way raises in words


empty = _factory("empty", None, "An uninitialised tensor (torch docs: torch.empty).")
zeros = _factory("zeros", 0, "A tensor of zeros (torch docs: torch.zeros).")
ones = _factory("ones", 1, "A tensor of ones (torch docs: torch.ones).")


@op("torch typedout")
def full(
    size: Any, fill_value: Number, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor filled with one value, whose type it takes unless dtype is given (torch docs: torch.full)."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    found, where = options(dtype or dtypes.of_scalar(fill_value), device, layout, "full")
    return with_grad(make(check_sizes(shape_of((size,), "full"), "full"), found, where, fill_value), requires_grad)


def _like(name: str, fill: Any, doc: str) -> Any:
    def make_it(
        input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        memory_format: Any = preserve_format, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        return full_like(
            input, fill, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad, memory_format=memory_format
        )

    def short(input: Any, *more: Any) -> Tensor | None:
        if more or input.__class__ not in PLAIN or input._a.__class__ is not np.ndarray or INTERPRETERS or not input._a.flags.c_contiguous:
            return None
        return _filled(input._a.shape, input._a.dtype, fill)

    return op("torch", name=name, short=short, doc=doc)(make_it)


@op("torch")
def full_like(
    input: Tensor, fill_value: Number, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = preserve_format, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of input's shape, type, device and order of strides, filled (torch docs: torch.full_like)."""
    where = input.device if device is None else Device(device)
    shape, order = input._a.shape, _stride_order(input, memory_format)
    out = make(tuple(shape[i] for i in order), check_dtype(dtype, "full_like") or input.dtype, where, fill_value)
    if order != tuple(range(len(shape))):
        inverse = tuple(int(i) for i in np.argsort(order))
        out = wrap(out._a.transpose(inverse))
    return with_grad(settle(out, input) if memory_format is preserve_format else out, requires_grad)


def _stride_order(input: Tensor, memory_format: Any) -> Shape:
    """Dimensions from the outermost in memory to the innermost, as the new tensor shall have them."""
    n = input.ndim
    if memory_format is preserve_format:
        strides = input._a.strides
        if 0 in strides or n < 2:
            return tuple(range(n))
        return tuple(sorted(range(n), key=lambda i: -strides[i]))
    if memory_format.name.startswith("channels_last"):
        return (0, *range(2, n), 1)
    return tuple(range(n))


empty_like = _like("empty_like", None, "Uninitialised, like another tensor (torch docs: torch.empty_like).")
zeros_like = _like("zeros_like", 0, "Zeros, like another tensor (torch docs: torch.zeros_like).")
ones_like = _like("ones_like", 1, "Ones, like another tensor (torch docs: torch.ones_like).")


def _new(name: str, fill: Any) -> None:
    def method(
        input: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None,
        pin_memory: bool = False, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        size = (kwargs.pop("size"),) if "size" in kwargs else size
        shape = check_sizes(shape_of(size, name), name)
        found = check_dtype(dtype, name) or input.dtype
        return with_grad(make(shape, found, input.device if device is None else Device(device), fill), requires_grad)

    def short(input: Any, *size: Any) -> Tensor | None:
        shape = size[0] if len(size) == 1 and size[0].__class__ in (tuple, list, Size) else size
        if input.__class__ not in PLAIN or input._a.__class__ is not np.ndarray or not (size and plain_sizes(shape)):
            return None
        return _filled(tuple(shape), input._a.dtype, fill)

    op("method", name=name, short=short, doc=f"A new tensor of input's type and device (torch docs: Tensor.{name}).")(method)


_new("new_empty", None)
_new("new_zeros", 0)
_new("new_ones", 1)


@op("method")
def new_full(
    input: Tensor, size: Any, fill_value: Number, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    layout: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A new filled tensor of input's type and device (torch docs: Tensor.new_full)."""
    where = input.device if device is None else device
    return full(size, fill_value, dtype=dtype or input.dtype, device=where, requires_grad=requires_grad)


@op("method")
def new_tensor(input: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor from data, of input's type and device (torch docs: Tensor.new_tensor)."""
    return tensor(
        data, dtype=dtype or input.dtype, device=input.device if device is None else device, requires_grad=requires_grad
    )


# ---- from data


_PLAIN_LISTS = {frozenset((float,)): dtypes.float32, frozenset((int,)): dtypes.int64, frozenset((bool,)): dtypes.bool_}


def _short_tensor(data: Any) -> Tensor | None:
    """Of one number, or a list of numbers of one kind, on the CPU."""
    found = _PLAIN_LISTS.get(frozenset(map(type, data)) if data.__class__ is list else frozenset((data.__class__,)))
    if found is None or get_default_device() is not CPU or (found is dtypes.float32 and dtypes.get_default_dtype() is not found):
        return None
    try:
        return wrap(state.run(np.array, data, found.np))
    except OverflowError:
        return None


@op("torch", short=_short_tensor)
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A new leaf tensor with a copy of the data: numbers, nested sequences, arrays, tensors (torch docs: torch.tensor)."""
    array, found = _to_array(data, check_dtype(dtype, "tensor"))
    where = _device_of_data(data, device)
    if array.dtype is not found.np:
        out = wrap(cpu.converted(np.asarray(array), found.np))
    else:
        out = wrap(np.array(array) if array is data else array)
    if where.type != "cpu":
        out = out.to(where)
    return with_grad(out, requires_grad)


def _device_of_data(data: Any, device: Any) -> Device:
    if device is None and isinstance(data, Tensor):
        return data.device
    return to_device(device)


def _to_array(data: Any, dtype: DType | None) -> tuple[Any, DType]:
    """A NumPy array with the data (maybe sharing memory) and the dtype the tensor shall have."""
    if isinstance(data, Tensor):
        return data.detach().cpu()._a.copy(), dtype or data.dtype
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        check_array(array)
        return array, dtype or dtypes.from_numpy(array.dtype)
    if isinstance(data, (bool, int, float, complex)):
        found = dtype or dtypes.of_scalar(data)
        return _cast_array(data, found, (data,)), found
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if (hasattr(data, "__array__") or hasattr(data, "__array_interface__")) and not isinstance(data, (list, tuple)):
        array = np.asarray(data)
        return array, dtype or dtypes.from_numpy(array.dtype)
    return _from_sequence(data, dtype)


def _from_sequence(data: Any, dtype: DType | None) -> tuple[Any, DType]:
    quick = _plain_numbers(data, dtype)
    if quick is not None:
        return quick
    leaves: list[Any] = []
    shape = _shape_of_nested(data, leaves)
    found = dtype or _promote_leaves(leaves)
    flat = [x.item() if isinstance(x, (Tensor, np.ndarray, np.generic)) else x for x in leaves]
    return _cast_array(flat, found, flat).reshape(shape), found


_PYTHON_NUMBERS = {int, float, bool}
_SEQUENCES = {list, tuple}


def _leaf_types(data: Any) -> set[type]:
    types = set(map(type, data))
    if types and types <= _SEQUENCES:
        return set().union(*map(_leaf_types, data))
    return types


def _is_flat(data: Any) -> bool:
    """Whether a sequence holds arrays of one shape (and no sequences of arrays)."""
    return all(isinstance(a, np.ndarray) and a.ndim and a.shape == data[0].shape for a in data)


def _plain_numbers(data: Any, dtype: DType | None) -> tuple[Any, DType] | None:
    """NumPy's quick way where nested lists hold nothing but Python numbers, or arrays of one kind, and the type needs no
    care; else None."""
    if type(data) not in _SEQUENCES or not data:
        return None
    types = _leaf_types(data)
    if types == {np.ndarray} and len({a.dtype for a in data if isinstance(a, np.ndarray)}) == 1 and _is_flat(data):
        found = dtype or dtypes.from_numpy(data[0].dtype)
        return np.stack(data).astype(found.np, copy=False), found
    if not types <= _PYTHON_NUMBERS:
        return None
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        return None  # ragged: the careful way says where
    kind = array.dtype.kind
    if not array.size or array.dtype.name not in ("int64", "float64", "bool"):
        return None
    found = dtype or {"i": dtypes.int64, "b": dtypes.bool_}.get(kind, dtypes.get_default_dtype())
    if found.category == dtypes.INTEGRAL and (kind == "f" or found is not dtypes.int64):
        return None
    with np.errstate(all="ignore"):
        return cpu.cast(array, found.np), found


def _cast_array(values: Any, found: DType, leaves: Sequence[Any]) -> Any:
    target = found.np
    if found.category == dtypes.INTEGRAL:
        try:
            return np.array([math.trunc(x) if isinstance(x, float) else x for x in leaves], target).reshape(np.shape(values))
        except (OverflowError, ValueError) as error:
            if any(isinstance(x, float) for x in leaves):
                raise RuntimeError(f"value cannot be converted to type {found.name} without overflow: {error}") from error
            most = dtypes.iinfo(found).max
            if dtypes.iinfo(found).min == 0 and all(
                isinstance(x, int) and -most <= x <= most for x in leaves
            ):  # negative numbers wrap around
                return np.array([int(x) & most for x in leaves], target).reshape(np.shape(values))
            if all(-(2**63) <= x < 2**64 for x in leaves) and found is not dtypes.int64:
                raise RuntimeError(f"value cannot be converted to type {found.name} without overflow") from error
            if found is dtypes.uint64:
                raise
            raise ValueError(f"Overflow when unpacking long long: {error}") from error
    if found in dtypes.HALF:
        return cpu.cast(np.array(values, np.float32), target)
    try:
        return np.array(values, target)
    except (TypeError, ValueError) as error:
        bad = next((type(x).__name__ for x in leaves if not isinstance(x, (bool, int, float, complex, np.generic))), "complex")
        raise TypeError(f"tensor(): can't make a {found} tensor of element type '{bad}'") from error


def _shape_of_nested(data: Any, leaves: list[Any]) -> Shape:
    """Collect the leaves of nested sequences and return their shape, read off the first of each; ValueError or TypeError
    if the others don't have it."""
    shape: list[int] = []
    inner = data
    while _is_nested(inner, first=True) and not isinstance(inner, Tensor):  # a tensor in first place is taken for a number
        if isinstance(inner, np.ndarray):
            shape.extend(inner.shape)
            break
        shape.append(len(inner))
        if not len(inner):
            break
        inner = inner[0]
    _collect(data, 0, shape, leaves)
    return tuple(shape)


def _is_nested(data: Any, first: bool = False) -> bool:
    if isinstance(data, (Tensor, np.ndarray)):
        return data.ndim > 0
    if isinstance(data, (str, bytes)):
        if not first:
            raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
        raise ValueError(f"too many dimensions '{type(data).__name__}'")
    if isinstance(data, (dict, set)) or data is None:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, np.generic)


def _collect(data: Any, dim: int, shape: list[int], leaves: list[Any]) -> None:
    if dim == len(shape):
        if isinstance(data, Tensor):
            if data._a.size != 1:
                raise ValueError("only one element tensors can be converted to Python scalars")
        elif _is_nested(data):
            raise TypeError(f"'{type(data).__name__}' object cannot be interpreted as a number, as its neighbours are")
        numbers = (bool, int, float, complex, Tensor, np.generic, np.ndarray)
        leaves.append(data if isinstance(data, numbers) else _as_number(data))
        return
    if not _is_nested(data):
        raise TypeError(f"not a sequence: {type(data).__name__} at dim {dim}, where its neighbours are sequences")
    if len(data) != shape[dim]:
        raise ValueError(f"expected sequence of length {shape[dim]} at dim {dim} (got {len(data)})")
    if isinstance(data, (Tensor, np.ndarray)) and tuple(data.shape) == tuple(shape[dim:]):
        leaves.extend((data.detach().cpu()._a if isinstance(data, Tensor) else data).reshape(-1))  # scalars that know their type
        return
    for i in range(len(data)):
        _collect(data[i], dim + 1, shape, leaves)


def _as_number(data: Any) -> Any:
    if hasattr(data, "__index__"):
        return data.__index__()
    if hasattr(data, "__float__"):
        return float(data)
    raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def _promote_leaves(leaves: list[Any]) -> DType:
    found: DType | None = None
    for x in leaves:
        if isinstance(x, Tensor):
            d = x.dtype
        elif isinstance(x, (np.generic, np.ndarray)):
            d = dtypes.from_numpy(x.dtype)
        else:
            d = dtypes.of_scalar(x)
        found = d if found is None else dtypes.promote_types(found, d)
    return found or dtypes.get_default_dtype()


@op("torch")
def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor on an array, sequence or number, or on the bytes of an object with the buffer protocol (torch docs:
    torch.asarray)."""
    if isinstance(obj, (Tensor, np.ndarray, np.generic)) or hasattr(obj, "__array_interface__") or not _is_buffer(obj):
        return as_tensor(obj, dtype, device, copy=copy, requires_grad=requires_grad)
    from tocha.ops.convert import frombuffer

    out = frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())
    out = (out.clone() if copy else out).to(to_device(device))
    if copy is False and not out.is_cpu:
        raise ValueError(f"asarray: can't alias data of type {type(obj).__name__} on {out.device} without copying")
    return out.requires_grad_() if requires_grad else out


def _is_buffer(obj: Any) -> bool:
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


@op("torch")
def as_tensor(
    data: Any, dtype: Any = None, device: Any = None, *, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor on the data, sharing memory if it can (torch docs: torch.as_tensor)."""
    if isinstance(data, Tensor):
        out = data if device is None and dtype is None else data.to(device=device or data.device, dtype=dtype or data.dtype)
        out = out.detach().clone() if copy and out is data else out
    elif (isinstance(data, np.ndarray) or hasattr(data, "__array_interface__")) and not isinstance(data, np.generic) and not copy:
        from tocha.ops.convert import from_numpy

        out = from_numpy(np.asarray(data))
        out = out.to(device=to_device(device), dtype=dtype or out.dtype)
    elif hasattr(data, "__dlpack__") and not isinstance(data, np.generic) and not copy:
        from tocha.ops.convert import from_dlpack

        out = from_dlpack(data).to(device=to_device(device), dtype=dtype)
    else:
        out = tensor(data, dtype=dtype, device=device)
    if copy is False and not _shares(out, data):
        raise ValueError(f"asarray: can't alias data of type {type(data).__name__} as {out.dtype} without copying")
    return out.requires_grad_() if requires_grad else out


def _shares(out: Tensor, data: Any) -> bool:
    if isinstance(data, Tensor):
        return out._a is data._a
    return out.is_cpu and isinstance(data, np.ndarray) and np.may_share_memory(out._a, data)


@op("torch")
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **unused: Any) -> Tensor:
    """A 0-d tensor of the default type."""
    return tensor(s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


def legacy_tensor(cls: type, *args: Any, device: Any = None, dtype: DType | None = None) -> Any:
    """`torch.Tensor(2, 3)` (uninitialised), `torch.Tensor([1, 2])`, `torch.Tensor(other)`."""
    found = dtype or dtypes.get_default_dtype()
    if not args:
        out = make((0,), found, to_device(device))
    elif len(args) == 1 and isinstance(args[0], Tensor):
        out = args[0].detach()
        if dtype is not None and out.dtype is not dtype:
            raise TypeError(f"new(): expected a tensor of {dtype} (got one of {out.dtype})")
    elif all(isinstance(a, (int, np.integer)) and not isinstance(a, bool) for a in args) or isinstance(args[0], Size):
        out = make(check_sizes(shape_of(args, "new"), "new"), found, to_device(device))
    elif len(args) == 1:
        if not hasattr(args[0], "__getitem__") or isinstance(args[0], (dict, np.generic)):
            raise TypeError(f"new(): data must be a sequence (got {type(args[0]).__name__})")
        out = tensor(args[0], dtype=found, device=device)
    else:
        raise TypeError(f"new() received an invalid combination of arguments - got ({', '.join(type(a).__name__ for a in args)})")
    return wrap_as(cls, out._a)


def from_host(values: Any, dtype: DType, device: Any) -> Tensor:
    """A tensor of a type and on a device from a new NumPy array, whose memory it may take."""
    where = to_device(device)
    with np.errstate(all="ignore"):
        array = values.astype(dtype.np, copy=False)
    return wrap(for_device(where).from_host(array, where.index))


# ---- filling in place


def _short_fill(input: Any, value: Any = None, *more: Any, name: str = "fill_") -> Tensor | None:
    """A float tensor in CPU memory, a number, nothing recorded; None for the rest."""
    if more or input.__class__ is not Tensor or INTERPRETERS or (state.grad and has_history(input)) or input._vc is UNCOUNTED:
        return None
    a = input._a
    if a.__class__ is not np.ndarray or a.dtype.char not in "fd" or (value.__class__ is not int and value.__class__ is not float):
        return None
    if not -SMALL <= value <= SMALL:
        return None
    cpu.fill(a, value)
    version_of(input).bump(name)
    return input


@op("method torch", short=lambda input, *more: None if more else _short_fill(input, 0, name="zero_"))
def zero_(input: Tensor) -> Tensor:
    """Set every element to 0 (torch docs: Tensor.zero_)."""
    return _fill(input, 0, "zero_")


@op("method torch", short=_short_fill)
def fill_(input: Tensor, value: Any) -> Tensor:
    """Set every element to a number or 0-d tensor (torch docs: Tensor.fill_)."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        if value._rg or value._a.__class__ is not np.ndarray:
            return input.copy_(value.expand(input.shape))
        return _fill(input, value.item(), "fill_")
    return _fill(input, value, "fill_")


def _fill(input: Tensor, value: Any, name: str) -> Tensor:
    check_writable(input, name, one_value=True)
    number = scalar_of(value, input.dtype)
    if not in_memory(input):
        return assign(input, make(input._a.shape, input.dtype, input.device, number), name)
    if input._a.__class__ is np.ndarray:
        cpu.fill(input._a, number)
    else:
        store(input._a, number)
    mutated(input, None, name)
    return input


@op("torch out")
def fill(input: Tensor, value: Any) -> Tensor:
    """A copy with every element set to a number or 0-d tensor (torch docs: torch.fill)."""
    return fill_(input.clone(), value)


# ---- geometry given


@op("torch")
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """An uninitialised tensor with given strides (torch docs: torch.empty_strided)."""
    shape, steps = check_sizes(tuple(size), "empty_strided"), tuple(stride)
    if len(shape) != len(steps):
        raise RuntimeError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})")
    if any(n < 0 for n in steps):
        raise RuntimeError(f"empty_strided: strides must not be negative, got {list(steps)} for sizes {list(shape)}")
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    flat = make((count,), *options(dtype, device, layout, "empty_strided"))
    item = flat.itemsize
    out = wrap(namespace(flat._a).restride(flat._a, shape, tuple(s * item for s in steps)))
    return with_grad(out, requires_grad)


@op("method")
def new_empty_strided(
    input: Tensor, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    layout: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`empty_strided` of input's type and device (torch docs: Tensor.new_empty_strided)."""
    where = input.device if device is None else device
    return empty_strided(size, stride, dtype=dtype or input.dtype, device=where, requires_grad=requires_grad)


@op("torch")
def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """An uninitialised tensor whose dimensions lie in memory in a given order (torch docs: torch.empty_permuted)."""
    shape, order = check_sizes(tuple(size), "empty_permuted"), tuple(physical_layout)
    if len(order) != len(shape) or sorted(order) != list(range(len(shape))):
        raise RuntimeError(
            f"empty_permuted: physical_layout {list(order)} must name each of the {len(shape)} dimensions of {list(shape)} once"
        )
    dense = make(tuple(shape[d] for d in order), *options(dtype, device, layout, "empty_permuted"))
    return with_grad(wrap(dense._a.transpose(tuple(order.index(d) for d in range(len(shape))))), requires_grad)
