"""How random values get into tensors: drawn on the host in memory order, bounds checked as torch does."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.backends import for_device, namespace
from tocha.device import device as Device
from tocha.dispatch.inplace import assign, check_writable, mutated
from tocha.dispatch.override import in_memory, stacks
from tocha.dispatch.vmap import batched, drawing, off
from tocha.dtypes import dtype as DType
from tocha.ops.creation import make
from tocha.prims.native_draws import ByKernel, Draw, straight
from tocha.prims.pointwise import _refusal
from tocha.random import Generator, engine_for
from tocha.tensor import Tensor, wrap

Shape = tuple[int, ...]
_CPP = {
    "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int",
    "int64": "long int", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "long unsigned int",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
}  # fmt: skip
_DIGITS = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def fresh(shape: Shape, dtype: DType, device: Device, generator: Generator | None, name: str, draw: Draw, *given: Any) -> Tensor:
    """A new contiguous tensor of random values; `given`: arrays that `draw` reads."""
    level = drawing(name) if stacks.interpreters else None
    if level is not None:
        with off(level):
            return batched(fresh((level.size, *shape), dtype, device, generator, name, draw, *given), level.level)
    make_it = for_device(device).made_on_host
    return wrap(state.run(make_it, _fresh_values, shape, dtype.np, device.index, device, generator, name, draw, *given))


def _fresh_values(
    shape: Shape, dtype: Any, device: Device, generator: Generator | None, name: str, draw: Draw, *given: Any
) -> Any:
    engine = engine_for(generator, device, name)
    if draw.__class__ is ByKernel and draw.into is not None:
        out = np.empty(shape, dtype)
        if out.size and draw.into(engine, out):
            return out
    return draw(engine, math.prod(shape), dtype, True, *given).reshape(shape)


def fill(
    target: Tensor, generator: Generator | None, name: str, draw: Draw, at_once: bool = False, given: tuple[Any, ...] = ()
) -> Tensor:
    """Overwrite `target` with random values; `at_once` where draws don't simply follow one another."""
    if draw.__class__ is ByKernel and straight(target, generator, name, draw):
        return target
    check_writable(target, name)
    if not in_memory(target):
        example = make(tuple(target._a.shape), target.dtype, target.device)
        return assign(target, overwrite(example, generator, name, draw, at_once, given), name)
    if stacks.interpreters and drawing(name) is not None:
        raise RuntimeError(
            f"vmap: {name}: Cannot ask for different inplace randomness on an unbatched tensor. Use the out-of-place form"
        )
    overwrite(target, generator, name, draw, at_once, given)
    mutated(target, None, name)
    return target


def overwrite(
    target: Tensor, generator: Generator | None, name: str, draw: Draw, at_once: bool = False, given: tuple[Any, ...] = ()
) -> Tensor:
    """Put random values into `target` (new memory) in memory order, as torch does, without booking a change. Returns the
    tensor to go on with: inside vmap another one, which has values of its own for each example."""
    if draw.__class__ is ByKernel and not given and straight(target, generator, name, draw, False):
        return target
    level = drawing(name) if stacks.interpreters else None
    if level is not None:
        with off(level):
            many = make((level.size, *target._a.shape), target.dtype, target.device)
            return batched(overwrite(many, generator, name, draw, at_once, given), level.level)
    array = target._a
    if array.size:
        state.run(namespace(array).overwrite, array, at_once, _values, target.device, generator, name, draw, *given)
    return target


def _values(
    count: int, dtype: Any, dense: bool, device: Device, generator: Generator | None, name: str, draw: Draw, *given: Any
) -> Any:
    return draw(engine_for(generator, device, name), count, dtype, dense, *given)


def refuse(name: str, dtype: DType) -> None:
    """NotImplementedError: torch's kernel `name` has no such type."""
    raise _refusal(name, dtype)


def require_float(name: str, dtype: DType) -> None:
    """NotImplementedError unless `dtype` is one of the four real floating-point types torch samples in."""
    if dtype not in _DIGITS:
        refuse(name, dtype)


@functools.cache
def _limits(dtype: DType) -> tuple[float, float]:
    if dtype in _DIGITS:
        info = dtypes.finfo(dtype)
        return info.min, info.max
    if dtype is dtypes.bool_:
        return 0, 1
    if dtype is dtypes.uint64:
        return 0, INT64_MAX
    whole = dtypes.iinfo(dtype)
    return whole.min, whole.max


def check_in_range(value: float, what: str, dtype: DType) -> None:
    """RuntimeError if `value` is outside what `dtype` holds."""
    low, high = _limits(dtype)
    if not low <= value <= high:
        raise RuntimeError(f"{what} is out of bounds for {_CPP[dtype.name]}")


def _warn_precision(value: int, what: str, dtype: DType) -> None:
    digits = _DIGITS.get(dtype)
    if digits is not None and abs(value) > 1 << digits:
        warnings.warn(
            f"{what} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
            f"{_CPP[dtype.name]} can support discrete uniform distribution only within this range. This "
            "warning will become an error in version 1.7 release, please fix the code in advance",
            UserWarning,
            stacklevel=6,
        )


def integer_span(low: int, high: int | None, dtype: DType) -> tuple[int, int]:
    """(first value, number of values) for random integers in [low, high); high None: up to the dtype's end.

    For floats the ends move to the nearest integers that survive the cast. RuntimeError for an empty or
    unrepresentable range.
    """
    if dtype.category == dtypes.COMPLEX or dtype in dtypes.FLOAT8:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if high is None:
        if low == INT64_MIN:
            return low, 1 << 64
        last = 1 << _DIGITS[dtype] if dtype in _DIGITS else int(_limits(dtype)[1])
        if dtype in _DIGITS:
            low = _up(low, dtype)
    else:
        if low >= high:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        if dtype in _DIGITS:
            low, high = _up(low, dtype), _down(high, dtype)
        last = high - 1
    if low > last:
        raise RuntimeError(
            f"random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={low} >= to={last + 1}"
        )
    for value, what in ((low, "from"), (last, "to - 1")):
        check_in_range(value, what, dtype)
        _warn_precision(value, what, dtype)
    return low, last - low + 1


def _cast_exactly(value: int, dtype: DType) -> float:
    with np.errstate(over="ignore"):
        wide = np.float64(value) if dtype is dtypes.float64 else np.float32(value)
        return float(wide.astype(dtype.np))


def _up(low: int, dtype: DType) -> int:
    """The first integer from `low` on that doesn't round below it."""
    near = _cast_exactly(low + 1, dtype)
    if near < low:
        return int(near) + (1 << (abs(low + 1).bit_length() - _DIGITS[dtype]))
    return low


def _down(high: int, dtype: DType) -> int:
    """The end at or below `high` whose predecessor doesn't round up to it."""
    near = _cast_exactly(high - 1, dtype)
    if high <= near < float("inf"):
        return int(near) - (1 << (abs(high - 1).bit_length() - _DIGITS[dtype]))
    return high
