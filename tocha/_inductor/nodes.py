"""What graph nodes are to the compiler, and their elements as expressions.

    loop    pointwise rules, casts, copies, choices, fills, picks: an expression at any index; costs nothing until it is stored
    window  a view: another access to its operand
    reduce  a reduction whose operand is an expression
    scan    a running sum or product of an expression
    put     its operand's array, with a window of it stored over
    extern  everything else: an eager kernel call on arrays
    input   placeholders and constants: arrays that are there

`Elements` makes expressions: `element(node, access)` inlines loops and turns everything with memory into loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha._inductor import access as accesses
from tocha._inductor import picks
from tocha._inductor.access import Access, Shape
from tocha.aot import run
from tocha.backends.cpu import _FULL_NUMBERS
from tocha.backends.shared import number
from tocha.dtypes import HALF_NP
from tocha.fx import Node
from tocha.inductor import reduce
from tocha.inductor.loop_ir import HALVES, Const, Expr, Index, Load, Param, const, convert, select
from tocha.inductor.lower import NP_TYPES, Unsupported, trace
from tocha.inductor.pointwise import Renamer
from tocha.prims.pointwise import Pointwise

_FLOAT32 = np.dtype(np.float32)
_NP_INTEGER, _NP_FLOAT = "biu", "f"


class Wraps(Exception):
    """An access that an inlined node can't serve; `node` must have memory."""

    def __init__(self, node: Node) -> None:
        self.node = node


def shape_of(node: Node) -> Shape:
    """A node's shape."""
    return tuple(node.meta["val"].shape)


def own_of(node: Node) -> Shape:
    """The strides, in elements, of a node's memory."""
    value = node.meta["val"]
    size = value.itemsize
    return tuple([s // size for s in value.strides])


def type_of(node: Node) -> str:
    """The loop IR's name of a node's type."""
    return NP_TYPES[node.meta["val"].dtype]


def size_of(node: Node) -> int:
    """The number of a node's elements."""
    return int(node.meta["val"].size)


def prim_name(node: Node) -> str:
    """The primitive a node calls, or ""."""
    return str(getattr(node.target, "name", "")) if node.op == "call_function" else ""


def make_extern(node: Node) -> None:
    """Have an eager kernel serve a node from now on."""
    node.meta["kind"] = "extern"


def kind_of(node: Node) -> str:
    """See the module's text."""
    found = node.meta.get("kind")
    if found is None:
        found = node.meta["kind"] = _kind(node)
    return str(found)


def _kind(node: Node) -> str:
    if node.op == "placeholder" or node.target is run.constant:
        return "input"
    value = node.meta.get("val")
    if value is None or isinstance(value, tuple) or value.dtype not in NP_TYPES:
        return "extern"
    if node.target is run.window:
        base = node.args[0].meta["val"]
        return "window" if base.dtype == value.dtype and min(node.args[3], default=0) >= 0 and value.size else "extern"
    if node.target is run.put:
        return "put" if node.args[1].meta["val"].dtype == value.dtype and value.size else "extern"
    if not value.size:
        return "extern"
    if node.target is run.fill:
        return "loop"
    if isinstance(node.target, Pointwise):
        return "loop" if _plain_rule(node) else "extern"
    name = prim_name(node)
    if name == "cast":
        return "loop" if _plain_cast(node.args[0].meta["val"].dtype, value.dtype) else "extern"
    if name == "clone" or (name == "unsafe_view" and _is_contiguous(node.args[0])):
        return "loop"
    if name == "keep":
        return "loop"
    if name == "pick":
        return "loop" if kind_of(node.args[0]) in ("input", "extern") else "extern"
    if name == "where":
        return "loop" if all(a.meta["val"].dtype == node.kwargs["dtype"] for a in node.args[1:]) else "extern"
    if name in SCANS:
        return "scan" if _plain_scan(node) else "extern"
    return "reduce" if name in _REDUCTIONS and reduction(node) is not None else "extern"


def _is_contiguous(node: Node) -> bool:
    return own_of(node) == accesses.contiguous(shape_of(node))


def _plain_rule(node: Node) -> bool:
    """Whether a pointwise node computes on its operands' elements as they are, or converted to the type it computes in."""
    given, compute = node.kwargs["given"], node.kwargs["compute"]
    types = [a.meta["val"].dtype if isinstance(a, Node) else None for a in node.args]
    if any(t is not None and t not in NP_TYPES for t in types) or compute not in NP_TYPES:
        return False
    if compute is not given:
        return all(t is None or t == given for t in types)
    return all(t is None or t == compute or _plain_cast(t, compute) for t in types)


def _plain_cast(have: Any, want: Any) -> bool:
    """Casts that are one conversion for every value: not to integers from floats, nor to half types but from float32."""
    if have not in NP_TYPES or want not in NP_TYPES:
        return False
    if want in HALF_NP:
        return have in HALF_NP or have == _FLOAT32
    return have.kind in _NP_INTEGER or want.kind == "f" or want.kind == "b" or (have in HALF_NP and want.kind not in _NP_INTEGER)


_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin", "prod": "prod"}


def reduction(node: Node) -> reduce.Kind | None:
    """How a reduction accumulates; None where an eager kernel serves better."""
    x = node.args[0].meta["val"]
    floats = x.dtype.kind == "f" or x.dtype in HALF_NP
    return reduce.KINDS[_REDUCTIONS[prim_name(node)]] if floats and x.size and node.meta["val"].dtype == x.dtype else None


_FEW_ROWS, _FEW_ELEMENTS = 16, 32768
SCANS = {"cumsum": "add", "reversed_cumsum": "add", "cumprod": "mul"}
_SCANNED = frozenset(("f16", "bf16", "f32", "f64", "i64"))


def _plain_scan(node: Node) -> bool:
    """Whether a scan has chains enough for threads and vectors, each long enough to be worth its start."""
    value, dim = node.meta["val"], node.kwargs["dim"]
    if node.args[0].meta["val"].dtype != value.dtype or type_of(node) not in _SCANNED or not 0 <= dim < value.ndim:
        return False
    n = value.shape[dim]
    return value.size <= _FEW_ELEMENTS or (value.size // n >= _FEW_ROWS and (n >= _FEW_ROWS or own_of(node)[dim] != 1))


def row_dims(node: Node) -> int:
    """How many of the last dimensions a reduction is over; 0 if it is over others, or over rows so few and long that they are cut."""
    shape, dims = shape_of(node.args[0]), node.kwargs.get("dim")
    if node.meta.get("alone") or not dims:
        return 0
    inner = len(dims)
    if tuple(sorted(dims)) != tuple(range(len(shape) - inner, len(shape))):
        return 0
    rows, size = 1, size_of(node.args[0])
    for n in shape[: len(shape) - inner]:
        rows *= n
    return inner if rows >= _FEW_ROWS or size <= _FEW_ELEMENTS else 0


def operands(node: Node) -> list[Node]:
    """The nodes a loop, window, put or reduction reads."""
    return [a for a in node.args if isinstance(a, Node)]


def rounded(value: Expr, type: str) -> Expr:
    """A float32 value as it is after it was stored as `type`, if that is a half type."""
    return convert(convert(value, type), "f32") if type in HALVES else value


def is_cheap(node: Node) -> bool:
    """Whether computing a loop node's element again costs no more than loading it."""
    if isinstance(node.target, Pointwise):
        ufunc = node.target.ufunc
        return ufunc is not None and ufunc.__name__ in _CHEAP
    return prim_name(node) != "pick"


_CHEAP = frozenset((
    "add", "subtract", "multiply", "negative", "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_not", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "invert", "absolute",
))  # fmt: skip


class Elements:
    """Expressions for one kernel over `loop`. `has_memory` tells which nodes are loaded rather than inlined; `arrays` collects
    (node, access) of what is loaded, array k at the position `Index("at<k>")`."""

    def __init__(
        self,
        loop: Shape,
        has_memory: Callable[[Node, Access], bool],
        given: Callable[[Node, Access], Expr | None] | None = None,
    ) -> None:
        self.loop, self.has_memory, self.given = loop, has_memory, given
        self.arrays: dict[tuple[Node, Access], int] = {}
        self.hard: list[Expr] = []
        self.picks: list[Node] = []
        self.exact = False
        self.known: dict[tuple[Node, Access, bool], Expr] = {}

    def element(self, node: Node, access: Access) -> Expr:
        """The element of `node` at `access`."""
        key = (node, access, self.exact)
        found = self.known.get(key)
        if found is None:
            found = None if self.given is None else self.given(node, access)
            if found is None:
                found = self._load(node, access) if self.has_memory(node, access) else self._inlined(node, access)
            self.known[key] = found
        return found

    def _load(self, node: Node, access: Access, further: Any = 0) -> Expr:
        number = self.arrays.setdefault((node, access), len(self.arrays))
        type = type_of(node)
        loaded: Expr = Load(f"x{number}", Index(f"at{number}") + further, type)
        return convert(loaded, "f32") if type in HALVES else loaded

    def _inlined(self, node: Node, access: Access) -> Expr:
        kind = kind_of(node)
        if kind == "window":
            return self.element(node.args[0], through(node, access, self.loop))
        if kind != "loop":
            raise Wraps(node)
        if prim_name(node) == "pick":
            table, index = node.args
            where = picked_places(node, access, self.loop)
            self.picks.append(node)
            return self._load(table, where.table, convert(self.element(index, where.at), "index") * where.step)
        if node.target is run.fill:
            _, dtype, value = node.args
            value = 0 if value is None else value
            return (
                Const(number(value, dtype).item(), type_of(node))
                if dtype not in HALF_NP
                else Const(float(dtype.type(value)), "f32")
            )
        return self._computed(node, [self._operand(node, a, access) for a in node.args])

    def _operand(self, node: Node, a: Any, access: Access) -> Any:
        if not isinstance(a, Node):
            return a
        return self.element(a, operand_access(node, a, access, self.loop))

    def _computed(self, node: Node, values: list[Any]) -> Expr:
        type = type_of(node)
        compute_type = "f32" if type in HALVES else type
        if not isinstance(node.target, Pointwise):
            if prim_name(node) == "where":
                return select(convert(values[0], "bool"), values[1], values[2])
            if prim_name(node) == "keep":
                return select(convert(values[1], "bool"), values[0], const(0, values[0].type))
            return rounded(convert(values[0], compute_type), type)
        params = dict(node.kwargs)
        given, compute, _ = params.pop("given"), params.pop("compute"), params.pop("dtype")
        inner = NP_TYPES[compute]
        exprs = [
            convert(v, inner) if isinstance(v, Expr) else _constant(node, i, v, given, compute) for i, v in enumerate(values)
        ]
        try:
            value, hard = _traced(node.target.impl, exprs, params, self.exact)
        except Unsupported:
            make_extern(node)
            raise Wraps(node) from None
        self.hard += hard
        numbers = {Param(n, "f64"): Const(v, "f64") for n, v in params.items() if v.__class__ is float}
        return rounded(convert(Renamer(numbers)(value) if numbers else value, compute_type), type)


_rules: dict[Any, tuple[Expr, list[Expr]]] = {}


def _traced(rule: Any, exprs: list[Any], params: dict[str, Any], exact: bool) -> tuple[Expr, list[Expr]]:
    """A rule's expression, and where it is hard. Equal expressions are one object, so that a model's layers find those of the first."""
    key = (rule, *exprs, *[(name, repr(value)) for name, value in params.items()], exact)
    found = _rules.get(key)
    if found is None:
        value, traced = trace(rule, exprs, params, exact=exact)
        if len(_rules) >= 1024:
            _rules.clear()
        found = _rules[key] = value, traced.hard
    return found


def _constant(node: Node, i: int, value: Any, given: Any, compute: Any) -> Expr:
    """A Python number among a rule's operands, rounded as eager calls round it."""
    if compute is not given and not (i and node.target.name in _FULL_NUMBERS):
        value = float(given.type(value))
    return Const(number(value, compute).item(), NP_TYPES[compute])


def reads(
    node: Node, loop: Shape, has_memory: Callable[[Node], bool], at: Access | None = None
) -> dict[tuple[Node, Access], None]:
    """The accesses to memory that computing `node` at its own places over `loop` (or at others) makes. Raises Wraps."""
    found: dict[tuple[Node, Access], None] = {}
    seen: set[tuple[Node, Access]] = set()
    stack = [(node, Access(own_of(node), 0) if at is None else at)]
    while stack:
        here = stack.pop()
        if here in seen:
            continue
        seen.add(here)
        n, access = here
        if n is not node and has_memory(n):
            found[here] = None
        elif kind_of(n) == "window":
            stack.append((n.args[0], through(n, access, loop)))
        elif prim_name(n) == "pick" and kind_of(n) == "loop":
            where = picked_places(n, access, loop)
            found[n.args[0], where.table] = None
            stack.append((n.args[1], where.at))
        elif kind_of(n) == "loop":
            stack += [(a, operand_access(n, a, access, loop)) for a in operands(n)]
        elif n is node:
            found[here] = None
        else:
            raise Wraps(n)
    return found


def picked_places(node: Node, access: Access, loop: Shape) -> picks.Places:
    """Where a pick is read for its element at `access`. Raises Wraps."""
    found = picks.places(node, access, loop)
    if found is None:
        raise Wraps(node)
    return found


def view_of(node: Node, has_memory: Callable[[Node], bool]) -> tuple[Node, Access]:
    """The node with memory that `node`'s elements lie in, and where. Raises Wraps."""
    if kind_of(node) != "window":
        return node, Access((), 0)
    loop, access = shape_of(node), Access(own_of(node), 0)
    while kind_of(node) == "window" and not has_memory(node):
        node, access = node.args[0], through(node, access, loop)
    return node, access


def through(window: Node, access: Access, loop: Shape) -> Access:
    """An access to a window as one to its operand."""
    base, own, shape, strides, offset, _ = window.args
    item = base.meta["val"].itemsize
    steps, assumed = tuple(s // item for s in strides), tuple(s // item for s in own)
    if own_of(window) == steps:
        found = Access(access.steps, access.offset + offset // item)
    else:
        index = accesses.axes(access, loop, shape, own_of(window))
        if index is None:
            raise Wraps(window)
        found = accesses.along(index, steps, loop, offset // item)
    if assumed == own_of(base):
        return found
    index = accesses.axes(found, loop, shape_of(base), assumed)
    if index is None:
        raise Wraps(window)
    return accesses.along(index, own_of(base), loop)


def operand_access(node: Node, a: Node, access: Access, loop: Shape) -> Access:
    """Where a loop node's operand is read for the node's element at `access`."""
    shape, have = shape_of(node), shape_of(a)
    if prim_name(node) == "unsafe_view" or (shape == have and own_of(node) == own_of(a)):
        return access
    index = accesses.axes(access, loop, shape, own_of(node))
    if index is None:
        raise Wraps(node)
    return accesses.along(accesses.broadcast(index, have), own_of(a), loop)
