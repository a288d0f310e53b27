"""Normalisation of few elements (layer, group, batch and instance normalisation) and its gradients, in plain loops.

A group is what one mean and variance are of: `outer` runs of `inner` adjacent elements. The element in run a at place b of group k has weight
number (k % period) * per_group + a * per_run + b * per_place. Sums are made in float64.
"""

from __future__ import annotations

from collections.abc import Callable

from tocha.inductor.loop_ir import Param
from tocha.inductor.templates.builder import Function, Value, Variable, module

BUFFERS = {
    "forward": ("out", "mean", "var", "x", "weight", "bias"),
    "backward": ("out", "of_weight", "of_bias", "g", "x", "mean", "var", "weight"),
}
PARAMS = (Param("eps", "f64"),)
SIZES = ("groups", "outer", "inner", "group_step", "run_step", "period", "per_group", "per_run", "per_place")


def code(kind: str, type: str, bytes: int, weighted: bool, shifted: bool) -> str:
    """The module: `body` computes all groups (`lo` to `hi` are one unit)."""
    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    names = BUFFERS[kind]
    s: dict[str, Value] = {}
    for i, name in enumerate((*names, "eps", *SIZES)):
        t = "ptr" if i < len(names) else "double" if name == "eps" else "i64"
        s[name] = f.load(t, f.at(f["ctx"], i, "i64"), 8)

    def compute(op: str, x: Value, y: Value) -> Value:
        return f.op(f"{op} {x.type} {x.name}, {y.name}", x.type)

    def wide(x: Value) -> Value:
        return x if type == "double" else f.op(f"fpext float {x.name} to double", "double")

    def narrow(x: Value) -> Value:
        return x if type == "double" else f.op(f"fptrunc double {x.name} to float", "float")

    def read(name: str, i: Value) -> Value:
        return f.load(type, f.at(s[name], i, type), bytes)

    def add(total: Variable, x: Value) -> None:
        total.set(compute("fadd", total.get(), x))

    def add_at(name: str, i: Value, x: Value) -> None:
        place = f.at(s[name], i, "double")
        f.store(compute("fadd", f.load("double", place, 8), x), place, 8)

    def each(group: Value, do: Callable[[Value, Value], None]) -> None:
        """do(place, number of its weight) for every element of a group."""
        start, first = group * s["group_step"], (group % s["period"]) * s["per_group"]
        with f.loop(0, s["outer"]) as a, f.loop(0, s["inner"]) as b:
            do(start + a * s["run_step"] + b, first + a * s["per_run"] + b * s["per_place"])

    def reciprocal(var: Value) -> Value:
        """1 / sqrt(var + eps) in the type of the elements."""
        eps = narrow(s["eps"])
        root = f.call(f"llvm.sqrt.f{8 * bytes}", type, (type, compute("fadd", var, eps)), declare=True)
        return f.op(f"fdiv {type} 1.0, {root.name}", type)

    count = f.op(f"sitofp i64 {(s['outer'] * s['inner']).name} to double", "double")
    with f.loop(0, s["groups"]) as k:
        one, two = f.variable("0.0", "double"), f.variable("0.0", "double")
        if kind == "forward":
            each(k, lambda i, w: add(one, wide(read("x", i))))
            middle = compute("fdiv", one.get(), count)

            def square(i: Value, w: Value) -> None:
                apart = compute("fsub", wide(read("x", i)), middle)
                add(two, compute("fmul", apart, apart))

            each(k, square)
            mean, var = narrow(middle), narrow(compute("fdiv", two.get(), count))
            f.store(mean, f.at(s["mean"], k, type), bytes)
            f.store(var, f.at(s["var"], k, type), bytes)
            scale = reciprocal(var)

            def write(i: Value, w: Value) -> None:
                y = compute("fmul", compute("fsub", read("x", i), mean), scale)
                y = compute("fmul", y, read("weight", w)) if weighted else y
                y = compute("fadd", y, read("bias", w)) if shifted else y
                f.store(y, f.at(s["out"], i, type), bytes)

            each(k, write)
        else:
            mean, scale = read("mean", k), reciprocal(read("var", k))

            def normal(i: Value) -> Value:
                return compute("fmul", compute("fsub", read("x", i), mean), scale)

            def weighed(i: Value, w: Value) -> Value:
                g = read("g", i)
                return compute("fmul", g, read("weight", w)) if weighted else g

            def total(i: Value, w: Value) -> None:
                g, y, inner = wide(read("g", i)), wide(normal(i)), wide(weighed(i, w))
                add(one, inner)
                add(two, compute("fmul", inner, y))
                add_at("of_weight", w, compute("fmul", g, y))
                add_at("of_bias", w, g)

            each(k, total)
            level, along = (narrow(compute("fdiv", v.get(), count)) for v in (one, two))

            def slope(i: Value, w: Value) -> None:
                rest = compute("fsub", weighed(i, w), compute("fmul", normal(i), along))
                f.store(compute("fmul", compute("fsub", rest, level), scale), f.at(s["out"], i, type), bytes)

            each(k, slope)
    return module(f)
