"""Convolution and its input gradient as implicit matrix products: outputs = weights x windows, over input channels and taps.

Blocking, outermost first: groups, boxes of the output (`windows`) and chunks of output channels are units of work for threads; then
blocks of input channels, so that a box's packed input stays in the L2 cache and the inner dimension in the low hundreds; then phases,
tiles of positions, row blocks of output channels (`gemm`). Sums over blocks of channels are kept in the output itself where a tile is one
piece of it and there is no epilogue (`epilogue`), else in scratch (`hold`) until the last block.

An input gradient with stride s is s x s (x s) *phases*, one for each residue of the input's coordinates: each is a convolution of
stride 1 over the output's gradient with those taps that meet the residue, and writes every s-th place. A forward convolution is one phase.

On small maps many taps read padding only: a seventh of a 7 x 7 map's rows for a third of the taps. Where it pays, borders are phases of
their own, without those taps (`borders`), and *picks* say where the others' weights lie among all.

`table` after the planes: ten words for each phase (taps, first offset, first packed weight, first output, outputs along each dimension, tiles of
sums in `hold` before its own, taps whose weights lie there, first pick), then the offsets in a panel (`runs`), then those of each phase in the
packed box for a block of channels, and its picks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tocha.inductor.templates import borders, epilogue, runs, windows
from tocha.inductor.templates.borders import Part
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.gemm import AHEAD, Geometry, Vectors, call_micro, micros, padded
from tocha.inductor.templates.windows import Fields

Shape = tuple[int, ...]
_PHASE = 10
_SINGLES = 1  # 49 pixels are 48 and one
PACK_BUFFERS = ("packed", "weight", "taps")
PACK_SIZES = (
    "channels", "block", "outputs", "padded_outputs", "blocks", "phases", "group", "step_o", "step_c", "packed_group", "unit_rows", "straight",
)  # fmt: skip


def front(g: Geometry) -> int:
    """Elements of scratch before the packed input: a row of zeros, a tile, its runs and its panel."""
    return g.zeros + g.columns * g.rows + runs.room(g) + (_STEPS + 1) * g.columns


def body(g: Geometry) -> Function:
    """The loops over units and what is in them."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f)
    slot, scratch = windows.take_scratch(f, g, s)
    zeros, tile, packed = scratch, v.at(scratch, g.zeros), v.at(scratch, front(g))
    for j in range(0, g.zeros, g.lanes):
        v.store(Value(f, "zeroinitializer", g.vector), v.at(zeros, j))
    with f.loop(f["lo"], f["hi"]) as unit:
        chunk = (unit % s.chunks) * s.chunk
        n0, d0, h0, w0, group = windows.unit_box(f, s, unit // s.chunks)
        samples = f.min(s.samples - n0, s.box_n)
        x = v.far(s.x, n0 * s.x_n + group * s.x_group)
        out = v.far(s.out, n0 * s.out_n + group * s.outputs * s.out_c)
        with f.loop(0, s.channels, s.block) as c0:
            count = f.min(s.channels - c0, s.block)
            windows.call_pack(f, g, v.far(x, c0 * s.x_c), count, samples, d0, h0, w0, packed)
            weights = v.at(packed, s.inside)
            with f.loop(chunk, f.min(s.padded_outputs, chunk + s.chunk), s.inside_rows) as row:
                with f.when(s.inside > 0):
                    numbers = [("i64", number) for number in (group, c0, count, row)]
                    f.call("pack_inside", "void", ("ptr", f["ctx"]), *numbers, ("ptr", weights))
                with f.loop(0, s.phases) as phase:
                    where = f.at(s.table, s.planes * 3 + phase * _PHASE, "i64")
                    f.call(
                        "phase", "void", ("ptr", f["ctx"]), ("ptr", where), ("ptr", out), ("i64", group), ("i64", c0), ("i64", count),
                        ("i64", samples), ("i64", d0), ("i64", h0), ("i64", w0), ("i64", row), ("ptr", packed), ("ptr", tile), ("ptr", zeros),
                        ("ptr", weights),
                    )  # fmt: skip
    windows.give_back(f, s, slot)
    return f


def phase(g: Geometry) -> Function:
    """One phase of a box: its tiles, each for all row blocks of the chunk."""
    f = Function(
        "phase",
        [("ptr", "ctx"), ("ptr", "where"), ("ptr", "out"), ("i64", "group"), ("i64", "c0"), ("i64", "count"), ("i64", "samples"),
         ("i64", "d0"), ("i64", "h0"), ("i64", "w0"), ("i64", "chunk"), ("ptr", "packed"), ("ptr", "tile"), ("ptr", "zeros"),
         ("ptr", "weights")],
    )  # fmt: skip
    v, s, hole = Vectors(f, g), Fields(f), epilogue.Hole(f, windows.BUFFERS, windows.SIZES)
    where = f["where"]
    taps, offsets = f.word(where, 0), f.at(s.table, f.word(where, 1), "i64")
    box_d, box_h, box_w = (
        f.min(f.word(where, number) - f[start], size)
        for number, start, size in ((4, "d0", s.box_d), (5, "h0", s.box_h), (6, "w0", s.box_w))
    )
    steps, stored = taps * f["count"], f.word(where, 8)
    picks, stored_steps = f.at(s.table, f.word(where, 9), "i64"), stored * f["count"]
    packed_before = v.at(s.weight, f["group"] * s.weight_group + f.word(where, 2) + f["c0"] * stored * s.padded_outputs)
    packed_inside = v.at(f["weights"], f.word(where, 2) // s.channels * f["count"])
    weight = f.select(s.inside > 0, packed_inside, packed_before, "ptr")
    first_row = f.select(s.inside > 0, f["chunk"], 0)
    piecewise = s.inside_rows < s.chunk
    source = v.far(s.weight, f["group"] * s.weight_from)
    bias = v.at(s.bias, f["group"] * s.padded_outputs)
    out = v.far(f["out"], f.word(where, 3) + f["d0"] * s.out_d + f["h0"] * s.out_h + f["w0"] * s.out_w)
    more = f["c0"] > 0
    outputs, out_c, out_w = s.outputs, s.out_c, s.out_w
    last_row = f.min(f["chunk"] + s.inside_rows, s.padded_outputs)
    dense = s.dense.equals(1)
    list_of_runs = v.at(f["tile"], g.columns * g.rows)
    panel = v.at(list_of_runs, runs.room(g))
    each = f.at(s.table, s.planes * 3 + s.phases * _PHASE, "i64")  # a panel's offsets
    sizes = [f["samples"], box_d, box_h, box_w]
    cursor = runs.Cursor(f, sizes, [s.plane_d, s.plane_h, s.plane_w], [s.out_n, s.out_d, s.out_h, out_w])
    hold = s.hold_at > 0
    again, places_more = f.both(hold, more), f.both(s.hold_at.equals(0), more)
    finished = f.op(f"or i1 {s.hold_at.equals(0).name}, {(f['c0'] + f['count'] >= s.channels).name}", "i1")
    rows_held = f.select(hold, s.chunk, 0)
    channel, place = f["group"] * outputs, v.between(s.out, out)
    held = f.variable(f.select(hold, v.at(f["packed"], s.hold_at + f.word(where, 7) * (rows_held * g.columns)), f["tile"], "ptr"), "ptr")
    with f.repeat(cursor.more):
        start = v.at(f["packed"], cursor.position())
        to = v.far(out, cursor.place())
        count, used = runs.find_runs(f, g, cursor, dense, list_of_runs)
        with f.when(dense):
            types = ("ptr", "i64", "i64", "ptr", "ptr", "ptr")
            f.call("gather_panel", "void", *zip(types, (list_of_runs, count, steps, f["packed"], offsets, panel), strict=True))
        columns, places = f.select(dense, panel, start, "ptr"), f.select(dense, each, offsets, "ptr")
        last = f.at(list_of_runs, (count - 1) * runs.WORDS, "i64")
        together = f.both((f.word(last, 3) + f.word(last, 2) - f.word(list_of_runs, 3)).equals(used), dense)
        one, more_than_one, all_columns = (used.equals(n).name for n in (g.lanes, g.lanes + _SINGLES, g.columns))
        narrow = f.op(f"or i1 {one}, {more_than_one}", "i1")  # together: as many as a microkernel computes
        whole = f.both(f.op(f"or i1 {narrow.name}, {all_columns}", "i1"), out_w.equals(1))
        direct = f.both(f.op(f"or i1 {count.equals(1).name}, {together.name}", "i1"), whole)
        here = held.get()
        held.set(v.at(here, rows_held * g.columns))
        with f.loop(f["chunk"], last_row, g.rows) as row:
            rows = f.min(last_row - row, g.rows)
            real = f.min(outputs - row, rows)
            a = v.at(weight, (row - first_row) * stored_steps)
            following = f.beyond(source, last_row * s.weight_o * (2 if g.memory else g.align))
            first, ahead = [steps, a, columns, places], f.select(piecewise, following, f.beyond(a, AHEAD), "ptr")

            def straight() -> None:
                call_micro(f, g, rows, used, [*first, v.at(to, row * out_c), out_c, v.at(bias, row), more, ahead, picks], _SINGLES)

            def aside() -> None:
                start_from = f.select(more, f["zeros"], v.at(bias, row), "ptr")
                tile = f.select(hold, v.at(here, (row - f["chunk"]) * g.columns), here, "ptr")

                def through(before: bool) -> None:
                    with f.loop(0, count) as number:
                        run = f.at(list_of_runs, number * runs.WORDS, "i64")
                        at, width, to = v.at(tile, f.word(run, 1)), f.word(run, 2), place + f.word(run, 3) + row * out_c
                        hole.finish(at, g.columns, real, width, to, out_c, channel + row, 0, ahead=before)

                def placed() -> None:
                    f.call(
                        "place_tile", "void", ("ptr", list_of_runs), ("i64", count), ("ptr", tile), ("i64", real), ("ptr", v.far(out, row * out_c)),
                        ("i64", out_c), ("i64", out_w), ("i1", places_more),
                    )  # fmt: skip

                with f.when(f.both(finished, hole.given)):
                    through(True)
                call_micro(f, g, rows, used, [*first, tile, g.columns, start_from, again, ahead, picks], _SINGLES)
                with f.when(finished):
                    f.choose(hole.given, lambda: through(False), placed)

            if g.memory:  # sums have another type
                aside()
            else:
                f.choose(f.both(f.both(direct, real.equals(rows)), f.negate(hole.given)), straight, aside)
    return f


def code(g: Geometry) -> str:
    """The convolution kernel's module."""
    return module(
        body(g), phase(g), *windows.packers(g), pack_inside(g), pack_rows(g), runs.gather_panel(g), runs.place_tile(g),
        *micros(g, _SINGLES, picked=True, onward=True),
    )


def pack_inside(g: Geometry) -> Function:
    """Pack a block of channels of some rows' weights, which only one unit or two will read, where they stay in the cache."""
    f = Function(
        "pack_inside", [("ptr", "ctx"), ("i64", "group"), ("i64", "c0"), ("i64", "count"), ("i64", "row"), ("ptr", "to")]
    )
    v, s = Vectors(f, g), Fields(f)
    source = v.far(s.weight, f["group"] * s.weight_from + f["c0"] * s.weight_c)
    end = f.min(f["row"] + s.inside_rows, s.padded_outputs)
    place = f.variable(s.taps_at)
    with f.loop(0, s.packs):
        start = place.get()
        taps, words = f.word(s.table, start), f.at(s.table, start + 2, "i64")
        to = v.at(f["to"], f.word(s.table, start + 1) // s.channels * f["count"])
        call_pack_rows(f, source, s.weight_o, s.weight_c, f["count"], taps, words, s.outputs, f["row"], end, to, s.straight)
        place.set(start + 2 + taps)
    return f


_ROW_TYPES = ("ptr", "i64", "i64", "i64", "i64", "ptr", "i64", "i64", "i64", "ptr", "i64")


def call_pack_rows(f: Function, *arguments: Any) -> None:
    f.call("pack_rows", "void", *zip(_ROW_TYPES, arguments, strict=True))


def pack_rows(g: Geometry) -> Function:
    """Rows `start` to `end` of `count` channels' weights in row blocks at `to`: each channel's taps, a column of the block's rows each.

    `straight`: a row's weights lie one after the other in that order."""
    names = ("weight", "step_o", "step_c", "count", "taps", "words", "outputs", "start", "end", "to", "straight")
    f = Function("pack_rows", list(zip(_ROW_TYPES, names, strict=True)))
    v = Vectors(f, g)
    count, taps = f["count"], f["taps"]

    def blocks(inner: Value, c: Value, pack: Callable[..., None]) -> None:
        with f.loop(f["start"], f["end"], g.rows) as row:
            rows = f.min(f["end"] - row, g.rows)
            column = v.at(f["to"], ((row - f["start"]) * count + c * rows) * taps)
            lines = [v.far(inner, f.min(row + r, f["outputs"] - 1) * f["step_o"]) for r in range(g.rows)]
            for height in g.heights:
                with f.when(rows.equals(height)):
                    pack(height, lines[:height], column)

    def singly() -> None:
        with f.loop(0, count) as c:
            blocks(v.far(f["weight"], c * f["step_c"]), c, functools.partial(_pack_taps, f, v, taps, f["words"], f["step_c"]))

    if g.pairs:
        singly()
    else:
        zero = f.variable(0).get()
        f.choose(
            f["straight"].equals(1), lambda: blocks(f["weight"], zero, functools.partial(_pack_lines, f, v, count * taps)), singly
        )
    return f


def pack_weight(g: Geometry) -> str:
    """The module of the kernel that packs weights; its units are some row blocks of a group.

    `taps`: for each phase count, place, then the places of its taps.
    """
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v = Vectors(f, g)
    s = Fields(f, PACK_BUFFERS, PACK_SIZES)
    blocks, phases, channels, block = s.blocks, s.phases, s.channels, s.block
    outputs, padded_outputs = s.outputs, s.padded_outputs
    table, step_o, step_c = s.taps, s.step_o, s.step_c
    with f.loop(f["lo"], f["hi"]) as unit:
        group, start_row = unit // blocks, (unit % blocks) * s.unit_rows
        end_row = f.min(padded_outputs, start_row + s.unit_rows)
        source = v.far(s.weight, group * s.group)
        place = f.variable(0)
        with f.loop(0, phases):
            start = place.get()
            taps, words = f.word(table, start), f.at(table, start + 2, "i64")
            target = v.at(s.packed, group * s.packed_group + f.word(table, start + 1))
            with f.loop(0, channels, block) as c0:
                count = f.min(channels - c0, block)
                to = v.at(target, (c0 * padded_outputs + start_row * count) * taps)
                call_pack_rows(
                    f, v.far(source, c0 * step_c), step_o, step_c, count, taps, words, outputs, start_row, end_row, to, s.straight
                )
            place.set(start + 2 + taps)
    return module(f, pack_rows(g))


def _pack_lines(f: Function, v: Vectors, steps: Value, height: int, lines: list[Value], to: Value) -> None:
    """to[k, r] = lines[r][k], squares of as many rows and steps as a vector has lanes at a time; the last by way of memory."""
    n = v.g.lanes
    aside, kind = f.array(n * height, v.g.scalar), f"<{height} x {v.g.scalar}>"

    def square(k0: Value, mask: Value | None, to: Value) -> None:
        rows = [v.fetch(v.far(line, k0), mask) for line in lines]
        for first in range(0, height, n):
            group = rows[first : first + n]
            for k, column in enumerate(v.transpose(group + [group[-1]] * (n - len(group)))):
                v.store(v.first(column, len(group)), v.at(to, k * height + first))

    whole = steps // n * n
    with f.loop(0, whole, n) as k0:
        for line in lines:
            f.prefetch(f.beyond(v.far(line, k0), 2 * n * v.g.align))
        square(k0, None, v.at(to, k0 * height))
    with f.when(whole < steps):
        square(whole, v.mask(None, steps - whole), aside)
        with f.loop(0, steps - whole) as k:
            v.store(f.load(kind, v.at(aside, k * height), v.g.align), v.at(to, (whole + k) * height))


def _pack_taps(
    f: Function, v: Vectors, taps: Value, words: Value, step_c: Value, height: int, lines: list[Value], to: Value
) -> None:
    """A column of `height` weights for each tap."""
    kind = f"<{height} x {v.g.scalar}>"
    with f.loop(0, taps) as t:
        tap = f.word(words, t)
        column = Value(f, "poison", kind)
        for r, line in enumerate(lines):
            place = v.far(line, tap)
            one = v.fetch_pair(place, v.far(place, step_c // 2)) if v.g.pairs else v.fetch_one(place)
            column = f.op(f"insertelement {kind} {column.name}, {one.type} {one.name}, i32 {r}", kind)
        v.store(column, v.at(to, t * height))


# ---- plans


@dataclass(frozen=True)
class Line:
    """One spatial dimension of a call: where its planes start, and for each phase (first output, outputs, [(tap, plane, shift)]).

    `low` is the first coordinate of the input that is read (negative: padding), `kernel` the number of taps.
    """

    size: int
    step: int
    origins: Shape
    phases: tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]
    out_step: int
    kernel: int
    low: int

    @property
    def reach(self) -> int:
        """How far past an output's position taps read."""
        return max([shift for _, _, taps in self.phases for _, _, shift in taps], default=0)

    @property
    def outputs(self) -> int:
        return max(count for _, count, _ in self.phases)


def forward_line(size: int, kernel: int, stride: int, dilation: int, low: int, outputs: int) -> Line:
    residues = sorted({k * dilation % stride for k in range(kernel)})
    taps = tuple([(k, residues.index(k * dilation % stride), k * dilation // stride) for k in range(kernel)])
    return Line(size, stride, tuple([r - low for r in residues]), ((0, outputs, taps),), 1, kernel, -low)


def gradient_line(size: int, kernel: int, stride: int, dilation: int, low: int, outputs: int, rising: bool = False) -> Line:
    """For the gradient of an input of `size` elements from that of `outputs` outputs; taps in the kernel's order, or by `rising` shifts."""
    met = [
        [(k, (r + low - k * dilation) // stride) for k in range(kernel) if (r + low - k * dilation) % stride == 0]
        for r in range(stride)
    ]
    first = min([q for taps in met for _, q in taps], default=0)
    phases = [
        (r, -(-(size - r) // stride), tuple([(k, 0, q - first) for k, q in (reversed(taps) if rising else taps)]))
        for r, taps in enumerate(met)
        if r < size
    ]
    return Line(outputs, 1, (first,), tuple(phases), stride, kernel, first)


@dataclass(frozen=True)
class Plan:
    """The numbers of a call: both kernels' work arrays and tables, and sizes of what they need."""

    work: Any
    table: Any
    pack_work: Any
    taps: Any
    packed_size: int  # 0: the kernel packs the weights itself
    scratch: int
    bias_size: int


_TOGETHER = 8  # channels whose products for a tap follow each other in a sum, as in torch's convolutions on AVX2
_STEPS = 640  # inner dimension of a block of channels
_HELD = 512 * 1024  # elements of sums kept in scratch
_INSIDE = 160 * 1024  # elements of weights that fit the L2 cache beside it
_LEAST_STEPS = 192  # below this, sums are read and written too often
_READS = 2  # boxes for which packing weights again costs less than a packed copy in memory
_SCRATCH = 96 * 1024  # elements of packed input for a block: well inside a 1 MiB L2 cache
_WHOLE = 208 * 1024  # where weights are packed a row block at a time; half of that for several taps, whose tiles then aren't gathered


def boxes(lines: list[Line], samples: int, planes: int, limit: int) -> list[int]:
    """[samples, depth, height, width] of a box, as large as `limit` positions of a plane allow, boxes of about equal size."""
    size = [0, 0, 0, 0]
    room = max(limit // planes, 1)
    for place, line in ((3, lines[2]), (2, lines[1]), (1, lines[0])):
        most = max(1, min(line.outputs, room - line.reach))
        size[place] = -(-line.outputs // -(-line.outputs // most))
        room //= size[place] + line.reach
        room = max(room, 1)
    size[0] = max(1, min(samples, room))
    return size


def plan(
    g: Geometry, lines: list[Line], samples: int, groups: int, channels: int, outputs: int, x_strides: Shape, out_strides: Shape,
    weight_group: int, weight_steps: tuple[int, int], slots: int, aside: int = 0, tall: int = 1,
    x_group: int = 0, before: bool = False, hole: bool = False, together: int = _TOGETHER,
) -> Plan:  # fmt: skip
    """The plan of a call; strides in elements: x and out (n, c, d, h, w), weight from a group, an output and a channel to the next.

    `aside`: elements of scratch wanted before the packed input; `tall` is for `depthwise`; `x_group`: from a group of
    x to the next, if not its channels; `before`: weights are packed beforehand, however few units read them; `hole`: there is an
    epilogue, so what isn't finished can't be in the result's memory, which an operand may share; `together`: channels whose products for a
    tap follow each other.
    """
    planes = list(itertools.product(*[range(len(line.origins)) for line in lines]))
    phases = list(itertools.product(*[line.phases for line in lines]))
    kernel = [line.kernel for line in lines]
    tap_counts = [len(a[2]) * len(b[2]) * len(c[2]) for a, b, c in phases]
    most = max(*tap_counts, 1)
    block = _even(channels, max(1, min(channels, _STEPS // most)))
    rows = padded(outputs, g)
    row_blocks = -(-rows // g.rows)
    least = len(planes) * _least(lines)
    while block > 1 and block * least > _SCRATCH:
        block = -(-block // 2)
    size = boxes(lines, samples, len(planes), max(_SCRATCH // block, 1))
    counts = _counts(lines, samples, size)
    narrow = _INSIDE // max(1, sum(tap_counts) * rows)  # no tap may meet the input
    straight = not g.pairs and weight_steps[1] == sum(tap_counts) and _in_order(phases, kernel)
    inside = not (aside or before) and sum(tap_counts) * channels * rows > _INSIDE
    room = _WHOLE // (1 if most == 1 else 2)
    whole = boxes(lines, samples, len(planes), max(room // channels, 1))
    piecewise = inside and straight and channels * least <= room and _product(_counts(lines, samples, whole)) == 1
    if piecewise:
        block, size, counts = channels, whole, _counts(lines, samples, whole)
    elif inside := inside and narrow * sum(tap_counts) >= _LEAST_STEPS * len(phases):
        cut = _even(channels, min(block, narrow))
        several = boxes(lines, samples, len(planes), max(_SCRATCH // cut, 1))
        inside = _product(_counts(lines, samples, several)) <= _READS
        if inside:
            block, size, counts = cut, several, _counts(lines, samples, several)
    wanted = 1 if slots == 1 else 4 * slots
    while groups * _product(counts) < wanted and _product(size) > 256:  # enough for the threads
        largest = 0 if size[0] > 1 else 1 if size[1] > 1 else 2 if size[2] > 1 else 3
        size[largest] = -(-size[largest] // 2)
        counts = _counts(lines, samples, size)
    inside = inside and _product(counts) <= (1 if piecewise else _READS)
    chunks = max(1, min(row_blocks // 4, -(-wanted // (groups * _product(counts)))))
    chunk = -(-row_blocks // chunks) * g.rows
    chunks = -(-rows // chunk)
    plane = [size[i + 1] + line.reach for i, line in enumerate(lines)]
    plane_size = size[0] * _product(plane)
    pitch = -(-(len(planes) * plane_size + g.lanes) // 16) * 16  # rows write up to a vector past their end
    if pitch % 512 == 0:  # channels a power of two apart would share cache sets
        pitch += 16
    hold_at = -(-(block * pitch + 2 * g.columns) // 16) * 16
    gathered = most * block <= _STEPS
    dense = gathered and _pays(size, plane, min(chunk, rows), g)
    parts = [Part.of(number, phases, -(-plane_size // g.columns)) for number in range(len(phases))]
    if gathered and not aside and len(phases) == len(planes) == 1 and _product(counts) == counts[0]:
        trimmed = borders.trimmed(lines, parts[0], size, None if dense else plane, min(chunk, rows), g)
        dense, parts = dense or bool(trimmed), trimmed or parts
    held = sum(part.tiles for part in parts) * chunk * g.columns
    if aside or block >= channels or (held > _HELD and not (g.memory or hole)):
        hold_at, scratch = 0, (aside or front(g)) + hold_at + 64
    else:
        scratch = front(g) + hold_at + held + 64
    packed_group = sum(tap_counts) * channels * rows
    together = 1 if channels % block % together else together  # a last block has the first of a block's steps
    table, taps = _tables(
        lines, planes, phases, parts, block, pitch, plane, plane_size, channels * rows, out_strides, kernel, g.columns, together
    )
    inside_at, inside_rows = -(-scratch // 16) * 16 - front(g) if inside else 0, g.rows if inside and piecewise else chunk
    if inside:  # phases lie apart by all rows
        scratch = front(g) + inside_at + sum(tap_counts) * block * (g.rows if piecewise else rows) + 64
    fields = {
        "channels": channels, "block": block, "outputs": outputs, "padded_outputs": rows, "chunk": chunk, "chunks": chunks,
        "samples": samples, "planes": len(planes), "plane": plane_size, "pitch": pitch, "phases": len(parts),
        "weight_group": packed_group, "hold_at": hold_at, "packs": len(phases), "tall": tall, "across": kernel[2],
        "dense": int(dense), "scratch_size": scratch, "slots": slots,
        "x_group": x_group or channels * x_strides[1], "x_n": x_strides[0], "x_c": x_strides[1],
        "inside": inside_at, "inside_rows": inside_rows, "taps_at": len(table), "straight": int(straight),
        "weight_from": weight_group, "weight_o": weight_steps[0], "weight_c": weight_steps[1],
        "out_n": out_strides[0], "out_c": out_strides[1], "box_n": size[0], "count_n": counts[0],
    }  # fmt: skip
    for i, axis in enumerate("dhw"):
        fields |= {
            f"box_{axis}": size[i + 1], f"count_{axis}": counts[i + 1], f"plane_{axis}": plane[i], f"size_{axis}": lines[i].size,
            f"step_{axis}": lines[i].step, f"x_{axis}": x_strides[i + 2], f"out_{axis}": out_strides[i + 2] * lines[i].out_step,
        }  # fmt: skip
    # Weights that lie channel by channel are read a few row blocks at a time, so that memory is read in order.
    unit_rows = g.rows * (8 if weight_steps[1] > weight_steps[0] else 1)
    unit_count = -(-rows // unit_rows)
    pack = {
        "channels": channels, "block": block, "outputs": outputs, "padded_outputs": rows, "blocks": unit_count, "unit_rows": unit_rows,
        "phases": len(phases),
        "group": weight_group, "step_o": weight_steps[0], "step_c": weight_steps[1], "packed_group": packed_group,
        "straight": int(straight),
    }  # fmt: skip
    units = groups * _product(counts) * chunks
    return Plan(
        np.array([units, 1, *[fields[n] for n in windows.SIZES]], np.int64), np.concatenate([table, taps]),
        np.array([groups * unit_count, max(1, 8192 // max(channels * sum(tap_counts) * unit_rows, 1)), *[pack[n] for n in PACK_SIZES]], np.int64),
        taps, 0 if inside else packed_group * groups, scratch, rows * groups,
    )  # fmt: skip


def _even(channels: int, most: int) -> int:
    """Channels of a block, at most so many, all blocks of about equal size, and of whole groups of `_TOGETHER` if there are several."""
    size = -(-channels // -(-channels // most))
    if size == channels or size < _TOGETHER:
        return size
    return min(-(-size // _TOGETHER), most // _TOGETHER) * _TOGETHER


def _product(sizes: Any) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


def _in_order(phases: list[Any], kernel: list[int]) -> bool:
    """Whether there is one phase, whose taps are all of the kernel's, one after the other."""
    return len(phases) == 1 and all(
        [t[0] for t in taps] == list(range(n)) for (_, _, taps), n in zip(phases[0], kernel, strict=True)
    )


def _least(lines: list[Line]) -> int:
    """Positions of the smallest box worth its tiles: about 64 outputs."""
    w = min(lines[2].outputs, 64)
    h = min(lines[1].outputs, -(-64 // w))
    return (w + lines[2].reach) * (h + lines[1].reach) * (1 + lines[0].reach)


def _pays(size: list[int], plane: list[int], rows: int, g: Geometry) -> bool:
    """Whether gathering a tile's inputs costs less than computing positions that are no outputs; in multiply-adds of vectors."""
    outputs = size[1] * size[2] * size[3]
    positions = _product(plane) if size[0] > 1 else ((size[1] - 1) * plane[1] + size[2] - 1) * plane[2] + size[3]
    return rows * g.vectors * positions > (rows * g.vectors + borders.gather(size[3], g)) * outputs


def _counts(lines: list[Line], samples: int, size: list[int]) -> list[int]:
    return [-(-samples // size[0]), *[-(-line.outputs // n) for line, n in zip(lines, size[1:], strict=True)]]


def _tables(
    lines: list[Line], planes: list[Shape], phases: list[Any], parts: list[Part], block: int, pitch: int, plane: list[int], plane_size: int,
    weights: int, out_strides: Shape, kernel: list[int], columns: int, together: int,
) -> tuple[Any, Any]:  # fmt: skip
    """The words of `table`, and those of `taps` for the weights' packing."""
    head = [line.origins[i] for p in planes for line, i in zip(lines, p, strict=True)]
    offsets: list[int] = []
    records: list[int] = []
    places: list[int] = []
    steps = range(0, columns * block * max([part.stored for part in parts]), columns)
    start = len(head) + _PHASE * len(parts) + len(steps)
    tiles = 0
    in_turn = [range(c, min(c + together, block)) for c in range(0, block, together)]
    for part in parts:
        row, column = (part.start[0] * plane[1] + part.start[1]) * plane[2] + part.start[2], plane[2]
        inside = [
            planes.index(tuple([t[1] for t in taps])) * plane_size + (taps[0][2] * plane[1] + taps[1][2]) * column + taps[2][2] + row
            for _, taps in part.taps
        ]
        first = sum(p * s for p, s in zip(part.first, out_strides[2:], strict=True))
        picks = start + len(offsets) + len(inside) * block
        records += [
            len(inside), start + len(offsets), part.before * weights, first, *part.outputs, tiles, part.stored, picks
        ]  # fmt: skip
        offsets += [c * pitch + o for few in in_turn for o in inside for c in few]
        offsets += [c * part.stored + number for few in in_turn for number, _ in part.taps for c in few]
        tiles += part.tiles
    before = 0
    for phase in phases:
        found = list(itertools.product(*[p[2] for p in phase]))
        places += [len(found), before * weights, *[(t[0][0] * kernel[1] + t[1][0]) * kernel[2] + t[2][0] for t in found]]
        before += len(found)
    return np.array([*head, *records, *steps, *offsets], np.int64), np.array(places, np.int64)
