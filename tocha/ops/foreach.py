"""torch._foreach_*: one operator on lists of tensors. A table over the ordinary operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tocha import threads
from tocha.backends import cpu, namespace
from tocha.device import preserve_format
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.convert import clone, copy_
from tocha.ops.creation import zero_
from tocha.ops.linalg_norm import norms_at_once
from tocha.prims.native_rows import Rule, fused_results, fused_update, wrap_all
from tocha.prims.pointwise import ALL as PRIMS
from tocha.prims.rounding import clamp_high, clamp_low
from tocha.tensor import Tensor

_TORCH = NAMESPACES["torch"]

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10",
    "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


def _tensors(name: str, tensors: Any) -> Sequence[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return tensors


class _Calls(NamedTuple):
    """The calls of an operator on a list: `operands` and `options` are one for each tensor where they are lists, else one for all."""

    operands: list[Any]
    options: dict[str, Any]

    @property
    def number(self) -> int:
        return next(len(x) for x in self.operands if x.__class__ is list)

    def call(self, i: int) -> tuple[list[Any], dict[str, Any]]:
        own = {n: v[i] if v.__class__ is list else v for n, v in self.options.items()}
        return [x[i] if x.__class__ is list else x for x in self.operands], own


def _per_tensor(name: str, tensors: Sequence[Any], other: Any) -> Any:
    """An operand for each tensor, as a list; anything that is no sequence serves all."""
    if isinstance(other, (list, tuple)):
        if len(other) != len(tensors):
            raise RuntimeError(f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}")
        return list(other)
    if isinstance(other, Tensor) and other._a.ndim == 1 and name.endswith(("addcmul", "addcdiv")):
        return other.tolist()
    return other


def _enter(name: str, each: Callable[..., Any], positional: Callable[..., _Calls]) -> None:
    """Register `_foreach_name` and, writing into its first list, `_foreach_name_`."""

    def foreach(self: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        calls = positional(full, self, *args, **kwargs)
        results, left = _at_once(name, calls, False)
        for i in left:
            operands, keywords = calls.call(i)
            results[i] = each(*operands, **keywords)
        return tuple(results)

    def foreach_(self: Any, *args: Any, **kwargs: Any) -> list[Tensor]:
        calls = positional(full, self, *args, **kwargs)
        for i in _at_once(name, calls, True)[1]:
            operands, keywords = calls.call(i)
            inplace(*operands, **keywords)
        return list(self)

    full = "_foreach_" + name
    inplace = _inplace(each, name)
    op("torch", name=full, doc=f"`{name}` of every tensor of a list.")(foreach)
    op("torch", name=full + "_", doc=f"`{name}_` of every tensor of a list.")(foreach_)


def _inplace(each: Callable[..., Any], name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name + "_", None)
    if method is not None and name not in ("maximum", "minimum"):
        return method

    def assign_result(first: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        from tocha.dispatch.inplace import assign, check_writable

        check_writable(first, name + "_")
        return assign(first, each(first, *args, **kwargs), name + "_")

    return assign_result


def _one_list(name: str, self: Any) -> _Calls:
    return _Calls([list(_tensors(name, self))], {})


def _two(name: str, self: Any, other: Any, **options: Any) -> _Calls:
    """A list with a list, a number or a tensor."""
    if not isinstance(self, (list, tuple)) and isinstance(other, (list, tuple)):  # pow of a number to a list
        return _Calls([self, list(_tensors(name, other))], options)
    tensors = _tensors(name, self)
    return _Calls([list(tensors), _per_tensor(name, tensors, other)], options)


def _three(name: str, self: Any, tensor1: Any, tensor2: Any, scalars: Any = None, *, value: Any = 1) -> _Calls:
    """Lists with a factor for all or one for each."""
    tensors = _tensors(name, self)
    factors = _per_tensor(name, tensors, value if scalars is None else scalars)
    return _Calls([list(tensors), _per_tensor(name, tensors, tensor1), _per_tensor(name, tensors, tensor2)], {"value": factors})


def _lerp(name: str, self: Any, tensors1: Any, weight: Any) -> _Calls:
    tensors = _tensors(name, self)
    return _Calls([list(tensors), _per_tensor(name, tensors, tensors1), _per_tensor(name, tensors, weight)], {})


def _bound(tensor_rule: Any) -> Callable[..., Any]:
    """maximum and minimum, also with a number."""

    def each(x: Tensor, other: Any) -> Any:
        if isinstance(other, Tensor):
            return tensor_rule[0](x, other)
        return tensor_rule[1](x, other)

    return each


# ---- natively, all tensors in one call


# What operators do to elements (tocha.prims.native_rows.OnElements), by what their operands are: x, y, z elements, n a number. Others of
# elements alone are the primitive of their name.
_ELEMENTS: dict[tuple[str, str], Callable[..., Any]] = {
    ("add", "xy"): lambda o, x, y, *, alpha: o.plus_scaled(x, y, alpha),
    ("add", "xn"): lambda o, x, *, number: o.shifted(x, number),
    ("sub", "xy"): lambda o, x, y, *, alpha: o.plus_scaled(x, y, -alpha),
    ("sub", "xn"): lambda o, x, *, number, alpha=1.0: o.shifted(x, -number * alpha),
    ("mul", "xn"): lambda o, x, *, number: o.scaled(x, number),
    ("div", "xy"): lambda o, x, y: o.quotient(x, y),
    ("div", "xn"): lambda o, x, *, number: o.divided(x, number),
    ("pow", "xn"): lambda o, x, *, number: o.applied("pow_scalar", x, exponent=number),
    ("maximum", "xn"): lambda o, x, *, number: o.applied("clamp_low", x, number),
    ("minimum", "xn"): lambda o, x, *, number: o.applied("clamp_high", x, number),
    ("clamp_min", "xn"): lambda o, x, *, number: o.applied("clamp_low", x, number),
    ("clamp_max", "xn"): lambda o, x, *, number: o.applied("clamp_high", x, number),
    ("addcmul", "xyz"): lambda o, x, y, z, *, value: o.add_product(x, y, z, value),
    ("addcdiv", "xyz"): lambda o, x, y, z, *, value: o.add_quotient(x, y, z, value),
    ("lerp", "xyn"): lambda o, x, y, *, number: o.lerp(x, y, number),
    ("clone", "x"): lambda o, x: o.copy(x),
    ("copy", "xy"): lambda o, x, y: o.replace(x, y),
    ("zero", "x"): lambda o, x: o.zero(x),
}
_DEFAULTS = {("add", "xy"): {"alpha": 1.0}, ("sub", "xy"): {"alpha": 1.0}}
_MANY = 1 << 15  # elements of which a kernel may run rows out of order


def _elements(form: tuple[str, str]) -> Callable[..., Any] | None:
    """What an operator does to elements, if a kernel over lists can do it."""
    found = _ELEMENTS.get(form)
    if found is None and form[0] in PRIMS and "n" not in form[1] and not PRIMS[form[0]].parameters:
        return lambda o, *x: o.applied(form[0], *x)
    return found


def _at_once(name: str, calls: _Calls, inplace: bool) -> tuple[list[Any], Sequence[int]]:
    """The results of calls that one kernel does, None for others, and the numbers of those that are left."""
    count, columns, numbers = calls.number, dict[str, list[Tensor]](), dict[str, Any]()
    left: tuple[list[Any], Sequence[int]] = [None] * count, range(count)
    letters = ""
    for letter, operand in zip("xyz", calls.operands, strict=False):
        if operand.__class__ is list and isinstance(operand[0], Tensor):
            columns[letter] = operand
            letters += letter
        else:
            numbers["number"] = operand
            letters += "n"
    numbers |= calls.options
    rule = _rule(name, letters, inplace)
    if count == 1 or rule is None or not _share(numbers) or (inplace and len(columns) > 1 and _entangled(columns)):
        return left
    numbers = {**_DEFAULTS.get((name, letters), {}), **numbers}
    return ([], fused_update(rule, columns, lambda _: numbers)) if inplace else fused_results(rule, columns, numbers)


@functools.cache
def _rule(name: str, letters: str, inplace: bool) -> Rule | None:
    apply, columns = _elements((name, letters)), tuple(letters.replace("n", ""))
    if apply is None or inplace:
        return None if apply is None else Rule(f"_foreach_{name}_", lambda o, *x, **n: (apply(o, *x, **n),), read=columns[1:])
    return Rule(f"_foreach_{name}", lambda o, out, *x, **n: (apply(o, *x, **n),), read=columns, new=("out",))


def _share(numbers: dict[str, Any]) -> bool:
    """Whether all calls have the same numbers, which then are no lists any more."""
    for name, value in numbers.items():
        if value.__class__ is list and value.count(value[0]) == len(value) and len({v.__class__ for v in value}) == 1:
            value = numbers[name] = value[0]
        if value.__class__ not in (int, float):
            return False
    return True


def _entangled(columns: dict[str, list[Tensor]]) -> bool:
    """Whether what one call changes may be what another one reads, and there is so much that they could run at the same time."""
    if threads.get_num_threads() == 1 or sum([t._a.size for t in columns["x"]]) <= _MANY:
        return False
    memories = {name: {_memory(t._a) for t in column} for name, column in columns.items()}
    return any(memories["x"] & memories[name] for name in memories if name != "x")


def _memory(a: Any) -> int:
    return id(a) if getattr(a, "base", a) is None else namespace(a).memory_id(a)


for _name in _UNARY:
    _enter(_name, _TORCH[_name], _one_list)
for _name in ("add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max"):
    _enter(_name, _TORCH[_name], _two)
_enter("maximum", _bound((_TORCH["maximum"], clamp_low)), _two)
_enter("minimum", _bound((_TORCH["minimum"], clamp_high)), _two)
_enter("addcmul", _TORCH["addcmul"], _three)
_enter("addcdiv", _TORCH["addcdiv"], _three)
_enter("lerp", _TORCH["lerp"], _lerp)


@op("torch")
def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The vector norm of every tensor of a list."""
    tensors = _tensors("_foreach_norm", self)
    found = norms_at_once(list(tensors), float(ord)) if dtype is None and isinstance(ord, (int, float)) else None
    if found is None:
        return tuple(_TORCH["norm"](t, ord, dtype=dtype) for t in tensors)
    return tuple(wrap_all([cpu.asarray(norm) for norm in found._a]))


@op("torch")
def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|**ord of every tensor of a list."""
    return tuple(_TORCH["sum"](_TORCH["pow"](t.abs(), ord), dtype=dtype) for t in _tensors("_foreach_powsum", self))


@op("torch")
def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of every tensor of a list."""
    return tuple(_TORCH["max"](t) for t in _tensors("_foreach_max", self))


@op("torch")
def _foreach_clone(self: Any, *, memory_format: Any = preserve_format) -> tuple[Tensor, ...]:
    """A copy of every tensor of a list."""
    calls = _one_list("_foreach_clone", self)
    results, left = _at_once("clone" if memory_format is preserve_format else "no kernel", calls, False)
    for i in left:
        results[i] = clone(*calls.call(i)[0], memory_format=memory_format)
    return tuple(results)


@op("torch")
def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """Matrix products of two lists."""
    tensors = _tensors("_foreach_mm", self)
    return tuple(_TORCH["mm"](a, b) for a, b in zip(tensors, _per_tensor("_foreach_mm", tensors, mat2), strict=True))


@op("torch")
def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> list[Tensor]:
    """Copy the values of a list of tensors into another's."""
    tensors = _tensors("_foreach_copy_", self)
    calls = _Calls([list(tensors), _per_tensor("_foreach_copy_", tensors, src)], {})
    for i in _at_once("copy", calls, True)[1]:
        copy_(*calls.call(i)[0])
    return list(tensors)


@op("torch")
def _foreach_zero_(self: Any) -> list[Tensor]:
    """Set every tensor of a list to 0."""
    calls = _one_list("_foreach_zero_", self)
    for i in _at_once("zero", calls, True)[1]:
        zero_(*calls.call(i)[0])
    return list(self)
