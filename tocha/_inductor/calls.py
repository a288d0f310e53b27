"""Eager kernels called straight: what is decided once for a node's shapes and types, so that a call doesn't ask again.

`caller(node)` gives a function of the node's positional arguments: arrays, or views of any strides, but for calls with `laid_out`, whose
arrays lie as the node's operands say. Functions in `_DIRECT` make one where the shapes suit them; other nodes call what an eager call does.
Results of functions with `dense` are row-major.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha._inductor import autotune, config
from tocha._inductor.nodes import own_of, prim_name, shape_of
from tocha.aot import run
from tocha.backends import _native_conv, _native_products, cpu
from tocha.dispatch.prim import Prim
from tocha.dtypes import HALF_NP
from tocha.fx import Node
from tocha.inductor import entry, jit, reduce, rows
from tocha.inductor.loop_ir import (
    FLOATS,
    Accumulate,
    Assign,
    Buffer,
    Const,
    Declare,
    Index,
    Kernel,
    Load,
    Loop,
    Read,
    Size,
    Statement,
    Store,
    convert,
)
from tocha.inductor.lower import NP_TYPES

Call = Callable[..., Any]
PLAIN = (np.dtype(np.float32), np.dtype(np.float64))
OF_PRODUCTS = (*PLAIN, *[d for d in HALF_NP if d.itemsize == 2])  # float types whose products take epilogues
_INT64 = np.dtype(np.int64)
_PIECE = 8192  # elements of rows that are worth a thread's while


def caller(node: Node) -> Call:
    """The function that computes a node."""
    direct = _DIRECT.get(prim_name(node))
    found = direct(node) if direct is not None else None
    return found if found is not None else by_eager(node)


def by_eager(node: Node) -> Call:
    """What an eager call of the node does."""
    kwargs, target = node.kwargs, node.target
    if prim_name(node) and target.__class__ is Prim and len(target.outputs) == 1:
        run_prim, as_array = cpu.run_prim, np.asarray
        return lambda *arrays: as_array(run_prim(target, list(arrays), kwargs))
    if kwargs or prim_name(node):
        return lambda *arrays: run.compute(node, arrays, kwargs)
    return target


def dense(call: Call) -> Call:
    """Say that a call's results are row-major."""
    call.dense = True  # type: ignore[attr-defined]
    return call


def is_dense(call: Call) -> bool:
    return getattr(call, "dense", False)


def laid_out(call: Call) -> Call:
    """Say that a call counts on its arrays lying as the node's operands say; else it may be given views that don't."""
    call.laid_out = True  # type: ignore[attr-defined]
    return call


def is_laid_out(call: Call) -> bool:
    return getattr(call, "laid_out", False)


def row_major(node: Node) -> bool:
    """Whether a node's array lies row-major, with at least one element."""
    step = 1
    for n, s in zip(reversed(shape_of(node)), reversed(own_of(node)), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return step > 0


# ---- products


def is_small_product(a: Any, b: Any, m: int, n: int, k: int) -> bool:
    """Whether BLAS multiplies matrices of these types and sizes (MetaArrays a and b), as in an eager call."""
    return (
        a.dtype in PLAIN and b.dtype is a.dtype and min(m, n, k) > 0 and not _native_products.worth(NP_TYPES[a.dtype], 1, m, n, k)
    )


def _mm(node: Node) -> Call | None:
    a, b = (x.meta["val"] for x in node.args)
    ta, tb = node.kwargs["ta"], node.kwargs["tb"]
    if b.ndim != 2 or a.dtype not in PLAIN or b.dtype is not a.dtype or a.size == 1 or b.size == 1:
        return None
    if a.ndim > 2 and not ta and row_major(node.args[0]):
        return _rows_times_matrix(node, tb)
    if a.ndim != 2:
        return None
    (m, n), k = shape_of(node), a.shape[0 if ta else 1]
    if is_small_product(a, b, m, n, k):
        return dense(_SMALL[ta, tb])
    multiply = _native_products.multiply

    def product(a: Any, b: Any) -> Any:
        a, b = a.T if ta else a, b.T if tb else b
        out = multiply(a, b)
        return a.dot(b) if out is None else out

    return dense(product) if min(m, n, k) > 0 else None


def _rows_times_matrix(node: Node, tb: bool) -> Call | None:
    """Many row-major matrices times one: a single product."""
    a, shape = node.args[0].meta["val"], shape_of(node)
    k, n = a.shape[-1], shape[-1]
    rows, multiply = a.size // k, _native_products.multiply
    if not rows * n:
        return None

    def product(a: Any, b: Any) -> Any:
        a, b = a.reshape(rows, k), b.T if tb else b
        out = multiply(a, b)
        return (a.dot(b) if out is None else out).reshape(shape)

    return dense(product)


_SMALL: dict[tuple[bool, bool], Call] = {
    (False, False): lambda a, b: a.dot(b),
    (False, True): lambda a, b: a.dot(b.T),
    (True, False): lambda a, b: a.T.dot(b),
    (True, True): lambda a, b: a.T.dot(b.T),
}


# ---- convolutions


def _conv(node: Node) -> Call | None:
    if not _has_plain_types(node) or not (prim_name(node) == "conv" or by_winograd(node)):
        return None
    kernel, otherwise = convolution(node), by_eager(node)

    def call(x: Any, weight: Any, bias: Any) -> Any:
        out = kernel(x, weight, bias)
        return otherwise(x, weight, bias) if out is None else out

    return call


def plain_convolution(node: Node) -> bool:
    """Whether a node is a convolution of one float type, half types too."""
    return prim_name(node) == "conv" and _has_plain_types(node, OF_PRODUCTS)


def _has_plain_types(node: Node, types: tuple[Any, ...] = PLAIN) -> bool:
    first, *others = [a.meta["val"].dtype for a in node.args if a is not None]
    return first in types and all(dtype is first for dtype in others)


def by_winograd(node: Node) -> bool:
    """Whether Winograd's algorithm is tried first for a convolution or an input gradient: where it pays, unless eager mode's rounding is
    wanted."""
    found = node.meta.get("winograd")
    if found is None:
        found = node.meta["winograd"] = _by_winograd(node)
    return bool(found)


def _by_winograd(node: Node) -> bool:
    if config.get("emulate_precision_casts"):  # type: ignore[attr-defined]
        return False
    x, weight, sizes, kwargs = node.args[0].meta["val"], shape_of(node.args[1]), shape_of(node)[2:], dict(node.kwargs)
    if prim_name(node) == "conv_input":
        del kwargs["size"]
        kwargs["padding"], weight = _padding_of_gradient(kwargs["padding"]), (weight[1], weight[0], *weight[2:])
        if min(itertools.chain(*kwargs["padding"])) < 0 or kwargs["stride"] != (1, 1):
            return False
    if not _native_conv.takes_winograd(x, weight, sizes=sizes, **kwargs):
        return False
    if node.graph.meta.get("max_autotune"):
        return _is_faster_by_winograd(node)
    return _native_conv.gains_by_winograd(x, weight, sizes, _is_packed_once(node), kwargs["stride"][0])


def _padding_of_gradient(padding: Any) -> Any:
    """The padding of the convolution with a 3 x 3 weight turned half round that an input gradient is."""
    return tuple((2 - low, 2 - high) for low, high in padding)


def _is_faster_by_winograd(node: Node) -> bool:
    arrays = [run.laid_out(np.ones(a.shape, a.dtype), a.strides) for a in (n.meta["val"] for n in node.args[:2])]
    packed = _is_packed_once(node)
    what = f"{prim_name(node)} {[(a.shape, a.strides, str(a.dtype)) for a in arrays]} {node.kwargs} {packed}"
    ways = {name: _convolution(node, packed, name == "winograd") for name in ("direct", "winograd")}
    return autotune.fastest(what, {name: functools.partial(way, *arrays, None) for name, way in ways.items()}) == "winograd"


def _is_packed_once(node: Node) -> bool:
    return all(a is None or a.target is run.constant for a in node.args[1:])


def convolution(node: Node) -> Call:
    """The kernels of a plain convolution, as a function of its arrays and, perhaps, an epilogue (`_native_conv.End`); it returns None
    where they don't serve. A constant weight is packed once."""
    return _convolution(node, _is_packed_once(node), by_winograd(node))


def _convolution(node: Node, packed: bool, quick: bool) -> Call:
    kwargs, kept = node.kwargs, dict[Any, Any]() if packed else None
    forward, winograd, sizes = _native_conv.forward, _native_conv.winograd, shape_of(node)[2:]
    if prim_name(node) == "conv_input":
        direct, turned = _native_conv.input_gradient, _padding_of_gradient(kwargs["padding"])

        def gradient(g: Any, weight: Any, bias: Any) -> Any:
            around = weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1] if quick else None
            out = winograd(g, around, bias, padding=turned, sizes=sizes, kept=kept) if quick else None
            return direct(g, weight, bias, **kwargs) if out is None else out

        return gradient
    padding, stride = kwargs["padding"], kwargs["stride"][0]

    def call(x: Any, weight: Any, bias: Any, end: Any = None) -> Any:
        out = winograd(x, weight, bias, padding=padding, sizes=sizes, stride=stride, kept=kept, end=end) if quick else None
        return forward(x, weight, bias, sizes=sizes, kept=kept, end=end, **kwargs) if out is None else out

    return call


# ---- with an epilogue


def turned(node: Node) -> tuple[bool, bool]:
    """Whether a product's factors are transposed."""
    return (False, True) if prim_name(node) == "linear" else (node.kwargs["ta"], node.kwargs["tb"])


def joined(node: Node, end: Any) -> Call:
    """A product or convolution with its epilogue: a function of the node's arrays, the arrays to write, and the operands, these two as tuples."""
    if prim_name(node) == "conv":
        kernel, plain = convolution(node), by_eager(node)

        def convolved(x: Any, weight: Any, bias: Any, outs: tuple[Any, ...], operands: tuple[Any, ...]) -> None:
            if kernel(x, weight, bias, _native_conv.End(end, outs, operands)) is None:
                sums = plain(x, weight, bias)
                _apart(sums.reshape(*sums.shape[:2], -1), end, outs, operands)

        return convolved
    (ta, tb), half = turned(node), node.meta["val"].dtype not in PLAIN
    flat, finished = node.args[1].meta["val"].ndim == 2, _native_products.finished

    def multiplied(a: Any, b: Any, *rest: Any) -> None:  # a bias is one of the operands
        outs, operands = rest[-2:]
        a, b = a.swapaxes(-1, -2) if ta else a, b.swapaxes(-1, -2) if tb else b
        if flat and a.ndim > 2:
            a = a.reshape(-1, a.shape[-1])
        if finished(a, b, end, operands, outs) is None:
            sums = np.matmul(a.astype("f"), b.astype("f")) if half else np.matmul(a, b)
            _apart(sums.reshape(1, -1, sums.shape[-1]), end, outs, operands)

    return multiplied


_ROOM = 64  # elements that a vector may reach beyond a row's end


def _apart(sums: Any, end: Any, outs: Any, operands: Any) -> None:
    """The epilogue by itself, of sums that NumPy made, as matrices whose rows are counted anew: where the kernel can't serve after all."""
    finish = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 7, ctypes.c_bool)(end.finish)
    arrays = np.array([a.ctypes.data for a in (*outs, *operands)], np.uint64)
    count, rows, width = sums.shape
    tile = np.zeros((rows, width + _ROOM), np.float32 if sums.dtype in HALF_NP else sums.dtype)
    for number in range(count):
        tile[:, :width] = sums[number]
        finish(arrays.ctypes.data, tile.ctypes.data, width + _ROOM, rows, width, number * rows * width, width, 0, 0, False)


# ---- cross entropy


def _plain_classes(node: Node, x: Node, target: Node, weight: Any) -> bool:
    """Whether a loss is of (rows, classes) with a class for each row, all of which count, and the loss is one number."""
    kwargs, classes = node.kwargs, x.meta["val"]
    return (
        weight is None and not kwargs["smoothing"] and kwargs["reduction"] in ("mean", "sum") and classes.ndim == 2 and classes.dtype in PLAIN
        and not 0 <= kwargs["ignore_index"] < classes.shape[1] and target.meta["val"].dtype == _INT64 and target.meta["val"].ndim == 1
        and row_major(x) and row_major(target)
    )  # fmt: skip


def _work(shape: tuple[int, ...]) -> Any:
    return np.array([shape[0], max(1, _PIECE // shape[1]), shape[1]], np.int64)


_DTYPES: dict[str, Any] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "u64": np.dtype(np.uint64)}


def _reduced(name: str, type: str, count: int) -> Callable[[Any], Any]:
    """The reduction of `count` dense elements, read as `type`, to an array of one; sums are made in float64."""
    kind = reduce.KINDS[name]
    wide = "f64" if type in FLOATS else type
    start, total, j = reduce.START[kind.op](wide), Read("total", wide), Index("j")
    steps = (Accumulate(kind.op, "total", convert(Load("x", j, type), wide)),)
    body: tuple[Statement, ...] = (
        Declare("total", wide, start), Assign("total", start), Loop("j", Const(0, "index"), Size("n"), steps, "vector"),
        Store("out", Const(0, "index"), convert(kind.end(total, Size("n")), type)),
    )  # fmt: skip
    body = (Loop("unit", Size("lo"), Size("hi"), body),)
    with jit.LOCK:
        kernel = entry.build(Kernel(name, (Buffer("out", type), Buffer("x", type)), (), (Size("n"),), body), 1)
    empty, dtype, work = np.empty, _DTYPES[type], np.array([1, 1, count], np.int64)

    def call(x: Any) -> Any:
        out = empty((), dtype)
        kernel(out, x, work)
        return out

    return call


def _cross_entropy(node: Node) -> Call | None:
    x, target, weight = node.args
    if not _plain_classes(node, x, target, weight):
        return None
    shape, dtype = shape_of(x), x.meta["val"].dtype
    type, work, otherwise = NP_TYPES[dtype], _work(shape), by_eager(node)
    kept = any(u.args[1] == 1 for u in node.users)
    with jit.LOCK:
        kernel = entry.build(rows.cross_entropy(type, type, False, kept), 1)
    count, classes, empty = np.asarray(shape[0], dtype), shape[1], np.empty
    largest, whole = _reduced("amax", "u64", shape[0]), _reduced(node.kwargs["reduction"], type, shape[0])

    def call(x: Any, target: Any, weight: Any) -> Any:
        if largest(target).item() >= classes:  # as unsigned numbers, negative ones are large
            return otherwise(x, target, weight)
        losses, probability = empty(shape[0], dtype), None
        if kept:
            probability = empty(shape, dtype)
            kernel(losses, probability, x, target, work)
        else:
            kernel(losses, x, target, work)
        return whole(losses), probability, count

    return dense(laid_out(call))


def _cross_entropy_backward(node: Node) -> Call | None:
    x, g, target, weight, _ = node.args
    if not _plain_classes(node, x, target, weight) or g.meta["val"].ndim:
        return None
    shape, dtype = shape_of(x), x.meta["val"].dtype
    type, work, otherwise = NP_TYPES[dtype], _work(shape), by_eager(node)
    with jit.LOCK:
        kernel = entry.build(rows.cross_entropy_backward(type, type), 1)
    count, classes, empty = shape[0], shape[1], np.empty
    largest, divisor = _reduced("amax", "u64", count), count if node.kwargs["reduction"] == "mean" else 1

    def call(probability: Any, g: Any, target: Any, weight: Any, total: Any) -> Any:
        if total.item() != count or largest(target).item() >= classes:
            return otherwise(probability, g, target, weight, total)
        factor = g.item() / divisor
        out = empty(shape, dtype)
        kernel(out, probability, target, factor, 0.0, factor, work)
        return out

    return dense(laid_out(call))


_DIRECT: dict[str, Callable[[Node], Call | None]] = {
    "mm": _mm, "conv": _conv, "conv_input": _conv, "cross_entropy": _cross_entropy, "cross_entropy_backward": _cross_entropy_backward,
}  # fmt: skip

__all__ = ["by_eager", "caller", "dense", "is_dense", "is_small_product", "row_major"]
