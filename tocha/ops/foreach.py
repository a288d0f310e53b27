"""torch._foreach_*: one operator on lists of tensors. A table over the ordinary operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tocha import threads
from tocha.backends import cpu, namespace
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.convert import clone, copy_
from tocha.ops.creation import zero_
from tocha.ops.linalg_norm import norms_at_once
from tocha.prims.native_rows import Rule, alike, fused_update
from tocha.prims.rounding import clamp_high, clamp_low
from tocha.tensor import Tensor, wrap

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


def _per_tensor(name: str, tensors: Sequence[Any], other: Any) -> Sequence[Any]:
    """An operand for each tensor: a list has one for each, anything else serves all."""
    if isinstance(other, (list, tuple)):
        if len(other) != len(tensors):
            raise RuntimeError(f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}")
        return other
    if isinstance(other, Tensor) and other._a.ndim == 1 and name.endswith(("addcmul", "addcdiv")):
        return other.tolist()
    return [other] * len(tensors)


def _enter(name: str, each: Callable[..., Any], positional: Callable[..., Any]) -> None:
    """Register `_foreach_name` and, writing into its first list, `_foreach_name_`."""

    def foreach(self: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        calls = list(positional(full, self, *args, **kwargs))
        results, left = _at_once(name, calls, False)
        for i in left:
            operands, keywords = calls[i]
            results[i] = each(*operands, **keywords)
        return tuple(results)

    def foreach_(self: Any, *args: Any, **kwargs: Any) -> None:
        calls = list(positional(full, self, *args, **kwargs))
        for i in _at_once(name, calls, True)[1]:
            operands, keywords = calls[i]
            inplace(*operands, **keywords)

    full = "_foreach_" + name
    inplace = _inplace(each, name)
    foreach.__name__, foreach_.__name__ = full, full + "_"
    foreach.__doc__ = f"`{name}` of every tensor of a list."
    foreach_.__doc__ = f"`{name}_` of every tensor of a list."
    op("torch")(foreach)
    op("torch")(foreach_)


def _inplace(each: Callable[..., Any], name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name + "_", None)
    if method is not None and name not in ("maximum", "minimum"):
        return method

    def assign_result(first: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        from tocha.dispatch.inplace import assign, check_writable

        check_writable(first, name + "_")
        return assign(first, each(first, *args, **kwargs), name + "_")

    return assign_result


def _one_list(name: str, self: Any) -> Any:
    return (((t,), {}) for t in _tensors(name, self))


def _two(name: str, self: Any, other: Any, **options: Any) -> Any:
    """A list with a list, a number or a tensor."""
    if not isinstance(self, (list, tuple)) and isinstance(other, (list, tuple)):  # pow of a number to a list
        return (((self, t), options) for t in _tensors(name, other))
    tensors = _tensors(name, self)
    return (((t, o), options) for t, o in zip(tensors, _per_tensor(name, tensors, other), strict=True))


def _three(name: str, self: Any, tensor1: Any, tensor2: Any, scalars: Any = None, *, value: Any = 1) -> Any:
    """Lists with a factor for all or one for each."""
    tensors = _tensors(name, self)
    factors = _per_tensor(name, tensors, value if scalars is None else scalars)
    first, second = _per_tensor(name, tensors, tensor1), _per_tensor(name, tensors, tensor2)
    return (((t, a, b), {"value": v}) for t, a, b, v in zip(tensors, first, second, factors, strict=True))


def _lerp(name: str, self: Any, tensors1: Any, weight: Any) -> Any:
    tensors = _tensors(name, self)
    ends, weights = _per_tensor(name, tensors, tensors1), _per_tensor(name, tensors, weight)
    return (((t, e, w), {}) for t, e, w in zip(tensors, ends, weights, strict=True))


def _bound(tensor_rule: Any) -> Callable[..., Any]:
    """maximum and minimum, also with a number."""

    def each(x: Tensor, other: Any) -> Any:
        if isinstance(other, Tensor):
            return tensor_rule[0](x, other)
        return tensor_rule[1](x, other)

    return each


# ---- natively, all tensors in one call


# What operators do to elements (tocha.prims.native_rows.OnElements), by what their operands are: x, y, z elements, n a number.
_ELEMENTS: dict[tuple[str, str], Callable[..., Any]] = {
    ("add", "xy"): lambda o, x, y, *, alpha: o.plus_scaled(x, y, alpha),
    ("add", "xn"): lambda o, x, *, number: o.shifted(x, number),
    ("sub", "xy"): lambda o, x, y, *, alpha: o.plus_scaled(x, y, -alpha),
    ("mul", "xy"): lambda o, x, y: o.product(x, y),
    ("mul", "xn"): lambda o, x, *, number: o.scaled(x, number),
    ("div", "xy"): lambda o, x, y: o.quotient(x, y),
    ("div", "xn"): lambda o, x, *, number: o.divided(x, number),
    ("maximum", "xy"): lambda o, x, y: o.maximum(x, y),
    ("addcmul", "xyz"): lambda o, x, y, z, *, value: o.add_product(x, y, z, value),
    ("addcdiv", "xyz"): lambda o, x, y, z, *, value: o.add_quotient(x, y, z, value),
    ("lerp", "xyn"): lambda o, x, y, *, number: o.lerp(x, y, number),
    ("copy", "xy"): lambda o, x, y: o.replace(x, y),
    ("sqrt", "x"): lambda o, x: o.root(x),
    ("abs", "x"): lambda o, x: o.magnitude(x),
    ("neg", "x"): lambda o, x: o.negative(x),
    ("sign", "x"): lambda o, x: o.sign(x),
}
_DEFAULTS = {("add", "xy"): {"alpha": 1.0}, ("sub", "xy"): {"alpha": 1.0}}
_MANY = 1 << 15  # elements of which a kernel may run rows out of order


def _at_once(name: str, calls: Sequence[tuple[Any, Any]], inplace: bool) -> tuple[list[Any], Sequence[int]]:
    """The results of calls that one kernel does, None for others, and the numbers of those that are left."""
    count = len(calls)
    columns = {letter: list(column) for letter, column in zip("xyz", zip(*[operands for operands, _ in calls], strict=True))}
    numbers = _numbers([keywords for _, keywords in calls])
    if numbers is not None and count > 1 and not isinstance(last := columns[max(columns)][0], Tensor):
        scalars = columns.pop(max(columns))
        same = not numbers and last.__class__ in (int, float) and scalars.count(last) == count
        numbers = {"number": last} if same else None
    form = name, "".join(columns) + ("n" if numbers and "number" in numbers else "")
    apply = _ELEMENTS.get(form)
    if numbers is not None:
        numbers = {**_DEFAULTS.get(form, {}), **numbers}
    if apply is None or numbers is None or count == 1 or (inplace and len(columns) > 1 and _entangled(columns)):
        return [None] * count, range(count)
    if inplace:
        rule = Rule(f"_foreach_{name}_", lambda o, *x, **n: (apply(o, *x, **n),), read=tuple(columns)[1:])
        return [], fused_update(rule, columns, lambda _: numbers)
    if not alike([x for column in columns.values() for x in column]):
        return [None] * count, range(count)
    rule = Rule(f"_foreach_{name}", lambda o, out, *x, **n: (apply(o, *x, **n),), read=tuple(columns), new=("out",))
    out = [wrap(cpu.empty(a.shape, a.dtype)) for a in [x._a for x in columns["x"]]]
    return list(out), fused_update(rule, {"out": out, **columns}, lambda _: numbers)


def _numbers(keywords: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The options of all calls; None if they differ or aren't numbers."""
    first = keywords[0]
    for name, value in first.items():
        if value.__class__ not in (int, float) or any(
            k[name].__class__ is not value.__class__ or k[name] != value for k in keywords
        ):
            return None
    return first


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
    return (
        tuple(_TORCH["norm"](t, ord, dtype=dtype) for t in tensors)
        if found is None
        else tuple([wrap(cpu.asarray(norm)) for norm in found._a])
    )


@op("torch")
def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|**ord of every tensor of a list."""
    return tuple(_TORCH["sum"](_TORCH["pow"](t.abs(), ord), dtype=dtype) for t in _tensors("_foreach_powsum", self))


@op("torch")
def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of every tensor of a list."""
    return tuple(_TORCH["max"](t) for t in _tensors("_foreach_max", self))


@op("torch")
def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of every tensor of a list."""
    return tuple(clone(t) for t in _tensors("_foreach_clone", self))


@op("torch")
def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """Matrix products of two lists."""
    tensors = _tensors("_foreach_mm", self)
    return tuple(_TORCH["mm"](a, b) for a, b in zip(tensors, _per_tensor("_foreach_mm", tensors, mat2), strict=True))


@op("torch")
def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> None:
    """Copy the values of a list of tensors into another's."""
    tensors = _tensors("_foreach_copy_", self)
    calls: list[tuple[Any, Any]] = [
        ((t, s), {}) for t, s in zip(tensors, _per_tensor("_foreach_copy_", tensors, src), strict=True)
    ]
    for i in _at_once("copy", calls, True)[1]:
        copy_(*calls[i][0])


@op("torch")
def _foreach_zero_(self: Any) -> None:
    """Set every tensor of a list to 0."""
    for t in _tensors("_foreach_zero_", self):
        zero_(t)
