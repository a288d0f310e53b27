"""The pointwise family: one scalar rule makes an operator.

    pointwise("exp", lambda o, x: o.exp(x), vjp=lambda g, out: g * out, promote="float")

is the whole of exp: function, method, exp_, out=, promotion, broadcasting, gradient, meta, vmap and its tests. The rule is written against a
handler `o` (a NumPy-like namespace, or the native compiler's symbols), so that tiers can't disagree. Pointwise primitives promote and
broadcast themselves, in this family rule: separate casts and expands would cost a microsecond and a tape node each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.backends import cpu, namespace, native
from tocha.backends.lazy import Lazy
from tocha.backends.strides import settled, uneven
from tocha.dispatch import override
from tocha.dispatch.bind import one_device, unusual
from tocha.dispatch.override import INTERPRETERS
from tocha.dispatch.prim import Prim, record
from tocha.dispatch.promote import REAL_NP, common_dtype
from tocha.dispatch.registry import add_spellings
from tocha.dtypes import HALF, dtype
from tocha.tensor import Tensor, wrap

_ndarray, _asarray, _new = np.ndarray, np.asarray, object.__new__
_FLOAT32 = np.dtype(np.float32)
_ARITHMETIC_NP = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
_COMPLEX_NP = _ARITHMETIC_NP - REAL_NP
BOOL_NP = np.dtype(np.bool_)
_INTEGER_NP = frozenset(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8))
NUMBERS = (bool, int, float, complex, np.number, np.bool_)
ALL: dict[str, Pointwise] = {}


class Pointwise(Prim):
    """A pointwise primitive. `promote`: 'same' or 'float'; `output`: 'same', 'bool' or 'real' (of the computed type).

    `refuse`: types ('bool', 'complex', 'float', 'integral') it isn't defined for. `numbers`: which of two operands may be
    Python numbers ('all': even both at once, 'both': either, 'second', 'none'). `direct`: types on which `eager`, the rule as
    one function of arrays, gives torch's result without promotion; `alike`: types that the rule itself needn't promote.
    """

    def __init__(
        self, name: str, scalar: Callable[..., Any], vjp: Any, promote: str, output: str, refuse: tuple[str, ...],
        domain: tuple[float, float], numbers: str = "both",
    ) -> None:  # fmt: skip
        super().__init__(name, "pointwise", scalar, vjp)
        self.scalar, self.promote, self.output, self.fit, self.domain = scalar, promote, output, True, domain
        self.refuse, self.scaled, self.numbers = refuse, False, numbers
        if not callable(vjp) and vjp is not None and len(vjp) != len(self.arguments):
            raise TypeError(f"{name}: {len(vjp)} gradient rules for {len(self.arguments)} arguments")
        self.ufunc = _single_ufunc(scalar, len(self.arguments))
        self.eager = self.ufunc or _eager(scalar, output)
        self.direct = _direct_types(self.ufunc is not None, promote, output, refuse) if not self.parameters else frozenset[Any]()
        self.alike = _direct_types(False, promote, output, refuse)
        self.native_kind = native.kind_of(self.ufunc)
        self.native_least = native.LEAST[self.native_kind]
        ALL[name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Values and history for tensors and Python numbers in any mix."""
        if INTERPRETERS:
            return override.dispatch_prim(self, args, params)
        arrays, found, wanted = [], None, False
        for a in args:  # CPU tensors of one float type have nothing to promote
            if a.__class__ is not Tensor:
                break
            x = a._a
            if x.__class__ is not _ndarray or (x.dtype is not found and (found is not None or x.dtype not in self.alike)):
                break
            found = x.dtype
            arrays.append(x)
            if a._rg:
                wanted = True
        else:
            return self._plain_alike(args, arrays, params, found, wanted)
        if unusual(args):
            return override.dispatch_prim(self, args, params)
        return self.plain(args, params)

    def _plain_alike(self, args: tuple[Any, ...], arrays: list[Any], params: dict[str, Any], found: Any, wanted: bool) -> Tensor:
        least = self.native_least
        large = arrays[0].size >= least or arrays[-1].size >= least or (len(arrays) == 3 and arrays[1].size >= least)
        got = self.by_kernel(arrays, found, BOOL_NP if self.output == "bool" else found, params) if large else None
        try:
            got = state.run(self.impl, cpu, *arrays, **params) if got is None else got
        except ValueError:
            self.broadcast([a.shape for a in arrays])  # raises torch's error if shapes are at fault
            raise
        if got.__class__ is not _ndarray or got.dtype is not found or got is arrays[0] or got is arrays[-1]:
            got = cpu.own_array(got, arrays, dtypes.bool_.np if self.output == "bool" else found)
        for x in arrays:
            if not x.flags.c_contiguous:
                if uneven(arrays):
                    got = settled(got, arrays, cpu)
                break
        out = wrap(got)
        if wanted and state.grad and self.vjp is not None and self.output != "bool":
            record(self, args, (out,), params)
        return out

    def plain(self, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The call on tensors that hold arrays."""
        out = wrap(self.values(args, params))
        if state.grad and self.vjp is not None and out._a.dtype.kind not in "biu":
            for a in args:
                if isinstance(a, Tensor) and a._rg:
                    record(self, args, (out,), params)
                    break
        return out

    def values(self, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The result as an array: promote, compute (half precision in float32), round once."""
        compute = self.compute_dtype(args)
        target = self.result_dtype(compute).np
        arrays = [a._a if isinstance(a, Tensor) else a.item() if isinstance(a, np.generic) else a for a in args]
        first = next(a for a in arrays if hasattr(a, "strides"))
        if any(hasattr(a, "strides") and (a.__class__ is not first.__class__ or a.__class__ is Lazy) for a in arrays):
            tensors = one_device(self, [a for a in arrays if hasattr(a, "strides")])
            arrays = [tensors.pop(0) if hasattr(a, "strides") else a for a in arrays]
            first = next(a for a in arrays if hasattr(a, "strides"))
        inner = _FLOAT32 if compute in HALF and self.half == "float32" else compute.np
        xp = namespace(first)
        got = xp.run_rule(self, arrays, compute.np, inner, target, params)
        return settled(got, arrays, xp, compute.np) if uneven(arrays) else got

    def by_kernel(self, operands: list[Any], inner: Any, target: Any, params: dict[str, Any], into: Any = None) -> Any:
        """The result of a native kernel, None if NumPy is to compute it."""
        return native.pointwise(self, operands, inner, target, params, self.broadcast, self.native_kind, into)

    def compute_dtype(self, args: tuple[Any, ...]) -> dtype:
        """The type the rule computes in; NotImplementedError/RuntimeError where it isn't defined."""
        compute = common_dtype(args, self.promote)
        if self.refuse:
            if self.name == "sub" and any(_is_bool(a) for a in args):
                raise _refusal(self.name, dtypes.bool_)
            for kind in self.refuse:
                category = {"bool": dtypes.BOOL, "complex": dtypes.COMPLEX, "float": dtypes.FLOATING, "integral": dtypes.INTEGRAL}
                if compute.category == category[kind]:
                    raise _refusal(self.name, compute)
        return compute

    def result_dtype(self, compute: dtype) -> dtype:
        if self.output == "bool":
            return dtypes.bool_
        return compute.to_real() if self.output == "real" else compute

    def broadcast(self, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
        return broadcast_shapes(self.name, *shapes)


def _is_bool(operand: Any) -> bool:
    return operand._a.dtype is BOOL_NP if isinstance(operand, Tensor) else isinstance(operand, (bool, np.bool_))


def _refusal(name: str, compute: dtype) -> Exception:
    if name == "sub":
        return RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        )
    if name in ("neg", "sign", "signbit", "heaviside") or (name == "relu" and compute is dtypes.bool_):
        return RuntimeError(f"{name} is not supported for {compute.name} tensors (use `~` or logical_not() to invert a mask)")
    return NotImplementedError(f"\"{name}\" not implemented for '{_CPP_NAMES.get(compute.name, compute.name)}'")


_CPP_NAMES = {
    "bool": "Bool", "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble", "int64": "Long", "int32": "Int", "uint8": "Byte",
}  # fmt: skip


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `shapes` broadcast to; RuntimeError names the operator and both shapes."""
    result: list[int] = []
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            size = shape[-i]
            if i > len(result):
                result.append(size)
            elif result[i - 1] == 1:
                result[i - 1] = size
            elif size not in (1, result[i - 1]):
                raise RuntimeError(
                    f"{name}: The size of tensor a ({result[i - 1]}) must match the size of tensor b ({size}) at non-singleton "
                    f"dimension {max(map(len, shapes)) - i}: shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast"
                )
    return tuple(reversed(result))


class _Probe:
    """A handler that only notes which function a rule calls on what."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: (name, args)


def _single_ufunc(scalar: Callable[..., Any], count: int) -> Any:
    """The NumPy ufunc a rule consists of, if that is all there is to it."""
    names = tuple(f"x{i}" for i in range(count))
    if inspect.getfullargspec(scalar).kwonlyargs:
        return None
    try:
        called = scalar(_Probe(), *names)
    except (TypeError, AttributeError):  # it does more with what a probe returns: not a single call
        return None
    if not (isinstance(called, tuple) and len(called) == 2 and called[1] == names):
        return None
    found = vars(cpu).get(called[0]) or getattr(np, called[0], None)
    return found if isinstance(found, np.ufunc) else None


def _eager(scalar: Callable[..., Any], output: str) -> Callable[..., Any]:
    """A rule of several functions as one of CPU arrays of one float type."""

    def run(*arrays: Any) -> Any:
        if arrays[-1].__class__ is not _ndarray:  # a Python number as second operand
            arrays = (arrays[0], arrays[0].dtype.type(arrays[-1]))
        got = scalar(cpu, *arrays)
        want = BOOL_NP if output == "bool" else arrays[0].dtype
        return got if got.dtype is want and got is not arrays[0] else got.astype(want)

    return run


def _direct_types(single: bool, promote: str, output: str, refuse: tuple[str, ...]) -> frozenset[Any]:
    """The types a rule gives torch's result on without promotion: the float types, and where it is a `single` NumPy
    function also those that NumPy's promotion of it agrees on with torch's."""
    found = REAL_NP
    if single:
        found = _ARITHMETIC_NP if promote == "float" else _ARITHMETIC_NP | _INTEGER_NP
        if promote == "same" and "bool" not in refuse:
            found |= {BOOL_NP}
    if "complex" in refuse or output == "real":
        found -= _COMPLEX_NP
    if "integral" in refuse:
        found -= _INTEGER_NP
    return found - REAL_NP - _COMPLEX_NP if "float" in refuse else found


def pointwise(
    name: str, scalar: Callable[..., Any], vjp: Any = None, *, spell: str = "torch method inplace out", promote: str = "same",
    output: str = "same", refuse: tuple[str, ...] = (), alias: tuple[str, ...] = (), doc: str = "",
    domain: tuple[float, float] = (-2.0, 2.0), scaled: bool = False, numbers: str = "both",
) -> Pointwise:  # fmt: skip
    """Register a pointwise operator from its scalar rule. Rules of one or two arguments get their public function here;
    with `spell=""` only the primitive is made, and a function in tocha.ops gives it a torch signature."""
    rule = Pointwise(name, scalar, vjp, promote, output, refuse, domain, numbers)
    rule.doc, rule.scaled = doc, scaled
    words = spell.split()
    if words:
        from tocha.prims.forms import Form, InplaceForm

        form = Form(rule, doc)
        for spelled in (name, *alias):
            add_spellings(spelled, form, words, InplaceForm(rule, doc))
    return rule
