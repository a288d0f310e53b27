"""Attention without its matrix of scores (Dao et al. 2022, "FlashAttention"; Milakov & Gimelshein 2018, the running softmax).

Scores are made transposed, keys down and queries across: a panel of queries is as wide as a tile of `matmul`, whose microkernel makes
both products. So the softmax of a query runs down a lane (no sums across vectors), and the exponentials lie as the second product's right
factor is packed:

    s[key, query] = k · qᵀ                  o[channel, query] = vᵀ · exp(s - largest)

A unit of work is a chunk of a head's queries. For each block of keys, keys and values are packed once for the chunk's panels, each of
which carries its largest score, its sum and its unscaled result from block to block. Blocks are cut by the number of keys alone, so
results don't depend on how queries are cut in chunks. Causal masks skip what they hide. Beside the result, the logarithm of the sum of
exponentials is kept for the gradient; it is +inf for queries that see no key, whose result is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tocha.inductor import elementary
from tocha.inductor.codegen_llvm import MEMORY
from tocha.inductor.loop_ir import Binary, Expr, Read, compare, const, select
from tocha.inductor.templates import epilogue as holes
from tocha.inductor.templates import matmul, panels
from tocha.inductor.templates.builder import Function, Value, module
from tocha.inductor.templates.expressions import convert, emit
from tocha.inductor.templates.gemm import Geometry, Vectors
from tocha.inductor.templates.panels import Source
from tocha.inductor.templates.windows import Fields, give_back, take_scratch

BUFFERS = ("out", "lse", "q", "k", "v", "mask", "scale", "offsets", "flags", "scratch")
SIZES = (
    "length", "keys", "width", "channels", "chunk", "chunks", "block", "q_row", "q_width", "k_row", "k_width", "v_row", "v_width", "mask_row",
    "mask_key", "out_row", "causal", "scratch_size", "slots",
)  # fmt: skip
OFFSETS = 5  # words of a head: q, k, v, mask, out


@dataclass(frozen=True)
class Spec:
    """Element types: of queries, keys, values and results; of the mask ("u8" is a boolean one), if there is one."""

    type: str
    mask: str | None

    @property
    def product(self) -> matmul.Spec:
        return matmul.Spec(self.type, self.type)

    @property
    def compute(self) -> str:
        return self.product.compute

    @property
    def tile(self) -> Geometry:
        return self.product.tile

    def packers(self, *extra: tuple[str, Source, int]) -> list[Function]:
        """Panels of rows, of columns, of the mask and what else is asked for."""
        g, source = self.tile, Source(self.type)
        found = [panels.packer("pack_left", g, source, g.rows), panels.packer("pack_right", g, source, g.columns)]
        if self.mask is not None:
            found.append(panels.packer("pack_mask", g, mask_source(self.mask, self.compute), g.columns))
        return found + [panels.packer(name, g, source, width) for name, source, width in extra]


def mask_source(type: str, compute: str) -> Source:
    """A mask's elements as what is added to scores."""
    if type == "u8":
        return Source(type, rule=lambda o, x: o.where(o.ne(x, 0.0), o.mul(x, 0.0), o.sub(o.mul(x, 0.0), o.inf)), into=compute)
    return Source(type, into=compute)


PACK = ("ptr", "i64", "i64", "i64", "i64", "ptr")


def pack(f: Function, name: str, *arguments: Any) -> None:
    """Call a packer: source, step between lines, step inside, depth, lines, panel."""
    f.call(name, "void", *zip(PACK, arguments, strict=True))


def product(f: Function, g: Geometry, rows: Any, k: Any, a: Value, b: Value, c: Value, row: Any, more: bool) -> None:
    """c[:rows] (+)= a panel times b panel, both vectors wide; rows are made up to the granule."""
    height = f.ceil_div(f.min(rows, g.rows), g.granule) * g.granule
    matmul.call_micro(f, g, height, Value(f, "true", "i1"), [k, a, b, c, row, "true" if more else "false"])


def fill(f: Function, v: Vectors, to: Value, count: Any, value: Value) -> None:
    with f.loop(0, count, v.g.lanes) as i:
        v.store(value, v.at(to, i))


class Elementwise:
    """Expressions on vectors of scores, as functions of named values."""

    def __init__(self, f: Function, spec: Spec) -> None:
        self.f, self.lanes, self.type = f, spec.tile.lanes, spec.compute

    def name(self, name: str) -> Expr:
        return Read(name, self.type)

    def __call__(self, expression: Expr, **values: Value) -> Value:
        return emit(self.f, self.lanes, expression, {self.name(n): x for n, x in values.items()})

    def exp(self, x: Value, less: Value) -> Value:
        return self(elementary.exp_of_difference(self.name("x") - self.name("y")), x=x, y=less)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger one; y where x is NaN (the exponential will be, too)."""
        return self(select(compare("gt", self.name("x"), self.name("y")), self.name("x"), self.name("y")), x=x, y=y)

    def constant(self, value: float) -> Value:
        return self(const(value, self.type))


def hidden(f: Function, g: Geometry, score: Value, first: Value, place: Value, keys_across: bool) -> Value:
    """The scores with -inf where the key comes after the query: `first` is the first lane's place, `place` that of all lanes' partner."""
    lane = f"<{', '.join(f'i64 {i}' for i in range(g.lanes))}>"
    wide = f"<{g.lanes} x i64>"
    across = f.op(f"add {wide} {f.splat(first, wide).name}, {lane}", wide)
    other = f.splat(place, wide)
    key, query = (across, other) if keys_across else (other, across)
    after = f.op(f"icmp sgt {wide} {key.name}, {query.name}", f"<{g.lanes} x i1>")
    infinite = f"{'float' if g.scalar == 'float' else 'double'} 0xFFF0000000000000"
    return f.op(
        f"select {after.type} {after.name}, {g.vector} <{', '.join([infinite] * g.lanes)}>, {g.vector} {score.name}", g.vector
    )


def unload(spec: Spec) -> Function:
    """out[line, channel] = tile[channel, line] * factor[line] for the `lines` lines of a panel."""
    g = spec.tile
    f = Function(
        "unload", [("ptr", "tile"), ("i64", "channels"), ("i64", "lines"), ("ptr", "factor"), ("ptr", "out"), ("i64", "out_row")]
    )
    v = Vectors(f, g)
    for j in range(g.vectors):
        factor = v.load(v.at(f["factor"], j * g.lanes))
        with f.loop(0, f["channels"], g.lanes) as c:
            rows = [v.load(v.at(f["tile"], (c + t) * g.columns + j * g.lanes)) for t in range(g.lanes)]
            rows = [f.op(f"fmul {g.vector} {row.name}, {factor.name}", g.vector) for row in rows]
            mask = v.mask(None, f["channels"] - c)
            for r, line in enumerate(v.transpose(rows)):
                with f.when(f["lines"] > j * g.lanes + r):
                    to = f.at(f["out"], f["out_row"] * (j * g.lanes + r) + c, MEMORY[spec.type])
                    holes.store(f, g.lanes, spec.type, convert(f, g.lanes, line, spec.compute, spec.type), to, mask)
    return f


def call_unload(f: Function, *arguments: Any) -> None:
    f.call("unload", "void", *zip(("ptr", "i64", "i64", "ptr", "ptr", "i64"), arguments, strict=True))


def rounded(n: Any, to: int) -> Any:
    return (n + (to - 1)) // to * to


def body(spec: Spec) -> Function:
    """The loops over units, blocks of keys and panels of queries."""
    g = spec.tile
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    s, v, do = Fields(f, BUFFERS, SIZES), Vectors(f, g), Elementwise(f, spec)
    slot, scratch = take_scratch(f, g, s)
    length, keys, width, channels, block = s.length, s.keys, s.width, s.channels, s.block
    depth = rounded(channels, g.rows) * g.columns + g.lanes * g.columns  # of a panel's result
    panels_ = f.ceil_div(s.chunk, g.columns)
    k_panels = v.at(scratch, 0)
    v_panels = v.at(k_panels, (block + g.rows) * width + g.lanes)
    q_panels = v.at(v_panels, (channels + g.rows) * block + g.lanes)
    state = v.at(q_panels, panels_ * width * g.columns)
    results = v.at(state, panels_ * (3 * g.columns))
    scores = v.at(results, panels_ * depth)
    scale = v.splat(v.one(s.scale))
    memory = MEMORY[spec.type]
    with f.loop(f["lo"], f["hi"]) as unit:
        head, q0 = unit // s.chunks, (unit % s.chunks) * s.chunk
        words = f.at(s.offsets, head * OFFSETS, "i64")
        q, k, value, out = (f.at(x, f.word(words, i), memory) for x, i in ((s.q, 0), (s.k, 1), (s.v, 2), (s.out, 4)))
        mask = f.at(s.mask, f.word(words, 3), MEMORY[spec.mask]) if spec.mask else s.mask
        count = f.min(length - q0, s.chunk)
        with f.loop(0, count, g.columns) as j:
            panel = v.at(q_panels, j * width)
            pack(
                f,
                "pack_right",
                f.at(q, (q0 + j) * s.q_row, memory),
                s.q_row,
                s.q_width,
                width,
                f.min(count - j, g.columns),
                panel,
            )
            with f.loop(0, width * g.columns, g.lanes) as i:
                place = v.at(panel, i)
                v.store(f.op(f"fmul {g.vector} {v.load(place).name}, {scale.name}", g.vector), place)
            own = v.at(state, j * 3)
            fill(f, v, own, g.columns, do.constant(float("-inf")))
            fill(f, v, v.at(own, g.columns), g.columns, do.constant(0.0))
            fill(f, v, v.at(results, j // g.columns * depth), depth, do.constant(0.0))
        end = f.select(s.causal > 0, f.min(keys, q0 + count), keys)
        with f.loop(0, end, block) as k0:
            here = f.min(keys - k0, block)
            with f.loop(0, here, g.rows) as i:
                source = f.at(k, (k0 + i) * s.k_row, memory)
                pack(f, "pack_left", source, s.k_row, s.k_width, width, f.min(here - i, g.rows), v.at(k_panels, i * width))
            with f.loop(0, channels, g.rows) as i:
                source = f.at(value, k0 * s.v_row + i * s.v_width, memory)
                pack(f, "pack_left", source, s.v_width, s.v_row, here, f.min(channels - i, g.rows), v.at(v_panels, i * here))
            with f.loop(0, count, g.columns) as j:
                lines = f.min(count - j, g.columns)
                seen = f.select(s.causal > 0, f.min(here, q0 + j + lines - k0), here)
                with f.when(seen > 0):
                    f.call(
                        "block", "void", ("ptr", f["ctx"]), ("ptr", mask), ("i64", q0 + j), ("i64", lines), ("i64", k0), ("i64", seen), ("i64", here),
                        ("ptr", v.at(q_panels, j * width)), ("ptr", k_panels), ("ptr", v_panels), ("ptr", scores), ("ptr", v.at(state, j * 3)),
                        ("ptr", v.at(results, j // g.columns * depth)),
                    )  # fmt: skip
        with f.loop(0, count, g.columns) as j:
            lines, own = f.min(count - j, g.columns), v.at(state, j * 3)
            _finish(f, spec, own, v.at(s.lse, head * length + q0 + j), lines)
            to, result, factor = (
                f.at(out, (q0 + j) * s.out_row, memory),
                v.at(results, j // g.columns * depth),
                v.at(own, 2 * g.columns),
            )
            call_unload(f, result, channels, lines, factor, to, s.out_row)
    give_back(f, s, slot)
    return f


def _finish(f: Function, spec: Spec, state: Value, lse: Value, lines: Value) -> None:
    """One over each query's sum after the sums, and the logarithms into `lse`; queries that see nothing: 1 and +inf."""
    g, v, do = spec.tile, Vectors(f, spec.tile), Elementwise(f, spec)
    top, total = do.name("top"), do.name("total")
    nothing = compare("eq", total, 0.0)
    for j in range(g.vectors):
        values = {"top": v.load(v.at(state, j * g.lanes)), "total": v.load(v.at(state, g.columns + j * g.lanes))}
        one = do(const(1.0, spec.compute))
        inverse = do(select(nothing, 1.0, Binary("div", do.name("one"), total)), one=one, **values)
        v.store(inverse, v.at(state, 2 * g.columns + j * g.lanes))
        found = do(select(nothing, float("inf"), top + elementary.log(total)), **values)
        with f.when(lines > j * g.lanes):
            v.masked_store(found, v.at(lse, j * g.lanes), v.mask(None, lines - j * g.lanes))


def block(spec: Spec) -> Function:
    """A panel of queries against a block of keys, of which it sees the first `seen`."""
    g = spec.tile
    f = Function(
        "block",
        [("ptr", "ctx"), ("ptr", "mask"), ("i64", "q0"), ("i64", "lines"), ("i64", "k0"), ("i64", "seen"), ("i64", "here"),
         ("ptr", "q"), ("ptr", "k"), ("ptr", "v"), ("ptr", "scores"), ("ptr", "state"), ("ptr", "result")],
    )  # fmt: skip
    s, v, do = Fields(f, BUFFERS, SIZES), Vectors(f, g), Elementwise(f, spec)
    seen, scores, width = f["seen"], f["scores"], s.width
    with f.loop(0, seen, g.rows) as i:
        product(f, g, seen - i, width, v.at(f["k"], i * width), f["q"], v.at(scores, i * g.columns), g.columns, False)
    added = v.at(scores, (s.block + g.rows) * g.columns)
    if spec.mask:
        source = f.at(f["mask"], f["q0"] * s.mask_row + f["k0"] * s.mask_key, MEMORY[spec.mask])
        pack(f, "pack_mask", source, s.mask_row, s.mask_key, seen, f["lines"], added)
    tops = [f.variable(do.constant(float("-inf")).name, g.vector) for _ in range(g.vectors)]

    def largest(causal: bool) -> None:
        with f.loop(0, seen) as key:
            for j, top in enumerate(tops):
                place = key * g.columns + j * g.lanes
                score = v.load(v.at(scores, place))
                if spec.mask:
                    score = v.add(score, v.load(v.at(added, place)))
                if causal:
                    score = hidden(f, g, score, f["q0"] + j * g.lanes, f["k0"] + key, keys_across=False)
                if spec.mask or causal:
                    v.store(score, v.at(scores, place))
                top.set(do.larger(score, top.get()))

    edge = f.both(s.causal > 0, f["k0"] + seen > f["q0"] + 1)
    f.choose(edge, lambda: largest(True), lambda: largest(False))
    less, factors = [], []
    for j, top in enumerate(tops):
        place = v.at(f["state"], j * g.lanes)
        before = v.load(place)
        now = do.larger(top.get(), before)
        v.store(now, place)
        less.append(do(select(compare("eq", do.name("x"), float("-inf")), 0.0, do.name("x")), x=now))
        factors.append(do.exp(before, less[-1]))
    sums = [f.variable("zeroinitializer", g.vector) for _ in range(g.vectors)]
    with f.loop(0, seen) as key:
        for j, total in enumerate(sums):
            place = v.at(scores, key * g.columns + j * g.lanes)
            weight = do.exp(v.load(place), less[j])
            v.store(weight, place)
            total.set(v.add(total.get(), weight))
    for j, total in enumerate(sums):
        place = v.at(f["state"], g.columns + j * g.lanes)
        v.store(v.fma(v.load(place), factors[j], total.get()), place)
    with f.when(f["k0"] > 0), f.loop(0, s.channels) as c:
        for j, factor in enumerate(factors):
            place = v.at(f["result"], c * g.columns + j * g.lanes)
            v.store(f.op(f"fmul {g.vector} {v.load(place).name}, {factor.name}", g.vector), place)
    with f.loop(0, s.channels, g.rows) as c:
        product(
            f, g, s.channels - c, seen, v.at(f["v"], c * f["here"]), scores, v.at(f["result"], c * g.columns), g.columns, True
        )
    return f


def micros(spec: Spec) -> list[Function]:
    return matmul.micros(spec.product)


def code(spec: Spec) -> str:
    """The forward kernel's module."""
    return module(body(spec), block(spec), unload(spec), *spec.packers(), *micros(spec))


_BLOCK, _CHUNK = 264, 512


def sizes(spec: Spec, heads: int, length: int, keys: int, width: int, channels: int, slots: int) -> dict[str, int]:
    """How a call is cut, and the scratch memory it takes."""
    g = spec.tile
    block = rounded(-(-keys // -(-keys // _BLOCK)), g.rows)
    chunk = rounded(min(length, _CHUNK), g.columns)
    wanted = matmul.units_wanted(slots, heads * length * keys * (width + channels))
    while heads * -(-length // chunk) < wanted and chunk > 2 * g.columns:
        chunk = rounded(chunk // 2, g.columns)
    count = chunk // g.columns
    depth = rounded(channels, g.rows) * g.columns + g.lanes * g.columns
    masks = block * g.columns if spec.mask else 0
    scratch = (
        (block + g.rows) * width + (channels + g.rows) * block + 2 * g.lanes + count * (width * g.columns + 3 * g.columns + depth)
        + (block + g.rows) * g.columns + masks + 64
    )  # fmt: skip
    return {"block": block, "chunk": chunk, "chunks": -(-length // chunk), "scratch_size": scratch, "slots": slots}
