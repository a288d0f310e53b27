"""Reading arguments the way torch does: dimensions, shapes, dtypes, devices. One place for their error texts."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from tocha import dtypes
from tocha.backends import namespace
from tocha.backends.shared import number
from tocha.backends.strides import settled, uneven
from tocha.device import device as Device
from tocha.device import get_default_device
from tocha.dispatch.promote import number_type
from tocha.dtypes import dtype as DType
from tocha.tensor import Tensor

Shape = tuple[int, ...]
#: A Python number, or a 0-d tensor without history: `dispatch.registry` makes it one before the operator is called.
Number = Any
_MOST = 2**63 - 1


def integer(value: Any) -> int:
    """`value` as an int if it is one of some kind; TypeError otherwise, and for bools, which torch takes for no sizes or dims."""
    if value.__class__ is bool:
        raise TypeError("a bool is not an integer")
    return operator.index(value)


def wrap_dim(dim: Any, ndim: int, name: str = "") -> int:
    """A dimension counted from 0; IndexError outside [-ndim, ndim-1] (a 0-d tensor counts as 1-d)."""
    if dim.__class__ is not int:
        try:
            dim = integer(dim)
        except TypeError:
            raise TypeError(f"{name or 'operator'}(): argument 'dim' must be int, not {type(dim).__name__}") from None
    bound = ndim or 1
    if not -bound <= dim < bound:
        if not -_MOST - 1 <= dim <= _MOST:
            raise ValueError(f"{name or 'operator'}(): Overflow when unpacking long long: dim {dim}")
        where = f"{name}: " if name else ""
        raise IndexError(f"{where}Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


def wrap_dims(dim: Any, ndim: int, name: str = "", empty_is_all: bool = True) -> Shape:
    """A tuple of distinct dimensions; None (and, for most reductions, an empty sequence) means all."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        if not dim and empty_is_all:
            return tuple(range(ndim))
        dims = tuple(wrap_dim(d, ndim, name) for d in dim)
        if len(set(dims)) != len(dims):
            raise RuntimeError(
                f"{name}: dim {next(d for d in dims if dims.count(d) > 1)} appears multiple times in the list of dims"
            )
    else:
        dims = (wrap_dim(dim, ndim, name),)
    return () if ndim == 0 else dims


def check_int(value: Any, name: str, argument: str) -> int:
    """An integer argument; TypeError for floats and whatever else is no integer."""
    try:
        return integer(value)
    except TypeError:
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}") from None


def shape_of(size: Sequence[Any], name: str = "") -> Shape:
    """Sizes given as `f(2, 3)` or `f((2, 3))`, as a tuple of ints."""
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = size[0]
    shape: list[int] = []
    for n in size:
        if n.__class__ is not int:
            try:
                n = operator.index(n) if shape else integer(n)  # torch looks closely at the first only
            except TypeError:
                kind = type(n).__name__
                raise TypeError(f"{name}(): argument 'size' must be tuple of ints, but found element of type {kind}") from None
        if n > _MOST:
            raise TypeError(f"{name}(): argument 'size' holds {n}, which doesn't fit 64 bits")
        shape.append(n)
    return tuple(shape)


def check_sizes(shape: Shape, name: str) -> Shape:
    """RuntimeError for a negative size."""
    for n in shape:
        if n < 0:
            raise RuntimeError(f"{name}: Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


def infer_size(shape: Shape, numel: int) -> Shape:
    """Replace a -1 in a wanted shape; RuntimeError if the elements don't fit."""
    known = 1
    hole = None
    for i, n in enumerate(shape):
        if n == -1:
            if hole is not None:
                raise RuntimeError("only one dimension can be inferred")
            hole = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n}")
        else:
            known *= n
    if hole is None:
        if known != numel:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return shape
    if known == 0:
        if numel == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 can be "
                "any value and is ambiguous"
            )
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    if numel % known:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return (*shape[:hole], numel // known, *shape[hole + 1 :])


def settle(out: Tensor, *operands: Tensor) -> Tensor:
    """A fresh result given the strides that torch's pointwise operators choose."""
    arrays = [x._a for x in operands]
    if out.__class__ is Tensor and out._view is None and uneven(arrays):
        out._a = settled(out._a, arrays, namespace(out._a))
    return out


def to_device(where: Any) -> Device:
    """A device argument; None means the default device."""
    return get_default_device() if where is None else Device(where)


def check_dtype(dtype: Any, name: str) -> DType | None:
    """A dtype argument: None, a dtype, or Python's bool, int, float, complex."""
    if dtype is None or isinstance(dtype, DType):
        return dtype
    python = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool_, complex: dtypes.complex128}
    if dtype in python:
        return python[dtype]
    raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")


def check_array(array: Any) -> None:
    """ValueError for a NumPy array that torch makes no tensor of: tensors have no negative or broken strides and one byte order."""
    if any(s < 0 for s in array.strides):
        fault = "At least one stride in the given numpy array is negative, and tensors with negative strides are not supported"
    elif array.itemsize and any(s % array.itemsize for s in array.strides):
        fault = "given numpy array strides not a multiple of the element byte size"
    elif not array.dtype.isnative:
        fault = "given numpy array has byte order different from the native byte order"
    else:
        return
    raise ValueError(f"{fault}. Make a copy first: array.astype(array.dtype.newbyteorder('='))")


def check_tensor(value: Any, name: str, argument: str = "input", position: int = 1) -> Tensor:
    """TypeError unless `value` is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {type(value).__name__}")
    return value


@functools.cache
def _limits(dtype: DType) -> tuple[Any, Any]:
    if dtype.category == dtypes.INTEGRAL:
        info = dtypes.iinfo(dtype)
        return info.min, info.max
    most = dtypes.finfo(dtype).max
    return -most, most


def scalar_of(value: Any, dtype: DType) -> Any:
    """A Python number as a NumPy scalar of `dtype`; RuntimeError if it doesn't fit. Infinities fit floating types,
    negative integers wrap around in unsigned ones, and everything is a bool."""
    if value.__class__ is int:
        number_type(value)  # OverflowError for what no number of 64 bits is
    np_type = dtype.np.type
    if dtype is dtypes.bool_:
        return np_type(bool(value))
    if isinstance(value, complex) and not dtype.is_complex:
        if value.imag:
            raise _overflow(value, dtype)
        value = value.real
    low, high = _limits(dtype)
    if dtype.category == dtypes.INTEGRAL:
        if low == 0 and isinstance(value, int):
            low = -high
        if not low <= value <= high:
            raise _overflow(value, dtype)
        return number(value, dtype.np)
    for part in (value.real, value.imag) if dtype.is_complex else (value,):
        if not low <= part <= high and part - part == 0:
            raise _overflow(value, dtype)
    return np_type(value if dtype.is_complex else float(value))


def check_fits(dtype: DType, *values: Any) -> None:
    """RuntimeError for a number that an operator on integers of `dtype` would cut off; floating types take all numbers."""
    if dtype.category == dtypes.INTEGRAL:
        for value in values:
            if value is not None and not isinstance(value, Tensor):
                scalar_of(value, dtype)


def _overflow(value: Any, dtype: DType) -> RuntimeError:
    return RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: {value}")
