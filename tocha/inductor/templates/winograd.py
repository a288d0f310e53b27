"""3 x 3 convolutions with 16 products for 2 x 2 outputs instead of 36, with stride 2 with 25: Winograd's F(2 x 2, 3 x 3).

A tile of 4 x 4 inputs gives 2 x 2 outputs. Inputs and weights are transformed by sums, multiplied as 16 matrix products over channels
(`gemm`), and sums are transformed back. The transforms' sums lose about one bit, relative to the largest numbers of a window, and turn
infinities into NaN: a value that is not finite is noted in `bad`, and the caller computes the convolution in another way. With stride 2 a tile has
5 x 5 inputs: along a dimension two taps meet the even ones, in F(2, 2), and the middle tap both odd ones, with one weight for two points.

Blocking: `block` tiles, in order of samples, rows and columns, and a chunk of output channels are a unit of work for threads.
Scratch holds the matrices of transformed inputs [channel][tile] and those of sums [output][tile]. Where one block is all tiles, weights that are read
but once are transformed there too, a row block at a time, so that they never leave the L2 cache. Where a tile's second outputs along a dimension
are outside the image, points that only they need have no column for it: odd maps have narrower matrices for those (7 x 7: 12 % fewer products).

Sources: Winograd 1980, "Arithmetic Complexity of Computations"; Lavin & Gray 2016, "Fast Algorithms for Convolutional Neural Networks".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tocha.inductor.templates import epilogue, windows
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.conv import call_pack_rows, pack_rows
from tocha.inductor.templates.gemm import AHEAD, Geometry, Vectors, call_micro, micros, padded
from tocha.inductor.templates.windows import Fields

BUFFERS = ("out", "x", "weight", "bias", "flags", "scratch", "table", "bad")
SIZES = (
    "channels", "outputs", "padded_outputs", "tiles_h", "tiles_w", "tiles", "block", "chunk", "chunks", "pitch", "apart", "sums_at", "sums_apart",
    "weights_apart", "inside", "inside_rows", "step_o", "step_c", "straight",
    "size_h", "size_w", "low_h", "low_w", "high", "wide", "x_n", "x_c", "x_h", "out_n", "out_c", "out_h", "scratch_size", "slots",
)  # fmt: skip
PACK_BUFFERS = ("packed", "weight", "words")
PACK_SIZES = ("channels", "outputs", "padded_outputs", "apart", "step_o", "step_c", "straight")
_FILTERS = 16  # matrices of weights
_TAPS = 9
_SINGLES = 1  # 7 x 7 tiles are 48 and one
_SPARE = {1: (3,), 2: (2, 4)}  # stride: points along a dimension that a tile's first output doesn't need
_LINE = 64  # bytes that memory is fetched in
_FEW = 16  # channels whose weights are transformed at a time


def side(stride: int) -> int:
    """Inputs of a tile along a dimension, and points."""
    return 3 + stride


class _Sums:
    """Sums of vectors: the transforms along a dimension."""

    def __init__(self, f: Function, stride: int) -> None:
        self.f, self.stride = f, stride

    def add(self, x: Value, y: Value) -> Value:
        return self.f.op(f"fadd {x.type} {x.name}, {y.name}", x.type)

    def sub(self, x: Value, y: Value) -> Value:
        return self.f.op(f"fsub {x.type} {x.name}, {y.name}", x.type)

    def scaled(self, x: Value, number: str) -> Value:
        lanes, scalar = x.type[1:-1].split(" x ")
        return self.f.op(f"fmul {x.type} {x.name}, <{', '.join([f'{scalar} {number}'] * int(lanes))}>", x.type)

    def input(self, d: list[Value]) -> list[Value]:
        if self.stride == 2:
            return [self.sub(d[0], d[2]), d[2], self.sub(d[4], d[2]), d[1], d[3]]
        return [self.sub(d[0], d[2]), self.add(d[1], d[2]), self.sub(d[2], d[1]), self.sub(d[1], d[3])]

    def weight(self, g: list[Value]) -> list[Value]:
        if self.stride == 2:
            return [g[0], self.add(g[0], g[2]), g[2], g[1]]
        outer, middle = self.scaled(self.add(g[0], g[2]), "0.5"), self.scaled(g[1], "0.5")
        return [g[0], self.add(outer, middle), self.sub(outer, middle), g[2]]

    def output(self, m: list[Value]) -> list[Value]:
        if self.stride == 2:
            return [self.add(self.add(m[0], m[1]), m[3]), self.add(self.add(m[1], m[2]), m[4])]
        return [self.add(self.add(m[0], m[1]), m[2]), self.sub(self.sub(m[1], m[2]), m[3])]


def _both(lines: list[list[Value]], change: Any) -> list[list[Value]]:
    """A transform along both dimensions of a square of vectors."""
    columns = [change(list(column)) for column in zip(*lines, strict=True)]
    return [change(list(row)) for row in zip(*columns, strict=True)]


_PLACES = [("ptr", "ctx"), ("i64", "tile"), ("i64", "first"), ("i64", "apart"), ("ptr", "to")]


def places(stride: int) -> Function:
    """to[point]: a tile's place in that point's matrix of a block whose first tile is `first`, the matrices `apart`. As many tiles as are between
    them and have the point are its column."""
    f = Function("places", _PLACES)
    s, n = _fields(f), side(stride)
    tiles_h, tiles_w = s.tiles_h, s.tiles_w

    def before(tile: Value, high: Value, wide: Value) -> Value:
        row, w = tile // tiles_w, tile % tiles_w
        h = row % tiles_h
        return (row // tiles_h * high + h) * wide + f.select(h < high, f.min(w, wide), 0)

    highs, wides = (tiles_h, s.high // 2), (tiles_w, s.wide // 2)
    columns = [[before(f["tile"], high, wide) - before(f["first"], high, wide) for wide in wides] for high in highs]
    for point in range(n * n):
        i, j = (x in _SPARE[stride] for x in divmod(point, n))
        f.store(columns[i][j] + f["apart"] * point, f.at(f["to"], point, "i64"), 8)
    return f


def _call_places(f: Function, *arguments: Any) -> Value:
    """tile, first, apart"""
    to = f.array(side(2) ** 2, "i64")
    f.call("places", "void", *[(type, value) for (type, _), value in zip(_PLACES, (f["ctx"], *arguments, to), strict=True)])
    return to


@contextmanager
def _pieces(f: Function, g: Geometry, s: Fields, first: Value, end: Value) -> Iterator[tuple[Value, Value, Value, Value]]:
    """For runs of at most a vector of tiles of a row: number of the run's first tile, its sample, row and column."""
    place = f.variable(first)
    tiles_w, tiles_h = s.tiles_w, s.tiles_h
    with f.repeat(lambda: place.get() < end):
        tile = place.get()
        row, w = tile // tiles_w, tile % tiles_w
        yield tile, row // tiles_h, row % tiles_h, w
        place.set(tile + f.min(tiles_w - w, g.lanes))


def _outputs(
    f: Function, g: Geometry, s: Fields, end: Value, row: Value, tile: Value, n: Value, h: Value, w: Value
) -> tuple[tuple[Value, Value], Value]:
    """Of a piece, how many outputs there are in both its lines, and the place of its first, in output channel `row`."""
    left = f.min(f.min(s.wide - w * 2, (end - tile) * 2), 2 * g.lanes)
    return (left, f.select(h * 2 + 1 < s.high, left, 0)), n * s.out_n + row * s.out_c + h * 2 * s.out_h + w * 2


def _fields(f: Function) -> Fields:
    return Fields(f, BUFFERS, (epilogue.HOLE, *SIZES))


def body(g: Geometry, stride: int) -> Function:
    """The loops over units and what is in them."""
    n = side(stride)
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s, hole = Vectors(f, g), _fields(f), epilogue.Hole(f, BUFFERS, SIZES)
    slot, scratch = windows.take_scratch(f, g, s)
    zeros = scratch
    for j in range(0, _front(g), g.lanes):
        v.store(Value(f, "zeroinitializer", g.vector), v.at(zeros, j))
    inputs, sums = v.at(scratch, _front(g)), v.at(scratch, s.sums_at)
    with f.loop(f["lo"], f["hi"]) as unit:
        row0 = (unit % s.chunks) * s.chunk
        rows, count = f.min(s.padded_outputs - row0, s.chunk), f.min(s.outputs - row0, s.chunk)
        first = (unit // s.chunks) * s.block
        end = f.min(first + s.block, s.tiles)
        f.call("read", "void", ("ptr", f["ctx"]), ("i64", first), ("i64", end), ("ptr", inputs), ("ptr", zeros))
        with f.when(hole.given), _pieces(f, g, s, first, end) as piece:
            lines, place = _outputs(f, g, s, end, row0, *piece)
            for i, width in enumerate(lines):
                hole.finish(zeros, 0, count, width, place + s.out_h * i, s.out_c, row0, 0, ahead=True)
        steps, row_step, inside, scratch_weights = s.channels, s.block, s.inside > 0, v.at(scratch, s.inside)
        words, widths = f.at(s.table, steps, "i64"), _call_places(f, end, first, 0)
        with f.loop(0, rows, s.inside_rows) as start:
            stop = f.min(rows, start + s.inside_rows)
            with f.when(inside):
                call_transform(f, s, words, row0 + start, row0 + stop, s.weights_apart, scratch_weights)
            weights = f.select(inside, scratch_weights, v.at(s.weight, row0 * steps), "ptr")
            with f.loop(0, n * n) as point, f.loop(start, stop, g.rows) as row:
                height, width = f.min(rows - row, g.rows), f.word(widths, point)
                done = row - start
                filter = point if stride == 1 else f.min(point // n, 3) * 4 + f.min(point % n, 3)
                a = v.at(weights, filter * s.weights_apart + done * steps)
                next_weights = f.beyond(s.weight, ((row0 + stop) * _TAPS + point * g.rows) * steps * g.align)  # a part for each point
                ahead = f.select(f.both(inside, point < _TAPS), next_weights, f.beyond(a, AHEAD), "ptr")
                with f.loop(0, width, g.columns) as column:
                    b = v.at(inputs, point * s.apart + column)
                    to = v.at(sums, point * s.sums_apart + done * row_step + column)
                    no = Value(f, "false", "i1")
                    call_micro(f, g, height, width - column, [steps, a, b, s.table, to, row_step, zeros, no, ahead], _SINGLES)
            numbers = [("i64", number) for number in (first, end, row0 + start, f.min(count - start, s.inside_rows))]
            f.call("write", "void", ("ptr", f["ctx"]), *numbers, ("ptr", sums))
    windows.give_back(f, s, slot)
    return f


def _apart(f: Function, v: Vectors, line: list[Value], step: int) -> list[Value]:
    """Of vectors that hold a line, those of every step-th element from each of the first `step` on; the line's last vector only continues them."""
    n, lanes = v.g.vector, v.g.lanes

    def picked(a: Value, b: Value, order: list[int]) -> Value:
        listed = ", ".join(f"i32 {i}" for i in order)
        return f.op(f"shufflevector {n} {a.name}, {n} {b.name}, <{lanes} x i32> <{listed}>", n)

    def split(vectors: list[Value]) -> list[Value]:
        if len(vectors) == 1:
            return vectors
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        halves = [split([picked(a, b, list(range(start, 2 * lanes, 2))) for a, b in pairs]) for start in (0, 1)]
        return [x for pair in zip(*halves, strict=True) for x in pair]

    found = split(line[:step])
    return found + [picked(x, line[step], [*range(1, lanes), lanes + i]) for i, x in enumerate(found[: side(step // 2) - step])]


def read(g: Geometry, stride: int) -> Function:
    """Transform the inputs of tiles `first` to `end`: inputs[point][channel][tile]."""
    f = Function("read", [("ptr", "ctx"), ("i64", "first"), ("i64", "end"), ("ptr", "inputs"), ("ptr", "zeros")])
    v, s, sums = Vectors(f, g), _fields(f), _Sums(f, stride)
    n, step = side(stride), 2 * stride  # inputs of a tile, and from a tile to the next
    channels, x_c, pitch, apart = s.channels, s.x_c, s.pitch, s.apart
    with _pieces(f, g, s, f["first"], f["end"]) as (tile, sample, h, w):
        x0, y0 = w * step - s.low_w, h * step - s.low_h
        shifts = [i * g.lanes for i in range(step + 1)]
        masks = [v.mask(0 - x0 - shift, s.size_w - x0 - shift) for shift in shifts]
        at, some = _call_places(f, tile, f["first"], apart), v.mask(None, s.block - (tile - f["first"]))
        starts, strides = [], []
        for i in range(n):
            inside = f.op(f"icmp ult i64 {(y0 + i).name}, {s.size_h.name}", "i1")
            starts.append(f.select(inside, v.at(s.x, sample * s.x_n + (y0 + i) * s.x_h + x0), f["zeros"], "ptr"))
            strides.append(f.select(inside, x_c, 0))
        with f.loop(0, channels) as c:
            for start, far in zip(starts[n - step :], strides[n - step :], strict=True):  # what the next row of tiles reads
                for byte in range(0, step * g.lanes * g.align, _LINE):
                    f.prefetch(f.beyond(v.at(start, c * far + s.x_h * step), byte))
            lines = [v.at(start, c * far) for start, far in zip(starts, strides, strict=True)]
            square = [_apart(f, v, [v.masked_load(v.at(line, i), m) for i, m in zip(shifts, masks, strict=True)], step) for line in lines]
            to = v.at(f["inputs"], c * pitch)
            for i, row in enumerate(_both(square, sums.input)):
                for j, value in enumerate(row):  # past a tile's last are columns of later tiles, which are yet to come
                    v.masked_store(value, v.at(to, f.word(at, n * i + j)), some)
    return f


def write(g: Geometry, stride: int) -> Function:
    """Transform sums back, and store `count` outputs from `row0` on, or have the epilogue do it, for some rows at a time."""
    f = Function("write", [("ptr", "ctx"), ("i64", "first"), ("i64", "end"), ("i64", "row0"), ("i64", "count"), ("ptr", "sums")])
    v, s, sums, hole = Vectors(f, g), _fields(f), _Sums(f, stride), epilogue.Hole(f, BUFFERS, SIZES)
    width, n = 2 * g.lanes, side(stride)
    aside = f.array(_FEW * 2 * width, g.scalar)
    step_r, step_i = f.select(hole.given, 2 * width, s.out_c), f.select(hole.given, width, s.out_h)
    seen = f.variable("zeroinitializer", g.vector)
    halves = [
        ", ".join(f"i32 {i // 2 + (g.lanes if i % 2 else 0)}" for i in range(start, start + g.lanes)) for start in (0, g.lanes)
    ]
    out_c, out_h, block = s.out_c, s.out_h, s.block
    with _pieces(f, g, s, f["first"], f["end"]) as piece:
        widths, start_place = _outputs(f, g, s, f["end"], f["row0"], *piece)
        masks = [[v.mask(None, left - k * g.lanes) for k in range(2)] for left in widths]
        at = _call_places(f, piece[0], f["first"], s.sums_apart)
        with f.loop(0, f["count"], _FEW) as r0:
            rows, row = f.min(f["count"] - r0, _FEW), f["row0"] + r0
            place = start_place + r0 * out_c
            out = f.select(hole.given, aside, v.at(s.out, place), "ptr")
            source, bias = v.at(f["sums"], r0 * block), v.at(s.bias, row)
            with f.loop(0, rows) as r:
                here, to, start = v.at(source, r * block), v.at(out, r * step_r), v.splat(v.one(v.at(bias, r)))
                square = [[v.load(v.at(here, f.word(at, n * i + j))) for j in range(n)] for i in range(n)]
                for i, pair in enumerate(_both(square, sums.output)):
                    a, b = (sums.add(x, start) for x in pair)
                    for k, order in enumerate(halves):
                        mask = masks[i][k]
                        line = f.op(
                            f"shufflevector {g.vector} {a.name}, {g.vector} {b.name}, <{g.lanes} x i32> <{order}>", g.vector
                        )
                        v.masked_store(line, v.at(v.at(to, step_i * i), k * g.lanes), mask)
                        kept = f.op(
                            f"select {mask.type} {mask.name}, {g.vector} {line.name}, {g.vector} zeroinitializer", g.vector
                        )
                        seen.set(v.fma(kept, Value(f, "zeroinitializer", g.vector), seen.get()))
            with f.when(hole.given):
                for i, left in enumerate(widths):
                    hole.finish(v.at(aside, i * width), 2 * width, rows, left, place + out_h * i, out_c, row, 0)
    wrong = f.op(f"fcmp uno {g.vector} {seen.get().name}, zeroinitializer", f"<{g.lanes} x i1>")
    any_wrong = f.call(f"llvm.vector.reduce.or.v{g.lanes}i1", "i1", (wrong.type, wrong), declare=True)
    with f.when(any_wrong):
        f.emit(f"store atomic i64 1, ptr {s.bad.name} monotonic, align 8")
    return f


def code(g: Geometry, stride: int = 1) -> str:
    """The kernel's module."""
    return module(body(g, stride), places(stride), read(g, stride), write(g, stride), transform(g, stride), pack_rows(g), *micros(g, _SINGLES))


_TRANSFORM = [
    ("ptr", "weight"), ("i64", "step_o"), ("i64", "step_c"), ("i64", "straight"), ("i64", "outputs"), ("i64", "channels"), ("ptr", "words"),
    ("i64", "row"), ("i64", "end"), ("i64", "apart"), ("ptr", "to"),
]  # fmt: skip


def call_transform(f: Function, s: Fields, *arguments: Any) -> None:
    """words, row, end, apart, to"""
    every = s.weight, s.step_o, s.step_c, s.straight, s.outputs, s.channels, *arguments
    f.call("transform", "void", *[(type, value) for (type, _), value in zip(_TRANSFORM, every, strict=True)])


def transform(g: Geometry, stride: int) -> Function:
    """Transform the weights of a row block's outputs, from `row` to `end`: to[point][channel][row]. `words` are the places of a filter's taps;
    `straight`: weights lie as [output][channel][3][3]."""
    f = Function("transform", _TRANSFORM)
    v, sums = Vectors(f, g), _Sums(f, stride)
    few = f.array(g.rows * _TAPS * _FEW, g.scalar)
    channels, row, height = f["channels"], f["row"], f["end"] - f["row"]
    with f.loop(0, channels, _FEW) as c0:
        count = f.min(channels - c0, _FEW)
        source, left = v.far(f["weight"], row * f["step_o"] + c0 * f["step_c"]), f["outputs"] - row
        call_pack_rows(f, source, f["step_o"], f["step_c"], count, _TAPS, f["words"], left, 0, height, few, f["straight"])
        for rows in g.heights:
            with f.when(height.equals(rows)), f.loop(0, count) as c:
                kind = f"<{rows} x {g.scalar}>"
                taps = [f.load(kind, v.at(few, (c * _TAPS + t) * rows), g.align) for t in range(_TAPS)]
                square = _both([taps[0:3], taps[3:6], taps[6:9]], sums.weight)
                to = v.at(f["to"], (c0 + c) * rows)
                for i, line in enumerate(square):
                    for j, value in enumerate(line):
                        v.store(value, v.at(to, f["apart"] * (4 * i + j)))
    return f


def pack_weight(g: Geometry, stride: int = 1) -> str:
    """The module of the kernel that transforms and packs all weights; its units are row blocks."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    v, s = Vectors(f, g), Fields(f, PACK_BUFFERS, PACK_SIZES)
    with f.loop(f["lo"], f["hi"]) as unit:
        row = unit * g.rows
        end = f.min(s.padded_outputs, row + g.rows)
        call_transform(f, s, s.words, row, end, s.apart, v.at(s.packed, row * s.channels))
    return module(f, transform(g, stride), pack_rows(g))


@dataclass(frozen=True)
class Plan:
    """The numbers of a call."""

    work: Any
    table: Any
    words: Any
    pack_work: Any
    packed_size: int  # 0: the kernel transforms the weights itself
    scratch: int
    bias_size: int


_FEW_WEIGHTS = 64 * 1024  # weights that can be read again for every block of tiles
_HELD = 192 * 1024  # elements of scratch: most of a 1 MiB L2 cache


def _spread(size: int) -> int:
    """At least `size` elements, such that 16 places so far apart lie in different sets of a cache."""
    return -(-size // 1024) * 1024 + 64


def _front(g: Geometry) -> int:
    return max(g.zeros, 5 * g.lanes)


def plan(
    g: Geometry, samples: int, channels: int, outputs: int, size: tuple[int, ...], low: tuple[int, ...], out: tuple[int, ...],
    x_strides: tuple[int, ...], out_strides: tuple[int, ...], weight_strides: tuple[int, ...], slots: int, before: bool = True, stride: int = 1,
) -> Plan:  # fmt: skip
    """The plan of a call; strides in elements: (n, c, h), the weight's (o, c, h, w). `before`: weights are transformed beforehand, however
    few units read them."""
    tiles_h, tiles_w = -(-out[0] // 2), -(-out[1] // 2)
    tiles, rows, points = samples * tiles_h * tiles_w, padded(outputs, g), side(stride) ** 2
    fits = max(1, _HELD // (points * (channels + rows)) // g.columns)
    block = (4 if rows * channels > _FEW_WEIGHTS else max(2, min(fits, 3))) * g.columns
    block = min(block, -(-tiles // g.lanes) * g.lanes)
    count = -(-tiles // block)
    wanted = 1 if slots == 1 else 4 * slots
    chunks = max(1, min(rows // (4 * g.rows), -(-wanted // count)))
    row_blocks, grain = -(-rows // g.rows), max(1, 8192 // (channels * _FILTERS * g.rows))
    chunk = -(-row_blocks // chunks) * g.rows
    chunks = -(-rows // chunk)
    pitch = block
    inside = not before and count == 1
    apart, sums_apart = _spread(channels * pitch), _spread((g.rows if inside else chunk) * block)
    weights_apart = _spread((g.rows if inside else rows) * channels)
    sums_at = _front(g) + points * apart
    inside_at = sums_at + points * sums_apart + 2 * g.lanes
    scratch = inside_at + inside * _FILTERS * weights_apart + 64
    step_o, step_c, step_h, step_w = weight_strides
    straight = int(weight_strides == (channels * _TAPS, _TAPS, 3, 1))
    words = [i * step_h + j * step_w for i in range(3) for j in range(3)]
    fields = {
        "channels": channels, "outputs": outputs, "padded_outputs": rows, "tiles_h": tiles_h, "tiles_w": tiles_w, "tiles": tiles,
        "block": block, "chunk": chunk, "chunks": chunks, "pitch": pitch, "apart": apart, "sums_at": sums_at,
        "sums_apart": sums_apart, "weights_apart": weights_apart, "inside": inside * inside_at, "inside_rows": g.rows if inside else chunk,
        "step_o": step_o, "step_c": step_c, "straight": straight,
        "size_h": size[0], "size_w": size[1], "low_h": low[0], "low_w": low[1], "high": out[0], "wide": out[1],
        "x_n": x_strides[0], "x_c": x_strides[1], "x_h": x_strides[2],
        "out_n": out_strides[0], "out_c": out_strides[1], "out_h": out_strides[2], "scratch_size": scratch, "slots": slots,
    }  # fmt: skip
    return Plan(
        np.array([count * chunks, 1, *[fields[name] for name in SIZES]], np.int64),
        np.array([*range(0, channels * pitch, pitch), *words], np.int64), np.array(words, np.int64),
        np.array([row_blocks, grain, channels, outputs, rows, weights_apart, step_o, step_c, straight], np.int64),
        0 if inside else _FILTERS * weights_apart, scratch, rows,
    )  # fmt: skip
