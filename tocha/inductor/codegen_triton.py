"""Triton source of a kernel's loops: readable Python, one function a kernel.

Two shapes of kernel are printed. Pointwise kernels number the elements; a program takes BLOCK of them. Row kernels (a loop over units whose
vector loops run along a row: softmax, layer_norm, reductions of the last dimension) take ROWS rows a program as tensors of ROWS × BLOCK.
Rows of up to BLOCK elements are loaded once and stay in registers; longer ones (`looped`) are walked a block at a time.
What a kernel stores and loads again becomes the value itself. Anything else is Unsupported.

The numbers are those of the LLVM kernels: fused multiply-adds where the IR has them and nowhere else, correctly rounded division and
square roots, extremes that let NaN through; sums differ in order alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tocha.inductor.loop_ir import (
    BITS,
    FLOATS,
    HALVES,
    Accumulate,
    Assign,
    Binary,
    Bitcast,
    Call,
    Compare,
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
    Select,
    Size,
    Statement,
    Store,
    Unary,
    binary,
    walk,
)  # fmt: skip
from tocha.inductor.lower import Unsupported

TYPES = {
    "bool": "tl.int1", "f16": "tl.float16", "bf16": "tl.bfloat16", "f32": "tl.float32", "f64": "tl.float64",
    **{f"{sign}{bits}": f"tl.{'u' if sign == 'u' else ''}int{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
}  # fmt: skip
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_TAKEN = (
    "tl", "triton", "libdevice", "unit", "units", "element", "elements", "here", "inside", "mask", "j", "start", "hard", "value", "BLOCK", "ROWS",
)  # fmt: skip
_ZERO, _ONE = Const(0, "index"), Const(1, "index")
_J, _UNIT = Index("j"), Index("unit")
_LONG = 88  # characters of an expression that gets a line and a name of its own
_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
_COMBINE = {
    "add": "x + y", "mul": "x * y", "and": "x & y", "or": "x | y",
    "max": "tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", "min": "tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)",
}  # fmt: skip


class Source(NamedTuple):
    """A printed kernel. Its arguments: `buffers` as NAME_ptr, `params` and `sizes` (with their types, "index" for sizes), then the number of
    `elements` or, of row kernels, of `units`, and the constants BLOCK and, for row kernels, ROWS."""

    name: str
    text: str
    rows: bool
    buffers: tuple[tuple[str, str], ...]
    params: tuple[tuple[str, str], ...]
    sizes: tuple[str, ...]


def generate(kernel: Kernel, looped: bool = False, wide: bool = False) -> Source:
    """The kernel's source. `looped`: rows may be longer than BLOCK; `wide`: offsets may not fit 32 bits. Raises Unsupported."""
    if kernel.finish:
        raise Unsupported(f"{kernel.name} has a second step")
    outer = kernel.body[0]
    if len(kernel.body) != 1 or not isinstance(outer, Loop) or outer.stop not in (Size("hi"), _block_count(outer)):
        raise Unsupported(f"{kernel.name} is no loop over elements or rows")
    rows = outer.index == "unit" and Size("block") not in kernel.sizes
    printer = _Printer(kernel, looped, wide)
    if rows:
        steps = _Rows().steps(outer.body)
        printer.rows(steps)
        length = _length(steps)
    else:
        printer.pointwise(*_elements(outer))
        length = kernel.sizes[[s.name for s in kernel.sizes].index("block") - 1] if kernel.sizes else None
    return printer.source(rows, length)


def _block_count(outer: Loop) -> Expr | None:
    """The number of blocks in which a flat kernel looks for elements that need the exact computation."""
    return outer.stop if outer.index == "block_number" else None


# ---- rewriting expressions


class _Rewriter:
    """Expressions with some nodes replaced, and offsets simplified."""

    def __init__(self, known: dict[Any, Any]) -> None:
        self.known = dict(known)

    def __call__(self, x: Any) -> Any:
        if x not in self.known:
            self.known[x] = self.rebuilt(x)
        return self.known[x]

    def rebuilt(self, x: Any) -> Any:
        if isinstance(x, Const):
            return x
        fields = [
            tuple(map(self, v)) if v.__class__ is tuple else self(v) if isinstance(v, Expr) else v for v in x.__dict__.values()
        ]
        if isinstance(x, Binary) and x.x.type == "index":
            _, a, b = fields
            if b is _ONE and x.op in ("div", "rem"):
                return a if x.op == "div" else _ZERO
            return binary(x.op, a, b)
        return x.__class__(*fields)


def _elements(outer: Loop) -> tuple[list[Store], Expr | None, Expr | None]:
    """The stores of a pointwise kernel with one number for all elements, and for which elements another value (which) is stored instead."""
    body = outer.body if outer.index != "j" else (outer,)
    loops = [s for s in body if isinstance(s, Loop) and s.kind == "vector" and s.index == "j"]
    if len(loops) != 1:
        raise Unsupported("a pointwise kernel of several loops")
    rewrite = _Rewriter({Size("blocks"): _ONE, Index("again"): _J})
    stores = [Store(s.buffer, rewrite(s.offset), rewrite(s.value)) for s in loops[0].body if isinstance(s, Store)]
    checks = [s for s in body if isinstance(s, If)]
    if not checks:
        if len(stores) != len(loops[0].body) or len(body) != 1:
            raise Unsupported("a pointwise kernel that does more than storing")
        return stores, None, None
    slow: Any = checks[0].body[0]
    again: Any = slow.body[0]
    return stores, rewrite(again.condition), rewrite(again.body[0].value)


class _Each(NamedTuple):
    """A loop over the elements j < stop of a row; `before` and `after` belong to each block of it."""

    before: tuple[Statement, ...]
    body: tuple[Statement, ...]
    after: tuple[Statement, ...]
    stop: Expr


Step = Statement | _Each


class _Rows:
    """The steps of a row kernel: loops over blocks become loops over the row, and loads of what was stored the values."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, Expr], tuple[Expr, dict[str, int]]] = {}
        self.written: set[str] = set()
        self.versions: dict[str, int] = {}

    def steps(self, body: tuple[Statement, ...]) -> list[Step]:
        found = [self.step(s) for s in body]
        return _without_overwritten([s for n, s in enumerate(found) if not _repeated(found, n)])

    def step(self, s: Statement) -> Step:
        if not isinstance(s, Loop):
            return self.statement(s, {})
        if s.kind == "vector":
            return self.each((), s, (), _ZERO, s.stop)
        inner = [n for n, t in enumerate(s.body) if isinstance(t, Loop)]
        if len(inner) == 1:
            loop: Any = s.body[inner[0]]
            start, stop = loop.start, loop.stop
            by_block = (
                isinstance(start, Binary) and start.op == "mul" and start.x is Index(s.index) and isinstance(start.y, Const)
            )
            if by_block and loop.kind == "vector" and isinstance(stop, Binary) and stop.op == "min" and stop.x is start + start.y:
                return self.each(s.body[: inner[0]], loop, s.body[inner[0] + 1 :], start, stop.y)
        raise Unsupported("a loop that is neither along a row nor over blocks of one")

    def each(self, before: Any, loop: Loop, after: Any, start: Expr, stop: Expr) -> _Each:
        if loop.start is not start:
            raise Unsupported("a loop over a part of a row")
        names: dict[Any, Any] = {Index(loop.index): _J}
        first = tuple([self.statement(s, {}) for s in before])
        body = tuple([self.statement(s, names) for s in loop.body])
        return _Each(first, body, tuple([self.statement(s, {}) for s in after]), stop)

    def statement(self, s: Statement, names: dict[Any, Any]) -> Statement:
        if isinstance(s, Store):
            offset, value = self.rewrite(s.offset, names), self.rewrite(s.value, names)
            if any(b == s.buffer and o is not offset for b, o in self.stored):
                raise Unsupported(f"{s.buffer} is stored to in two ways")
            self.stored[s.buffer, offset] = value, dict(self.versions)
            return Store(s.buffer, offset, value)
        if isinstance(s, If):
            condition = self.rewrite(s.condition, names)
            if any(not isinstance(t, Store) for t in s.body):
                raise Unsupported("a condition on more than stores")
            stores: Any = [t for t in s.body if isinstance(t, Store)]
            if any(t.buffer == b for t in stores for b, _ in self.stored):
                raise Unsupported("a condition on what is stored again")
            self.written |= {t.buffer for t in stores}
            return If(
                condition, tuple([Store(t.buffer, self.rewrite(t.offset, names), self.rewrite(t.value, names)) for t in stores])
            )
        if isinstance(s, (Declare, Assign, Accumulate)):
            value = self.rewrite(s.value, names)
            self.versions[s.name] = self.versions.get(s.name, 0) + 1
            if isinstance(s, Declare):
                return Declare(s.name, s.type, value)
            return Assign(s.name, value) if isinstance(s, Assign) else Accumulate(s.op, s.name, value)
        raise Unsupported(f"{s.__class__.__name__} in a row kernel")

    def rewrite(self, x: Expr, names: dict[Any, Any]) -> Expr:
        plain: Expr = _Rewriter({**names, Size("blocks"): _ONE})(x)
        known: dict[Any, Any] = {}
        for load in [n for n in walk([plain]) if isinstance(n, Load)]:
            if load.buffer in self.written or any(b == load.buffer for b, _ in self.stored):
                if (load.buffer, load.offset) not in self.stored:
                    raise Unsupported(f"{load.buffer} is loaded after other elements of it were stored")
                value, versions = self.stored[load.buffer, load.offset]
                if any(versions[r.name] != self.versions[r.name] for r in walk([value]) if isinstance(r, Read)):
                    raise Unsupported(f"{load.buffer} was stored from variables that changed since")
                known[load] = value
        again: Expr = _Rewriter(known)(plain)
        return again


def _repeated(steps: list[Step], n: int) -> bool:
    """Whether step n assigns what the declaration just before it, or before others, already did."""
    s = steps[n]
    if not isinstance(s, Assign):
        return False
    for other in reversed(steps[:n]):
        if not isinstance(other, (Declare, Assign)):
            return False
        if other.name == s.name:
            return other.value is s.value
        if Read(other.name, other.value.type) in walk([s.value]):
            return False
    return False


def _without_overwritten(steps: list[Step]) -> list[Step]:
    """Without stores that a later one to the same elements makes useless."""
    later: set[tuple[str, Expr]] = set()
    kept: list[Step] = []
    for s in reversed(steps):
        if isinstance(s, _Each):
            body = tuple([t for t in s.body if not isinstance(t, Store) or (t.buffer, t.offset) not in later])
            later |= {(t.buffer, t.offset) for t in body if isinstance(t, Store)}
            kept.append(s._replace(body=body))
        else:
            kept.append(s)
    return kept[::-1]


def _length(steps: list[Step]) -> Expr | None:
    lengths = {s.stop for s in steps if isinstance(s, _Each)}
    if len(lengths) > 1 or not all(isinstance(n, Size) for n in lengths):
        raise Unsupported("rows of several lengths")
    return next(iter(lengths), None)


# ---- text


class _Printer:
    def __init__(self, kernel: Kernel, looped: bool, wide: bool) -> None:
        self.kernel, self.looped, self.wide = kernel, looped, wide
        self.lines: list[str] = []
        self.names: dict[Expr, str] = {}
        self.uses: dict[Node, int] = {}
        self.taken = (
            set(_TAKEN)
            | {b.name + "_ptr" for b in kernel.buffers}
            | {p.name for p in kernel.params}
            | {s.name for s in kernel.sizes}
        )
        self.used: set[Expr] = set()
        self.numbers: dict[str, int] = {}
        self.combines: dict[str, None] = {}
        self.identity: dict[str, Const] = {}  # variables that are known to hold a constant
        self.of_block: set[str] = set()  # variables that each block of a row starts anew
        self.mask, self.indent, self.is_rows = "mask", "    ", False
        self.index = "tl.int64" if wide else "tl.int32"

    def source(self, rows: bool, length: Expr | None) -> Source:
        k = self.kernel
        sizes = tuple([s.name for s in k.sizes if s in self.used or s is length])
        params = tuple([(p.name, p.type) for p in k.params])
        given = [b.name + "_ptr" for b in k.buffers] + [p.name for p in k.params] + list(sizes)
        given += ["units", "ROWS: tl.constexpr", "BLOCK: tl.constexpr"] if rows else ["elements", "BLOCK: tl.constexpr"]
        helpers = "".join(f"\n\n@triton.jit\ndef {op}_of(x, y):\n    return {_COMBINE[op]}\n" for op in self.combines)
        name = k.name + "_kernel"
        text = f"{_HEAD}{helpers}\n\n@triton.jit\ndef {name}({', '.join(given)}):\n" + "\n".join(self.lines) + "\n"
        return Source(name, text, rows, tuple([(b.name, b.type) for b in k.buffers]), params, sizes)

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def fresh(self, wanted: str) -> str:
        name, number = wanted if wanted != "t" else "t1", self.numbers.get(wanted, 1)
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}" if wanted != "t" else f"t{number}"
        self.numbers[wanted] = number
        self.taken.add(name)
        return name

    # ---- pointwise kernels

    def pointwise(self, stores: list[Store], hard: Expr | None, exact: Expr | None) -> None:
        wide = ".to(tl.int64)" if self.wide else ""
        self.emit(f"element = tl.program_id(0){wide} * BLOCK + tl.arange(0, BLOCK)")
        self.emit("mask = element < elements")
        if self.kernel.sizes:
            last = self.kernel.sizes[[s.name for s in self.kernel.sizes].index("block") - 1]
            self.emit(f"unit = element // {last.name}")
            self.emit(f"j = element % {last.name}")
            self.names[_UNIT], self.names[_J] = "unit", "j"
        else:
            self.names[_J] = "element"
        roots = [e for s in stores for e in (s.offset, s.value)] + [e for e in (hard, exact) if e is not None]
        self.count(roots)
        if hard is not None:
            for load in [n for n in walk(roots) if isinstance(n, Load)]:
                self.text(load)
        offsets = [self.text(s.offset, tight=True) for s in stores]
        values = [self.text(s.value) for s in stores]
        if hard is not None and exact is not None:
            self.emit(f"value = {values[0]}")
            self.emit(f"hard = mask & {self.text(hard, tight=True)}")
            self.emit("if tl.max(hard.to(tl.int32)) > 0:")
            self.indent += "    "
            self.emit(f"value = tl.where(hard, {self.text(exact)}, value)")
            self.indent = self.indent[:-4]
            values = ["value"]
        for s, offset, value in zip(stores, offsets, values, strict=True):
            self.emit(f"tl.store({s.buffer}_ptr + {offset}, {value}, mask=mask)")

    # ---- row kernels

    def rows(self, steps: list[Step]) -> None:
        wide = ".to(tl.int64)" if self.wide else ""
        self.emit(f"unit = tl.program_id(0){wide} * ROWS + tl.arange(0, ROWS)[:, None]")
        self.emit("here = unit < units")
        self.names[_UNIT], self.names[_J], self.is_rows = "unit", "j", True
        self.taken |= {s.name for s in steps if isinstance(s, Declare)}
        self.of_block = {t.name for s in steps if isinstance(s, _Each) for t in s.before if isinstance(t, Assign)}
        roots: list[Expr] = []
        for s in steps:
            for t in (*s.before, *s.body, *s.after) if isinstance(s, _Each) else (s,):
                for u in t.body if isinstance(t, If) else (t,):
                    roots += [c for c in u.children() if isinstance(c, Expr)]
        self.count(roots)
        if not self.looped:
            self.places(_length(steps), "")
        for s in steps:
            if isinstance(s, _Each):
                self.each(s)
            else:
                self.mask = "here"
                self.statement(s)

    def places(self, length: Expr | None, start: str) -> None:
        if isinstance(length, Size):
            self.emit(f"j = {start}tl.arange(0, BLOCK)[None, :]")
            self.emit(f"inside = j < {length.name}")
            self.emit("mask = here & inside")

    def each(self, s: _Each) -> None:
        names, stop = dict(self.names), s.stop
        if self.looped:
            assert isinstance(stop, Size)
            self.emit(f"for start in range(0, {stop.name}, BLOCK):")
            self.indent += "    "
            self.places(stop, "start + ")
            for t in (*s.before, *s.body, *s.after):
                if isinstance(t, (Assign, Accumulate)):
                    self.forget(t.name)
        for t in s.before:
            self.statement(t)
        self.mask = "mask"
        for t in s.body:
            self.statement(t, along=True)
        self.mask = "here"
        for t in s.after:
            self.statement(t)
        if self.looped:
            self.indent = self.indent[:-4]
            self.names = names
            for t in (*s.before, *s.body, *s.after):
                if isinstance(t, (Assign, Accumulate)):
                    self.forget(t.name)

    def statement(self, s: Statement, along: bool = False) -> None:
        if isinstance(s, Store):
            value = self.text(s.value)
            self.emit(f"tl.store({s.buffer}_ptr + {self.text(s.offset, tight=True)}, {value}, mask={self.mask})")
        elif isinstance(s, If):
            self.mask = f"here & {self.text(s.condition, tight=True)}"
            for t in s.body:
                self.statement(t)
            self.mask = "here"
        elif isinstance(s, Accumulate):
            self.accumulate(s, along)
        elif isinstance(s, (Declare, Assign)):
            if not isinstance(s.value, Const):
                self.put(s.name, self.text(s.value))
                return
            self.forget(s.name)
            self.identity[s.name] = s.value
            if self.looped and s.name not in self.of_block:
                self.emit(f"{s.name} = tl.full((ROWS, 1), {_number(s.value)}, {TYPES[s.value.type]})")

    def accumulate(self, s: Accumulate, along: bool) -> None:
        type, value = s.value.type, self.text(s.value)
        self.combines[s.op] = None
        start = _identity(s.op, type)
        if along:
            value = f"tl.reduce(tl.where(mask, {value}, {_number(start)}), 1, {s.op}_of, keep_dims=True)"
        if self.identity.get(s.name) is start:
            self.put(s.name, value)
        elif s.name in self.identity and not self.looped:
            raise Unsupported(f"{s.name} starts from what is not neutral")
        else:
            self.put(s.name, f"{s.op}_of({s.name}, {value})")

    def put(self, name: str, value: str) -> None:
        self.forget(name)
        self.emit(f"{name} = {value}")

    def forget(self, name: str) -> None:
        """The variable changes: what was made of its old value is no longer known."""
        self.identity.pop(name, None)
        for x in [x for x in self.names if any(isinstance(n, Read) and n.name == name for n in walk([x]))]:
            del self.names[x]

    # ---- expressions

    def count(self, roots: list[Expr]) -> None:
        def visit(x: Node) -> None:
            self.uses[x] = self.uses.get(x, 0) + 1
            if self.uses[x] == 1:
                for child in x.children():
                    visit(child)

        for root in roots:
            visit(root)

    def text(self, x: Expr, tight: bool = False) -> str:
        """x as Python; `tight` if it is to be an operand."""
        if x in self.names:
            return self.names[x]
        if isinstance(x, Const):
            return _number(x, tight)
        if isinstance(x, (Param, Size)):
            self.used.add(x)
            return x.name
        if isinstance(x, Read):
            return _number(self.identity[x.name]) if x.name in self.identity and not self.looped else x.name
        found = self.operation(x)
        if isinstance(x, Load) or self.uses.get(x, 0) > 1 or len(found) > _LONG:
            name = self.fresh(x.buffer if isinstance(x, Load) else "t")
            self.emit(f"{name} = {found}")
            self.names[x] = name
            return name
        return f"({found})" if tight and _infix(x) else found

    def argument(self, x: Expr) -> str:
        """x as an argument of a function, where Triton takes numbers for int32 or float32."""
        if (
            isinstance(x, Const)
            and x.type != "i32"
            and not (x.type == "f32" and (x.value == 0 or 2.0**-126 <= abs(x.value) < 2.0**127))
        ):
            return f"tl.full([], {_number(x)}, {TYPES[x.type]})"
        return self.text(x)

    def operation(self, x: Any) -> str:
        if isinstance(x, Load):
            return f"tl.load({x.buffer}_ptr + {self.text(x.offset, tight=True)}{self.load_mask(x)})"
        if isinstance(x, (Binary, Compare)):
            return self.binary(x)
        if isinstance(x, Unary):
            return self.unary(x)
        if isinstance(x, Fma):
            return f"tl.fma({self.argument(x.x)}, {self.argument(x.y)}, {self.argument(x.z)})"
        if isinstance(x, Select):
            both = isinstance(x.x, Const) and isinstance(x.y, Const)
            one = self.argument if both else self.text
            first = f"tl.full([], {_number(x.x)}, {TYPES[x.type]})" if both and isinstance(x.x, Const) else one(x.x)
            return f"tl.where({self.text(x.condition)}, {first}, {self.text(x.y) if both else one(x.y)})"
        if isinstance(x, Bitcast):
            if isinstance(x.x, Const):
                return f"tl.full([], {_number(x.x)}, {TYPES[x.x.type]}).to({TYPES[x.type]}, bitcast=True)"
            return f"{self.operand(x.x)}.to({TYPES[x.type]}, bitcast=True)"
        if isinstance(x, Convert):
            return self.convert(x)
        if isinstance(x, Call):
            if x.function.startswith("nextafter"):
                raise Unsupported("nextafter: CUDA's steps over denormal numbers")
            function = x.function[:-1] if x.type == "f32" and x.function != "erf" and x.function.endswith("f") else x.function
            return f"libdevice.{function}({', '.join(map(self.argument, x.arguments))})"
        raise Unsupported(f"no Triton for {x.__class__.__name__}")

    def load_mask(self, x: Load) -> str:
        inside = set(walk([x.offset]))
        if _J in inside:
            return ", mask=" + ("mask" if _UNIT in inside or not self.is_rows else "inside")
        return "" if _UNIT not in inside else ", mask=here" if self.is_rows else ", mask=mask"

    def operand(self, x: Expr) -> str:
        return self.text(x, tight=True)

    def binary(self, x: Any) -> str:
        type, op = x.x.type, x.op
        if op in ("max", "min"):
            nan = ", propagate_nan=tl.PropagateNan.ALL" if type in FLOATS else ""
            return f"tl.{op}imum({self.argument(x.x)}, {self.argument(x.y)}{nan})"
        if op == "copysign":
            return f"libdevice.copysign({self.argument(x.x)}, {self.argument(x.y)})"
        if op == "div" and type == "f32":
            return f"tl.div_rn({self.argument(x.x)}, {self.argument(x.y)})"
        sign = "/" if op == "div" and type == "f64" else "//" if op == "div" else "%" if op == "rem" else _OPERATORS[op]
        return f"{self.operand(x.x)} {sign} {self.operand(x.y)}"

    def unary(self, x: Unary) -> str:
        if x.op == "neg":
            return f"{self.operand(x.x)} * -1.0" if x.type in FLOATS else f"-{self.operand(x.x)}"
        if x.op == "not":
            return f"~{self.operand(x.x)}"
        if x.op == "sqrt":
            return f"tl.sqrt_rn({self.argument(x.x)})" if x.type == "f32" else f"tl.sqrt({self.argument(x.x)})"
        module = "libdevice" if x.op in ("rint", "trunc") else "tl"
        return f"{module}.{x.op}({self.argument(x.x)})"

    def convert(self, x: Convert) -> str:
        inner = self.operand(x.x)
        if isinstance(x.x, Const):
            inner = f"tl.full([], {_number(x.x)}, {TYPES[x.x.type]})"
        if (x.type in HALVES and x.x.type != "f32") or (x.x.type in HALVES and x.type != "f32"):
            inner = f"{inner}.to(tl.float32)"  # as the CPU's kernels go
        if x.type == "bool" and x.x.type != "bool":
            return f"{inner} != 0"
        return f"{inner}.to({self.index if x.type == 'index' else TYPES[x.type]})"


def _infix(x: Expr) -> bool:
    """Whether x is printed with an operator between its operands, or before."""
    if isinstance(x, Binary):
        return not (x.op in ("max", "min", "copysign") or (x.op == "div" and x.type == "f32"))
    return (
        isinstance(x, Compare)
        or (isinstance(x, Unary) and x.op in ("neg", "not"))
        or (isinstance(x, Convert) and x.type == "bool")
    )


def _number(x: Const, tight: bool = False) -> str:
    if x.type in FLOATS:
        if not math.isfinite(x.value):
            return f'float("{x.value}")'
        if x.value == 0 and math.copysign(1, x.value) < 0:
            raise Unsupported("a constant of -0, whose sign Triton drops")
    return f"({x.value!r})" if tight and repr(x.value)[0] == "-" else repr(x.value)


def _identity(op: str, type: str) -> Const:
    """What leaves the other operand of an accumulation as it is."""
    if op in ("add", "or", "mul"):
        return Const(float(op == "mul"), type) if type in FLOATS else Const(int(op == "mul"), type)
    if type in FLOATS:
        return Const(-math.inf if op == "max" else math.inf, type)
    bits, signed = BITS[type], type[0] != "u"
    if op == "and":
        return Const(-1 if signed else (1 << bits) - 1, type)
    high = (1 << (bits - signed)) - 1
    return Const((-high - 1 if signed else 0) if op == "max" else high, type)
