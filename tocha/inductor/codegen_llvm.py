"""LLVM IR of a kernel's loops: `void @body(ptr %ctx, i64 %lo, i64 %hi)` and, where it has one, `@finish`.

`ctx` is an array of 8-byte slots: the buffers' addresses, the scalar arguments, the sizes, and last the number of units.

Loops are written one element at a time; LLVM's vectoriser widens them. It may, because every access of a "vector" loop is in
the loop's access group ("no iteration depends on another"); that holds for in-place kernels too, where `noalias` would be
a lie. A value is computed in the outermost block where its operands are known. Floats keep IEEE semantics but for
sums (`reassoc nsz contract` on the accumulation only), so NaN, Inf and -0 survive.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tocha.inductor.loop_ir import (
    BITS,
    FLOATS,
    HALVES,
    Accumulate,
    Assign,
    Binary,
    Bitcast,
    Buffer,
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
    Local,
    Loop,
    Param,
    Prefetch,
    Read,
    Select,
    Size,
    Statement,
    Store,
    Unary,
    walk,
)  # fmt: skip

MEMORY = {"bool": "i8", "index": "i64", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}
VALUE = {**MEMORY, "bool": "i1"}
for _bits in (8, 16, 32, 64):
    MEMORY[f"i{_bits}"] = MEMORY[f"u{_bits}"] = VALUE[f"i{_bits}"] = VALUE[f"u{_bits}"] = f"i{_bits}"

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SUM = "reassoc nsz contract"


_LONG, _INTERLEAVED = 4, 4


def _waits_for_memory(body: tuple[Statement, ...]) -> bool:
    """Whether the body only moves elements, with few operations on each."""
    nodes = tuple(walk(body))
    return not any(isinstance(x, (Accumulate, Local)) for x in nodes) and sum(isinstance(x, (Fma, Select)) for x in nodes) < _LONG


def _is_long(loop: Loop) -> bool:
    """Whether a loop runs over all units and waits for chains of operations (a polynomial) rather than for memory: then several
    vectors side by side fill the wait. Rows may be short, and would be left to the remainder loop."""
    return loop.stop is Size("hi") and sum(isinstance(x, Fma) for x in walk(loop.body)) >= _LONG


def literal(value: float | int | bool, type: str) -> str:
    """A constant as LLVM spells it: floats as the bits of a double."""
    if type == "bool":
        return "true" if value else "false"
    if type not in FLOATS:
        return str(value)
    if type == "f32":
        value = _as_f32(float(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _as_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class _Block:
    """Lines of one block and the values known in it. `index` names the loop variable it introduces."""

    def __init__(self, index: str | None, group: str | None) -> None:
        self.index, self.group = index, group
        self.lines: list[str] = []
        self.values: dict[Expr, str] = {}


class _Function:
    def __init__(self, module: _Module, kernel: Kernel) -> None:
        self.module, self.kernel = module, kernel
        self.stack: list[_Block] = [_Block(None, None)]
        self.allocas: list[str] = []
        self.slots: dict[str, str] = {}
        self.types: dict[str, str] = {b.name: b.type for b in kernel.buffers}
        self.written = {s.buffer for s in walk((*kernel.body, *kernel.finish)) if isinstance(s, Store)}
        self.home: dict[Expr, int | None] = {}

    # ---- text

    def text(self, name: str, body: tuple[Statement, ...]) -> str:
        k = self.kernel
        top = self.stack[0]
        items: tuple[Buffer | Param | Size, ...] = (*k.buffers, *k.params, *k.sizes, Size("units"))
        for number, item in enumerate(items):
            kind = "ptr" if number < len(k.buffers) else VALUE[item.type]
            pointer = self.op(f"getelementptr inbounds i64, ptr %ctx, i64 {number}")
            if kind == "i1":
                value = self.op(f"trunc i8 {self.op(f'load i8, ptr {pointer}')} to i1")
            else:
                value = self.op(f"load {kind}, ptr {pointer}, align 8")
            if number < len(k.buffers):
                self.slots[item.name] = value
            else:
                top.values[item] = value  # type: ignore[index]
        top.values[Size("lo")], top.values[Size("hi")] = "%lo", "%hi"
        self.block(body)
        width = self.module.width
        narrow = f'"prefer-vector-width"="{width}" ' if width and _waits_for_memory(body) else ""
        # Python's way in calls it in two places, where LLVM would write short loops once more.
        head = f"define void @{name}(ptr %ctx, i64 %lo, i64 %hi) noinline {narrow}{{"
        return "\n".join([head, "entry:", *self.allocas, *top.lines, "  ret void", "}"])

    def emit(self, line: str) -> None:
        self.stack[-1].lines.append("  " + line)

    def op(self, line: str) -> str:
        name = self.module.fresh()
        self.emit(f"{name} = {line}")
        return name

    def intrinsic(self, name: str, type: str, *operands: str, flags: str = "") -> str:
        kind = VALUE[type]
        suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
        extra = ", i1 false" if name == "abs" else ""
        declared = [kind] * len(operands) + (["i1"] if extra else [])
        self.module.declare(f"declare {kind} @llvm.{name}.{suffix}({', '.join(declared)})")
        return self.op(f"call {flags} {kind} @llvm.{name}.{suffix}({', '.join(f'{kind} {v}' for v in operands)}{extra})")

    # ---- statements

    def block(self, body: Iterable[Statement]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Statement) -> None:
        now: dict[Expr, str] = {}
        if isinstance(s, Store):
            self.store(s, now)
        elif isinstance(s, Prefetch):
            self.prefetch(s, now)
        elif isinstance(s, Loop):
            self.loop(s)
        elif isinstance(s, Declare):
            self.slots[s.name] = slot = self.alloca(VALUE[s.type])
            self.emit(f"store {VALUE[s.type]} {self.value(s.value, now)}, ptr {slot}")
        elif isinstance(s, Assign):
            self.emit(f"store {VALUE[s.value.type]} {self.value(s.value, now)}, ptr {self.slots[s.name]}")
        elif isinstance(s, Accumulate):
            self.accumulate(s, now)
        elif isinstance(s, Local):
            self.slots[s.name] = self.alloca(f"[{s.count} x {MEMORY[s.type]}]")
            self.types[s.name] = s.type
        elif isinstance(s, If):
            self.branch(s, now)

    def alloca(self, kind: str) -> str:
        name = self.module.fresh()
        self.allocas.append(f"  {name} = alloca {kind}, align 64")
        return name

    def store(self, s: Store, now: dict[Expr, str]) -> None:
        type = s.value.type
        value, offset = self.value(s.value, now), self.value(s.offset, now)
        if type == "bool":
            value = self.op(f"zext i1 {value} to i8")
        kind = MEMORY[type]
        pointer = self.op(f"getelementptr inbounds {kind}, ptr {self.slots[s.buffer]}, i64 {offset}")
        self.emit(f"store {kind} {value}, ptr {pointer}, align {BITS[type] // 8}{self.access()}")

    def prefetch(self, s: Prefetch, now: dict[Expr, str]) -> None:
        offset = self.value(s.offset, now)
        # Not "inbounds": the place may lie beyond the array.
        pointer = self.op(f"getelementptr {MEMORY[s.type]}, ptr {self.slots[s.buffer]}, i64 {offset}")
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.emit(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def access(self) -> str:
        group = self.stack[-1].group
        return f", !llvm.access.group {group}" if group else ""

    def loop(self, s: Loop) -> None:
        now: dict[Expr, str] = {}
        start, stop = self.value(s.start, now), self.value(s.stop, now)
        fresh = self.module.fresh
        index, after = fresh(), fresh()
        number = after[1:]
        group = self.module.metadata("distinct !{}") if s.kind == "vector" else None
        inner = _Block(s.index, group)
        inner.values[Index(s.index)] = index
        self.stack.append(inner)
        self.block(s.body)
        self.stack.pop()
        head = [
            f"  {after}.any = icmp slt i64 {start}, {stop}", f"  br i1 {after}.any, label %pre{number}, label %exit{number}",
            f"pre{number}:", f"  br label %loop{number}", f"loop{number}:",
            f"  {index} = phi i64 [ {start}, %pre{number} ], [ {after}, %latch{number} ]",
        ]  # fmt: skip
        tail = [
            f"  br label %latch{number}", f"latch{number}:", f"  {after} = add nuw nsw i64 {index}, 1",
            f"  {after}.more = icmp slt i64 {after}, {stop}",
            f"  br i1 {after}.more, label %loop{number}, label %exit{number}{self.module.loop_hints(group, _is_long(s))}", f"exit{number}:",
        ]  # fmt: skip
        self.stack[-1].lines += head + inner.lines + tail

    def accumulate(self, s: Accumulate, now: dict[Expr, str]) -> None:
        type, slot = s.value.type, self.slots[s.name]
        value = self.value(s.value, now)
        old = self.op(f"load {VALUE[type]}, ptr {slot}")
        if type in FLOATS and s.op in ("add", "mul"):
            new = self.op(f"{_FLOAT_OPS[s.op]} {_SUM} {VALUE[type]} {old}, {value}")
        elif type in FLOATS:  # either zero will do: that saves half of the instructions
            new = self.intrinsic({"min": "minimum", "max": "maximum"}[s.op], type, old, value, flags="nsz")
        else:
            new = self.binary(s.op, type, old, value)
        self.emit(f"store {VALUE[type]} {new}, ptr {slot}")

    def branch(self, s: If, now: dict[Expr, str]) -> None:
        condition, label = self.value(s.condition, now), self.module.fresh()[1:]
        inner = _Block("", self.stack[-1].group)
        self.stack.append(inner)
        self.block(s.body)
        self.stack.pop()
        self.emit(f"br i1 {condition}, label %then{label}, label %end{label}")
        self.stack[-1].lines += [f"then{label}:", *inner.lines, f"  br label %end{label}", f"end{label}:"]

    # ---- expressions

    def where(self, x: Expr) -> int | None:
        """The depth of the outermost block where `x` is known, None if it must be computed where it is used."""
        if x in self.home:
            return self.home[x]
        depth: int | None = 0
        if isinstance(x, Index):
            depth = next(d for d, b in enumerate(self.stack) if b.index == x.name)
        elif isinstance(x, Read) or (
            isinstance(x, Load) and (x.buffer in self.written or x.buffer not in {b.name for b in self.kernel.buffers})
        ):
            depth = None
        else:
            for child in x.children():
                inner = self.where(child)  # type: ignore[arg-type]
                depth = None if inner is None or depth is None else max(depth, inner)
        self.home[x] = depth
        return depth

    def value(self, x: Expr, now: dict[Expr, str]) -> str:
        """The SSA name of `x`. `now` holds what belongs to this statement only."""
        if isinstance(x, Const):
            return literal(x.value, x.type)
        if x in now:
            return now[x]
        if isinstance(x, Index):
            return next(b.values[x] for b in reversed(self.stack) if x in b.values)
        depth = self.where(x)
        if depth is None:
            now[x] = found = self.compute(x, now)
            return found
        known = self.stack[depth].values
        if x not in known:
            whole, self.stack = self.stack, self.stack[: depth + 1]
            known[x] = self.compute(x, now)
            self.stack = whole
        return known[x]

    def compute(self, x: Expr, now: dict[Expr, str]) -> str:
        if isinstance(x, Load):
            return self.load(x, now)
        if isinstance(x, Read):
            return self.op(f"load {VALUE[x.type]}, ptr {self.slots[x.name]}")
        if isinstance(x, (Param, Size)):
            raise KeyError(f"{self.kernel.name} has no argument {x.name}")
        operands = [self.value(child, now) for child in x.children()]  # type: ignore[arg-type]
        if isinstance(x, Binary):
            return self.binary(x.op, x.x.type, *operands)
        if isinstance(x, Unary):
            return self.unary(x.op, x.type, operands[0])
        if isinstance(x, Fma):
            return self.intrinsic("fma" if self.module.has_fma else "fmuladd", x.type, *operands)
        if isinstance(x, Compare):
            return self.compare(x, *operands)
        if isinstance(x, Select):
            kind = VALUE[x.type]
            return self.op(f"select i1 {operands[0]}, {kind} {operands[1]}, {kind} {operands[2]}")
        if isinstance(x, Bitcast):
            source, target = VALUE[x.x.type], VALUE[x.type]
            return operands[0] if source == target else self.op(f"bitcast {source} {operands[0]} to {target}")
        if isinstance(x, Convert):
            return self.convert(self.apart(operands[0]) if _narrows_twice(x) else operands[0], x.x.type, x.type)
        assert isinstance(x, Call)
        kind = VALUE[x.type]
        self.module.declare(f"declare {kind} @{x.function}({', '.join([kind] * len(operands))}) nounwind willreturn memory(none)")
        return self.op(f"call {kind} @{x.function}({', '.join(f'{kind} {v}' for v in operands)})")

    def load(self, x: Load, now: dict[Expr, str]) -> str:
        kind = MEMORY[x.type]
        pointer = self.op(f"getelementptr inbounds {kind}, ptr {self.slots[x.buffer]}, i64 {self.value(x.offset, now)}")
        value = self.op(f"load {kind}, ptr {pointer}, align {BITS[x.type] // 8}{self.access()}")
        return self.op(f"icmp ne i8 {value}, 0") if x.type == "bool" else value

    def unary(self, op: str, type: str, x: str) -> str:
        kind = VALUE[type]
        if op == "not":
            return self.op(f"xor {kind} {x}, {'true' if type == 'bool' else -1}")
        if type in FLOATS:
            return self.op(f"fneg {kind} {x}") if op == "neg" else self.intrinsic("fabs" if op == "abs" else op, type, x)
        if op == "neg":
            return self.op(f"sub {kind} 0, {x}")
        return x if type[0] == "u" else self.intrinsic("abs", type, x)

    def binary(self, op: str, type: str, x: str, y: str) -> str:
        kind = VALUE[type]
        if type in FLOATS:
            if op in _FLOAT_OPS:
                return self.op(f"{_FLOAT_OPS[op]} {kind} {x}, {y}")
            return self.intrinsic({"min": "minimum", "max": "maximum"}.get(op, op), type, x, y)
        unsigned = type[0] == "u"
        if op in ("min", "max"):
            return self.intrinsic(("u" if unsigned else "s") + op, type, x, y)
        if op == "shr":
            return self.op(f"{'lshr' if unsigned else 'ashr'} {kind} {x}, {y}")
        if op in ("div", "rem"):
            return self.op(f"{'u' if unsigned else 's'}{op} {kind} {x}, {y}")
        exact = "nsw " if type == "index" and op in ("add", "sub", "mul") else ""
        return self.op(f"{_INT_OPS[op]} {exact}{kind} {x}, {y}")

    def compare(self, c: Compare, x: str, y: str) -> str:
        type = c.x.type
        if type in FLOATS:
            return self.op(f"fcmp {_FLOAT_COMPARE[c.op]} {VALUE[type]} {x}, {y}")
        sign = "" if c.op in ("eq", "ne") else "u" if type[0] == "u" or type == "bool" else "s"
        return self.op(f"icmp {sign}{c.op} {VALUE[type]} {x}, {y}")

    def apart(self, x: str) -> str:
        """x as it is in float: LLVM would round f64 -> f32 -> f16 in one step, by a function of a library that isn't there."""
        self.module.declare("declare float @llvm.arithmetic.fence.f32(float)")
        return self.op(f"call float @llvm.arithmetic.fence.f32(float {x})")

    def convert(self, x: str, source: str, target: str) -> str:
        if source in HALVES and target != "f32":
            return self.convert(self.convert(x, source, "f32"), "f32", target)
        if target in HALVES and source != "f32":
            return self.convert(self.convert(x, source, "f32"), "f32", target)
        if source == "bf16":
            wide = self.op(f"shl i32 {self.op(f'zext i16 {x} to i32')}, 16")
            return self.op(f"bitcast i32 {wide} to float")
        if target == "bf16":
            return self.to_bf16(x)
        if target == "bool":
            return self.op(f"fcmp une {VALUE[source]} {x}, 0.0" if source in FLOATS else f"icmp ne {VALUE[source]} {x}, 0")
        a, b = VALUE[source], VALUE[target]
        floats = (*FLOATS, "f16")
        if source in floats and target in floats:
            return self.op(f"{'fpext' if BITS[target] > BITS[source] else 'fptrunc'} {a} {x} to {b}")
        if target in FLOATS:
            return self.op(f"{'uitofp' if source[0] == 'u' or source == 'bool' else 'sitofp'} {a} {x} to {b}")
        if source in FLOATS:
            number = self.op(f"fpto{'ui' if target[0] == 'u' else 'si'} {a} {x} to {b}")
            return self.op(f"freeze {b} {number}")
        if source == "bool" or BITS[source] < BITS[target]:
            return self.op(f"{'zext' if source[0] == 'u' or source == 'bool' else 'sext'} {a} {x} to {b}")
        return x if BITS[source] == BITS[target] else self.op(f"trunc {a} {x} to {b}")

    def to_bf16(self, x: str) -> str:
        """Round to nearest even on the bits; NaN stays NaN, quiet."""
        bits = self.op(f"bitcast float {x} to i32")
        odd = self.op(f"and i32 {self.op(f'lshr i32 {bits}, 16')}, 1")
        rounded = self.op(f"add i32 {self.op(f'add i32 {bits}, 32767')}, {odd}")
        quiet = self.op(f"or i32 {bits}, {0x400000}")
        chosen = self.op(f"select i1 {self.op(f'fcmp uno float {x}, {x}')}, i32 {quiet}, i32 {rounded}")
        return self.op(f"trunc i32 {self.op(f'lshr i32 {chosen}, 16')} to i16")


class _Module:
    def __init__(self, has_fma: bool, width: int | None) -> None:
        self.has_fma, self.width, self.count = has_fma, width, 0
        self.declared: dict[str, None] = {}
        self.nodes: list[str] = []

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def declare(self, line: str) -> None:
        self.declared[line] = None

    def metadata(self, text: str) -> str:
        self.nodes.append(text)
        return f"!{len(self.nodes) - 1}"

    def loop_hints(self, group: str | None, long: bool) -> str:
        if group is None:
            return ""
        hints = [self.metadata(f'!{{!"llvm.loop.parallel_accesses", {group}}}')]
        if long:
            hints.append(self.metadata(f'!{{!"llvm.loop.interleave.count", i32 {_INTERLEAVED}}}'))
        own = f"!{len(self.nodes)}"
        return ", !llvm.loop " + self.metadata(f"distinct !{{{', '.join([own, *hints])}}}")


def _narrows_twice(x: Convert) -> bool:
    return x.type == "f16" and x.x.__class__ is Convert and x.x.x.type == "f64"


def generate(kernel: Kernel, has_fma: bool = True, width: int | None = None) -> str:
    """The module's text: `body`, `finish` if the kernel has one, and what they need. `width`: bits of the vectors that elements are moved in."""
    module = _Module(has_fma, width)
    parts = [_Function(module, kernel).text("body", kernel.body)]
    if kernel.finish:
        parts.append(_Function(module, kernel).text("finish", kernel.finish))
    metadata = [f"!{number} = {text}" for number, text in enumerate(module.nodes)]
    return "\n".join([*module.declared, *parts, *metadata]) + "\n"
