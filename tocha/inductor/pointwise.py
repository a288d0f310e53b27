"""Kernels of pointwise rules: one loop nest around the expression that the rule computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tocha.inductor.layout import size_names
from tocha.inductor.loop_ir import (
    HALVES,
    Accumulate,
    Assign,
    Binary,
    Buffer,
    Call,
    Const,
    Convert,
    Declare,
    Expr,
    Fma,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    Node,
    Param,
    Read,
    Size,
    Statement,
    Store,
    convert,
    select,
    verify,
    walk,
)  # fmt: skip
from tocha.inductor.lower import Guard, trace

_BLOCK = 1024  # elements between looks at whether some need the exact computation


class Made:
    """A kernel with the guards under which it serves, the least number of elements worth a thread, the rule's parameters it takes, and
    whether it reads operands `again` after it has written (then the output must not be one of them)."""

    def __init__(
        self, kernel: Kernel, guards: tuple[Guard, ...], grain: int, params: tuple[str, ...], again: bool = False
    ) -> None:
        self.kernel, self.guards, self.grain, self.params, self.again = kernel, guards, grain, params, again


def make(
    name: str,
    rule: Callable[..., Any],
    types: tuple[str, ...],
    compute: str,
    out: str,
    params: dict[str, Any],
    dimensions: int,
    inner: str,
) -> Made:
    """The kernel of `rule` on operands of `types` ("number" for Python numbers), computed in type `compute` and stored as `out`.

    `inner` has a letter for the output and each array: its step along the inner loop (tocha.inductor.layout). Raises Unsupported.
    """
    arrays = [Buffer("out", out)]
    scalars: list[Param] = []
    position: list[Buffer | Param] = []
    for number, type in enumerate(types):
        if type == "number":
            scalars.append(Param(f"x{number}", compute))
            position.append(scalars[-1])
        else:
            arrays.append(Buffer(f"x{number}", type))
            position.append(arrays[-1])
    place = _Places(arrays, dimensions, inner)

    def operands(offset: Callable[[int], Expr]) -> list[Expr]:
        exprs: list[Expr] = []
        for item in position:
            found: Expr = item if isinstance(item, Param) else Load(item.name, offset(arrays.index(item)), item.type)
            exprs.append(convert(convert(found, "f32") if found.type in HALVES else found, compute))
        return exprs

    inputs = operands(place.offset)
    value, run = trace(rule, inputs, params)
    target = convert(value, out)
    stores: tuple[Store, ...] = (Store("out", place.offset(0), target),)
    if run.hard:
        exact, again = trace(rule, inputs, params, exact=True)
        run.guards.update(again.guards)
        hard: Expr = run.hard[0]
        for condition in run.hard[1:]:
            hard = hard | condition
        body = place.loops(stores[0], hard, convert(exact, out))
    else:
        body = place.loops(stores[0], None, None)
    used = {n for n in walk(body) if isinstance(n, Param)}
    named = tuple(n for n, v in params.items() if v.__class__ is float and Param(n, "f64") in used)
    kernel = Kernel(name, tuple(arrays), (*scalars, *[Param(n, "f64") for n in named]), place.sizes, body)
    verify(kernel)
    return Made(kernel, tuple(run.guards), grain_of(body), named, bool(run.hard))


class _Places:
    """Offsets of an element in each array, and the loops over elements."""

    def __init__(self, arrays: list[Buffer], dimensions: int, inner: str) -> None:
        self.dimensions, self.inner = dimensions, inner
        self.sizes = tuple(map(Size, size_names(dimensions, len(arrays)))) if dimensions > 1 or "n" in inner else ()
        self.element = Index("j")

    def offset(self, array: int) -> Expr:
        last = self.dimensions - 1
        kind = self.inner[array]
        step: Expr = Size(f"s{array}_{last}") if kind == "n" else Const(int(kind), "index")
        found = self.element * step
        if self.sizes:
            for d, position in enumerate(self._outer()):
                found = position * Size(f"s{array}_{d}") + found
        return found

    def _outer(self) -> list[Expr]:
        """The outer dimensions' indices from the unit's number."""
        rest: Expr = Binary("div", Index("unit"), Size("blocks"))
        found: list[Expr] = []
        for d in range(self.dimensions - 2, -1, -1):
            found.insert(0, rest if d == 0 else Binary("rem", rest, Size(f"n{d}")))
            rest = Binary("div", rest, Size(f"n{d}"))
        return found

    def loops(self, store: Store, hard: Expr | None, exact: Any) -> tuple[Statement, ...]:
        if not self.sizes:
            if hard is None:
                return (Loop("j", Size("lo"), Size("hi"), (store,), "vector"),)
            start = Size("lo") + Index("block_number") * _BLOCK
            stop = Binary("min", start + _BLOCK, Size("hi"))
            count = Binary("div", Size("hi") - Size("lo") + (_BLOCK - 1), Const(_BLOCK, "index"))
            return (Loop("block_number", Const(0, "index"), count, checked(self.element, start, stop, [(store, exact)], hard)),)
        last = Size(f"n{self.dimensions - 1}")
        start = Binary("rem", Index("unit"), Size("blocks")) * Size("block")
        stop = Binary("min", start + Size("block"), last)
        body: tuple[Statement, ...] = (Loop("j", start, stop, (store,), "vector"),)
        if hard is not None:
            body = checked(self.element, start, stop, [(store, exact)], hard)
        return (Loop("unit", Size("lo"), Size("hi"), body),)


def checked(element: Expr, start: Expr, stop: Expr, stores: Sequence[tuple[Store, Expr]], hard: Expr) -> tuple[Statement, ...]:
    """The fast loop over `element`, which notes whether one was `hard`, and if so another that stores the exact values of the hard ones."""
    again = Renamer({element: Index("again")})
    slow = If(again(hard), tuple(Store(s.buffer, again(s.offset), again(exact)) for s, exact in stores))
    note = Accumulate("or", "any_hard", select(hard, Const(1, "i32"), 0))
    return (
        Declare("any_hard", "i32", Const(0, "i32")),
        Assign("any_hard", Const(0, "i32")),
        Loop("j", start, stop, (*[s for s, _ in stores], note), "vector"),
        If(Read("any_hard", "i32") > 0, (Loop("again", start, stop, (slow,)),)),
    )


class Renamer:
    """Expressions and statements with some expressions, and names of buffers, replaced."""

    def __init__(self, replaced: Mapping[Any, Any]) -> None:
        self.known: dict[Any, Any] = dict(replaced)

    def __call__(self, x: Any) -> Any:
        if x not in self.known:
            self.known[x] = x.__class__(*map(self._field, x.__dict__.values()))
        return self.known[x]

    def _field(self, v: Any) -> Any:
        if v.__class__ is tuple:
            return tuple(map(self, v))
        return self(v) if isinstance(v, Node) else self.known.get(v, v) if v.__class__ is str else v


def grain_of(body: tuple[Statement, ...]) -> int:
    """Elements that keep a thread busy for some 10 µs, from the operations they cost."""
    cost = 0.0
    for node in walk(body):
        if isinstance(node, (Load, Store)):
            cost += 4
        elif isinstance(node, (Fma, Binary)):
            cost += 8 if node.__class__ is Binary and node.op in ("div", "rem") else 1
        elif isinstance(node, Call):
            cost += 200
        elif isinstance(node, Convert):
            cost += 2
    return max(1024, round(400_000 / cost) // 64 * 64)
