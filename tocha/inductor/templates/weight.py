"""The weight gradient of convolution as a matrix product over pixels: gradients of outputs x windows of inputs.

A box's input is transposed to scratch with channels innermost, so that for one row of kernel taps all (tap, channel) pairs lie side by side
(`window`: one for each kernel depth and height, and for each tap where the width is dilated):

    partial[output, window, lane] += sum over pixels of gradient[pixel, output] * input[offsets[pixel] + place[window] + lane]

is the microkernel's product (`gemm`), pixels being its inner dimension and the gradients, packed in row blocks, its left operand. Few
channels (an image's three) fill vectors too, together with the taps.

Units of work are groups, pieces of the boxes and chunks of outputs. The number of pieces follows from the shapes alone, and each has a
partial sum of its own; a second kernel adds them in order and puts weights in their places. If `summed`, sums of the gradients alone, which a
bias wants, follow a piece's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tocha.inductor.templates import windows
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.conv import Line, Shape, boxes
from tocha.inductor.templates.gemm import AHEAD, ITEM, Geometry, Vectors, call_micro, micros, padded
from tocha.inductor.templates.windows import Fields

BUFFERS = ("partial", "x", "gradient", "flags", "scratch", "table")
SIZES = (
    "channels", "outputs", "padded_outputs", "chunk", "chunks", "pieces",
    "samples", "box_n", "box_d", "box_h", "box_w", "count_n", "count_d", "count_h", "count_w",
    "in_d", "in_h", "in_w", "low_d", "low_h", "low_w", "size_d", "size_h", "size_w", "step_d", "step_h", "step_w", "out_d", "out_h", "out_w",
    "x_n", "x_c", "x_d", "x_h", "x_w", "g_n", "g_c", "g_d", "g_h",
    "windows", "length", "room", "row", "group", "piece", "x_room", "g_room", "scratch_size", "in_order", "summed", "slots",
)  # fmt: skip
SUM_BUFFERS = ("out", "bias", "partial")
SUM_SIZES = ("outputs", "padded_outputs", "channels", "taps", "pieces", "windows", "across", "room", "row", "group", "piece", "summed")
_SINGLES = 5  # seven taps of three channels are 16 and five
_PIECE = 1 << 22  # multiply-adds of a group from which on a piece pays; with fewer, all pixels are added up in order, as in torch
_PIXELS = 256  # inner dimension of a product: a tile's columns and rows then stay in the L1 cache


def pack_input(g: Geometry) -> Function:
    """The input of a box as [sample][depth][height][width][channel], zeros where the padding is."""
    f = Function(
        "pack_input",
        [("ptr", "ctx"), ("ptr", "x"), ("i64", "samples"), ("i64", "d0"), ("i64", "h0"), ("i64", "w0"), ("ptr", "to")],
    )
    s = Fields(f, BUFFERS, SIZES)
    v = Vectors(f, g)
    first_d, first_h, first_w = f["d0"] * s.step_d - s.low_d, f["h0"] * s.step_h - s.low_h, f["w0"] * s.step_w - s.low_w
    width, channels, in_d, in_h = s.in_w, s.channels, s.in_d, s.in_h
    size_d, size_h, x_n, x_d, x_h = s.size_d, s.size_h, s.x_n, s.x_d, s.x_h
    x_c, x_w = s.x_c, s.x_w
    low, end = f.max(0 - first_w, 0), f.min(s.size_w - first_w, width)
    types = ("ptr", "ptr", "i64", "i64", "i64", "i64", "i64", "i64")
    with f.loop(0, f["samples"]) as n, f.loop(0, in_d) as d, f.loop(0, in_h) as h:
        at_d, at_h = first_d + d, first_h + h
        inside = f.both(
            f.op(f"icmp ult i64 {at_d.name}, {size_d.name}", "i1"), f.op(f"icmp ult i64 {at_h.name}, {size_h.name}", "i1")
        )
        source = v.at(f["x"], n * x_n + at_d * x_d + at_h * x_h + first_w * x_w)
        to = v.at(f["to"], ((n * in_d + d) * in_h + h) * width * channels)
        f.call(
            "pack_line", "void", *zip(types, (source, to, low, f.select(inside, end, 0), width, channels, x_c, x_w), strict=True)
        )
    return f


def pack_line(g: Geometry) -> Function:
    """to[i, c] = x[i * x_w + c * x_c] for low <= i < high, else 0; may write `lanes` pixels past the end."""
    f = Function(
        "pack_line",
        [("ptr", "x"), ("ptr", "to"), *[("i64", n) for n in ("low", "high", "width", "channels", "x_c", "x_w")]],
    )
    v = Vectors(f, g)
    channels, low, high, width = f["channels"], f["low"], f["high"], f["width"]

    def channels_apart() -> None:
        with f.loop(0, channels, g.lanes) as c, f.loop(0, width, g.lanes) as i:
            mask, last = v.mask(low - i, high - i), channels - 1
            lines = [v.masked_load(v.at(f["x"], f.min(c + j, last) * f["x_c"] + i), mask) for j in range(g.lanes)]
            pixels = v.transpose(lines)
            places = [v.at(f["to"], (i + j) * channels + c) for j in range(g.lanes)]

            def whole() -> None:
                for pixel, place in zip(pixels, places, strict=True):
                    v.store(pixel, place)

            def part() -> None:
                some = v.mask(None, channels - c)
                for pixel, place in zip(pixels, places, strict=True):
                    v.masked_store(pixel, place, some)

            f.choose(c + g.lanes <= channels, whole, part)

    def few_channels() -> None:
        with f.loop(0, channels) as c:
            source, to = v.at(f["x"], c * f["x_c"]), v.at(f["to"], c)
            for start, stop, inside in ((0, low, False), (low, high, True), (f.max(low, high), width, False)):
                with f.loop(start, f.min(stop, width)) as i:
                    v.store(v.one(v.at(source, i)) if inside else Value(f, "0.0", g.scalar), v.at(to, i * channels))

    def pixel_by_pixel() -> None:
        with f.loop(0, width) as i:
            count = f.select(f.both(i >= low, i < high), channels, 0)
            source, to = v.at(f["x"], i * f["x_w"]), v.at(f["to"], i * channels)

            def together() -> None:
                with f.loop(0, channels, g.lanes) as c:
                    v.masked_store(
                        v.masked_load(v.at(source, c), v.mask(None, count - c)), v.at(to, c), v.mask(None, channels - c)
                    )

            def singly() -> None:
                with f.loop(0, count) as c:
                    v.store(v.one(v.at(source, c * f["x_c"])), v.at(to, c))
                with f.loop(count, channels) as c:
                    v.store(Value(f, "0.0", g.scalar), v.at(to, c))

            f.choose(f["x_c"].equals(1), together, singly)

    f.choose(f["x_w"].equals(1), lambda: f.choose(channels * 4 <= g.lanes, few_channels, channels_apart), pixel_by_pixel)
    return f


def pack_gradient(g: Geometry) -> Function:
    """`rows` lines of `count` pixels, as [pixel][row] to `to`; may write past the end what the next call overwrites."""
    f = Function(
        "pack_gradient", [("ptr", "g"), ("i64", "apart"), ("i64", "real"), ("i64", "rows"), ("i64", "count"), ("ptr", "to")]
    )
    v = Vectors(f, g)
    lines = [v.at(f["g"], f.min(f["real"] - 1, r) * f["apart"]) for r in range(g.rows)]
    nothing = Value(f, "poison", g.vector)
    groups = range(0, g.rows, g.lanes)  # vectors that hold a pixel's rows
    with f.loop(0, f["count"], g.lanes) as i:
        mask = v.mask(None, f["count"] - i)
        for first in groups:
            here = lines[first : first + g.lanes]
            loaded = [v.masked_load(v.at(line, i), mask) for line in here]
            pixels = v.transpose([*loaded, *[nothing] * (g.lanes - len(here))])
            if len(groups) == 1:
                for j, pixel in enumerate(pixels):
                    v.store(pixel, v.at(f["to"], (i + j) * f["rows"]))
                continue
            some = v.mask(None, f["rows"] - first)
            for j, pixel in enumerate(pixels):
                v.masked_store(pixel, v.at(f["to"], (i + j) * f["rows"] + first), some)
    return f


def body(g: Geometry) -> Function:
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f, BUFFERS, SIZES)
    slot, zeros = windows.take_scratch(f, g, s)
    for j in range(0, g.zeros, g.lanes):
        v.store(Value(f, "zeroinitializer", g.vector), v.at(zeros, j))
    packed = v.at(zeros, g.zeros)
    gradients = v.at(packed, s.x_room)
    offsets = v.at(gradients, s.g_room)
    with f.loop(f["lo"], f["hi"]) as unit:
        chunk, rest = (unit % s.chunks) * s.chunk, unit // s.chunks
        piece, group = rest % s.pieces, rest // s.pieces
        partial = v.at(s.partial, group * s.group + piece * s.piece)
        with f.loop(piece, s.count_n * s.count_d * s.count_h * s.count_w, s.pieces) as box:
            n0, d0, h0, w0, _ = windows.unit_box(f, s, box)
            samples = f.min(s.samples - n0, s.box_n)
            sizes = [samples, f.min(s.out_d - d0, s.box_d), f.min(s.out_h - h0, s.box_h), f.min(s.out_w - w0, s.box_w)]
            f.call(
                "pack_input", "void", ("ptr", f["ctx"]), ("ptr", v.at(s.x, n0 * s.x_n + group * s.channels * s.x_c)),
                *[("i64", n) for n in (samples, d0, h0, w0)], ("ptr", packed),
            )  # fmt: skip
            _pixel_offsets(f, s, sizes, offsets)
            pixels = sizes[0] * sizes[1] * sizes[2] * sizes[3]
            place = n0 * s.g_n + group * s.outputs * s.g_c + d0 * s.g_d + h0 * s.g_h + w0
            _pack_rows(f, g, s, sizes, v.at(s.gradient, place), chunk, gradients, pixels)
            with f.when(s.summed > 0):
                sums = v.at(partial, s.padded_outputs * s.row + chunk)
                _row_sums(f, g, f.min(s.chunk, s.padded_outputs - chunk), pixels, gradients, sums, box > piece)
            _products(f, g, s, pixels, packed, gradients, offsets, zeros, v.at(partial, chunk * s.row), chunk, box > piece)
    windows.give_back(f, s, slot)
    return f


def _pixel_offsets(f: Function, s: Fields, sizes: list[Value], offsets: Value) -> None:
    """Where each pixel's first input lies in the packed box."""
    n_, d_, h_, w_ = sizes
    in_d, in_h, in_w, step_d, step_h, step_w, channels = s.in_d, s.in_h, s.in_w, s.step_d, s.step_h, s.step_w, s.channels
    at = f.variable(0)
    with f.loop(0, n_) as n, f.loop(0, d_) as d, f.loop(0, h_) as h, f.loop(0, w_) as w:
        place = (((n * in_d + d * step_d) * in_h + h * step_h) * in_w + w * step_w) * channels
        f.store(place, f.at(offsets, at.get(), "i64"), 8)
        at.set(at.get() + 1)


def _pack_rows(
    f: Function, g: Geometry, s: Fields, sizes: list[Value], source: Value, chunk: Value, to: Value, pixels: Value
) -> None:
    v = Vectors(f, g)
    last = f.min(chunk + s.chunk, s.padded_outputs)
    full = sizes[3].equals(s.out_w)  # then rows of pixels follow each other in memory
    run = f.select(full, sizes[2] * sizes[3], sizes[3])
    with f.loop(chunk, last, g.rows) as row:
        rows = f.min(last - row, g.rows)
        at = f.variable(0)
        with f.loop(0, sizes[0]) as n, f.loop(0, sizes[1]) as d, f.loop(0, f.select(full, 1, sizes[2])) as h:
            lines = v.at(source, n * s.g_n + row * s.g_c + d * s.g_d + h * s.g_h)
            f.call(
                "pack_gradient", "void", ("ptr", lines), ("i64", s.g_c), ("i64", f.min(s.outputs - row, rows)), ("i64", rows), ("i64", run),
                ("ptr", v.at(to, (row - chunk) * pixels + at.get() * rows)),
            )  # fmt: skip
            at.set(at.get() + run)


def _row_sums(f: Function, g: Geometry, last: Value, pixels: Value, gradients: Value, sums: Value, more: Value) -> None:
    """Add packed gradients pixel by pixel, as the products are."""
    v = Vectors(f, g)
    total = f.variable("zeroinitializer", g.vector)
    with f.loop(0, last, g.rows) as row:
        rows = f.min(last - row, g.rows)
        for first in range(0, g.rows, g.lanes):
            count, place = f.max(rows - first, 0), v.at(sums, row + first)
            total.set(v.masked_load(place, v.mask(None, f.select(more, count, 0))))
            with f.loop(0, pixels) as k:
                total.set(v.add(total.get(), v.load(v.at(gradients, row * pixels + k * rows + first))))
            v.masked_store(total.get(), place, v.mask(None, count))


def _products(
    f: Function, g: Geometry, s: Fields, pixels: Value, packed: Value, gradients: Value, offsets: Value, zeros: Value, partial: Value,
    chunk: Value, more: Value,
) -> None:  # fmt: skip
    v = Vectors(f, g)
    length, room, width = s.length, s.room, s.row
    last = f.min(s.chunk, s.padded_outputs - chunk)
    with f.loop(0, pixels, _PIXELS) as k0:
        count = f.min(pixels - k0, _PIXELS)
        again = f.op(f"or i1 {more.name}, {(k0 > 0).name}", "i1")
        late = f.both(again, s.in_order.equals(0))
        with f.loop(0, s.windows) as window:
            x = v.at(packed, f.word(s.table, window))
            with f.loop(0, length, g.columns) as j, f.loop(0, last, g.rows) as row:
                rows = f.min(last - row, g.rows)
                a = v.at(gradients, row * pixels + k0 * rows)
                target = v.at(partial, row * width + window * room + j)
                given = [count, a, v.at(x, j), f.at(offsets, k0, "i64"), target, width, zeros, again, f.beyond(a, AHEAD), late]
                call_micro(f, g, rows, length - j, given, _SINGLES)


def code(g: Geometry) -> str:
    """The module of the products."""
    return module(body(g), pack_input(g), pack_line(g), pack_gradient(g), *micros(g, _SINGLES, onward=True))


def sum_code(g: Geometry) -> str:
    """The module that adds partial sums; units are groups' outputs."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f, SUM_BUFFERS, SUM_SIZES)
    channels, taps, pieces, across, room, piece = s.channels, s.taps, s.pieces, s.across, s.room, s.piece
    total, kept = f.variable("zeroinitializer", g.vector), f.variable("zeroinitializer", g.vector)
    alone = f.variable("0.0", g.scalar)
    with f.loop(f["lo"], f["hi"]) as unit:
        group, o = unit // s.outputs, unit % s.outputs
        with f.when(s.summed > 0):
            first = v.at(s.partial, group * s.group + s.padded_outputs * s.row + o)
            alone.set(v.one(first))
            with f.loop(1, pieces) as p:
                following = v.one(v.at(first, p * piece))
                alone.set(f.op(f"fadd {g.scalar} {alone.get().name}, {following.name}", g.scalar))
            v.store(alone.get(), v.at(s.bias, unit))
        out = v.at(s.out, unit * channels * taps)
        line = v.at(s.partial, group * s.group + o * s.row)
        with f.loop(0, s.windows) as window, f.loop(0, across) as tap, f.loop(0, channels, g.lanes) as c:
            source = v.at(line, window * room + tap * channels + c)
            mask = v.mask(None, channels - c)
            total.set(v.masked_load(source, mask))
            with f.loop(1, pieces) as p:
                total.set(v.add(total.get(), v.masked_load(v.at(source, p * piece), mask)))
            to = v.at(out, c * taps + window * across + tap)

            def whole(to: Value = to) -> None:
                line = total.get()
                for i in range(g.lanes):
                    one = f.op(f"extractelement {g.vector} {line.name}, i32 {i}", g.scalar)
                    v.store(one, v.at(to, taps * i))

            def part(to: Value = to, c: Value = c) -> None:
                kept.set(total.get())
                with f.loop(0, channels - c) as i:
                    v.store(v.one(v.at(kept.slot, i)), v.at(to, i * taps))

            f.choose(channels - c >= g.lanes, whole, part)
    return module(f)


@dataclass(frozen=True)
class Plan:
    """The numbers of a call: both kernels' work arrays, the windows' places, and sizes of what they need."""

    work: Any
    table: Any
    sum_work: Any
    partial: int
    scratch: int


def plan(
    g: Geometry, lines: list[Line], dilation: Shape, samples: int, groups: int, channels: int, outputs: int, x_strides: Shape,
    g_strides: Shape, slots: int, summed: bool = False,
) -> Plan:  # fmt: skip
    """The plan of a call; strides in elements of x (n, c, d, h, w) and of the gradient (n, c, d, h), whose rows are contiguous."""
    kernel = [line.kernel for line in lines]
    low = [-line.low for line in lines]
    planes = len(lines[0].origins) * len(lines[1].origins) * len(lines[2].origins)
    size = boxes(lines, samples, planes, min(1024 * planes, max(65536 // channels, 64)))
    counts = [-(-samples // size[0]), *[-(-line.outputs // n) for line, n in zip(lines, size[1:], strict=True)]]
    spans = [(n - 1) * line.step + (k - 1) * d + 1 for n, line, k, d in zip(size[1:], lines, kernel, dilation, strict=True)]
    dense = dilation[2] == 1
    across = kernel[2] if dense else 1
    places = [
        ((d * dilation[0] * spans[1] + h * dilation[1]) * spans[2] + w * dilation[2]) * channels
        for d in range(kernel[0]) for h in range(kernel[1]) for w in range(1 if dense else kernel[2])
    ]  # fmt: skip
    length = across * channels
    room = -(-length // g.lanes) * g.lanes
    row = len(places) * room
    rows = padded(outputs, g)
    row_blocks = -(-rows // g.rows)
    number = counts[0] * counts[1] * counts[2] * counts[3]
    work = samples * lines[0].outputs * lines[1].outputs * lines[2].outputs * len(places) * length * outputs
    pieces = max(1, min(number, -(-8 // groups), (1 << 21) // (rows * row * groups), work // _PIECE))
    piece = rows * row + -(-rows // 16) * 16
    balanced = 1 if slots == 1 else min(row_blocks, 2 * slots // (groups * pieces))
    chunks = max(1, min(row_blocks // 4, -(-8 // (groups * pieces))), balanced)
    pixels = size[0] * size[1] * size[2] * size[3]
    most = max(64, (1 << 16) // pixels)  # packed gradients of a chunk
    chunk = min(-(-row_blocks // chunks), max(1, most // g.rows)) * g.rows
    chunks = -(-rows // chunk)
    x_room = -(-(size[0] * spans[0] * spans[1] * spans[2] * channels + g.lanes * channels + g.columns) // 16) * 16
    g_room = -(-(min(chunk, rows) * pixels + (g.lanes + 1) * g.rows + g.lanes) // 16) * 16
    scratch = g.zeros + x_room + g_room + pixels * 8 // ITEM[g.scalar] + 64
    numbers = {
        "channels": channels, "outputs": outputs, "padded_outputs": rows, "chunk": chunk, "chunks": chunks, "pieces": pieces, "samples": samples,
        "box_n": size[0], "count_n": counts[0], "x_n": x_strides[0], "x_c": x_strides[1], "g_n": g_strides[0], "g_c": g_strides[1],
        "g_d": g_strides[2], "g_h": g_strides[3], "windows": len(places), "length": length, "room": room, "row": row, "group": pieces * piece,
        "piece": piece, "summed": int(summed), "x_room": x_room, "g_room": g_room, "scratch_size": scratch, "slots": slots, "across": across,
        "taps": kernel[0] * kernel[1] * kernel[2], "in_order": int(work < 2 * _PIECE),
    }  # fmt: skip
    for i, axis in enumerate("dhw"):
        numbers |= {
            f"box_{axis}": size[i + 1], f"count_{axis}": counts[i + 1], f"in_{axis}": spans[i], f"low_{axis}": low[i],
            f"size_{axis}": lines[i].size, f"step_{axis}": lines[i].step, f"out_{axis}": lines[i].outputs, f"x_{axis}": x_strides[i + 2],
        }  # fmt: skip
    return Plan(
        np.array([groups * pieces * chunks, 1, *[numbers[n] for n in SIZES]], np.int64), np.array(places, np.int64),
        np.array([groups * outputs, max(1, 8192 // max(channels * numbers["taps"], 1)), *[numbers[n] for n in SUM_SIZES]], np.int64),
        groups * pieces * piece, scratch,
    )  # fmt: skip
