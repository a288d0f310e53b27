"""The public functions of pointwise operators of one or two operands: `torch.exp`, `Tensor.exp`, `Tensor.exp_`, made from the record
with a fast path for plain tensors. A call that takes it costs a microsecond; everything else goes to the record itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import INFERENCE, state
from tocha.backends import cpu, meta, namespace
from tocha.backends.lazy import Lazy
from tocha.backends.strides import settled
from tocha.dispatch import override
from tocha.dispatch.overlap import check_in_place, has_history, one_memory
from tocha.dispatch.override import FUNCTION_MODES, INTERPRETERS, OVERRIDES, PLAIN, dispatch_function
from tocha.dispatch.prim import ARGUMENT, OUTPUT, Plan, record, record_two, targets
from tocha.dispatch.promote import REAL_NP, SMALL, WEAK, common_dtype
from tocha.dispatch.registry import as_number, name_it
from tocha.dtypes import HALF, dtype
from tocha.prims.pointwise import BOOL_NP, NUMBERS, Pointwise, broadcast_shapes
from tocha.tensor import Tensor, mark, wrap

_ndarray, _asarray, _new = np.ndarray, np.asarray, object.__new__
_NUMBERS = (int, float)


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
            call = _with_alpha(call, name)
        call.__doc__, call.rule = self.__doc__, self.rule
        name_it(call, name, module)
        return call


class InplaceForm(Form):
    """`x.op_(...)`: straight into x's memory where no gradient is involved."""

    def make_public(self, name: str, module: str, out: bool) -> Callable[..., Any]:
        call: Any = _inplace(self.rule, name)
        call.public = call
        if self.rule.scaled:
            call = _with_alpha(call, name, in_place=True)
        call.__doc__ = self.__doc__
        name_it(call, name, module)
        return call


def _write_out(rule: Pointwise, name: str, out: Tensor, args: tuple[Any, ...]) -> Any:
    from tocha.dispatch.inplace import write_out

    if _straight_into(rule, out, args):
        version_of(out).bump(name)
        return out
    return write_out(name, rule, out, args, {}, _of_its_own_type(rule, args))


def _straight_into(rule: Pointwise, out: Any, args: tuple[Any, ...]) -> bool:
    """Whether the result was written into `out`'s memory at once: plain tensors of one type or numbers, nothing recorded."""
    if out.__class__ is not Tensor or FUNCTION_MODES or INTERPRETERS or rule.output == "bool" or out._vc is UNCOUNTED:
        return False
    a, shape = out._a, out._a.shape
    if a.__class__ is not _ndarray or a.dtype not in rule.direct or not a.flags.writeable or not a.flags.c_contiguous:
        return False
    if (state.grad and has_history(out)) or (rule.output == "real" and a.dtype not in REAL_NP):
        return False
    arrays = []
    for i, t in enumerate(args):
        if t.__class__ is Tensor:
            b = t._a
            if b.__class__ is not _ndarray or b.dtype is not a.dtype or (state.grad and has_history(t)):
                return False
            if t is not out and one_memory(b, a):
                return False
            shape = b.shape if b.shape != a.shape else shape
        else:
            b = t
            if (i == 0 and rule.numbers == "second") or not (rule.ufunc and _weak(rule, a.dtype, b)):
                return False
        arrays.append(b)
    if a.size >= rule.native_least and rule.by_kernel(arrays, a.dtype, a.dtype, {}, a) is not None:
        return True
    if shape != a.shape or not any(b.__class__ is _ndarray for b in arrays):
        return False
    if rule.ufunc:
        state.run(rule.ufunc, *arrays, out=a)
    else:
        a[...] = state.run(rule.eager, *arrays)
    return True


def _weak(rule: Pointwise, dtype: Any, number: Any) -> bool:
    """Whether a Python number beside an array of `dtype` leaves it at that."""
    if number.__class__ is int:
        return dtype in WEAK and rule.numbers != "none" and -SMALL <= number <= SMALL
    return number.__class__ is float and dtype in REAL_NP and rule.numbers != "none"


def _of_its_own_type(rule: Pointwise, args: tuple[Any, ...]) -> bool:
    """Whether out= must have the result's type: for functions of one argument that compute in its type."""
    if rule.name == "heaviside":
        return True
    return len(args) == 1 and rule.promote == "same" and rule.name != "logical_not" and args[0]._a.dtype.kind != "c"


def check_operands(name: str, args: tuple[Any, ...], numbers: str = "both") -> None:
    """TypeError for operands that are neither tensors nor, where `numbers` allows them, Python numbers."""
    for i, a in enumerate(args):
        allowed = numbers in ("both", "all") or (numbers == "second" and i > 0)
        if not isinstance(a, (Tensor, *NUMBERS) if allowed else Tensor):
            label = ("input", "other", "third")[min(i, 2)]
            wanted = "Tensor or Number" if allowed else "Tensor"
            raise TypeError(f"{name}(): argument '{label}' (position {i + 1}) must be {wanted}, not {type(a).__name__}")
    if not any(isinstance(a, Tensor) for a in args):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(args[0]).__name__}")


def as_operand(input: Any, other: Any) -> Any:
    """The first operand, as a 0-d tensor if both are numbers."""
    if isinstance(input, NUMBERS) and isinstance(other, NUMBERS):
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
                r = rule.by_kernel([a], a.dtype, BOOL_NP if boolean else a.dtype, {}) if a.size >= least else None
                if r is None:
                    r = state.run(eager, a)
                if a.ndim > 1 and not a.flags.c_contiguous:
                    r = settled(r, (a,), cpu)
                result = _new(Tensor)
                result._a = r if r.__class__ is _ndarray else _asarray(r)
                result._rg = False
                result._grad = result._node = result._vc = result._view = result._extra = None
                result._nr = 0
                if INFERENCE:
                    mark(result)
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
    weak = frozenset() if rule.numbers == "none" else WEAK
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
                elif a.dtype in weak:
                    if other.__class__ is int:
                        b = other if -SMALL <= other <= SMALL else None
                    elif other.__class__ is float and a.dtype in REAL_NP:
                        b = other
                if b is not None:
                    try:
                        large = a.size >= least or (b is not other and b.size >= least)
                        r = rule.by_kernel([a, b], a.dtype, BOOL_NP if boolean else a.dtype, {}) if large else None
                        if r is None:
                            r = state.run(eager, a, b)
                    except ValueError:
                        return plain(input, other)  # raises in words
                    if a.ndim > 1 and not a.flags.c_contiguous:  # else NumPy's order of dimensions is torch's
                        r = settled(r, (a, b), cpu)
                    result = _new(Tensor)
                    result._a = r if r.__class__ is _ndarray else _asarray(r)
                    result._rg = False
                    result._grad = result._node = result._vc = result._view = result._extra = None
                    result._nr = 0
                    if INFERENCE:
                        mark(result)
                    need = (1 if input._rg else 0) + (2 if b is not other and other._rg else 0)
                    if need and differentiable and (mode := state.grad):
                        plan, saves = savers[need]
                        if mode == 1 and saves >= 0:
                            record_two(plan, _CHOOSE[saves](input, other), input, other, need, result)
                            if b is not other and a.shape != b.shape and result._node is not None:
                                result._node.fit = targets((input, other), result._a)
                        else:
                            record(rule, (input, other), (result,), {})
                    return result
        elif FUNCTION_MODES or OVERRIDES[input.__class__]:
            return dispatch_function(call.public, plain, (input, other), _given(out=out))  # type: ignore[attr-defined]
        if OVERRIDES[other.__class__]:
            return dispatch_function(call.public, plain, (input, other), _given(out=out))  # type: ignore[attr-defined]
        return plain(input, other, out=out)

    def plain(input: Any, other: Any, *, out: Tensor | None = None) -> Any:
        if input.__class__ in _NUMBERS and other.__class__ in PLAIN and out is None and not INTERPRETERS and rule.numbers != "second":
            a = other._a
            if a.__class__ is _ndarray and a.dtype in direct and a.size < least and a.flags.c_contiguous and _weak(rule, a.dtype, input):
                result = wrap(_asarray(state.run(eager, input, a)))
                if other._rg and state.grad and differentiable:
                    record(rule, (input, other), (result,), {})
                return result
        if rule.numbers == "all":
            input = as_operand(input, other)
        check_operands(name, (input, other), rule.numbers)
        return rule(input, other) if out is None else _write_out(rule, name, out, (input, other))

    return call


def _with_alpha(call: Callable[..., Any], name: str, in_place: bool = False) -> Callable[..., Any]:
    """add and sub take `alpha`, a factor for the second operand. Half types round it, but not the product."""
    from tocha.dispatch.inplace import overwrite

    def scaled(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Any:
        if alpha.__class__ is not int or alpha != 1:
            if FUNCTION_MODES or OVERRIDES[input.__class__] or OVERRIDES[other.__class__]:
                return dispatch_function(scaled, by_factor, (input, other), _given(alpha=alpha, out=out))
            return by_factor(input, other, alpha, out)
        return call(input, other) if out is None else call(input, other, out=out)

    def by_factor(input: Any, other: Any, alpha: Any, out: Tensor | None = None) -> Any:
        if isinstance(alpha, Tensor):
            alpha = as_number(alpha, name, "'alpha'")
        target = input if in_place else out
        if target.__class__ is other.__class__ is Tensor:
            signed = {"alpha": -alpha if name.startswith("sub") else alpha}
            if overwrite(target, lambda x, y, alpha: (_scaled_sum, [x, y], {"alpha": alpha}), (input, other), signed, name):
                return target
        kind = common_dtype((input, other), "same")
        if in_place:
            check_in_place(call.__name__, input, (other,))
        scaled_other = _scale(other, alpha, kind)
        if kind not in HALF or in_place or out is not None:
            return call(input, scaled_other, **_given(out=out))
        return call(input.to(dtypes.float32) if isinstance(input, Tensor) else input, scaled_other).to(kind)

    call.public = scaled  # type: ignore[attr-defined]
    scaled.unscaled = call  # type: ignore[attr-defined]
    return scaled


_scaled_sum = Pointwise("scaled_sum", lambda o, x, y, *, alpha: o.add(x, o.mul(y, alpha)), None, "same", "same", (), (-2.0, 2.0))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _scale(other: Any, alpha: Any, kind: dtype) -> Any:
    if isinstance(alpha, bool) and kind is not dtypes.bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and not kind.is_floating_point and not kind.is_complex:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if alpha.__class__ is int and kind.category == dtypes.INTEGRAL:
        limits = dtypes.iinfo(kind)
        if not (limits.min or -limits.max) <= alpha <= limits.max:
            raise RuntimeError(f"value cannot be converted to type {kind} without overflow (alpha is {alpha})")
    if isinstance(alpha, complex) and not kind.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if kind is dtypes.bool_:
        alpha = bool(alpha)
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
    from tocha.dispatch.inplace import assign, check_writable, mutated

    ufunc, eager, least = rule.ufunc, rule.eager, rule.native_least
    direct = rule.direct if rule.output == "same" else frozenset[Any]()

    def plain(input: Tensor, *others: Any) -> Tensor:
        check_operands(name, (input, *others), rule.numbers)
        check_writable(input, name)
        if others:
            check_in_place(name, input, others)
        if rule.output == "real" and input._a.dtype.kind == "c":
            raise RuntimeError(f"In-place {rule.name} is not supported for complex tensors.")
        held = not isinstance(input._a, (meta.MetaArray, Lazy)) and not (INTERPRETERS and not override.in_memory(input, *others))
        if ufunc and held and input._a.dtype in direct and not (state.grad and (input._rg or _any_rg(others))):
            arrays = [o._a if isinstance(o, Tensor) else o for o in others]
            if all(_fits(rule, o, input._a) for o in arrays):
                a = input._a
                plain_array = a.__class__ is _ndarray
                try:
                    by_kernel = (
                        plain_array and a.size >= least and rule.by_kernel([a, *arrays], a.dtype, a.dtype, {}, a) is not None
                    )
                    if not by_kernel:
                        (state.run if plain_array else namespace(a).run)(ufunc, a, *arrays, out=a)
                except ValueError:
                    broadcast_shapes(name, *(np.shape(x) for x in (input._a, *arrays)))
                    return assign(input, rule(input, *others), name)
                mutated(input, None, name)
                return input
        return assign(input, rule(input, *others), name)

    def call(input: Tensor, *others: Any) -> Tensor:
        if len(others) < 2 and input.__class__ in PLAIN and not FUNCTION_MODES and not INTERPRETERS:
            a, b = input._a, others[0] if others else 0
            if (
                a.__class__ is _ndarray
                and a.dtype in direct
                and a.flags.c_contiguous
                and not (state.grad and has_history(input))
                and (input._vc is not UNCOUNTED or state.inference)
            ):
                if b.__class__ is Tensor:
                    if b._vc is not None and b is not input and one_memory(b._a, a):
                        return plain(input, b)  # views of one tensor, which may overlap
                    b = None if b._a.dtype is not a.dtype or (state.grad and b._rg) else b._a
                elif others and not _weak(rule, a.dtype, b):
                    b = None
                if b is not None and (
                    b.__class__ is float or b.__class__ is int or (b.__class__ is _ndarray and b.ndim <= a.ndim)
                ):
                    try:
                        if a.size < least or rule.by_kernel([a, b] if others else [a], a.dtype, a.dtype, {}, a) is None:
                            operands: Any = (a, b, a) if others else (a, a)
                            if ufunc:
                                state.run(ufunc, *operands)
                            else:
                                np.copyto(a, state.run(eager, *operands[:-1]))
                    except ValueError:
                        return plain(input, *others)  # raises in words
                    version_of(input).bump(name)
                    return input
        if FUNCTION_MODES or any(OVERRIDES[x.__class__] for x in (input, *others)):
            return dispatch_function(call.public, plain, (input, *others), {})  # type: ignore[attr-defined]
        return plain(input, *others)

    return call


def _any_rg(others: tuple[Any, ...]) -> bool:
    return any(isinstance(o, Tensor) and o._rg for o in others)


def _fits(rule: Pointwise, other: Any, array: Any) -> bool:
    """Whether a NumPy ufunc gives torch's result for this operand without promotion."""
    if hasattr(other, "strides"):
        return other.__class__ is array.__class__ and other.dtype is array.dtype
    return _weak(rule, array.dtype, other)
