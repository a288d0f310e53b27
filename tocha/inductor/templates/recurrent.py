"""A recurrent layer's direction over all its steps in one call: LSTM, GRU and Elman network, forward and backward.

A step multiplies the hidden states by the recurrent weight, packed once a call (`matmul`'s panels and microkernel), and goes on with the *cell*
where the sums still lie in cache: for a tile's columns, of which every gate has as many, forward; for all columns before the product, backward.
Cells are scalar rules, in the tables at the end of this page: each names what it reads and gives what it writes,

    ("gates", 2)   an element of the third gate, of a row of all steps      "sum"     the products, of a gate
    ("h", 0)       an element of a state, of a sequence's row               "before"  the state before the step

Sequences are independent, so units of work are ranges of them, each of which runs all steps by itself; no sum depends on how they are cut.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tocha.inductor.elementary import tanh_absolute
from tocha.inductor.loop_ir import Expr, Read, fma, select, walk
from tocha.inductor.templates import matmul, panels
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.expressions import emit
from tocha.inductor.templates.gemm import Vectors, padded
from tocha.inductor.templates.windows import Fields, give_back, take_scratch

SIZES = ("steps", "rows", "n", "inner", "unit_rows", "padded", "given", "scratch_size", "slots")
OWN = ("spans", "packed", "product", "flags", "scratch", "x", "packed_x")  # arrays of the loops; the others are the cell's
PER_STEP = ("gx", "gates", "part", "out", "cells", "g_out", "d", "d_gx")  # rows of all steps, one after the other
STATES = ("h", "c", "dh", "dc")  # a row for each sequence
_WORDS = 2  # of a step in `spans`: its first row and the number of rows
_TOGETHER = 48  # rows whose products are made with a panel while it is in the L1 cache
_MOST = 96  # rows of a unit
_SHORT, _LONG = 1 << 20, 1 << 24  # multiply-adds for one thread; of a call during which other Python threads run
Places = dict[tuple[str, int], Expr]
Reads = Callable[..., Expr]


@dataclass(frozen=True)
class Spec:
    """A kernel: a network's cell, whether forward, and (forward) if what backward needs is kept or (backward) if outputs have gradients.
    `inputs`: the inputs' products are made here too, step by step, and not read from `gx`, which would come from memory."""

    mode: str
    forward: bool
    full: bool
    inputs: bool = False
    type: str = "f32"

    @property
    def gates(self) -> int:
        return GATES[self.mode]

    @property
    def product(self) -> matmul.Spec:
        return matmul.Spec(self.type, self.type)

    def rule(self) -> Places:
        """What the cell writes."""
        return (FORWARD if self.forward else BACKWARD)[self.mode](self._read, self.full)

    def after(self) -> Places:
        """What follows the product, backward."""
        return {("dh", 0): self._read("sum") + self._read("dh") if self.mode == "gru" else self._read("sum")}

    @property
    def stacks(self) -> int:
        """Sums of an element: one for each gate, and one more where a gate's two products are not added up."""
        return self.gates + (self.inputs and self.mode == "gru")

    def _read(self, name: str, gate: int = 0) -> Expr:
        if name == "gx" and self.inputs:
            bias = self._read("bias_x", gate)
            return self._read("sum", self.gates) + bias if gate == 2 and self.mode == "gru" else bias
        return Read(f"{name} {gate}", self.type)

    @functools.cached_property
    def arrays(self) -> tuple[str, ...]:
        """The names of arrays that the cell reads or writes."""
        rule = self.rule()
        named = [name for name, _ in rule] + [x.name.split()[0] for x in walk(rule.values()) if isinstance(x, Read)]
        arrays = dict.fromkeys(name for name in named if name not in ("sum", "before"))
        return (*arrays, "states", "initial") if "before" in named else tuple(arrays)

    @property
    def buffers(self) -> tuple[str, ...]:
        return (*OWN, *self.arrays)


# ---- the cell


class _Row:
    """Where the elements of a row lie."""

    def __init__(self, f: Function, spec: Spec, s: Fields) -> None:
        self.f, self.spec, self.n = f, spec, s.n
        self.v = Vectors(f, spec.product.tile)
        self.bases = {name: getattr(s, name) for name in spec.buffers if name not in OWN}
        self.sums: Value = f["sums"]

    def start(self, number: Value) -> None:
        """Go to a row of the call's."""
        f, n, gates = self.f, self.n, self.spec.gates
        at, self.number = self.v.at, number
        step, state = f["start"] + f["row"] + number, f["row"] + number
        self.rows = {}
        for name, base in self.bases.items():
            if name in PER_STEP:
                self.rows[name] = at(base, step * n * (gates if name in ("gx", "gates", "d", "d_gx") else 1))
            elif name in STATES:
                self.rows[name] = at(base, state * n)
            elif name.startswith("bias"):
                self.rows[name] = base
        if "states" in self.bases:
            reached = state < f["before_n"]
            earlier = at(self.bases["states"], (f["before"] + state) * n)
            self.rows["before"] = f.select(reached, earlier, at(self.bases["initial"], state * n), "ptr")

    def place(self, name: str, gate: int, column: Value) -> Value:
        f, at = self.f, self.v.at
        if name == "sum":
            return at(self.sums, self.number * f["sum_row"] + f["sum_gate"] * gate + column)
        return at(self.rows[name], self.n * gate + f["column"] + column)


def cell(name: str, spec: Spec, rule: Places) -> Function:
    """Run a rule on `count` sequences from `row` on and `width` columns from `column` on; `start`: the step's first row.

    The inputs so many elements ahead are asked for: a tile's columns are too few of a row's for the CPU to foresee the next ones.
    """
    f = Function(name, _parameters())
    row, lanes = _Row(f, spec, Fields(f, spec.buffers, SIZES)), spec.product.tile.lanes
    leaves = [x for x in walk(rule.values()) if isinstance(x, Read)]

    def vector(column: Value, mask: Value | None) -> None:
        v, known = row.v, dict[Expr, Value]()
        for leaf in leaves:
            place = row.place(*_named(leaf.name), column)
            known[leaf] = v.load(place) if mask is None else v.masked_load(place, mask)
            if leaf.name.startswith("gx"):
                into = (("i32", 0), ("i32", 2), ("i32", 1))  # the L2 cache, for reading
                f.call("llvm.prefetch.p0", "void", ("ptr", v.at(place, f["ahead"])), *into, declare=True)
        found = [(place, emit(f, lanes, value, known)) for place, value in rule.items()]
        for (array, gate), value in found:
            to = row.place(array, gate, column)
            v.store(value, to) if mask is None else v.masked_store(value, to, mask)

    with f.loop(0, f["count"]) as r:
        row.start(r)
        whole = f["width"] // lanes * lanes
        with f.loop(0, whole, lanes) as column:
            vector(column, None)
        with f.when(whole < f["width"]):
            vector(whole, row.v.mask(None, f["width"] - whole))
    return f


def _parameters() -> list[tuple[str, str]]:
    numbers = ("start", "before", "before_n", "row", "count", "column", "width", "sum_row", "sum_gate", "ahead")
    return [("ptr", "ctx"), *[("i64", p) for p in numbers], ("ptr", "sums")]


def _named(leaf: str) -> tuple[str, int]:
    name, gate = leaf.split()
    return name, int(gate)


# ---- the loops


def _product(spec: Spec, finish: str) -> Function:
    """`count` rows of packed states times the packed weight; `finish` is called for each group of columns, with the sums of every gate."""
    g = spec.product.tile
    names = ("start", "before", "before_n", "row", "count", "turn", "next")
    f = Function("product", [("ptr", "ctx"), *[("i64", p) for p in names], ("ptr", "left"), ("ptr", "left_x"), ("ptr", "sums")])
    s, v = Fields(f, spec.buffers, SIZES), Vectors(f, g)
    n, padded_n, count = s.n, s.padded, f["count"]
    depth, gates = (n, spec.gates) if spec.forward else (n * spec.gates, 1)
    factors = [(f["left"], s.packed, depth)] + ([(f["left_x"], s.packed_x, s.inner)] if spec.inputs else [])
    sum_gate, piece = _TOGETHER * g.columns, spec.product.depth

    def multiply(number: int, gate: Value, first: Value, rows: Value, j: Value, width: Value) -> None:
        left, packed, depth = factors[number]
        stack, start = gate, f.op("or i1 false, false", "i1")
        if number:
            apart = gate.equals(2) if spec.stacks > spec.gates else start
            stack, start = f.select(apart, spec.gates, gate), f.op(f"xor i1 {apart.name}, true", "i1")
        with f.loop(0, depth, piece) as k0:
            steps = f.min(depth - k0, piece)
            columns = v.at(packed, gate * (depth * padded_n) + k0 * padded_n + j * steps)
            more = f.op(f"or i1 {start.name}, {(k0 > 0).name}", "i1")
            with f.loop(0, rows, g.rows) as i:
                height = f.ceil_div(f.min(rows - i, g.rows), g.granule) * g.granule
                to = v.at(f["sums"], stack * sum_gate + i * g.columns)
                panel = v.at(left, (first + i) * depth + k0 * g.rows)
                matmul.call_micro(f, g, height, width > g.lanes, [steps, panel, columns, to, g.columns, more])

    # There and back: what the last step left in cache of a weight larger than that is where the next one begins.
    last, turn = (padded_n - g.columns), f["turn"].equals(1)
    with f.loop(0, n, g.columns) as forth, f.loop(0, count, _TOGETHER) as first:
        j = f.select(turn, last - forth, forth)
        width, rows = f.min(n - j, g.columns), f.min(count - first, _TOGETHER)
        ahead = f.select(forth + g.columns < n, f.select(turn, -g.columns, g.columns), f["next"] * n * spec.gates)
        numbers = (f["start"], f["before"], f["before_n"], f["row"] + first, rows, j, width, g.columns, sum_gate, ahead)
        with f.loop(0, gates) as gate:
            for number in range(len(factors)):
                multiply(number, gate, first, rows, j, width)
        _call_cell(f, finish, numbers, f["sums"])
    return f


def _call_cell(f: Function, name: str, numbers: tuple[Any, ...], sums: Value) -> None:
    f.call(name, "void", ("ptr", f["ctx"]), *[("i64", number) for number in numbers], ("ptr", sums))


def _body(spec: Spec) -> Function:
    g = spec.product.tile
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, v = Fields(f, spec.buffers, SIZES), Vectors(f, g)
    n, steps, spans, unit_rows = s.n, s.steps, s.spans, s.unit_rows
    given, product, rows = s.given > 0, s.product, s.rows
    depth = n if spec.forward else n * spec.gates
    source, inner = s.h if spec.forward else s.d, s.inner
    slot, scratch = take_scratch(f, g, s)
    left = v.at(scratch, spec.stacks * _TOGETHER * g.columns)
    left_x = v.at(left, (unit_rows + g.rows) * depth)
    types = ("ptr", "i64", "i64", "i64", "i64", "ptr")
    with f.loop(f["lo"], f["hi"]) as unit, f.loop(0, steps) as number:
        row = unit * unit_rows
        step = number if spec.forward else steps - 1 - number
        start, size = (f.word(spans, step * _WORDS + word) for word in range(_WORDS))
        count = f.min(f.min(size, rows) - row, unit_rows)
        earlier, first = f.max(step - 1, 0) * _WORDS, step.equals(0)
        before, before_n = f.word(spans, earlier), f.select(first, 0, f.word(spans, earlier + 1))
        following = f.word(spans, f.min(step + 1, steps - 1) * _WORDS) - start
        numbers = (start, before, before_n, row, count)

        def pack(source: Value, origin: Value, depth: Value, to: Value) -> None:
            with f.loop(0, count, g.rows) as i:
                arguments = (v.at(source, (origin + i) * depth), depth, 1, depth, f.min(count - i, g.rows), v.at(to, i * depth))
                f.call("pack_left", "void", *zip(types, arguments, strict=True))

        def multiply() -> None:
            pack(source, row if spec.forward else start + row, depth, left)
            if spec.inputs:
                pack(s.x, start + row, inner, left_x)
            places = [("ptr", place) for place in (left, left_x, scratch)]
            f.call("product", "void", ("ptr", f["ctx"]), *[("i64", x) for x in (*numbers, step & 1, following)], *places)

        def multiplied() -> None:
            whole = (*numbers, 0, n, n * spec.gates, n, 0)
            _call_cell(f, "cell", whole, v.at(product, row * n * spec.gates))

        with f.when(count > 0):
            if spec.forward:
                f.choose(given, multiplied, multiply)
            else:
                _call_cell(f, "cell", (*numbers, 0, n, 0, 0, 0), scratch)
                multiply()
    give_back(f, s, slot)
    return f


def code(spec: Spec) -> str:
    """The kernel's module."""
    product = spec.product
    left = panels.packer("pack_left", product.packed, product.factor(None), product.tile.rows)
    cells = [cell("cell", spec, spec.rule())]
    if not spec.forward:
        cells.append(cell("after", spec, spec.after()))
    return module(_body(spec), _product(spec, "cell" if spec.forward else "after"), left, *cells, *matmul.micros(product))


def plan(spec: Spec, steps: int, rows: int, n: int, inner: int, slots: int, given: bool) -> tuple[Any, int]:
    """The work array of a call for `rows` sequences of inputs of size `inner` and the scratch memory of a thread, in elements; `given`: the only
    step's product is.

    Long work has two units at least, of which the second may have no rows: then Python's lock is released.
    """
    g = spec.product.tile
    depth = (n if spec.forward else n * spec.gates) + spec.inputs * inner
    work = steps * rows * n * depth * (spec.gates if spec.forward else 1)
    unit_rows = min(_MOST, padded(-(-rows // (slots if work > _SHORT else 1)), g))
    padded_n = -(-n // g.columns) * g.columns
    scratch = spec.stacks * _TOGETHER * g.columns + (unit_rows + 2 * g.rows) * depth + g.lanes + 64
    fields = {
        "steps": steps, "rows": rows, "n": n, "inner": inner, "unit_rows": unit_rows, "padded": padded_n, "given": int(given),
        "scratch_size": scratch, "slots": slots,
    }  # fmt: skip
    return np.array([max(1 + (work > _LONG), -(-rows // unit_rows)), 1, *[fields[name] for name in SIZES]], np.int64), scratch


# ---- the cells: rules of `read(array, gate)`


def _tanh(x: Expr) -> Expr:
    return tanh_absolute(x)


def _sigmoid(x: Expr) -> Expr:
    return fma(tanh_absolute(x * 0.5), 0.5, 0.5)


def _lstm(read: Reads, keep: bool) -> Places:
    i, f, g, o = ((_tanh if k == 2 else _sigmoid)(read("gx", k) + read("sum", k)) for k in range(4))
    c = f * read("c") + i * g
    h = o * _tanh(c)
    kept = {("gates", 0): i, ("gates", 1): f, ("gates", 2): g, ("gates", 3): o, ("cells", 0): c} if keep else {}
    return {**kept, ("c", 0): c, ("out", 0): h, ("h", 0): h}


def _lstm_backward(read: Reads, outputs: bool) -> Places:
    i, f, g, o = (read("gates", k) for k in range(4))
    dh = read("dh") + read("g_out") if outputs else read("dh")
    bounded = _tanh(read("cells"))
    dc = read("dc") + dh * o * (1.0 - bounded * bounded)
    return {
        ("d", 0): dc * g * (i * (1.0 - i)),
        ("d", 1): dc * read("before") * (f * (1.0 - f)),
        ("d", 2): dc * i * (1.0 - g * g),
        ("d", 3): dh * bounded * (o * (1.0 - o)),
        ("dc", 0): dc * f,
    }


def _gru(read: Reads, keep: bool) -> Places:
    r, z = (_sigmoid(read("gx", k) + (read("sum", k) + read("bias", k))) for k in range(2))
    part = read("sum", 2) + read("bias", 2)
    new = _tanh(read("gx", 2) + r * part)
    h = (read("h") - new) * z + new
    kept = {("gates", 0): r, ("gates", 1): z, ("gates", 2): new, ("part", 0): part} if keep else {}
    return {**kept, ("out", 0): h, ("h", 0): h}


def _gru_backward(read: Reads, outputs: bool) -> Places:
    """`d` is by the recurrent product, whose third part enters multiplied by r; `d_gx` by the input's."""
    r, z, new = (read("gates", k) for k in range(3))
    dh = read("dh") + read("g_out") if outputs else read("dh")
    of_new = dh * (1.0 - z) * (1.0 - new * new)
    of_r, of_z = of_new * read("part") * (r * (1.0 - r)), dh * (read("before") - new) * (z * (1.0 - z))
    by_input = {("d_gx", 0): of_r, ("d_gx", 1): of_z, ("d_gx", 2): of_new}
    return {**by_input, ("d", 0): of_r, ("d", 1): of_z, ("d", 2): of_new * r, ("dh", 0): dh * z}


def _elman(activation: Callable[[Expr], Expr]) -> Callable[[Reads, bool], Places]:
    def rule(read: Reads, keep: bool) -> Places:
        h = activation(read("gx") + read("sum"))
        return {("out", 0): h, ("h", 0): h}

    return rule


def _elman_backward(slope: Callable[[Expr, Expr], Expr]) -> Callable[[Reads, bool], Places]:
    def rule(read: Reads, outputs: bool) -> Places:
        dh = read("dh") + read("g_out") if outputs else read("dh")
        return {("d", 0): slope(read("out"), dh)}

    return rule


def _relu(x: Expr) -> Expr:
    return select(x < 0.0, 0.0, x)


GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
FORWARD = {"lstm": _lstm, "gru": _gru, "tanh": _elman(_tanh), "relu": _elman(_relu)}
BACKWARD = {
    "lstm": _lstm_backward, "gru": _gru_backward, "tanh": _elman_backward(lambda out, dh: (1.0 - out * out) * dh),
    "relu": _elman_backward(lambda out, dh: select(out > 0.0, dh, 0.0)),
}  # fmt: skip
