"""What the convolution kernels share: a call's numbers, scratch memory, and boxes of the input packed into it.

A *box* is a part of the output: samples x depth x height x width. Its windows read a box of the padded input, which is copied to
scratch channel by channel, with zeros where the padding is. A stride s splits a dimension into s *planes*, one for each
residue, so that inside a plane neighbouring outputs lie side by side whatever the stride:

    scratch[channel][plane][sample][depth][height][width]

A tap of the kernel is then one fixed offset (its plane and its shift there), and an output's *position* is its place in a plane: position + offset
is what the tap reads. Past an output row's end are as many positions that are no outputs as the kernel reaches further.

`ctx` holds addresses and numbers in the order of BUFFERS, the address of an epilogue's code, or 0, and SIZES; `table` has
three words for each plane (first coordinate read along each dimension), then what a kernel wants.
"""

from __future__ import annotations

import functools

from tocha.inductor.templates import epilogue
from tocha.inductor.templates.builder import Function, Value
from tocha.inductor.templates.gemm import Geometry, Vectors

_AHEAD, _LINE = 4096, 64  # bytes before it is packed that input is fetched from memory; bytes that come together
BUFFERS = ("out", "x", "weight", "bias", "flags", "scratch", "table")
SIZES = (
    "channels", "block", "outputs", "padded_outputs", "chunk", "chunks",
    "samples", "box_n", "box_d", "box_h", "box_w", "count_n", "count_d", "count_h", "count_w",
    "planes", "plane_d", "plane_h", "plane_w", "plane", "pitch",
    "size_d", "size_h", "size_w", "step_d", "step_h", "step_w",
    "x_group", "x_n", "x_c", "x_d", "x_h", "x_w", "out_n", "out_c", "out_d", "out_h", "out_w",
    "phases", "weight_group", "tall", "across", "dense", "hold_at", "packs", "inside", "inside_rows", "taps_at", "straight",
    "weight_from", "weight_o", "weight_c", "scratch_size", "slots",
)  # fmt: skip


class Fields:
    """`fields.name`: the number or address of that name in ctx, loaded where first used."""

    def __init__(self, f: Function, buffers: tuple[str, ...] = BUFFERS, sizes: tuple[str, ...] = (epilogue.HOLE, *SIZES)) -> None:
        self._f, self._buffers = f, buffers
        self._slots = {name: number for number, name in enumerate((*buffers, *sizes))}

    def __getattr__(self, name: str) -> Value:
        f = self._f
        return f.load("ptr" if name in self._buffers else "i64", f.at(f["ctx"], self._slots[name], "i64"), 8)


def take_scratch(f: Function, g: Geometry, fields: Fields) -> tuple[Value, Value]:
    """(slot, address) of scratch that no other thread uses, aligned to 64 bytes. `give_back` ends it."""
    flags, slots = fields.flags, fields.slots
    slot = f.variable(0)
    found = f.variable(1)
    with f.repeat(lambda: found.get().equals(1)):
        found.set(f.op(f"atomicrmw xchg ptr {f.at(flags, slot.get(), 'i64').name}, i64 1 acquire, align 8"))
        with f.when(found.get().equals(1)):
            slot.set((slot.get() + 1) % slots)
    start = f.at(fields.scratch, slot.get() * fields.scratch_size, g.scalar)
    number = f.op(f"ptrtoint ptr {start.name} to i64") + 63
    return slot.get(), f.op(f"inttoptr i64 {(number & -64).name} to ptr", "ptr")


def give_back(f: Function, fields: Fields, slot: Value) -> None:
    f.emit(f"store atomic i64 0, ptr {f.at(fields.flags, slot, 'i64').name} release, align 8")


def unit_box(f: Function, s: Fields, unit: Value) -> tuple[Value, Value, Value, Value, Value]:
    """A unit's box, as its first sample, depth, height and width, and the unit's group."""
    w0, rest = (unit % s.count_w) * s.box_w, unit // s.count_w
    h0, rest = (rest % s.count_h) * s.box_h, rest // s.count_h
    d0, rest = (rest % s.count_d) * s.box_d, rest // s.count_d
    return (rest % s.count_n) * s.box_n, d0, h0, w0, rest // s.count_n


def call_pack(
    f: Function, g: Geometry, x: Value, count: Value, samples: Value, d0: Value, h0: Value, w0: Value, to: Value
) -> None:
    arguments = (("ptr", f["ctx"]), ("ptr", x), *[("i64", number) for number in (count, samples, d0, h0, w0)], ("ptr", to))
    if g.pairs:
        f.call("pack_box", "void", *arguments)
        return
    last = f.both(Fields(f).x_c.equals(1), count > 1)
    f.choose(last, lambda: f.call("pack_last", "void", *arguments), lambda: f.call("pack_box", "void", *arguments))


def pack_box(g: Geometry, last: bool = False) -> Function:
    """Copy the input that a box's windows read, for `count` channels from x on, to `to`; `last` if channels lie side by side."""
    f = Function(
        "pack_last" if last else "pack_box",
        [("ptr", "ctx"), ("ptr", "x"), *[("i64", n) for n in ("count", "samples", "d0", "h0", "w0")], ("ptr", "to")],
    )
    v, s = Vectors(f, g), Fields(f)
    table, planes, width = s.table, s.planes, s.plane_w
    x_n, x_c, x_d, x_h, x_w = s.x_n, s.x_c, s.x_d, s.x_h, s.x_w
    size_d, size_h, size_w, step_d, step_h, step_w = s.size_d, s.size_h, s.size_w, s.step_d, s.step_h, s.step_w
    plane_d, plane_h, plane, pitch = s.plane_d, s.plane_h, s.plane, s.pitch
    channels = 1 if last else f["count"]
    with f.loop(0, channels) as c, f.loop(0, planes) as p:  # ascending places: a row may write past its end
        first_d = f["d0"] * step_d + f.word(table, p * 3)
        first_h = f["h0"] * step_h + f.word(table, p * 3 + 1)
        first_w = f["w0"] * step_w + f.word(table, p * 3 + 2)
        low = f.min(f.max((step_w - 1 - first_w) // step_w, 0), width)
        end = f.min(f.max((size_w - first_w + (step_w - 1)) // step_w, 0), width)
        channel, target = v.far(f["x"], c * x_c + first_w * x_w), v.at(f["to"], c * pitch + p * plane)
        step, down = step_w * x_w, step_h * x_h
        with f.loop(0, f["samples"]) as n, f.loop(0, plane_d) as d:
            at_d = first_d + d * step_d
            inside_d = f.op(f"icmp ult i64 {at_d.name}, {size_d.name}", "i1")
            top, row = v.far(channel, n * x_n + at_d * x_d + first_h * x_h), (n * plane_d + d) * plane_h
            with f.loop(0, plane_h) as h:
                at_h = first_h + h * step_h
                inside = f.both(inside_d, f.op(f"icmp ult i64 {at_h.name}, {size_h.name}", "i1"))
                high = f.select(inside, end, 0)
                source, to = v.far(top, h * down), v.at(target, (row + h) * width)
                if last:
                    _transposed_rows(f, v, source, to, low, high, width, step, f["count"], pitch)
                else:
                    types = ("ptr", "ptr", "ptr", "i64", "i64", "i64", "i64")
                    second = v.far(source, x_c // 2) if g.pairs else source
                    f.call("pack_row", "void", *zip(types, (source, second, to, low, high, width, step), strict=True))
    return f


def packers(g: Geometry) -> list[Function]:
    return [pack_box(g), *([] if g.pairs else [pack_box(g, last=True)]), pack_row(g)]


def _transposed_rows(
    f: Function, v: Vectors, x: Value, to: Value, low: Value, high: Value, width: Value, step: Value, count: Value, pitch: Value
) -> None:
    """to[c * pitch + i] = x[i * step + c] for low <= i < high, else 0: squares of as many channels and places as a vector has lanes."""
    g = v.g
    with f.loop(0, count, g.lanes) as c, f.loop(0, width, g.lanes) as i:
        lines = []
        for j in range(g.lanes):
            here = f.both(i + j >= low, i + j < high)
            lines.append(v.fetch(v.far(x, (i + j) * step + c), v.mask(None, f.select(here, count - c, 0))))
        for r, line in enumerate(v.transpose(lines)):
            with f.when(c + r < count):
                v.store(line, v.at(to, (c + r) * pitch + i))


def pack_row(g: Geometry, filling: str = "0.0") -> Function:
    """to[i] = x[i * step] for low <= i < high, else `filling`, for 0 <= i < width; may write less than a vector past the end.

    Where pairs are packed, `second` is the line of their high halves.
    """
    f = Function(
        "pack_row",
        [("ptr", "x"), ("ptr", "second"), ("ptr", "to"), ("i64", "low"), ("i64", "high"), ("i64", "width"), ("i64", "step")],
        inline=True,
    )
    v = Vectors(f, g)
    low, high, step = f["low"], f["high"], f["step"]
    nothing = v.constant(filling)

    def fetched(i: Value, mask: Value | None) -> Value:
        if g.pairs:
            return v.fetch_pairs(v.far(f["x"], i), v.far(f["second"], i), mask)
        return v.fetch(v.far(f["x"], i), mask) if g.memory or mask is None else v.masked_load(v.at(f["x"], i), mask, nothing)

    def dense() -> None:
        def whole(i: Value) -> None:
            v.store(fetched(i, None), v.at(f["to"], i))

        def part(i: Value) -> None:
            v.store(fetched(i, v.mask(low - i, high - i)), v.at(f["to"], i))

        with f.loop(0, f["width"], g.lanes) as i:
            f.prefetch(f.beyond(v.far(f["x"], i), _AHEAD))
            f.choose(f.both(i >= low, i + g.lanes <= high), lambda: whole(i), lambda: part(i))

    def strided() -> None:
        even = ", ".join(f"i32 {2 * i}" for i in range(g.lanes))

        def pairs(i: Value, whole: bool) -> None:
            x = v.at(f["x"], i * 2)
            for line in (0, _LINE):
                f.prefetch(f.beyond(x, _AHEAD + line))
            first, end = (low - i) * 2, (high - i) * 2 - 1
            a, b = (
                v.load(v.at(x, j)) if whole else v.masked_load(v.at(x, j), v.mask(first, end, j), nothing) for j in (0, g.lanes)
            )
            every = f.op(f"shufflevector {g.vector} {a.name}, {g.vector} {b.name}, <{g.lanes} x i32> <{even}>", g.vector)
            v.store(every, v.at(f["to"], i))

        def every_second() -> None:
            with f.loop(0, f["width"], g.lanes) as i:
                whole = f.both(i >= low, i + g.lanes < high)
                f.choose(whole, functools.partial(pairs, i, True), functools.partial(pairs, i, False))

        def singly() -> None:
            with f.loop(0, f["width"], g.lanes) as i:
                v.store(Value(f, nothing, g.vector), v.at(f["to"], i))
                with f.loop(f.max(i, low), f.min(i + g.lanes, high)) as j:
                    x = v.far(f["x"], j * step)
                    v.store(v.fetch_pair(x, v.far(f["second"], j * step)) if g.pairs else v.fetch_one(x), v.at(f["to"], j))

        if g.memory:
            singly()
        else:
            f.choose(step.equals(2), every_second, singly)

    f.choose(step.equals(1), dense, strided)
    return f
