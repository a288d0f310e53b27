"""The gradient of attention, which makes the scores again block by block (Dao et al. 2022, "FlashAttention").

Here queries run down and keys across, a panel of keys as wide as a tile, so that the weights p and the scores' gradients ds lie as
right factors of the products that sum over queries:

    p  = exp(q kᵀ scale + mask - lse)       ds  = p (g vᵀ - d),  d = the sum over channels of g * out
    dv[channel, key] += gᵀ p                dk[width, key] += qᵀ ds          dq[query, width] += ds k

For the last product ds is packed as a left factor. A unit of work is a head of keys with all the heads of queries that share it, so every
sum is made by one thread, in one order. Memory is linear in the lengths: sums for a head's dq, dk and dv are kept in scratch.
"""

from __future__ import annotations

from typing import Any

from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.templates import epilogue as holes
from tocha.inductor.templates.attention import (
    Elementwise,
    Spec,
    call_unload,
    fill,
    hidden,
    micros,
    pack,
    product,
    rounded,
    unload,
)
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.expressions import convert
from tocha.inductor.templates.gemm import Geometry, Vectors
from tocha.inductor.templates.panels import Source
from tocha.inductor.templates.windows import Fields, give_back, take_scratch

BUFFERS = ("dq", "dk", "dv", "g", "q", "k", "v", "mask", "out", "lse", "scale", "offsets", "flags", "scratch")
SIZES = (
    "units", "group", "length", "keys", "width", "channels", "rows", "block", "q_row", "q_width", "k_row", "k_width", "v_row", "v_width",
    "g_row", "g_width", "out_row", "out_width", "mask_row", "mask_key", "dq_row", "dk_row", "dv_row", "causal", "scratch_size", "slots",
)  # fmt: skip
KEY_WORDS, QUERY_WORDS = 4, 5  # offsets of a head of keys: k, v, dk, dv; of queries, after them all: q, mask, out, g, dq
_BLOCK, _ROWS = 256, 96
_GAP = 4  # steps after a row block of ds: packing writes up to a vector past the end


class Areas:
    """Scratch memory: where each part begins, in elements; `count` is all of it."""

    def __init__(self, g: Geometry, sizes: Any) -> None:
        block, rows, width, channels = (sizes[name] for name in ("block", "rows", "width", "channels"))
        long_rows, panels = rounded(sizes["length"], g.rows), rounded(sizes["keys"], g.columns) // g.columns
        tall, deep, wide = rounded(width, g.rows) + g.lanes, rounded(channels, g.rows) + g.lanes, rounded(width, g.columns)
        square = (rows + g.rows) * g.columns
        parts = {
            "k_across": block * width, "v_across": block * channels, "k_down": block * wide,
            "q_rows": rows * width, "g_rows": rows * channels, "q_down": tall * rows, "g_down": deep * rows,
            "p": square, "ds": square, "mask": square, "ds_rows": (rows + g.rows) * (block + _GAP), "factors": 2 * g.columns, "d": long_rows,
            "dq": (long_rows + g.rows) * wide, "dk": panels * tall * g.columns, "dv": panels * deep * g.columns,
        }  # fmt: skip
        self.at: dict[str, Any] = {}
        place: Any = 0
        for name, size in parts.items():
            self.at[name] = place
            place = place + rounded(size + g.lanes, 16)
        self.count, self.tall, self.deep, self.wide = place, tall, deep, wide


def _areas(f: Function, spec: Spec, s: Fields, scratch: Value) -> tuple[dict[str, Value], Areas]:
    v = Vectors(f, spec.tile)
    areas = Areas(spec.tile, {name: getattr(s, name) for name in ("block", "rows", "width", "channels", "length", "keys")})
    return {name: v.at(scratch, place) for name, place in areas.at.items()}, areas


def body(spec: Spec) -> Function:
    """The loops over units, heads of queries, blocks of keys and of queries."""
    g = spec.tile
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, v, do = Fields(f, BUFFERS, SIZES), Vectors(f, g), Elementwise(f, spec)
    slot, scratch = take_scratch(f, g, s)
    at, areas = _areas(f, spec, s, scratch)
    memory, zero = MEMORY[spec.type], do.constant(0.0)
    length, keys, width, channels, block, rows = s.length, s.keys, s.width, s.channels, s.block, s.rows
    count = f.ceil_div(keys, g.columns) * g.columns
    fill(f, v, at["factors"], g.columns, v.splat(v.one(s.scale)))
    fill(f, v, v.at(at["factors"], g.columns), g.columns, do.constant(1.0))
    with f.loop(f["lo"], f.min(f["hi"], s.units)) as unit:
        words = f.at(s.offsets, unit * KEY_WORDS, "i64")
        k, value, dk, dv = (f.at(x, f.word(words, i), memory) for i, x in enumerate((s.k, s.v, s.dk, s.dv)))
        fill(f, v, at["dk"], count * areas.tall, zero)
        fill(f, v, at["dv"], count * areas.deep, zero)
        with f.loop(0, s.group) as member:
            head = unit * s.group + member
            words = f.at(s.offsets, s.units * KEY_WORDS + head * QUERY_WORDS, "i64")
            q, out, grad, dq = (f.at(x, f.word(words, i), memory) for x, i in ((s.q, 0), (s.out, 2), (s.g, 3), (s.dq, 4)))
            mask = f.at(s.mask, f.word(words, 1), MEMORY[spec.mask]) if spec.mask else s.mask
            lse = v.at(s.lse, head * length)
            f.call("row_dots", "void", ("ptr", f["ctx"]), ("ptr", grad), ("ptr", out), ("ptr", at["d"]))
            fill(f, v, at["dq"], rounded(length, g.rows) * areas.wide, zero)
            with f.loop(0, keys, block) as k0:
                here = f.min(keys - k0, block)
                _pack_keys(f, spec, s, at, k, value, k0, here)
                first = f.select(s.causal > 0, k0 // rows * rows, 0)  # queries before see none of these keys
                with f.loop(first, length, rows) as q0:
                    f.call(
                        "block", "void", ("ptr", f["ctx"]), ("ptr", scratch), ("ptr", q), ("ptr", grad), ("ptr", mask), ("ptr", lse), ("i64", q0),
                        ("i64", k0), ("i64", here),
                    )  # fmt: skip
            f.call("unload_rows", "void", ("ptr", f["ctx"]), ("ptr", at["dq"]), ("i64", areas.wide), ("ptr", dq))
        with f.loop(0, keys, g.columns) as j:
            lines = f.min(keys - j, g.columns)
            for name, depth, deep, to, row, factor in (
                ("dk", areas.tall, width, dk, s.dk_row, at["factors"]), ("dv", areas.deep, channels, dv, s.dv_row, v.at(at["factors"], g.columns)),
            ):  # fmt: skip
                call_unload(f, v.at(at[name], j * depth), deep, lines, factor, f.at(to, j * row, memory), row)
    give_back(f, s, slot)
    return f


def _pack_keys(f: Function, spec: Spec, s: Fields, at: dict[str, Value], k: Value, value: Value, k0: Value, here: Value) -> None:
    """A block's keys and values as panels of keys, and the keys again with their width across."""
    g, v, memory = spec.tile, Vectors(f, spec.tile), MEMORY[spec.type]
    with f.loop(0, here, g.columns) as j:
        lines = f.min(here - j, g.columns)
        pack(
            f,
            "pack_right",
            f.at(k, (k0 + j) * s.k_row, memory),
            s.k_row,
            s.k_width,
            s.width,
            lines,
            v.at(at["k_across"], j * s.width),
        )
        pack(
            f,
            "pack_right",
            f.at(value, (k0 + j) * s.v_row, memory),
            s.v_row,
            s.v_width,
            s.channels,
            lines,
            v.at(at["v_across"], j * s.channels),
        )
    with f.loop(0, s.width, g.columns) as i:
        source = f.at(k, k0 * s.k_row + i * s.k_width, memory)
        pack(f, "pack_right", source, s.k_width, s.k_row, here, f.min(s.width - i, g.columns), v.at(at["k_down"], i * here))


def _pack_queries(f: Function, spec: Spec, s: Fields, at: dict[str, Value], q0: Value, here: Value) -> None:
    """A block's queries, scaled, and the result's gradients, in row blocks; and both again with queries as the inner dimension."""
    g, v, memory = spec.tile, Vectors(f, spec.tile), MEMORY[spec.type]
    scale = v.splat(v.one(s.scale))
    for source, rows, down, row, step, deep in (
        (f["q"], "q_rows", "q_down", s.q_row, s.q_width, s.width), (f["grad"], "g_rows", "g_down", s.g_row, s.g_width, s.channels),
    ):  # fmt: skip
        with f.loop(0, here, g.rows) as i:
            pack(
                f,
                "pack_left",
                f.at(source, (q0 + i) * row, memory),
                row,
                step,
                deep,
                f.min(here - i, g.rows),
                v.at(at[rows], i * deep),
            )
        with f.loop(0, deep, g.rows) as i:
            pack(
                f,
                "pack_left",
                f.at(source, q0 * row + i * step, memory),
                step,
                row,
                here,
                f.min(deep - i, g.rows),
                v.at(at[down], i * here),
            )
    with f.loop(0, rounded(here, g.rows) * s.width, g.lanes) as i:
        place = v.at(at["q_rows"], i)
        v.store(f.op(f"fmul {g.vector} {v.load(place).name}, {scale.name}", g.vector), place)


def block(spec: Spec) -> Function:
    """A block of queries against a block of `here` keys from k0 on."""
    g = spec.tile
    f = Function(
        "block",
        [("ptr", "ctx"), ("ptr", "scratch"), ("ptr", "q"), ("ptr", "grad"), ("ptr", "mask"), ("ptr", "lse"), ("i64", "q0"), ("i64", "k0"),
         ("i64", "here")],
    )  # fmt: skip
    s, v = Fields(f, BUFFERS, SIZES), Vectors(f, g)
    at, areas = _areas(f, spec, s, f["scratch"])
    q0, k0, width, channels = f["q0"], f["k0"], s.width, s.channels
    rows = f.min(s.length - q0, s.rows)
    seen = f.select(s.causal > 0, f.min(f["here"], q0 + rows - k0), f["here"])
    with f.when(seen > 0):
        _pack_queries(f, spec, s, at, q0, rows)
    with f.loop(0, seen, g.columns) as j:
        lines = f.min(f["here"] - j, g.columns)
        with f.loop(0, rows, g.rows) as i:
            for left, right, name, deep in (("q_rows", "k_across", "p", width), ("g_rows", "v_across", "ds", channels)):
                a, b = v.at(at[left], i * deep), v.at(at[right], j * deep)
                product(f, g, rows - i, deep, a, b, v.at(at[name], i * g.columns), g.columns, False)
        if spec.mask:
            source = f.at(f["mask"], q0 * s.mask_row + (k0 + j) * s.mask_key, MEMORY[spec.mask])
            pack(f, "pack_mask", source, s.mask_key, s.mask_row, rows, lines, at["mask"])
        _weights(f, spec, s, at, rows, j)
        panel = k0 + j
        with f.loop(0, channels, g.rows) as i:
            to = v.at(at["dv"], panel * areas.deep + i * g.columns)
            product(f, g, channels - i, rows, v.at(at["g_down"], i * rows), at["p"], to, g.columns, True)
        with f.loop(0, width, g.rows) as i:
            to = v.at(at["dk"], panel * areas.tall + i * g.columns)
            product(f, g, width - i, rows, v.at(at["q_down"], i * rows), at["ds"], to, g.columns, True)
        with f.loop(0, rows, g.rows) as i:
            to = v.at(at["ds_rows"], i * (s.block + _GAP) + j * g.rows)
            pack(f, "pack_scores", v.at(at["ds"], i * g.columns), g.columns, 1, lines, f.min(rows - i, g.rows), to)
    with f.when(seen > 0), f.loop(0, width, g.columns) as i, f.loop(0, rows, g.rows) as r:
        to = v.at(at["dq"], (q0 + r) * areas.wide + i)
        product(
            f,
            g,
            rows - r,
            seen,
            v.at(at["ds_rows"], r * (s.block + _GAP)),
            v.at(at["k_down"], i * f["here"]),
            to,
            areas.wide,
            True,
        )
    return f


def _weights(f: Function, spec: Spec, s: Fields, at: dict[str, Value], rows: Value, j: Value) -> None:
    """p and ds of a panel, from scores and the weights' gradients."""
    g, v, do = spec.tile, Vectors(f, spec.tile), Elementwise(f, spec)

    def each(causal: bool) -> None:
        with f.loop(0, rows) as r:
            less, d = (v.splat(v.one(v.at(x, f["q0"] + r))) for x in (f["lse"], at["d"]))
            for n in range(g.vectors):
                place = r * g.columns + n * g.lanes
                score = v.load(v.at(at["p"], place))
                if spec.mask:
                    score = v.add(score, v.load(v.at(at["mask"], place)))
                if causal:
                    score = hidden(f, g, score, f["k0"] + j + n * g.lanes, f["q0"] + r, keys_across=True)
                weight = do.exp(score, less)
                v.store(weight, v.at(at["p"], place))
                change = v.load(v.at(at["ds"], place))
                x, y, w = do.name("x"), do.name("y"), do.name("w")
                v.store(do(w * (x - y), x=change, y=d, w=weight), v.at(at["ds"], place))

    edge = f.both(s.causal > 0, f["k0"] + j + g.columns > f["q0"] + 1)
    f.choose(edge, lambda: each(True), lambda: each(False))


def row_dots(spec: Spec) -> Function:
    """d[row] = the sum over channels of g * out."""
    g = spec.tile
    f = Function("row_dots", [("ptr", "ctx"), ("ptr", "grad"), ("ptr", "out"), ("ptr", "d")])
    s, v = Fields(f, BUFFERS, SIZES), Vectors(f, g)
    memory = MEMORY[spec.type]
    whole = f.both(s.g_width.equals(1), s.out_width.equals(1))
    suffix = f"v{g.lanes}{'f32' if g.scalar == 'float' else 'f64'}"

    def one(pointer: Value) -> Value:
        align = holes.BITS[spec.type] // 8
        single = f.op(
            f"insertelement <1 x {memory}> poison, {memory} {f.load(memory, pointer, align).name}, i32 0", f"<1 x {memory}>"
        )
        wide = convert(f, 1, single, spec.type, spec.compute)
        return f.op(f"extractelement {wide.type} {wide.name}, i32 0", g.scalar)

    with f.loop(0, s.length) as r:
        x, y = f.at(f["grad"], r * s.g_row, memory), f.at(f["out"], r * s.out_row, memory)
        total = f.variable("0.0", g.scalar)

        def vectors(x: Value = x, y: Value = y, total: Any = total) -> None:
            sums = f.variable("zeroinitializer", g.vector)
            with f.loop(0, s.channels, g.lanes) as c:
                mask = v.mask(None, s.channels - c)
                a, b = (holes.load(f, g.lanes, spec.type, spec.compute, f.at(p, c, memory), mask) for p in (x, y))
                sums.set(v.fma(a, b, sums.get()))
            name = f"llvm.vector.reduce.fadd.{suffix}"
            f.declared.add(f"declare {g.scalar} @{name}({g.scalar}, {g.vector})")
            total.set(f.op(f"call reassoc {g.scalar} @{name}({g.scalar} 0.0, {g.vector} {sums.get().name})", g.scalar))

        def singly(x: Value = x, y: Value = y, total: Any = total) -> None:
            with f.loop(0, s.channels) as c:
                product = f.op(
                    f"fmul {g.scalar} {one(f.at(x, c * s.g_width, memory)).name}, {one(f.at(y, c * s.out_width, memory)).name}",
                    g.scalar,
                )
                total.set(f.op(f"fadd {g.scalar} {total.get().name}, {product.name}", g.scalar))

        f.choose(whole, vectors, singly)
        v.store(total.get(), v.at(f["d"], r))
    return f


def unload_rows(spec: Spec) -> Function:
    """dq[row, width] = sums[row, width] * scale."""
    g = spec.tile
    f = Function("unload_rows", [("ptr", "ctx"), ("ptr", "sums"), ("i64", "row"), ("ptr", "to")])
    s, v = Fields(f, BUFFERS, SIZES), Vectors(f, g)
    scale = v.splat(v.one(s.scale))
    with f.loop(0, s.length) as r, f.loop(0, s.width, g.lanes) as i:
        total = f.op(f"fmul {g.vector} {v.load(v.at(f['sums'], r * f['row'] + i)).name}, {scale.name}", g.vector)
        to = f.at(f["to"], r * s.dq_row + i, MEMORY[spec.type])
        holes.store(f, g.lanes, spec.type, convert(f, g.lanes, total, spec.compute, spec.type), to, v.mask(None, s.width - i))
    return f


def code(spec: Spec) -> str:
    """The gradient kernel's module."""
    scores = ("pack_scores", Source(spec.compute), spec.tile.rows)
    return module(body(spec), block(spec), row_dots(spec), unload_rows(spec), unload(spec), *spec.packers(scores), *micros(spec))


def sizes(spec: Spec, length: int, keys: int, width: int, channels: int, slots: int) -> dict[str, int]:
    """How a call is cut, and the scratch memory it takes."""
    g = spec.tile
    block, rows = rounded(min(keys, _BLOCK), g.columns), rounded(min(length, _ROWS), g.rows)
    found = {"length": length, "keys": keys, "width": width, "channels": channels, "block": block, "rows": rows}
    return found | {"scratch_size": Areas(g, found).count + 64, "slots": slots}


__all__ = ["BUFFERS", "KEY_WORDS", "QUERY_WORDS", "SIZES", "code", "sizes"]
