"""Normalisation of few elements (layer, group, batch and instance normalisation) and its gradients: each one native call of plain loops.

A group is what one mean and variance are of: `outer` runs of `inner` adjacent elements. The element in run a at place b of group k has weight
number (k % period) * per_group + a * per_run + b * per_place. Sums are made in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends import native

Shape = tuple[int, ...]
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
TYPES = {_FLOAT32: ("float", 4), _FLOAT64: ("double", 8)}
_SIZES = ("groups", "outer", "inner", "group_step", "run_step", "period", "per_group", "per_run", "per_place")
_FORWARD, _BACKWARD = ("out", "mean", "var", "x", "weight", "bias"), ("out", "of_weight", "of_bias", "g", "x", "mean", "var", "weight")
_NONE = np.zeros(0)


def standardize(x: Any, weight: Any, bias: Any, params: dict[str, Any]) -> Any:
    """`standardize` (tocha.prims.norm); None for NumPy to compute it."""
    work = _work(params["shape"], params["axes"], params["affine"])
    builtin = _builtin("forward", x, weight, bias) if work is not None else None
    if builtin is None:
        return None
    moments, work = work
    out, mean, var = np.empty(x.shape, x.dtype), np.empty(moments, x.dtype), np.empty(moments, x.dtype)
    builtin(out, mean, var, x, _NONE if weight is None else weight, _NONE if bias is None else bias, params["eps"], work)
    return out, mean, var


def standardize_backward(g: Any, x: Any, weight: Any, mean: Any, var: Any, params: dict[str, Any]) -> Any:
    """`standardize_backward`, or None."""
    work = _work(params["shape"], params["axes"], params["affine"])
    builtin = _builtin("backward", x, weight, None) if work is not None and g.dtype is mean.dtype is var.dtype is x.dtype else None
    if builtin is None or not (g.flags.c_contiguous and mean.flags.c_contiguous and var.flags.c_contiguous):
        return None
    out, shape = np.empty(x.shape, x.dtype), weight.shape if weight is not None else (math.prod(params["affine"]),)
    of_weight, of_bias = np.zeros(shape), np.zeros(shape)
    builtin(out, of_weight, of_bias, g, x, mean, var, _NONE if weight is None else weight, params["eps"], work[1])
    return (out, of_weight, of_bias) if x.dtype is _FLOAT64 else (out, of_weight.astype(x.dtype), of_bias.astype(x.dtype))


def _work(shape: Shape, axes: Shape, affine: Shape) -> Any:
    """The moments' shape and the numbers that `_SIZES` names behind units and grain; None for another pattern of axes."""
    return native.remember(("small norm", shape, axes, affine), lambda: _pattern(shape, axes, affine) or (None,))[0]


def _pattern(shape: Shape, axes: Shape, affine: Shape) -> Any:
    n, rank, moments = math.prod(shape), len(shape), tuple([1 if d in axes else m for d, m in enumerate(shape)])
    if axes == tuple(range(rank - len(axes), rank)) and len(axes) < rank:  # adjacent elements
        count = math.prod(shape[rank - len(axes) :])
        if affine == shape[rank - len(axes) :]:
            numbers = [n // count, 1, count, count, 0, 1, 0, 0, 1]
        elif rank == 4 and affine == (*shape[1:3], 1):  # groups of channels
            numbers = [n // count, shape[2], shape[3], count, shape[3], shape[1], shape[2], 1, 0]
        elif rank == 3 and affine == (shape[1], 1):  # each channel of each sample
            numbers = [n // count, 1, count, count, 0, shape[1], 1, 0, 0]
        else:
            return None
    elif rank == 3 and axes == (0, 2) and affine == (shape[1], 1):  # channels
        numbers = [shape[1], shape[0], shape[2], shape[2], shape[1] * shape[2], shape[1], 1, 0, 0]
    else:
        return None
    return ((moments, np.array([1, 1, *numbers], np.int64)),)


# ---- code


def _builtin(kind: str, x: Any, weight: Any, bias: Any) -> Any:
    """The builtin of a call on dense arrays of one type, with or without weight and bias; None where there is none."""
    modules = native.inductor()
    given = weight is not None, bias is not None
    if modules is None or x.dtype not in TYPES or not x.size or not x.flags.c_contiguous:
        return None
    for a in (weight, bias):
        if a is not None and (a.dtype is not x.dtype or not a.flags.c_contiguous):
            return None

    def build() -> Any:
        from tocha.inductor.loop_ir import Buffer, Kernel, Param, Size

        entry, names = modules.entry, _FORWARD if kind == "forward" else _BACKWARD
        head = Kernel(f"norm_{kind}", tuple([Buffer(b, "i8") for b in names]), (Param("eps", "f64"),), tuple(map(Size, _SIZES)), ())
        text = entry.DECLARATIONS + entry._entry(head, 1) + _code(kind, *TYPES[x.dtype], *given)
        return entry._builtin(head.name, text, entry.known_symbols())

    return native.built(("small norm", kind, x.dtype, *given), build)


def _code(kind: str, type: str, bytes: int, weighted: bool, shifted: bool) -> str:
    """The module: `body` computes all groups (`lo` to `hi` are one unit)."""
    from tocha.inductor.templates.builder import Function, Value, module

    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    names = _FORWARD if kind == "forward" else _BACKWARD
    s: dict[str, Value] = {}
    for i, name in enumerate((*names, "eps", *_SIZES)):
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

    def add(total: Any, x: Value) -> None:
        total.set(compute("fadd", total.get(), x))

    def add_at(name: str, i: Value, x: Value) -> None:
        place = f.at(s[name], i, "double")
        f.store(compute("fadd", f.load("double", place, 8), x), place, 8)

    def each(group: Value, do: Any) -> None:
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
