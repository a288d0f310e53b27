"""The meta namespace: arrays with a shape, strides and a type, and no memory.

View operators run on them as on any array. Other primitives are inferred by their family's rule (tocha.prims).
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tocha.backends import cpu
from tocha.dtypes import HALF_NP

name = "meta"
_FLOAT32 = np.dtype(np.float32)


class MetaArray:
    """Geometry without data. Strides are in bytes, as NumPy's."""

    __slots__ = ("dtype", "offset", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None, offset: int = 0) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.strides = contiguous_strides(self.shape, self.dtype.itemsize) if strides is None else strides
        self.offset = offset

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def flags(self) -> _Flags:
        return _Flags(self)

    @property
    def real(self) -> MetaArray:
        kind = f"f{self.itemsize // 2}" if self.dtype.kind == "c" else self.dtype
        return MetaArray(self.shape, kind, self.strides, self.offset)

    @property
    def base(self) -> None:
        return None

    def transpose(self, axes: tuple[int, ...]) -> MetaArray:
        return MetaArray(tuple(self.shape[i] for i in axes), self.dtype, tuple(self.strides[i] for i in axes), self.offset)

    def reshape(self, shape: tuple[int, ...]) -> MetaArray:
        """Another shape of a contiguous array."""
        return MetaArray(shape, self.dtype, None, self.offset)

    def view(self, dtype: Any) -> MetaArray:
        """The same bytes as another type; the last dimension, of which elements lie side by side, scales with the item sizes."""
        kind = np.dtype(dtype)
        if not self.shape or kind.itemsize == self.itemsize:
            return MetaArray(self.shape, kind, self.strides, self.offset)
        last = self.shape[-1] * self.itemsize // kind.itemsize
        return MetaArray((*self.shape[:-1], last), kind, (*self.strides[:-1], kind.itemsize), self.offset)

    def __getitem__(self, index: Any) -> MetaArray:
        """Basic indexing: integers, slices, None and Ellipsis."""
        index = index if isinstance(index, tuple) else (index,)
        used = sum(i is not None and i is not Ellipsis for i in index)
        if used > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        if not any(i is Ellipsis for i in index):
            index = (*index, Ellipsis)
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset, 0
        for i in index:
            if i is None:
                shape.append(1)
                strides.append(0)
            elif i is Ellipsis:
                for _ in range(self.ndim - used):
                    shape.append(self.shape[axis])
                    strides.append(self.strides[axis])
                    axis += 1
            elif isinstance(i, slice):
                start, stop, step = i.indices(self.shape[axis])
                length = len(range(start, stop, step))
                offset += start * self.strides[axis] if length else 0
                shape.append(length)
                strides.append(step * self.strides[axis])
                axis += 1
            else:
                i = operator.index(i)
                if not -self.shape[axis] <= i < self.shape[axis]:
                    raise IndexError(f"index {i} is out of bounds for dimension {axis} with size {self.shape[axis]}")
                offset += (i % self.shape[axis]) * self.strides[axis]
                axis += 1
        return MetaArray(tuple(shape), self.dtype, tuple(strides), offset)

    def with_strides(self, strides: tuple[int, ...]) -> MetaArray:
        """A new array's geometry with its elements in another order."""
        return MetaArray(self.shape, self.dtype, strides)

    def astype(self, dtype: Any, copy: bool = True) -> MetaArray:
        return self if not copy and np.dtype(dtype) == self.dtype else MetaArray(self.shape, dtype)


class _Flags:
    """The flags that kernels ask an array for."""

    __slots__ = ("c_contiguous",)

    def __init__(self, a: MetaArray) -> None:
        step, self.c_contiguous = a.dtype.itemsize, True
        for n, have in zip(reversed(a.shape), reversed(a.strides), strict=True):
            self.c_contiguous = self.c_contiguous and (n == 1 or have == step)
            step *= max(n, 1)


class WrapperArray(MetaArray):
    """What a tensor holds whose data is elsewhere (a wrapper subclass): geometry, and the device it claims to be on."""

    __slots__ = ("device",)
    device: Any


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes (sizes of 0 count as 1, as in torch)."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def dense_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes without gaps, in the order of the given ones."""
    result = [0] * len(shape)
    step = itemsize
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        result[d] = step
        step *= max(shape[d], 1)
    return tuple(result)


def is_dense(a: Any) -> bool:
    """Whether the elements fill a stretch of memory, each once."""
    expected = a.dtype.itemsize
    for step, size in sorted([(s, n) for s, n in zip(a.strides, a.shape, strict=True) if n != 1]):
        if step != expected:
            return False
        expected *= size
    return True


def run_prim(prim: Any, arrays: list[Any], params: dict[str, Any]) -> tuple[MetaArray, ...]:
    """Output shapes and types without data. A primitive without a rule for them runs its kernel on zeros that take no memory."""
    if "dynamic" in prim.tags:
        raise NotImplementedError(
            f"{prim.name}: the shape of the result depends on the values of the tensors, and meta tensors have none"
        )
    if prim.infer is not None:
        got = prim.infer(*arrays, **params)
        from tocha.backends.strides import as_operands  # which is written on this module

        fresh: tuple[MetaArray, ...] = tuple([_fresh(g) for g in ((got,) if isinstance(got, MetaArray) else got)])
        return as_operands(prim.name, fresh, arrays, params)
    stand_ins = [None if a is None else stand_in(a) for a in arrays]
    half = next((a.dtype for a in stand_ins if a is not None and a.dtype in HALF_NP), None) if prim.half == "float32" else None
    if half is not None:
        stand_ins = [a.astype(_FLOAT32) if a is not None and a.dtype in HALF_NP else a for a in stand_ins]
    got = cpu.quiet.run(prim.impl, cpu, *stand_ins, **params)
    outs = []
    for g in got if isinstance(got, tuple) else (got,):
        outs.append(MetaArray(np.shape(g), half if half is not None and g.dtype is _FLOAT32 else g.dtype))
    return tuple(outs)


def _fresh(a: MetaArray) -> MetaArray:
    """New memory like `a`: a rule may answer with its operand, whose memory may be shared, or have gaps or overlaps."""
    return MetaArray(a.shape, a.dtype, a.strides if is_dense(a) else None)


def run_rule(rule: Any, operands: list[Any], given: Any, compute: Any, target: Any, params: dict[str, Any]) -> MetaArray:
    """A pointwise rule's result: the broadcast shape."""
    return MetaArray(rule.broadcast([np.shape(x) for x in operands]), target)


def restride(a: MetaArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> MetaArray:
    return MetaArray(shape, a.dtype, strides, a.offset + offset)


def empty(shape: tuple[int, ...], dtype: Any) -> MetaArray:
    return MetaArray(shape, dtype)


def stand_in(a: MetaArray) -> Any:
    """A NumPy array of the same shape and type that takes no memory: zeros with stride 0."""
    return np.broadcast_to(np.zeros((), a.dtype), a.shape)


def root(a: MetaArray) -> MetaArray:
    return a


def owns_memory(a: MetaArray) -> bool:
    return True


def memory_id(a: MetaArray) -> int:
    return id(a)


def may_share_memory(a: MetaArray, b: MetaArray) -> bool:
    return False


def data_ptr(a: MetaArray) -> int:
    return 0


def to_host(a: MetaArray) -> Any:
    raise NotImplementedError("Cannot copy out of meta tensor; no data!")


def from_host(a: Any, index: int | None = None) -> MetaArray:
    return MetaArray(a.shape, a.dtype, dense_strides(a.shape, a.strides, a.dtype.itemsize) if is_dense(a) else None)


def nonzero(a: MetaArray) -> Any:
    raise RuntimeError("indexing with a mask needs its values: the result's shape depends on them, meta has none")


def filled(shape: tuple[int, ...], dtype: Any, value: Any, index: int | None) -> MetaArray:
    return MetaArray(shape, dtype)


def made_on_host(function: Any, shape: tuple[int, ...], dtype: Any, index: int | None, *args: Any) -> MetaArray:
    return MetaArray(shape, dtype)


def overwrite(target: MetaArray, at_once: bool, function: Any, *args: Any) -> None:
    """There is nothing to fill, and no value is drawn."""


def store(target: MetaArray, value: Any) -> None:
    """There is nothing to overwrite."""


def check_rows(indices: MetaArray, name: str, rows: int) -> None:
    """There are no indices to look at."""


def check_range(index: MetaArray, size: int, dim: int, negative: bool, error: type[Exception]) -> None:
    """There are no indices to look at."""


def require(holds: MetaArray, error: type[Exception], text: str) -> None:
    """There is nothing to look at."""


def truth(condition: Any) -> bool | None:
    """Whether a condition of one element holds: unknown."""


def synchronize() -> None:
    """Nothing runs on meta."""
