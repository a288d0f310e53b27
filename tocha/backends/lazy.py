"""Arrays whose conjugation or negation is still to be done: what `x.conj()` of a complex tensor and `x.conj().imag` show of x's memory.

A `Lazy` is deliberately no NumPy array: no fast path takes it, and the general path (`dispatch.bind.run`, `Pointwise.values`) makes it
real before a kernel sees it. Other code that reads one gets the right values (`__array__`), assignment to elements writes through, and
anything else raises for want of the attribute.
"""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray, WrapperArray

_GEOMETRY = frozenset(("dtype", "flags", "itemsize", "nbytes", "ndim", "offset", "shape", "size", "strides"))
_READS = frozenset(
    ("any", "all", "astype", "copy", "imag", "item", "max", "min", "ravel", "real", "reshape", "sum", "tobytes", "tolist")
)


class Lazy:
    """The elements of `raw`, conjugated if `conj` and negated if `neg`."""

    __slots__ = ("conj", "neg", "raw")

    def __init__(self, raw: Any, conj: bool, neg: bool) -> None:
        self.raw, self.conj, self.neg = raw, conj, neg

    def __getattr__(self, name: str) -> Any:
        if name in _GEOMETRY:
            return getattr(self.raw, name)
        if name in _READS:
            return getattr(resolved(self), name)
        raise AttributeError(f"a lazily conjugated or negated array has no attribute {name!r}")

    @property
    def base(self) -> Any:
        """The array whose memory this is."""
        return self.raw

    def __len__(self) -> int:
        return len(self.raw)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = resolved(self)
        return values if dtype is None else values.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        part = self.raw[key]
        return self.seen(part) if part.__class__ is self.raw.__class__ else self.applied(part)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.raw[key] = self.applied(resolved(value))

    def applied(self, values: Any) -> Any:
        """The conjugation and negation done to `values`; also what undoes them."""
        if self.conj:
            values = values.conjugate()
        return -values if self.neg else values

    def seen(self, part: Any) -> Any:
        """`part`, a view of the raw array (or a list of them), with what is pending here and there; the plain array if that cancels out."""
        if part.__class__ is list:
            return [self.seen(p) for p in part]
        inner = part.__class__ is Lazy
        raw = part.raw if inner else part
        if raw.dtype is not self.raw.dtype and (self.conj or {raw.dtype.kind, self.raw.dtype.kind} != {"f", "c"}):
            raise RuntimeError(
                "a conjugate or negative view has no view of another type: its elements are not in memory as they are. Use "
                "resolve_conj() or resolve_neg() first"
            )
        return lazy(raw, self.conj ^ (inner and part.conj), self.neg ^ (inner and part.neg))


def lazy(raw: Any, conj: bool = False, neg: bool = False) -> Any:
    """A plain array with conjugation or negation pending, or itself if neither is."""
    return Lazy(raw, conj, neg) if conj or neg else raw


def resolved(array: Any) -> Any:
    """The array itself, or one of its own memory if something was pending."""
    if array.__class__ is not Lazy:
        return array
    raw = array.raw
    if raw.__class__ is MetaArray or raw.__class__ is WrapperArray:
        return raw
    values = array.applied(raw)
    if values.__class__ is not raw.__class__:  # NumPy makes scalars of 0-d arrays
        out = raw.copy()
        out[...] = values
        return out
    return values
