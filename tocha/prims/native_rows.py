"""Pointwise rules over rows of tensors, run natively for all rows in one call, or in NumPy: optimizer steps, scaling of gradients.

A rule is `rule(o, elements of a row…, **numbers) -> new values of those that are written`, on the operations of `OnElements`; the caller has the same
rule, or operators that come to the same, for what `fused_update` leaves. Both ways round alike: after each operation, to the tensors' type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tocha.autograd.graph import bump_all
from tocha.autograd.mode import INFERENCE
from tocha.autograd.mode import state as mode
from tocha.backends import cpu, native_lists
from tocha.dispatch.override import FUNCTION_MODES, HOLLOW, INTERPRETERS, NO_DISPATCH, PLAIN
from tocha.prims.pointwise import ALL as PRIMS
from tocha.tensor import Tensor, wrap

_RECORDED = attrgetter("_rg")
_object: Any = object.__new__
_EXACT = 1 << 24  # up to here a float32 counts exactly
_SMALL = 16384  # elements up to which NumPy's temporaries cost less than tensors


class Rule(NamedTuple):
    """`name` is what error messages call the rule; the columns in `read` are only read, those in `new` have been seen by nobody."""

    name: str
    apply: Callable[..., tuple[Any, ...]]
    read: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


class OnElements:
    """The operations on elements: the scalar rules of primitives, each rounded to `half` if that is given."""

    def __init__(self, o: Any, half: Any) -> None:
        self.o, self.half = o, half

    def _run(self, primitive: str, *operands: Any, **params: Any) -> Any:
        value = PRIMS[primitive].impl(self.o, *operands, **params)
        return value if self.half is None else value.astype(self.half).astype(self.o.float32)

    def _number(self, x: Any) -> Any:
        """A number in a sum, which is rounded first (in a product it isn't); one written in the rule is exact in any type."""
        return x if self.half is None or x.__class__ is float else x.astype(self.half).astype(self.o.float32)

    def regularised(self, param: Any, grad: Any, weight_decay: Any, maximize: bool) -> Any:
        if maximize:
            grad = self._run("neg", grad)
        return self.plus_scaled(grad, param, weight_decay) if weight_decay != 0 else grad

    def copy(self, x: Any) -> Any:
        return x

    kept = copy

    def scale(self, x: Any, factor: Any) -> Any:
        return self._run("mul", x, factor)

    def lerp(self, x: Any, y: Any, weight: Any) -> Any:
        return self._run("lerp_scalar", x, y, weight=weight)

    def add_product(self, x: Any, y: Any, z: Any, value: Any) -> Any:
        return self._run("addcmul", x, y, z, value=value)

    def add_quotient(self, x: Any, y: Any, z: Any, value: Any) -> Any:
        return self._run("addcdiv", x, y, z, value=value)

    def add_scaled(self, x: Any, y: Any, factor: Any) -> Any:
        """Of float32 rounded once, as in torch."""
        return self.o.fma(y, factor, x) if self.half is None else self.plus_scaled(x, y, factor)

    def plus_scaled(self, x: Any, y: Any, factor: Any) -> Any:
        product = PRIMS["mul"].impl(self.o, y, self._number(factor))
        return self._run("add", x, product)

    def mean_square(self, x: Any, y: Any, old: Any, new: Any) -> Any:
        return self.add_product(self.scale(x, old), y, y, new)

    def maximum(self, x: Any, y: Any) -> Any:
        return self._run("maximum", x, y)

    def root(self, x: Any) -> Any:
        return self._run("sqrt", x)

    def deviation(self, x: Any, mean: Any) -> Any:
        return self.root(self.add_product(x, mean, mean, -1))

    def plus(self, x: Any, number: Any) -> Any:
        return self._run("add", x, self._number(number))

    def over(self, x: Any, number: Any) -> Any:
        return self._run("true_divide", x, number)

    def inverse(self, number: Any, x: Any) -> Any:
        return self.scaled(self._run("reciprocal", x), number)

    def magnitude(self, x: Any) -> Any:
        return self._run("abs", x)

    def product(self, x: Any, y: Any) -> Any:
        return self._run("mul", x, y)

    def applied(self, primitive: str, *operands: Any, **params: Any) -> Any:
        """A primitive of elements, in torch's sense: its numbers are rounded only with the result."""
        return self._run(primitive, *operands, **params)

    def zero(self, x: Any) -> Any:
        return self.o.where(self.o.eq(x, x), 0, 0)

    def quotient(self, x: Any, y: Any) -> Any:
        return self._run("true_divide", x, y)

    def replace(self, x: Any, y: Any) -> Any:
        return y

    def toward(self, x: Any, y: Any, share: Any) -> Any:
        return self._run("add", x, self._run("mul", self._run("sub", y, x), share))

    def scale_by_sign(self, x: Any, sign: Any, up: Any, down: Any) -> Any:
        o, larger, smaller = self.o, self._run("mul", x, self._number(up)), self._run("mul", x, self._number(down))
        return o.where(o.gt(sign, 0), larger, o.where(o.lt(sign, 0), smaller, x))

    def clamp(self, x: Any, low: Any, high: Any) -> Any:
        return self._run("clamp_scalar", x, min=low, max=high)

    def zero_below(self, x: Any, sign: Any) -> Any:
        return self.o.where(self.o.lt(sign, 0), 0, x)

    def sign(self, x: Any) -> Any:
        return self._run("sign", x)

    shifted, scaled, divided, times = plus, scale, over, product


def fused_update(
    rule: Rule,
    columns: dict[str, list[Any]],
    numbers: Callable[..., dict[str, Any]],
    steps: list[Any] | None = None,
    beside: Sequence[list[Any]] = (),
) -> Sequence[int]:
    """Run `rule` on the rows of `columns` (a list of tensors for each operand, by name); returns the numbers of the rows that are left.

    `numbers(step, …)` are the rule's numbers and flags at a step (1 without `steps`); `steps` are the rows' counters, counted up
    here for rows that are done. `beside` are lists of one-element tensors, one a row, whose values `numbers` takes too.
    Left are rows of other devices and types, with strides, or with one memory for two of their tensors; all rows if one tensor is of a
    class of its own, while gradients of one are recorded and while a mode is on.
    """
    first, count = next((name, len(column)) for name, column in columns.items())
    left, arrays = range(count), _arrays(columns)
    counters = _counters(steps) if steps else []
    others = [_counters(column) for column in beside]
    if arrays is None or counters is None or None in others:
        return left
    if not steps and not others and _whole(rule, arrays, numbers(1.0)):
        bump_all([t for name in columns if name not in rule.read + rule.new for t in columns[name]], rule.name)
        return ()
    now: list[Any] = [a.item() + 1.0 for a in counters] if counters else [1.0] * count
    if others:
        now = list(zip(now, *[[a.item() for a in column or ()] for column in others], strict=True))
    kinds = [a.dtype for a in arrays[first]]
    if now.count(now[0]) == count and kinds.count(kinds[0]) == count:
        groups: dict[Any, Sequence[int]] = {(kinds[0], now[0]): left}
    else:
        groups = _groups(kinds, now)
    done: list[int] = []
    for (dtype, given), rows in groups.items():
        step, *values = given if others else (given,)
        if step < _EXACT:
            chosen = arrays if rows is left else {name: [column[i] for i in rows] for name, column in arrays.items()}
            ran = _run(rule, dtype, rows, chosen, numbers(step, *values))
            for i in ran if counters else ():
                counters[i][()] = step
            done += ran
    changed = [columns[name] for name in columns if name not in rule.read + rule.new] + ([steps] if steps else [])
    if len(done) == count:
        bump_all([t for column in changed for t in column], rule.name)
        return ()
    bump_all([column[i] for column in changed for i in done], rule.name)
    return sorted(set(left).difference(done))


def fused_results(rule: Rule, columns: dict[str, list[Any]], numbers: dict[str, Any]) -> tuple[list[Any], Sequence[int]]:
    """New tensors of which `rule`'s first operand, "out", has one for each of the first column, and the numbers of the rows that are left."""
    first, arrays = next(iter(columns.values())), _arrays(columns)
    if arrays is None or first[0]._a.__class__ is not native_lists.ndarray:
        return [None] * len(first), range(len(first))
    new = [cpu.empty(t._a.shape, t._a.dtype) for t in first]
    if _whole(rule, {"out": new, **arrays}, numbers):
        return wrap_all(new), ()
    if not alike([x for column in columns.values() for x in column]):
        return [None] * len(first), range(len(first))
    out = wrap_all([cpu.empty_like(t._a) for t in first])  # in their own memory order
    return list(out), fused_update(rule, {"out": out, **columns}, lambda _: numbers)


def wrap_all(arrays: list[Any]) -> list[Any]:
    """`wrap` of each, in one go."""
    if INFERENCE:
        return list(map(wrap, arrays))
    found = []
    for a in arrays:
        t = _object(Tensor)
        t._a, t._rg, t._nr = a, False, 0
        t._grad = t._node = t._vc = t._view = t._extra = None
        found.append(t)
    return found


def _arrays(columns: dict[str, list[Any]]) -> dict[str, list[Any]] | None:
    """The tensors' arrays; None where operators may do something special on one, or record it, and of no tensors."""
    if FUNCTION_MODES or INTERPRETERS or not all(columns.values()):
        return None
    for column in columns.values():
        if not _plain(column) or (mode.grad and any(map(_RECORDED, column))):
            return None
    return {name: [t._a for t in column] for name, column in columns.items()}


def _whole(rule: Rule, arrays: dict[str, list[Any]], numbers: dict[str, Any]) -> bool:
    """Whether a kernel did all rows, having seen that they are of one type and as it wants them."""
    lead = next(iter(arrays.values()))[0]
    found = _kernel(rule, lead.dtype, arrays, numbers) if lead.__class__ is native_lists.ndarray else None
    return found is not None and found[0](*arrays.values(), *found[1])


def alike(tensors: list[Any]) -> bool:
    """Whether these are plain CPU tensors of one dtype."""
    arrays: list[Any] = [t._a for t in tensors] if tensors and _plain(tensors) else [None]
    return set(map(type, arrays)) == {native_lists.ndarray} and len({a.dtype for a in arrays}) == 1


def reduced(name: str, tensors: list[Any]) -> Any:
    """An array with the results of reduction `name` (tocha.inductor.reduce.KINDS) of each tensor, in the type it is accumulated in, by one
    native call; None where they aren't plain dense CPU tensors of one type with elements, or gradients are recorded."""
    if FUNCTION_MODES or INTERPRETERS or not alike(tensors) or (mode.grad and any(t._rg for t in tensors)):
        return None
    arrays = [t._a for t in tensors]
    return native_lists.reduced(name, arrays) if all(a.size for a in arrays) else None


def _plain(tensors: list[Any]) -> bool:
    """Whether operators do nothing special on the classes of these (tensors, or None)."""
    classes = set(map(type, tensors))
    return classes <= PLAIN and classes <= NO_DISPATCH and classes.isdisjoint(HOLLOW)


def _counters(steps: list[Any]) -> list[Any] | None:
    """The arrays of the step counters, None if they are no numbers in memory, one a row."""
    if not _plain(steps):
        return None
    arrays = [t._a for t in steps]
    if {a.__class__ for a in arrays} != {native_lists.ndarray} or not {a.dtype for a in arrays} <= native_lists.COUNTERS:
        return None
    return arrays if len(set(map(id, arrays))) == len(arrays) and {a.size for a in arrays} == {1} else None


def _groups(kinds: list[Any], steps: list[Any]) -> dict[Any, Sequence[int]]:
    """Row numbers by dtype and step (and values beside it)."""
    found: dict[Any, list[int]] = {}
    for i, key in enumerate(zip(kinds, steps, strict=True)):
        found.setdefault(key, []).append(i)
    return dict(found)


def _run(rule: Rule, dtype: Any, rows: Sequence[int], arrays: dict[str, list[Any]], numbers: dict[str, Any]) -> Sequence[int]:
    """Run the rule natively on all `rows`, or on those that a kernel takes; returns them."""
    params = _params(numbers)
    if params is None:
        return ()
    found = _kernel(rule, dtype, arrays, params)
    if found is None:
        return _run_on_arrays(rule, dtype, rows, arrays, params)
    run, values = found
    if run(*arrays.values(), *values):
        return rows
    return [i for k, i in enumerate(rows) if run(*[[column[k]] for column in arrays.values()], *values)]


def _params(numbers: dict[str, Any]) -> dict[str, Any] | None:
    """The numbers as floats, and flags; None if one is neither."""
    params = {}
    for name, value in numbers.items():
        if value.__class__ is int:
            value = float(value)
        elif value.__class__ is not float and value.__class__ is not bool:
            return None
        params[name] = value
    return params


def _kernel(rule: Rule, dtype: Any, arrays: dict[str, list[Any]], numbers: dict[str, Any]) -> tuple[Callable[..., bool], list[Any]] | None:
    """What runs the rule on lists of arrays, and the numbers it takes; None where there is none (yet)."""
    params = _params(numbers)
    if params is None:
        return None
    written = [name for name in arrays if name not in rule.read]
    kernel = native_lists.find(
        rule.name, lambda o, half, *x, **n: rule.apply(OnElements(o, half), *x, **n), tuple(arrays), written, dtype, params
    )
    return None if kernel is None or kernel.run is None else (kernel.run, [params[name] for name in kernel.params])


def _run_on_arrays(
    rule: Rule, dtype: Any, rows: Sequence[int], arrays: dict[str, list[Any]], params: dict[str, Any]
) -> Sequence[int]:
    """The rule in NumPy on small rows, without tensors around each operation: while there is no kernel, and without a compiler."""
    if dtype not in native_lists.COUNTERS:
        return ()
    o, written, done = OnElements(cpu, None), [k for k, name in enumerate(arrays) if name not in rule.read], []
    for i, row in zip(rows, zip(*arrays.values(), strict=True), strict=True):
        if native_lists.alike(row) and row[0].size <= _SMALL:
            for k, value in zip(written, mode.run(rule.apply, o, *row, **params), strict=True):
                row[k][...] = value
            done.append(i)
    return done


SCALE = Rule("mul_", lambda o, x, *, factor: (o.scale(x, factor),))
