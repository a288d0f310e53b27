"""Draws of random values: the Mersenne Twister's words (state as in tocha.rng.mt19937), and what an element is made of, one after the other.

`_KINDS` says for each kind how many words an element takes, the types of its parameters, and the function that stores the i-th:
`make(f, word, parameters, out, i)`.
"""

from __future__ import annotations

from collections.abc import Callable

from tocha.inductor.loop_ir import Param
from tocha.inductor.templates.builder import Function, Value, module

BUFFERS = ("out", "state")
_WORDS, _SHIFT, _TWIST, _CHUNK = 624, 397, 0x9908B0DF, 1024


def params(kind: str) -> tuple[Param, ...]:
    """The parameters of a kind's kernel; the last is the number of elements."""
    return tuple([Param(f"p{i}", t) for i, t in enumerate((*_KINDS[kind][1].split(), "i64"))])


def code(kind: str) -> str:
    """The module of a kind of draws."""
    per, _, make = _KINDS[kind]
    types = [p.type for p in params(kind)]
    words, again = _twister()
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    slots = [f.load("ptr" if i < 2 else "double" if t == "f64" else "i64", f.at(f["ctx"], i, "i64"), 8)
             for i, t in enumerate(("", "", *types))]  # fmt: skip
    out, state, given, count = slots[0], slots[1], slots[2:-1], slots[-1]
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
            make(f, word, [*given, count], out, start + j)
    return module(again, words, f)


def _twister() -> tuple[Function, Function]:
    """Functions `words(state, out, count)` and `again(state)`, which makes the next 624: Matsumoto and Nishimura, "Mersenne Twister" (1998)."""
    f = Function("again", [("ptr", "state")])

    def load(index: Value | int) -> Value:
        return f.load("i32", f.at(f["state"], index, "i32"), 4)

    def turn(i: Value | int, following: Value | int, other: Value | int) -> None:
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


def _uniform32(f: Function, word: Value, params: list[Value], out: Value, i: Value) -> None:
    """As tocha.rng.continuous.uniform32: the product is exact in float64."""
    scale, start, top, low = [p.name for p in params[:4]]
    x = f.op(f"sitofp i32 {f.op(f'and i32 {word.name}, 16777215').name} to double").name
    scaled = f.op(f"fmul double {x}, {scale}").name
    y = f.op(f"fptrunc double {f.op(f'fadd double {scaled}, {start}').name} to float").name
    high, first = (f.op(f"fptrunc double {v} to float").name for v in (top, low))
    at_end = f.op(f"fcmp oeq float {y}, {high}").name
    f.store(f.op(f"select i1 {at_end}, float {first}, float {y}"), f.at(out, i, "float"), 4, "float")


def _unit64(f: Function, word: Value) -> str:
    whole = f.op(f"sitofp i64 {(word & ((1 << 53) - 1)).name} to double").name
    return f.op(f"fmul double {whole}, {2.0**-53!r}").name


def _uniform64(f: Function, word: Value, params: list[Value], out: Value, i: Value) -> None:
    span, start, top = [p.name for p in params[:3]]
    fused = ("double", _unit64(f, word)), ("double", span), ("double", start)
    y = f.call("llvm.fma.f64", "double", *fused, declare=True).name
    at_end = f.op(f"fcmp oeq double {y}, {top}").name
    f.store(f.op(f"select i1 {at_end}, double {start}, double {y}"), f.at(out, i, "double"), 8, "double")


def _bernoulli(type: str, bytes: int) -> Callable[..., None]:
    """`value` where the 53 bits are below `bound`, else 0."""

    def make(f: Function, word: Value, params: list[Value], out: Value, i: Value) -> None:
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

    def make(f: Function, word: Value, params: list[Value], out: Value, i: Value) -> None:
        low, span = params[:2]
        if type == "i32":
            some = f.op(f"urem i32 {word.name}, {f.op(f'trunc i64 {span.name} to i32').name}")
            rest = f.op(f"zext i32 {some.name} to i64")
        else:
            rest = f.op(f"urem i64 {word.name}, {span.name}")
        f.store(f.op(f"add i64 {rest.name}, {low.name}"), f.at(out, i, "i64"), 8, "i64")

    return make


def _swap(f: Function, word: Value, params: list[Value], out: Value, i: Value) -> None:
    """A step of Fisher and Yates from the front: element i changes places with one not before it."""
    left = f.op(f"trunc i64 {(params[-1] - i + 1).name} to i32")
    other = i + f.op(f"zext i32 {f.op(f'urem i32 {word.name}, {left.name}').name} to i64")
    here, there = f.at(out, i, "i64"), f.at(out, other, "i64")
    a, b = f.load("i64", here, 8), f.load("i64", there, 8)
    f.store(b, here, 8)
    f.store(a, there, 8)


_KINDS: dict[str, tuple[int, str, Callable[..., None]]] = {
    "uniform32": (1, "f64 f64 f64 f64", _uniform32), "uniform64": (2, "f64 f64 f64", _uniform64), "bernoulli8": (2, "i64 f64", _bernoulli("i8", 1)),
    "bernoulli32": (2, "i64 f64", _bernoulli("float", 4)), "bernoulli64": (2, "i64 f64", _bernoulli("double", 8)),
    "integers32": (1, "i64 i64", _integers("i32")), "integers64": (2, "i64 i64", _integers("i64")), "permutation": (1, "", _swap),
}  # fmt: skip
