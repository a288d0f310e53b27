"""Random values drawn into arrays by kernels: the Mersenne Twister (tocha.rng.mt19937) and what is made of its words, in one pass.

The bits are those of tocha.rng's NumPy forms, so a draw may take either; the compiler isn't loaded for a few small ones. One thread draws:
every word depends on those before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import native
from tocha.rng import box_muller, continuous, discrete
from tocha.rng.mt19937 import MT19937

Into = Callable[[MT19937, Any], bool]  # fills a C-contiguous array, or returns False with nothing drawn
_WORDS, _SHIFT, _TWIST, _CHUNK = 624, 397, 0x9908B0DF, 1024
_PIECE = 1 << 16  # elements drawn without letting other threads of Python run
_SMALL = 1 << 14  # elements that the compiler is loaded for
_UNIT = (2.0**-24, 0.0, 2.0, 0.0)  # parameters of "uniform32" on [0, 1)
_known: dict[str, Any] = {}


def _ready() -> bool:
    """Whether kernels may draw."""
    return native.LEAST["row"] < 1 << 62 and native.inductor() is not None


def draw(kind: str, engine: MT19937, out: Any, *params: Any) -> bool:
    """Fill the C-contiguous array `out` with the engine's next values; False, and nothing drawn, where NumPy shall do it."""
    builtin = _known.get(kind)
    if builtin is None:
        builtin = _builtin(kind) if native.at_hand() or (out.size >= _SMALL and _ready()) else None
        if builtin is None:
            return False
        _known[kind] = builtin
    words, size = engine.memory(), out.size
    if kind == "permutation":
        builtin(out, words, size - 1, 1)
        return True
    if size <= _PIECE:
        builtin(out, words, *params, size, 1)
        return True
    flat = out.reshape(-1)
    for start in range(0, size, _PIECE):
        part = flat[start : start + _PIECE]
        builtin(part, words, *params, part.size, 1)
    return True


def _normal(engine: MT19937, out: Any, mean: float, std: float) -> bool:
    """`draw` of float32 normals in blocks of 16, at least one; a ragged end has its last block drawn anew."""
    if not draw("uniform32", engine, out, *_UNIT):
        return False
    flat = out if out.ndim == 1 else out.reshape(-1)
    ragged = flat.size % box_muller.BLOCK
    _transform(flat[: flat.size - ragged] if ragged else flat, mean, std)
    if ragged:
        last = flat[-box_muller.BLOCK :]
        draw("uniform32", engine, last, *_UNIT)
        _transform(last, mean, std)
    return True


def _transform(u: Any, mean: float, std: float) -> None:
    builtin = _known.get("normal")
    if builtin is None:
        box_muller.normal_blocks32(u, mean, std)
    else:
        builtin(u, u, mean, std, u.size // box_muller.BLOCK)


def transform(u: Any, mean: float, std: float) -> bool:
    """`box_muller.normal_blocks32` on a kernel; False where its bits would be others, and for few before the compiler is there."""
    builtin = _known.get("normal")
    if builtin is None or not u.flags.c_contiguous:
        there = u.size >= native.LEAST["row"] or native.inductor.cache_info().currsize
        if not (there and u.flags.c_contiguous and _ready()):
            return False
        from tocha.inductor import entry, jit, normal

        builtin = native.built("normal", lambda: entry.build(normal.make(), 512)) if jit.has_fma() else None
        if builtin is None:
            return False
        _known["normal"] = builtin
    builtin(u, u, mean, std, u.size // box_muller.BLOCK)
    return True


box_muller.kernel = transform
continuous.kernel = lambda engine, out: draw("uniform64", engine, out, 1.0, 0.0, 2.0)


# ---- distributions: how an array of a type is filled, None where there is no kernel


def uniform(dtype: Any, low: float, high: float) -> Into | None:
    """On [low, high); where rounding reaches `high`, it becomes `low`."""
    if dtype == np.float32:
        start, span = float(np.float32(low)), float(np.float32(high) - np.float32(low))
        return lambda engine, out: draw("uniform32", engine, out, 2.0**-24 * span, start, high, low)
    return (lambda engine, out: draw("uniform64", engine, out, high - low, low, high)) if dtype == np.float64 else None


def normal(dtype: Any, mean: float, std: float) -> Into | None:
    if dtype != np.float32:
        return None
    mean, std = float(np.float32(mean)), float(np.float32(std))
    return lambda engine, out: out.size >= box_muller.BLOCK and _normal(engine, out, mean, std)


def bernoulli(dtype: Any, p: float, value: float = 1.0) -> Into | None:
    """`value` with probability p, else 0."""
    kind = {"?": "bernoulli8", "f": "bernoulli32", "d": "bernoulli64"}.get(dtype.char)
    bound = math.ceil(p * 2.0**53)
    return None if kind is None else lambda engine, out: draw(kind, engine, out, bound, value)


def integers(dtype: Any, low: int, span: int) -> Into | None:
    """low + word % span; from 2**28 on torch takes words of 64 bits."""
    kind = "integers64" if span >= 1 << 28 else "integers32"
    return (lambda engine, out: draw(kind, engine, out, low, span)) if dtype == np.int64 and span < 1 << 64 else None


def permutation(engine: MT19937, out: Any) -> bool:
    """The numbers up to out's size in the order that Fisher and Yates give them, from the front."""
    return bool(1 < out.size < discrete.UNIFORM_64_FROM and out.dtype == np.int64 and draw("permutation", engine, out))


# ---- code


def _builtin(kind: str) -> Any:
    """The builtin(out, state, parameters…, number of elements, 1); None until it is compiled, and where its bits would be others."""
    from tocha.inductor import jit
    from tocha.inductor.loop_ir import Buffer, Kernel, Param

    modules = native.inductor()
    per, types, make = _KINDS[kind]
    if modules is None or (kind == "uniform64" and not jit.has_fma()):
        return None
    entry, params = modules.entry, tuple([Param(f"p{i}", t) for i, t in enumerate((*types.split(), "i64"))])
    head = Kernel(kind, (Buffer("out", "i8"), Buffer("state", "i8")), params, (), ())

    def build() -> Any:  # optimised as loops are: LLVM vectorises these
        text = entry.DECLARATIONS + entry._entry(head, 1) + _code(per, types.split(), make)
        return entry._builtin(kind, text, entry.known_symbols())

    return native.built(("random", kind), build)


def _code(per: int, types: list[str], make: Callable[..., None]) -> str:
    """The module whose body makes elements of `per` words each: `make(f, word, parameters, out, i)` stores the i-th."""
    from tocha.inductor.templates.builder import Function, Value, module

    words, again = _twister()
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    slots = [f.load("ptr" if i < 2 else "double" if t == "f64" else "i64", f.at(f["ctx"], i, "i64"), 8)
             for i, t in enumerate(("", "", *types, "i64"))]  # fmt: skip
    out, state, params, count = slots[0], slots[1], slots[2:-1], slots[-1]
    drawn = f.array(_CHUNK, "i32")
    if make is _swap:
        with f.loop(0, count + 1) as i:
            f.store(i, f.at(out, i, "i64"), 8)
    with f.loop(0, count, _CHUNK // per) as start:
        some = f.min(count - start, _CHUNK // per)
        f.call("words", "void", ("ptr", state), ("ptr", drawn), ("i64", some * per))
        with f.loop(0, some) as j:
            word: Value
            if per == 1:
                word = f.load("i32", f.at(drawn, j, "i32"), 4)
            else:  # the first of two words is the high half
                high, low = (f.op(f"zext i32 {f.load('i32', f.at(drawn, j * 2 + k, 'i32'), 4).name} to i64") for k in (0, 1))
                word = f.op(f"or i64 {f.op(f'shl i64 {high.name}, 32').name}, {low.name}")
            make(f, word, [*params, count], out, start + j)
    return module(again, words, f)


def _twister() -> tuple[Any, Any]:
    """Functions `words(state, out, count)` and `again(state)`, which makes the next 624: Matsumoto and Nishimura, "Mersenne Twister" (1998)."""
    from tocha.inductor.templates.builder import Function, Value

    f = Function("again", [("ptr", "state")])

    def load(index: Any) -> Value:
        return f.load("i32", f.at(f["state"], index, "i32"), 4)

    def turn(i: Any, following: Any, other: Any) -> None:
        upper, lower = f.op(f"and i32 {load(i).name}, -2147483648").name, f.op(f"and i32 {load(following).name}, 2147483647").name
        joined = f.op(f"or i32 {upper}, {lower}").name
        odd = f.op(f"sub i32 0, {f.op(f'and i32 {joined}, 1').name}").name
        mixed = f.op(f"xor i32 {f.op(f'lshr i32 {joined}, 1').name}, {f.op(f'and i32 {odd}, {_TWIST}').name}").name
        f.store(f.op(f"xor i32 {mixed}, {load(other).name}"), f.at(f["state"], i, "i32"), 4, "i32")

    with f.loop(0, _WORDS - _SHIFT) as i:
        turn(i, i + 1, i + _SHIFT)
    with f.loop(_WORDS - _SHIFT, _WORDS - 1) as i:
        turn(i, i + 1, i - (_WORDS - _SHIFT))
    turn(_WORDS - 1, 0, _SHIFT - 1)
    w = Function("words", [("ptr noalias", "state"), ("ptr noalias", "out"), ("i64", "count")])
    place = w.at(w["state"], _WORDS, "i32")
    done = w.variable(0)
    with w.repeat(lambda: done.get() < w["count"]):
        at = w.variable(w.op(f"zext i32 {w.load('i32', place, 4).name} to i64"))
        with w.when(at.get() >= _WORDS):
            w.call("again", "void", ("ptr", w["state"]))
            at.set(0)
        first, begun = at.get(), done.get()
        take = w.min(w["count"] - begun, w.op(f"sub i64 {_WORDS}, {first.name}"))
        with w.loop(0, take) as j:
            y = w.load("i32", w.at(w["state"], first + j, "i32"), 4)
            for move, bits, mask in (("lshr", 11, -1), ("shl", 7, 0x9D2C5680), ("shl", 15, 0xEFC60000), ("lshr", 18, -1)):
                moved = w.op(f"{move} i32 {y.name}, {bits}")
                y = w.op(f"xor i32 {y.name}, {w.op(f'and i32 {moved.name}, {mask}').name}", "i32")
            w.store(y, w.at(w["out"], begun + j, "i32"), 4)
        w.store(w.op(f"trunc i64 {(first + take).name} to i32", "i32"), place, 4)
        done.set(begun + take)
    return w, f


def _uniform32(f: Any, word: Any, params: list[Any], out: Any, i: Any) -> None:
    """As tocha.rng.continuous.uniform32: the product is exact in float64."""
    scale, start, top, low = [p.name for p in params[:4]]
    x = f.op(f"sitofp i32 {f.op(f'and i32 {word.name}, 16777215').name} to double").name
    scaled = f.op(f"fmul double {x}, {scale}").name
    y = f.op(f"fptrunc double {f.op(f'fadd double {scaled}, {start}').name} to float").name
    high, first = (f.op(f"fptrunc double {v} to float").name for v in (top, low))
    at_end = f.op(f"fcmp oeq float {y}, {high}").name
    f.store(f.op(f"select i1 {at_end}, float {first}, float {y}"), f.at(out, i, "float"), 4, "float")


def _unit64(f: Any, word: Any) -> str:
    whole = f.op(f"sitofp i64 {(word & ((1 << 53) - 1)).name} to double").name
    return f.op(f"fmul double {whole}, {2.0**-53!r}").name


def _uniform64(f: Any, word: Any, params: list[Any], out: Any, i: Any) -> None:
    span, start, top = [p.name for p in params[:3]]
    fused = ("double", _unit64(f, word)), ("double", span), ("double", start)
    y = f.call("llvm.fma.f64", "double", *fused, declare=True).name
    at_end = f.op(f"fcmp oeq double {y}, {top}").name
    f.store(f.op(f"select i1 {at_end}, double {start}, double {y}"), f.at(out, i, "double"), 8, "double")


def _bernoulli(type: str, bytes: int) -> Callable[..., None]:
    """`value` where the 53 bits are below `bound`, else 0."""

    def make(f: Any, word: Any, params: list[Any], out: Any, i: Any) -> None:
        bound, value = params[:2]
        true = f.op(f"icmp ult i64 {(word & ((1 << 53) - 1)).name}, {bound.name}").name
        if type == "i8":
            got = f.op(f"zext i1 {true} to i8")
        else:
            chosen = value.name if type == "double" else f.op(f"fptrunc double {value.name} to float").name
            got = f.op(f"select i1 {true}, {type} {chosen}, {type} 0.0")
        f.store(got, f.at(out, i, type), bytes, type)

    return make


def _integers(type: str) -> Callable[..., None]:
    """low + word % span."""

    def make(f: Any, word: Any, params: list[Any], out: Any, i: Any) -> None:
        low, span = params[:2]
        if type == "i32":
            some = f.op(f"urem i32 {word.name}, {f.op(f'trunc i64 {span.name} to i32').name}")
            rest = f.op(f"zext i32 {some.name} to i64")
        else:
            rest = f.op(f"urem i64 {word.name}, {span.name}")
        f.store(f.op(f"add i64 {rest.name}, {low.name}"), f.at(out, i, "i64"), 8, "i64")

    return make


def _swap(f: Any, word: Any, params: list[Any], out: Any, i: Any) -> None:
    """A step of Fisher and Yates from the front: element i changes places with one not before it."""
    left = f.op(f"trunc i64 {(params[-1] - i + 1).name} to i32")
    other = i + f.op(f"zext i32 {f.op(f'urem i32 {word.name}, {left.name}').name} to i64")
    here, there = f.at(out, i, "i64"), f.at(out, other, "i64")
    a, b = f.load("i64", here, 8), f.load("i64", there, 8)
    f.store(b, here, 8)
    f.store(a, there, 8)


# What an element takes: words, the types of parameters, how it is made of them.
_KINDS: dict[str, tuple[int, str, Callable[..., None]]] = {
    "uniform32": (1, "f64 f64 f64 f64", _uniform32), "uniform64": (2, "f64 f64 f64", _uniform64), "bernoulli8": (2, "i64 f64", _bernoulli("i8", 1)),
    "bernoulli32": (2, "i64 f64", _bernoulli("float", 4)), "bernoulli64": (2, "i64 f64", _bernoulli("double", 8)),
    "integers32": (1, "i64 i64", _integers("i32")), "integers64": (2, "i64 i64", _integers("i64")), "permutation": (1, "", _swap),
}  # fmt: skip
