"""Pooling of few elements: plain loops over windows and taps in one native call, with the bits of the NumPy forms (tocha.prims.pool).

Therefore either may serve a call, and the compiler isn't loaded for a few such calls (`native.at_hand`). From `LEAST["pool"]` on the kernels of
tocha.backends._native_pool take over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends import native
from tocha.backends.pooling import CODES, window_counts

Shape = tuple[int, ...]
_FLOAT32, _FLOAT64, _BYTE = (np.dtype(t) for t in (np.float32, np.float64, np.uint8))
_TYPES = {_FLOAT32: ("float", 4), _FLOAT64: ("double", 8)}
_NAMES = tuple(n + d for n in ("out", "kernel", "stride", "pad", "spread", "in") for d in "dhw")
_known: dict[Any, Any] = {}


def maxima(x: Any, params: dict[str, Any]) -> Any:
    """(maxima, codes) as `max_pool_coded` gives them; None for NumPy to compute them."""
    builtin = _builtin("maxima", x)
    if builtin is None or math.prod(params["kernel"]) > CODES:
        return None
    shape, work = _plan(x.shape[x.ndim - len(params["sizes"]) :], x.shape, params, params["dilation"])
    out, codes = np.empty(shape, x.dtype), np.empty(shape, _BYTE)
    builtin(out, x if x.flags.c_contiguous else np.ascontiguousarray(x), codes, work)
    return out, codes


def means(x: Any, params: dict[str, Any]) -> Any:
    """`avg_pool`, or None."""
    builtin = _builtin("means", x)
    if builtin is None:
        return None
    spatial = x.shape[x.ndim - len(params["sizes"]) :]
    shape, work = _plan(spatial, x.shape, params, None)
    out = np.empty(shape, x.dtype)
    builtin(out, x if x.flags.c_contiguous else np.ascontiguousarray(x), _counts(spatial, params["sizes"], params, x.dtype), work)
    return out


def spread_maxima(g: Any, codes: Any, params: dict[str, Any]) -> Any:
    """`max_pool_backward`, or None."""
    builtin = _builtin("spread_maxima", g) if codes.dtype is _BYTE and codes.shape == g.shape else None
    return None if builtin is None else _spread(builtin, g, np.ascontiguousarray(codes), params, params["dilation"])


def spread_means(g: Any, params: dict[str, Any]) -> Any:
    """`avg_pool_backward`, or None."""
    builtin = _builtin("spread_means", g)
    if builtin is None:
        return None
    sizes = g.shape[g.ndim - len(params["size"]) :]
    return _spread(builtin, g, _counts(params["size"], sizes, params, g.dtype), {**params, "sizes": sizes}, None)


def _spread(builtin: Any, g: Any, beside: Any, params: dict[str, Any], dilation: Any) -> Any:
    size = params["size"]
    shape, work = _plan(size, (*g.shape[: g.ndim - len(size)], *size), params, dilation)
    out = np.zeros((*shape[: g.ndim - len(size)], *size), g.dtype)
    builtin(out, g if g.flags.c_contiguous else np.ascontiguousarray(g), beside, work)
    return out


def _plan(spatial: Shape, whole: Shape, params: dict[str, Any], dilation: Shape | None) -> Any:
    """The shape of the windows, and the numbers that `_NAMES` names behind units, grain and rows."""
    kernel, stride, padding, sizes = params["kernel"], params["stride"], params["padding"], params["sizes"]

    def make() -> Any:
        lead = whole[: len(whole) - len(spatial)]
        ones = (1,) * len(spatial)
        fields = ((sizes, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation or ones, 1), (spatial, 1))
        numbers = [n for values, fill in fields for n in (*(fill,) * (3 - len(values)), *values)]
        return (*lead, *sizes), np.array([1, 1, math.prod(lead), *numbers], np.int64)

    return native.remember(("small windows", spatial, whole, kernel, stride, padding, sizes, dilation), make)


def _counts(spatial: Shape, sizes: Shape, params: dict[str, Any], dtype: Any) -> Any:
    """What each window's sum is divided by."""
    given = params["kernel"], params["stride"], params["padding"], sizes, params["include_pad"], params["divisor"]

    def make() -> Any:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(window_counts(spatial, *given), dtype), sizes))

    return native.remember(("window counts", dtype, spatial, *given), make)


# ---- code


def _builtin(kind: str, x: Any) -> Any:
    """The builtin(out, values, codes or counts, work) of a type; None where there is none, or it had better not be made yet."""
    found = _known.get((kind, x.dtype))
    if found is None and x.dtype in _TYPES and native.at_hand():
        modules = native.inductor()
        assert modules is not None
        make = modules.entry.build_template
        names = ("out", "values", "beside"), ("rows", *_NAMES)
        found = native.built(("small pool", kind, x.dtype), lambda: make(kind, *names, _code(kind, *_TYPES[x.dtype]), short_loops=True))
        if found is not None:
            _known[kind, x.dtype] = found
    return found if x.size else None


def _code(kind: str, type: str, bytes: int) -> str:
    """The module: `body` computes all rows (`lo` to `hi` are one unit)."""
    from tocha.inductor.templates.builder import Function, Value, module

    f = Function("body", [("ptr", "ctx"), ("i64", "lo"), ("i64", "hi")])
    slots = {name: i for i, name in enumerate(("out", "values", "beside", "rows", *_NAMES))}
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
