"""Pooling of few elements, and its gradients, in plain loops over windows and taps: maxima with the codes of their places, and means.

Sums and comparisons go in the order of the NumPy forms (tocha.prims.pool), so that bits are theirs.
"""

from __future__ import annotations

from tocha.inductor.templates.builder import Function, Value, module

BUFFERS = ("out", "values", "beside")
SIZES = ("rows", *[n + d for n in ("out", "kernel", "stride", "pad", "spread", "in") for d in "dhw"])


def code(kind: str, type: str, bytes: int) -> str:
    """The module: `body` computes all rows (`lo` to `hi` are one unit)."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    slots = {name: i for i, name in enumerate((*BUFFERS, *SIZES))}
    s: dict[str, Value] = {n: f.load("ptr" if i < 3 else "i64", f.at(f["ctx"], i, "i64"), 8) for n, i in slots.items()}
    windows, length = s["outd"] * s["outh"] * s["outw"], s["ind"] * s["inh"] * s["inw"]

    def place(at: tuple[Value, ...], tap: tuple[Value, ...]) -> tuple[Value, Value]:
        """Where a window's tap lies in a row, and whether it lies in it."""
        inside, index = f.op("or i1 true, true", "i1"), f.op("add i64 0, 0")
        for d, w, k in zip("dhw", at, tap, strict=True):
            i = w * s["stride" + d] - s["pad" + d] + k * s["spread" + d]
            inside = f.both(inside, f.compare("ult", i, s["in" + d]))
            index = index * s["in" + d] + i
        return index, inside

    with f.loop(0, s["rows"]) as row:
        if kind in ("maxima", "means"):
            source = f.at(s["values"], row * length, type)
            with f.loop(0, s["outd"]) as d, f.loop(0, s["outh"]) as h, f.loop(0, s["outw"]) as w:
                window = (d * s["outh"] + h) * s["outw"] + w
                best, code, tap = f.variable(_LOWEST if kind == "maxima" else "-0.0", type), f.variable(-1), f.variable(0)
                with f.loop(0, s["kerneld"]) as kd, f.loop(0, s["kernelh"]) as kh, f.loop(0, s["kernelw"]) as kw:
                    index, inside = place((d, h, w), (kd, kh, kw))
                    if kind == "means":
                        value = f.variable("0.0", type)
                        with f.when(inside):
                            value.set(f.load(type, f.at(source, index, type), bytes))
                        best.set(f.op(f"fadd {type} {best.get().name}, {value.get().name}", type))
                    else:
                        with f.when(inside):
                            found = f.load(type, f.at(source, index, type), bytes)
                            larger = f.op(f"fcmp ogt {type} {found.name}, {best.get().name}", "i1")
                            missing = f.op(f"fcmp uno {type} {found.name}, {found.name}", "i1")
                            better = f.op(f"or i1 {larger.name}, {missing.name}", "i1")
                            first = f.compare("slt", code.get(), 0)
                            with f.when(f.op(f"or i1 {better.name}, {first.name}", "i1")):
                                code.set(tap.get())
                            with f.when(better):
                                best.set(found)
                        tap.set(tap.get() + 1)
                at = row * windows + window
                if kind == "means":
                    count = f.load(type, f.at(s["beside"], window, type), bytes)
                    f.store(f.op(f"fdiv {type} {best.get().name}, {count.name}", type), f.at(s["out"], at, type), bytes)
                else:
                    f.store(best.get(), f.at(s["out"], at, type), bytes)
                    f.store(f.op(f"trunc i64 {code.get().name} to i8", "i8"), f.at(s["beside"], at, "i8"), 1)
        else:
            target, tap = f.at(s["out"], row * length, type), f.variable(0)
            with f.loop(0, s["kerneld"]) as kd, f.loop(0, s["kernelh"]) as kh, f.loop(0, s["kernelw"]) as kw:
                with f.loop(0, s["outd"]) as d, f.loop(0, s["outh"]) as h, f.loop(0, s["outw"]) as w:
                    window = (d * s["outh"] + h) * s["outw"] + w
                    index, inside = place((d, h, w), (kd, kh, kw))
                    share = f.load(type, f.at(s["values"], row * windows + window, type), bytes)
                    if kind == "spread_maxima":
                        code8 = f.load("i8", f.at(s["beside"], row * windows + window, "i8"), 1)
                        inside = f.both(inside, f.op(f"zext i8 {code8.name} to i64").equals(tap.get()))
                    with f.when(inside):
                        if kind == "spread_means":
                            count = f.load(type, f.at(s["beside"], window, type), bytes)
                            share = f.op(f"fdiv {type} {share.name}, {count.name}", type)
                        here = f.at(target, index, type)
                        f.store(f.op(f"fadd {type} {f.load(type, here, bytes).name}, {share.name}", type), here, bytes)
                tap.set(tap.get() + 1)
    return module(f)


_LOWEST = "0xFFF0000000000000"  # -Inf
