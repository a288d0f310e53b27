"""The pointwise family: one scalar rule makes an operator.

    pointwise("exp", lambda o, x: o.exp(x), vjp=lambda g, out: g * out, promote="float")

is the whole of exp: function, method, exp_, out=, promotion, broadcasting, gradient, meta, vmap and its tests. The rule is written against a
handler `o` (a NumPy-like namespace, or the native compiler's symbols), so that tiers can't disagree. Pointwise primitives promote and
broadcast themselves, in this family rule: separate casts and expands would cost a microsecond and a tape node each.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.backends import cpu, meta, namespace, native
from tocha.dispatch import override
from tocha.dispatch.bind import one_device, unusual
from tocha.dispatch.override import FUNCTION_MODES, INTERPRETERS, OVERRIDES, PLAIN, dispatch_function
from tocha.dispatch.prim import ARGUMENT, OUTPUT, Plan, Prim, record, record_two
from tocha.dispatch.promote import common_dtype
from tocha.dispatch.registry import add_spellings, name_it
from tocha.dtypes import FLOAT8_NP, HALF, HALF_NP, dtype
from tocha.tensor import Tensor, wrap

_ndarray, _asarray, _new = np.ndarray, np.asarray, object.__new__
_FLOAT32 = np.dtype(np.float32)
_ARITHMETIC_NP = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
_REAL_NP = frozenset(np.dtype(t) for t in (np.float32, np.float64))
_COMPLEX_NP = _ARITHMETIC_NP - _REAL_NP
_BOOL = np.dtype(np.bool_)
_INTEGER_NP = frozenset(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8))
_SMALL = 1 << 24  # Python integers up to this are exact in float32
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_FULL_NUMBERS = {"mul", "true_divide", "floor_divide"}  # torch's CPU kernels take the second operand, if a number, in float32
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
        large = arrays[0].size >= self.native_least or arrays[-1].size >= self.native_least
        got = self._native(arrays, found, _BOOL if self.output == "bool" else found, params) if large else None
        try:
            got = state.run(self.impl, cpu, *arrays, **params) if got is None else got
        except ValueError:
            self.broadcast([a.shape for a in arrays])  # raises torch's error if shapes are at fault
            raise
        if got.__class__ is not _ndarray or got.dtype is not found or got is arrays[0] or got is arrays[-1]:
            got = _finish(got, arrays, dtypes.bool_.np if self.output == "bool" else found)
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
        if any(hasattr(a, "strides") and a.__class__ is not first.__class__ for a in arrays):
            tensors = one_device(self, [a for a in arrays if hasattr(a, "strides")])
            arrays = [tensors.pop(0) if hasattr(a, "strides") else a for a in arrays]
            first = next(a for a in arrays if hasattr(a, "strides"))
        xp = namespace(first)
        if xp is meta:
            return meta.MetaArray(self.broadcast([np.shape(a) for a in arrays]), target)
        inner = _FLOAT32 if compute in HALF and self.half == "float32" else compute.np
        if inner is not compute.np and xp.name == "cpu":
            arrays = [self._rounded(i, a, compute.np) for i, a in enumerate(arrays)]
        if xp.name == "cpu" and first.size >= (native.LEAST["half"] if compute in HALF else self.native_least):
            got = self._native([a if hasattr(a, "strides") else number(a, inner) for a in arrays], inner, target, params)
            if got is not None:
                return got
        if xp.name == "cuda":
            return self._on_cuda(xp, arrays, compute.np, inner, target, params)
        arrays = [_converted(a, inner) if hasattr(a, "astype") else number(a, inner) for a in arrays]
        try:
            got = state.run(self.impl, xp, *arrays, **params)
        except ValueError:
            self.broadcast([np.shape(a) for a in arrays])  # raises torch's error if shapes are at fault
            raise
        return _finish(got, arrays, target)

    def _native(self, operands: list[Any], inner: Any, target: Any, params: dict[str, Any], into: Any = None) -> Any:
        """The result of a native kernel, None if NumPy is to compute it."""
        kind = "half" if any(getattr(a, "dtype", None) in HALF_NP for a in operands) else self.native_kind
        return native.pointwise(self, operands, inner, target, params, self.broadcast, kind, into)

    def _rounded(self, position: int, operand: Any, half: Any) -> Any:
        """An operand of another type rounded to the half type first, but for the number that a product or quotient takes."""
        if hasattr(operand, "astype"):
            if operand.dtype is half or (position and not operand.ndim and self.name in _FULL_NUMBERS):
                return operand
            return state.run(_converted, operand, half)
        return operand if position and self.name in _FULL_NUMBERS else _FLOAT32.type(state.run(number, operand, half))

    def _on_cuda(self, xp: Any, arrays: list[Any], given: Any, inner: Any, target: Any, params: dict[str, Any]) -> Any:
        """The computation on CUDA arrays and numbers. CuPy's loops for single functions of half types round once as well."""
        if inner is not given and self.ufunc is not None and self.ufunc.__name__ in xp.HALF_FUNCTIONS:
            if given not in FLOAT8_NP and all(getattr(a, "dtype", None) == given for a in arrays):
                inner = given
        operands = [xp.cast(a, inner) if hasattr(a, "astype") else number(a, inner) for a in arrays]
        try:
            got = xp.run(self.impl, xp, *operands, **params)
        except ValueError:
            self.broadcast([np.shape(a) for a in arrays])
            raise
        if not hasattr(got, "strides"):
            got = xp.asarray(got)
        if got.dtype is not target:
            return xp.run(xp.cast, got, target)
        return got.copy() if any(got is a for a in arrays) else got

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


def _finish(got: Any, arrays: list[Any], target: Any) -> Any:
    """A kernel's result as an array of its own, of type `target`."""
    if got.__class__ is not _ndarray and isinstance(got, (np.generic, *_NUMBERS)):
        got = _asarray(got)
    if got.dtype is not target:
        return state.run(got.astype, target)
    return got.copy("K") if any(got is a for a in arrays) else got


def _converted(a: Any, target: Any) -> Any:
    """The array in another type, its dimensions in memory as they were (NumPy moves those of stride 0 to the end)."""
    return a.astype(target, order="C" if 0 in a.strides else "K", copy=False)


def _is_bool(operand: Any) -> bool:
    return operand._a.dtype is _BOOL if isinstance(operand, Tensor) else isinstance(operand, (bool, np.bool_))


def _refusal(name: str, compute: dtype) -> Exception:
    if name == "sub":
        return RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        )
    if name in ("neg", "sign", "signbit", "heaviside"):
        return RuntimeError(f"{name} is not supported for {compute.name} tensors (use `~` or logical_not() to invert a mask)")
    return NotImplementedError(f'"{name}" not implemented for \'{_CPP_NAMES.get(compute.name, compute.name)}\'')


_CPP_NAMES = {
    "bool": "Bool", "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble", "int64": "Long", "int32": "Int", "uint8": "Byte",
}  # fmt: skip


def number(value: Any, np_dtype: Any) -> Any:
    """A Python number as a scalar of the type computed in (integers wrap around)."""
    if np_dtype.kind in "iu":
        bits = 8 * np_dtype.itemsize
        value = int(value) & ((1 << bits) - 1)
        if np_dtype.kind == "i" and value >> (bits - 1):
            value -= 1 << bits
    return np_dtype.type(value)


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
        want = _BOOL if output == "bool" else arrays[0].dtype
        return got if got.dtype is want and got is not arrays[0] else got.astype(want)

    return run


def _direct_types(single: bool, promote: str, output: str, refuse: tuple[str, ...]) -> frozenset[Any]:
    """The types a rule gives torch's result on without promotion: the float types, and where it is a `single` NumPy
    function also those that NumPy's promotion of it agrees on with torch's."""
    found = _REAL_NP
    if single:
        found = _ARITHMETIC_NP if promote == "float" else _ARITHMETIC_NP | _INTEGER_NP
        if promote == "same" and "bool" not in refuse:
            found |= {_BOOL}
    if "complex" in refuse or output == "real":
        found -= _COMPLEX_NP
    if "integral" in refuse:
        found -= _INTEGER_NP
    return found - _REAL_NP - _COMPLEX_NP if "float" in refuse else found


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
        form = Form(rule, doc)
        for spelled in (name, *alias):
            add_spellings(spelled, form, words, InplaceForm(rule, doc))
    return rule


class Form:
    """The public functions of a one- or two-argument rule, made with a fast path for plain tensors."""

    is_public = True

    def __init__(self, rule: Pointwise, doc: str) -> None:
        self.rule, self.__doc__ = rule, doc
        self.__name__ = rule.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.rule(*args, **kwargs)

    def make_public(self, name: str, module: str, out: bool) -> Callable[..., Any]:
        make = _unary if len(self.rule.arguments) == 1 else _binary
        call: Any = make(self.rule, name)
        call.public = call  # what handlers of __torch_function__ are given
        if self.rule.scaled:
            call = _with_alpha(call)
        call.__doc__, call.rule = self.__doc__, self.rule
        name_it(call, name, module)
        return call


class InplaceForm(Form):
    """`x.op_(...)`: straight into x's memory where no gradient is involved."""

    def make_public(self, name: str, module: str, out: bool) -> Callable[..., Any]:
        call: Any = _inplace(self.rule, name)
        call.public = call
        if self.rule.scaled:
            call = _with_alpha(call, in_place=True)
        call.__doc__ = self.__doc__
        name_it(call, name, module)
        return call


def _write_out(rule: Pointwise, name: str, out: Tensor, args: tuple[Any, ...]) -> Any:
    from tocha.dispatch.inplace import write_out

    return write_out(name, rule, out, args, {})


def check_operands(name: str, args: tuple[Any, ...], numbers: str = "both") -> None:
    """TypeError for operands that are neither tensors nor, where `numbers` allows them, Python numbers."""
    for i, a in enumerate(args):
        allowed = numbers in ("both", "all") or (numbers == "second" and i > 0)
        if not isinstance(a, (Tensor, *_NUMBERS) if allowed else Tensor):
            label = ("input", "other", "third")[min(i, 2)]
            wanted = "Tensor or Number" if allowed else "Tensor"
            raise TypeError(f"{name}(): argument '{label}' (position {i + 1}) must be {wanted}, not {type(a).__name__}")
    if not any(isinstance(a, Tensor) for a in args):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(args[0]).__name__}")


def as_operand(input: Any, other: Any) -> Any:
    """The first operand, as a 0-d tensor if both are numbers."""
    if isinstance(input, _NUMBERS) and isinstance(other, _NUMBERS):
        return wrap(_asarray(input, dtypes.of_scalar(input).np))
    return input


_CHOOSE: tuple[Callable[[Any, Any], tuple[Any, ...]], ...] = (
    lambda a, b: (), lambda a, b: (a,), lambda a, b: (b,), lambda a, b: (a, b), lambda a, b: (b, a),
)  # fmt: skip


def _unary_saver(rule: Pointwise) -> tuple[Plan, bool] | None:
    """The plan of a one-argument rule that saves just its output (True) or just its input (False)."""
    if rule.vjp is None:
        return None
    plan = rule.plan((True,))
    return (plan, plan.sources[0][0] == OUTPUT) if len(plan.sources) == 1 and plan.sources[0][0] in (ARGUMENT, OUTPUT) else None


def _binary_savers(rule: Pointwise) -> list[tuple[Any, int]]:
    """For each set of wanted gradients (1: input, 2: other, 3: both), the plan and which arguments it saves as such a
    set (4: other, then input); -1 if it saves anything else."""
    savers: list[tuple[Any, int]] = [(None, -1)]
    for need in (1, 2, 3):
        if rule.vjp is None:
            savers.append((None, -1))
            continue
        plan = rule.plan((bool(need & 1), bool(need & 2)))
        if all(kind == ARGUMENT for kind, _ in plan.sources):
            keys = tuple(key for _, key in plan.sources)
            savers.append((plan, {(): 0, (0,): 1, (1,): 2, (0, 1): 3, (1, 0): 4}.get(keys, -1)))
        else:
            savers.append((plan, -1))
    return savers


def _unary(rule: Pointwise, name: str) -> Callable[..., Any]:
    eager, direct, least, boolean = rule.eager, rule.direct, rule.native_least, rule.output == "bool"
    differentiable, saver = rule.vjp is not None, _unary_saver(rule)

    def call(input: Tensor, *, out: Tensor | None = None) -> Any:
        if input.__class__ in PLAIN and out is None and not FUNCTION_MODES and not INTERPRETERS:
            a = input._a
            if a.__class__ is _ndarray and a.dtype in direct:
                r = rule._native([a], a.dtype, _BOOL if boolean else a.dtype, {}) if a.size >= least else None
                if r is None:
                    r = state.run(eager, a)
                result = _new(Tensor)
                result._a = r if r.__class__ is _ndarray else _asarray(r)
                result._rg = False
                result._grad = result._node = result._vc = result._view = result._extra = None
                result._nr = 0
                if input._rg and (mode := state.grad) and differentiable:
                    if mode == 1 and saver is not None:
                        record_two(saver[0], (result._a,) if saver[1] else (input,), input, None, 1, result)
                    else:
                        record(rule, (input,), (result,), {})
                return result
        elif FUNCTION_MODES or OVERRIDES[input.__class__]:
            return dispatch_function(call.public, plain, (input,), _given(out=out))  # type: ignore[attr-defined]
        return plain(input, out=out)

    def plain(input: Tensor, *, out: Tensor | None = None) -> Any:
        check_operands(name, (input,))
        return rule(input) if out is None else _write_out(rule, name, out, (input,))

    return call


def _binary(rule: Pointwise, name: str) -> Callable[..., Any]:
    eager, direct, least, boolean = rule.eager, rule.direct, rule.native_least, rule.output == "bool"
    weak = frozenset() if rule.numbers == "none" else _REAL_NP
    differentiable, savers = rule.vjp is not None, _binary_savers(rule)

    def call(input: Any, other: Any, *, out: Tensor | None = None) -> Any:
        if input.__class__ in PLAIN and out is None and not FUNCTION_MODES and not INTERPRETERS:
            a = input._a
            if a.__class__ is _ndarray and a.dtype in direct:
                b: Any = None
                if other.__class__ in PLAIN:
                    b = other._a
                    if b.__class__ is not _ndarray or b.dtype is not a.dtype:
                        b = None
                elif (other.__class__ is float or other.__class__ is int) and a.dtype in weak:
                    b = other if other.__class__ is float or -_SMALL <= other <= _SMALL else None
                if b is not None:
                    try:
                        r = rule._native([a, b], a.dtype, _BOOL if boolean else a.dtype, {}) if a.size >= least else None
                        if r is None:
                            r = state.run(eager, a, b)
                    except ValueError:
                        return plain(input, other)  # raises in words
                    result = _new(Tensor)
                    result._a = r if r.__class__ is _ndarray else _asarray(r)
                    result._rg = False
                    result._grad = result._node = result._vc = result._view = result._extra = None
                    result._nr = 0
                    need = (1 if input._rg else 0) + (2 if b is not other and other._rg else 0)
                    if need and differentiable and (mode := state.grad):
                        plan, saves = savers[need]
                        if mode == 1 and saves >= 0 and (b is other or a.shape == b.shape):
                            saved = _CHOOSE[saves](input, other)
                            record_two(plan, saved, input, other, need, result)
                        else:
                            record(rule, (input, other), (result,), {})
                    return result
        elif FUNCTION_MODES or OVERRIDES[input.__class__]:
            return dispatch_function(call.public, plain, (input, other), _given(out=out))  # type: ignore[attr-defined]
        if OVERRIDES[other.__class__]:
            return dispatch_function(call.public, plain, (input, other), _given(out=out))  # type: ignore[attr-defined]
        return plain(input, other, out=out)

    def plain(input: Any, other: Any, *, out: Tensor | None = None) -> Any:
        if rule.numbers == "all":
            input = as_operand(input, other)
        check_operands(name, (input, other), rule.numbers)
        return rule(input, other) if out is None else _write_out(rule, name, out, (input, other))

    return call


def _with_alpha(call: Callable[..., Any], in_place: bool = False) -> Callable[..., Any]:
    """add and sub take `alpha`, a factor for the second operand. Half types round it, but not the product."""

    def scaled(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Any:
        if alpha.__class__ is not int or alpha != 1:
            if FUNCTION_MODES or OVERRIDES[input.__class__] or OVERRIDES[other.__class__]:
                return dispatch_function(scaled, by_factor, (input, other), _given(alpha=alpha, out=out))
            return by_factor(input, other, alpha, out)
        return call(input, other) if out is None else call(input, other, out=out)

    def by_factor(input: Any, other: Any, alpha: Any, out: Tensor | None = None) -> Any:
        kind = common_dtype((input, other), "same")
        scaled_other = _scale(other, alpha, kind)
        if kind not in HALF or in_place or out is not None:
            return call(input, scaled_other, **_given(out=out))
        return call(input.to(dtypes.float32) if isinstance(input, Tensor) else input, scaled_other).to(kind)

    call.public = scaled  # type: ignore[attr-defined]
    scaled.unscaled = call  # type: ignore[attr-defined]
    return scaled


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _scale(other: Any, alpha: Any, kind: dtype) -> Any:
    if isinstance(alpha, bool) and kind is not dtypes.bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and not kind.is_floating_point and not kind.is_complex:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and not kind.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if kind in HALF:
        rounded = float(state.run(kind.np.type, alpha))
        if math.isinf(rounded) and not math.isinf(alpha):
            raise RuntimeError(f"value cannot be converted to type {kind} without overflow (alpha is {alpha})")
        alpha, kind = rounded, dtypes.float32
    if isinstance(other, Tensor) and other.dtype is not kind:
        # The product has the type of the sum: a bfloat16 operand of a float32 sum must not round it.
        other = other.to(kind)
    return other * alpha


def _inplace(rule: Pointwise, name: str) -> Callable[..., Any]:
    from tocha.autograd.graph import version_of
    from tocha.dispatch.inplace import assign, check_writable, mutated

    ufunc, direct, least = rule.ufunc, rule.direct if rule.output == "same" and rule.ufunc else frozenset[Any](), rule.native_least
    weak = frozenset[Any]() if rule.numbers == "none" else _REAL_NP

    def plain(input: Tensor, *others: Any) -> Tensor:
        check_operands(name, (input, *others), rule.numbers)
        check_writable(input, name)
        if rule.output == "real" and input._a.dtype.kind == "c":
            raise RuntimeError(f"In-place {rule.name} is not supported for complex tensors.")
        held = input._a.__class__ is not meta.MetaArray and not (INTERPRETERS and not override.in_memory(input, *others))
        if held and input._a.dtype in direct and not (state.grad and (input._rg or _any_rg(others))):
            arrays = [o._a if isinstance(o, Tensor) else o for o in others]
            if all(_fits(o, input._a) for o in arrays):
                run = state.run if input._a.__class__ is _ndarray else namespace(input._a).run
                try:
                    run(ufunc, input._a, *arrays, out=input._a)
                except ValueError:
                    broadcast_shapes(name, *(np.shape(x) for x in (input._a, *arrays)))
                    return assign(input, rule(input, *others), name)
                mutated(input, None, name)
                return input
        return assign(input, rule(input, *others), name)

    def call(input: Tensor, *others: Any) -> Tensor:
        if len(others) == 1 and input.__class__ is Tensor and not FUNCTION_MODES and not INTERPRETERS:
            a, b = input._a, others[0]
            if a.__class__ is _ndarray and a.dtype in direct and a.flags.c_contiguous and not (state.grad and _has_history(input)):
                if b.__class__ is Tensor:
                    b = None if b._a.dtype is not a.dtype or (state.grad and b._rg) else b._a
                elif a.dtype not in weak or not (b.__class__ is float or (b.__class__ is int and -_SMALL <= b <= _SMALL)):
                    b = None
                if b is not None and (b.__class__ is float or b.__class__ is int or (b.__class__ is _ndarray and b.ndim <= a.ndim)):
                    try:
                        if a.size < least or rule._native([a, b], a.dtype, a.dtype, {}, a) is None:
                            state.run(ufunc, a, b, a)
                    except ValueError:
                        return plain(input, *others)  # raises in words
                    version_of(input).bump(name)
                    return input
        if FUNCTION_MODES or any(OVERRIDES[x.__class__] for x in (input, *others)):
            return dispatch_function(call.public, plain, (input, *others), {})  # type: ignore[attr-defined]
        return plain(input, *others)

    return call


def _has_history(input: Tensor) -> bool:
    """Whether a change in place must be recorded, or refused (a view made under no_grad doesn't require grad itself)."""
    return bool(input._rg) or (input._view is not None and bool(input._view.base._rg))


def _any_rg(others: tuple[Any, ...]) -> bool:
    return any(isinstance(o, Tensor) and o._rg for o in others)


def _fits(other: Any, array: Any) -> bool:
    """Whether a NumPy ufunc gives torch's result for this operand without promotion."""
    if hasattr(other, "strides"):
        return other.__class__ is array.__class__ and other.dtype is array.dtype
    if array.dtype not in _REAL_NP:
        return False
    return other.__class__ is float or (other.__class__ is int and -_SMALL <= other <= _SMALL)
