"""Element types: one table, and type promotion over it.

Every other file asks this one what a dtype is, which NumPy type carries it and what two types promote to.
Names print as torch's (`torch.float32`), because programs parse them.
Source of the promotion rules: torch docs, "Tensor Attributes", section torch.dtype.
"""

from __future__ import annotations

import copyreg
import math
from typing import Any

import ml_dtypes
import numpy as np

BOOL, INTEGRAL, FLOATING, COMPLEX = range(4)


class dtype:
    """The type of a tensor's elements; each is a singleton, compared by identity."""

    __slots__ = ("alias", "category", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "np")
    name: str
    np: np.dtype[Any]
    category: int

    def __init__(self, name: str, np_type: Any, category: int, alias: str | None = None) -> None:
        self.name = name
        self.np = np.dtype(np_type)
        self.category = category
        self.alias = alias
        self.itemsize = self.np.itemsize
        self.is_floating_point = category == FLOATING
        self.is_complex = category == COMPLEX
        self.is_signed = category in (FLOATING, COMPLEX) or name.startswith("int")

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> dtype:
        return self

    def to_real(self) -> dtype:
        """The type of the real part (itself unless complex)."""
        return _REAL.get(self, self)

    def to_complex(self) -> dtype:
        """The complex type whose parts have this type."""
        return _COMPLEX_OF[self]


dtype.__module__ = "torch"

bool_ = dtype("bool", np.bool_, BOOL)
uint8 = dtype("uint8", np.uint8, INTEGRAL)
int8 = dtype("int8", np.int8, INTEGRAL)
int16 = dtype("int16", np.int16, INTEGRAL, "short")
int32 = dtype("int32", np.int32, INTEGRAL, "int")
int64 = dtype("int64", np.int64, INTEGRAL, "long")
uint16 = dtype("uint16", np.uint16, INTEGRAL)
uint32 = dtype("uint32", np.uint32, INTEGRAL)
uint64 = dtype("uint64", np.uint64, INTEGRAL)
float16 = dtype("float16", np.float16, FLOATING, "half")
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, FLOATING)
float32 = dtype("float32", np.float32, FLOATING, "float")
float64 = dtype("float64", np.float64, FLOATING, "double")
complex64 = dtype("complex64", np.complex64, COMPLEX, "cfloat")
complex128 = dtype("complex128", np.complex128, COMPLEX, "cdouble")
float8_e4m3fn = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, FLOATING)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, FLOATING)
float8_e5m2 = dtype("float8_e5m2", ml_dtypes.float8_e5m2, FLOATING)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, FLOATING)
float8_e8m0fnu = dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, FLOATING)

ALL: tuple[dtype, ...] = (
    bool_, uint8, int8, int16, int32, int64, uint16, uint32, uint64, float16, bfloat16, float32, float64,
    complex64, complex128, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu,
)  # fmt: skip
FLOAT8 = frozenset(d for d in ALL if d.name.startswith("float8"))
# Types whose arithmetic torch does in float32, rounding once at the end of an operator.
HALF = frozenset((float16, bfloat16)) | FLOAT8
BAREBONES_UNSIGNED = frozenset((uint16, uint32, uint64))

BY_NAME = {d.name: d for d in ALL} | {d.alias: d for d in ALL if d.alias}


def _named(name: str) -> dtype:
    return BY_NAME[name]


# The class goes by torch's name, under which a plain pickle would look for it.
copyreg.pickle(dtype, lambda d: (_named, (d.name,)))
FROM_NP: dict[Any, dtype] = {d.np: d for d in ALL}
HALF_NP = frozenset(d.np for d in HALF)
FLOAT8_NP = frozenset(d.np for d in FLOAT8)
FLOAT_NP = frozenset(d.np for d in ALL if d.is_floating_point)
DIFFERENTIABLE_NP = frozenset(d.np for d in ALL if d.category in (FLOATING, COMPLEX))

_REAL = {complex64: float32, complex128: float64}
_COMPLEX_OF = {
    float16: complex64, bfloat16: complex64, float32: complex64, float64: complex128,
    complex64: complex64, complex128: complex128,
}  # fmt: skip

_default = float32


def get_default_dtype() -> dtype:
    """The floating-point type that Python floats and integer division take."""
    return _default


def set_default_dtype(d: dtype) -> None:
    """Make `d` (a floating-point type) the default; TypeError otherwise."""
    global _default
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    _default = d


def from_numpy(np_dtype: Any) -> dtype:
    """The dtype that NumPy's `np_dtype` corresponds to; TypeError names those that have none."""
    found = FROM_NP.get(np_dtype)
    if found is None:
        found = FROM_NP.get(np.dtype(np_dtype).newbyteorder("="))
        if found is None:
            raise TypeError(
                f"can't convert np.ndarray of type {np_dtype}. The only supported types are: float64, float32, "
                "float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool."
            )
    return found


def of_scalar(value: Any) -> dtype:
    """The dtype a bare Python number takes when it becomes a tensor."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        return int64
    if isinstance(value, (float, np.floating)):
        return _default
    if isinstance(value, (complex, np.complexfloating)):
        return _default.to_complex()
    raise TypeError(f"expected a number, got {type(value).__name__}")


_FLOAT_ORDER = {float16: 0, bfloat16: 0, float32: 1, float64: 2}


def _promote_pair(a: dtype, b: dtype) -> dtype:
    if a in FLOAT8 or b in FLOAT8:
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {a.name} and {b.name}")
    low, high = (a, b) if a.category <= b.category else (b, a)
    if high in BAREBONES_UNSIGNED:
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {a.name} and {b.name}"
        )
    if low.category != high.category:
        if high.category == COMPLEX and low.category == FLOATING:
            return complex128 if low is float64 or high is complex128 else complex64
        return high
    if low.category == COMPLEX:
        return complex128
    if low.category == FLOATING:
        if _FLOAT_ORDER[a] == _FLOAT_ORDER[b]:
            return float32  # float16 with bfloat16: neither holds the other
        return a if _FLOAT_ORDER[a] > _FLOAT_ORDER[b] else b
    if low in BAREBONES_UNSIGNED:
        return _promote_pair(b, a)
    if uint8 in (a, b):
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    return a if a.itemsize >= b.itemsize else b


_PROMOTED: dict[tuple[dtype, dtype], dtype] = {}


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest type that holds values of both."""
    if a is b:
        return a
    found = _PROMOTED.get((a, b))
    if found is None:
        found = _PROMOTED[a, b] = _promote_pair(a, b)
    return found


def can_cast(source: dtype, target: dtype) -> bool:
    """Whether torch's rules let a result of type `source` be written into `target`."""
    if source.category == COMPLEX and target.category != COMPLEX:
        return False
    if source.category == FLOATING and target.category in (INTEGRAL, BOOL):
        return False
    return not (source.category == INTEGRAL and target is bool_)


class finfo:
    """Limits of a floating-point type (torch docs: torch.finfo)."""

    def __init__(self, type: dtype | None = None) -> None:
        d = _default if type is None else type
        if not d.is_floating_point and not d.is_complex:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d}'")
        d = d.to_real()
        info = ml_dtypes.finfo(d.np)
        self.dtype = d.name
        self.bits = int(info.bits)
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(10.0 ** -math.floor(-math.log10(float(info.eps))))

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("finfo", self.dtype))


class iinfo:
    """Limits of an integer type (torch docs: torch.iinfo)."""

    def __init__(self, type: dtype) -> None:
        if type.category != INTEGRAL:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        info = np.iinfo(type.np)
        self.dtype, self.bits = type.name, int(info.bits)
        self.min, self.max = int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("iinfo", self.dtype))
