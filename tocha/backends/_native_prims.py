"""Native kernels for primitives that are not pointwise: reductions, softmax, layer normalisation, copies with another type.

A function here takes a primitive's arrays and parameters and returns its result, or None for NumPy to compute it (tocha.backends.native).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import _native_moves, native
from tocha.dtypes import FLOAT8, HALF_NP

_ndarray = np.ndarray
_FLOAT32, _FLOAT64, _INT64, _BOOL, _BYTE = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_, np.uint8))
FLOAT_NP = frozenset((_FLOAT32, _FLOAT64, *(d for d in HALF_NP if d.itemsize == 2)))
Shape = tuple[int, ...]
Run = Callable[[list[Any], dict[str, Any]], Any]


def widened(dtype: Any) -> Any:
    """The type that elements are computed with in."""
    return _FLOAT32 if dtype in HALF_NP else dtype


# ---- reductions


def _steps(a: Any, shape: Shape) -> Shape | None:
    """Strides in elements, 0 where `a` is broadcast to `shape`; None for odd ones."""
    item = a.dtype.itemsize
    if any(s % item for n, s in zip(a.shape, a.strides, strict=True) if n != 1):
        return None
    return tuple([0 if n == 1 != full else s // item for n, full, s in zip(a.shape, shape, a.strides, strict=True)])


def total(name: str, rule: Callable[..., Any], arrays: list[Any], shape: Shape) -> Any:
    """The sum of `rule(handler, *arrays)` over the dimensions of the first array that `shape` hasn't or has as 1; `name` is the rule's."""
    whole = arrays[0].shape
    lead = len(whole) - len(shape)
    dim = (*range(lead), *[lead + i for i, n in enumerate(shape) if n == 1 != whole[lead + i]])
    if any(a.ndim != len(whole) for a in arrays):
        arrays = [a if a.ndim == len(whole) else a.reshape((1,) * (len(whole) - a.ndim) + a.shape) for a in arrays]
    out = reduce(name, arrays, dim, len(dim) > lead, arrays[0].dtype, rule=rule)
    return out if out is None or out.shape == shape else out.reshape(shape)


class _Reduction:
    """What reducing arrays of certain shapes, strides and types takes: `plan` is None where NumPy is as good."""

    def __init__(self, arrays: list[Any], dim: Shape, keepdim: bool, out: Any) -> None:
        modules = native.inductor()
        shape = arrays[0].shape
        self.builtin: Any = None
        self.out = out
        self.shape = tuple([1 if d in dim else n for d, n in enumerate(shape) if keepdim or d not in dim])
        self.plan: Any = None
        strides = [_steps(a, shape) for a in arrays]
        if modules is not None and None not in strides:
            steps, step = [0] * len(shape), 1
            for d in range(len(shape) - 1, -1, -1):
                if d not in dim:
                    steps[d], step = step, step * shape[d]
            self.plan = modules.reduce.plan(shape, strides, tuple(steps), dim)

    def run(self, arrays: list[Any]) -> Any:
        """The result, once there is a builtin."""
        plan, out = self.plan, np.empty(self.shape, self.out)
        if plan.partial:
            self.builtin(out, *arrays, np.empty(plan.partial, np.float64), plan.work)  # every type of partial result fits 8 bytes
        else:
            self.builtin(out, *arrays, plan.work)
        return out


def reduce(
    kind: str, arrays: list[Any], dim: Shape, keepdim: bool, out_dtype: Any, compute: Any = None, rule: Callable[..., Any] | None = None
) -> Any:  # fmt: skip
    """Reduce arrays of one (broadcast) shape over `dim` to an array of `out_dtype`; elements are computed with as `compute`.
    `rule`: the sum of a scalar rule called `kind`.
    """
    found = reduction(kind, arrays, dim, keepdim, out_dtype, compute, rule)
    return None if found is None else found.run(arrays)


def reduction(
    kind: str, arrays: list[Any], dim: Shape, keepdim: bool, out_dtype: Any, compute: Any = None, rule: Callable[..., Any] | None = None
) -> _Reduction | None:  # fmt: skip
    """What `reduce` runs; None if NumPy shall do it."""
    x = arrays[0]
    if not dim or not x.shape:
        return None
    key = ("reduction", kind, dim, keepdim, out_dtype, compute, *[(a.shape, a.strides, a.dtype) for a in arrays])
    found = native.remember(key, lambda: _Reduction(arrays, dim, keepdim, out_dtype))
    plan: Any = found.plan
    if plan is None:
        return None
    if found.builtin is None:
        found.builtin = _reduction(kind, tuple([a.dtype for a in arrays]), out_dtype, compute, plan.key, rule)
        if found.builtin is None:
            return None
    return found


def _reduction(kind: str, types: tuple[Any, ...], out_dtype: Any, compute: Any, key: Any, rule: Any) -> Any:
    """The builtin of a reduction, None if there is none (yet)."""
    modules = native.inductor()
    assert modules is not None
    inner = widened(types[0]) if compute is None else compute

    def make() -> Any:
        names = modules.lower.NP_TYPES
        spelled = tuple([names[t] for t in types])
        if rule is not None:
            return modules.reduce.make_kind(kind, modules.reduce.sum_of(rule), spelled, names[inner], names[out_dtype], key)
        return modules.reduce.make(kind, spelled, names[inner], names[out_dtype], key)

    return native.kernel(("reduce", kind, types, out_dtype, inner, key), make)


def _simple(kind: str, types: frozenset[Any], out: Any = None) -> Run:
    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x = arrays[0]
        if x.dtype not in types:
            return None
        return reduce(kind, arrays, params["dim"], params.get("keepdim", False), x.dtype if out is None else out)

    return run


def _variance(arrays: list[Any], params: dict[str, Any]) -> Any:
    """In two passes, in float64, whose range holds the squares of all float32 numbers."""
    x, dim = arrays[0], params["dim"]
    if x.dtype not in FLOAT_NP:
        return None
    middle = reduce("mean", [x], dim, True, _FLOAT64, _FLOAT64)
    squares = None if middle is None else reduce("apart_sum", [x, middle], dim, params["keepdim"], _FLOAT64, _FLOAT64)
    if squares is None:
        return None
    n = x.size // max(1, middle.size)
    with np.errstate(all="ignore"):
        return np.true_divide(squares, max(n - params["correction"], 0))


def _var(arrays: list[Any], params: dict[str, Any]) -> Any:
    found = _variance(arrays, params)
    return None if found is None else np.asarray(found).astype(arrays[0].dtype)


def _std(arrays: list[Any], params: dict[str, Any]) -> Any:
    found = _variance(arrays, params)
    return None if found is None else np.asarray(np.sqrt(found)).astype(arrays[0].dtype)


def _norm(arrays: list[Any], params: dict[str, Any]) -> Any:
    kind = {2: "norm", 1: "abs_sum"}.get(params["ord"])
    x = arrays[0]
    return None if kind is None or x.dtype not in FLOAT_NP else reduce(kind, [x], params["dim"], params["keepdim"], x.dtype)


ORDERED_NP = FLOAT_NP | frozenset(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8))


# ---- rows


def row_work(rows: int, n: int) -> Any:
    """The work array of a kernel over rows."""
    return native.remember(("rows", rows, n), lambda: np.array([rows, max(1, 8192 // n), n], np.int64))


# ---- losses

_MANY_ROWS = 1024  # from which on negative log likelihoods have a kernel, with as many rows to a unit


def _mse(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, y = arrays
    reduction = params["reduction"]
    if reduction == "none" or x.dtype not in FLOAT_NP or y.dtype is not x.dtype or x.shape != y.shape:
        return None
    return reduce("apart_mean" if reduction == "mean" else "apart_sum", [x, y], tuple(range(x.ndim)), False, x.dtype)


def _mse_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, y = arrays
    if x.dtype not in FLOAT_NP or y.dtype is not x.dtype or g.dtype is not x.dtype or x.shape != y.shape:
        return None
    factor = 2 / max(x.size, 1) if params["reduction"] == "mean" else 2.0
    return pointwise(_MSE_SLOPE, [g, x, y], widened(x.dtype), x.dtype, {"factor": factor})


def _plain_targets(x: Any, target: Any, weight: Any, params: dict[str, Any]) -> bool:
    """Whether logits are rows, and every target is a class that counts."""
    return _plain_rows(x, target, weight, params) and bool(np.max(target.view(np.uint64)) < x.shape[1])


def _plain_rows(x: Any, target: Any, weight: Any, params: dict[str, Any]) -> bool:
    """Whether logits are rows, each with an integer for its target, and all classes count."""
    if weight is not None or x.ndim != 2 or not x.size or not x.flags.c_contiguous or x.dtype not in FLOAT_NP:
        return False
    if target.dtype is not _INT64 or not target.flags.c_contiguous or target.shape != x.shape[:1]:
        return False
    return not 0 <= params["ignore_index"] < x.shape[1]


def _nll(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Of rows of float32 or float64, every target a class that counts."""
    x, target, weight = arrays
    if len(target) >= _MANY_ROWS:
        return _picked(x, target, weight, params)
    if x.dtype not in _REAL_NP or not _plain_targets(x, target, weight, params):
        return None
    losses, n = np.negative(x.reshape(-1).take(_places(x, target))), x.dtype.type(len(x))
    value = losses if params["reduction"] == "none" else losses.sum() if params["reduction"] == "sum" else losses.sum() / n
    return np.asarray(value), np.asarray(n)


def _picked(x: Any, target: Any, weight: Any, params: dict[str, Any]) -> Any:
    """`_nll` of many rows, which looks at the targets while it reads at them."""
    modules, rows, reduction = native.inductor(), len(target), params["reduction"]
    if modules is None or x.dtype not in _REAL_NP or not _plain_rows(x, target, weight, params):
        return None
    summed, type = reduction != "none", modules.lower.NP_TYPES[x.dtype]
    builtin = native.kernel(("nll", x.dtype, summed), lambda: modules.rows.picked(type, summed))
    if builtin is None:
        return None
    units = -(-rows // _MANY_ROWS)
    losses, unknown = np.empty(units if summed else rows, _FLOAT64 if summed else x.dtype), np.empty(units, np.int64)
    builtin(losses, unknown, x, target, native.remember(("nll", rows, x.shape[1]), lambda: np.array([units, 4, rows, x.shape[1]], np.int64)))
    if unknown.any():
        return None
    value = losses if not summed else losses.sum() / rows if reduction == "mean" else losses.sum()
    return np.asarray(value).astype(x.dtype, copy=False), np.asarray(x.dtype.type(rows))


def _nll_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, target, weight, total = arrays
    out, reduction = np.zeros(params["shape"], g.dtype), params["reduction"]
    if g.dtype not in _REAL_NP or not _plain_targets(out, target, weight, params) or (reduction == "mean" and float(total) != len(out)):
        return None
    out.reshape(-1)[_places(out, target)] = -(g.dtype.type(1) / total if reduction == "mean" else g.dtype.type(1)) * g
    return out


def _places(x: Any, column: Any) -> Any:
    """Where an element of each row is in the flattened array."""
    n, m = x.shape
    starts = native.remember(("row starts", n, m), lambda: np.arange(0, n * m, m)) if n <= 1 << 14 else np.arange(0, n * m, m)
    return starts + column


def _cross_entropy(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, target, weight = arrays
    modules = native.inductor()
    if modules is None or not _plain_targets(x, target, weight, params):
        return None
    names, kind = modules.lower.NP_TYPES, widened(x.dtype)
    smoothing = params["smoothing"]
    smooth = bool(smoothing)
    builtin = native.kernel(
        ("cross_entropy", x.dtype, smooth), lambda: modules.rows.cross_entropy(names[x.dtype], names[kind], smooth)
    )
    if builtin is None:
        return None
    losses, probability = np.empty(x.shape[0], kind), np.empty(x.shape, x.dtype)
    builtin(losses, probability, x, target, *([smoothing] if smooth else []), row_work(*x.shape))
    value = losses if params["reduction"] == "none" else losses.sum() if params["reduction"] == "sum" else losses.mean()
    return np.asarray(value).astype(x.dtype, copy=False), probability, np.asarray(x.shape[0]).astype(x.dtype)


def _cross_entropy_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    probability, g, target, weight, total = arrays
    modules = native.inductor()
    if modules is None or params["reduction"] == "none" or g.shape or not _plain_targets(probability, target, weight, params):
        return None
    rows = probability.shape[0]
    if float(total) != rows:
        return None  # not all targets counted, or the count isn't a number of this type
    names, kind = modules.lower.NP_TYPES, widened(probability.dtype)
    builtin = native.kernel(
        ("cross_entropy_backward", probability.dtype),
        lambda: modules.rows.cross_entropy_backward(names[probability.dtype], names[kind]),
    )
    if builtin is None:
        return None
    out = np.empty(probability.shape, probability.dtype)
    factor = float(kind.type(g) / kind.type(rows)) if params["reduction"] == "mean" else float(g)
    smoothing = params["smoothing"]
    builtin(
        out,
        probability,
        target,
        factor,
        factor * smoothing / probability.shape[1],
        factor * (1 - smoothing),
        row_work(*probability.shape),
    )
    return out


# ---- copies


class Rule:
    """A scalar rule of no primitive of its own."""

    def __init__(self, name: str, impl: Callable[..., Any]) -> None:
        self.name, self.impl = name, impl


COPY = Rule("copy", lambda o, x: x)
_WHERE = Rule("where", lambda o, c, x, y: o.where(c, x, y))
_KEEP = Rule("keep", lambda o, x, c: o.where(c, x, 0))
_MSE_SLOPE = Rule("mse_slope", lambda o, g, x, y, *, factor: o.mul(o.sub(x, y), o.mul(g, factor)))


def pointwise(rule: Any, operands: list[Any], compute: Any, target: Any, params: dict[str, Any] | None = None) -> Any:
    return native.pointwise(rule, operands, compute, target, params or {}, lambda shapes: np.broadcast_shapes(*shapes), "half")


_REAL_NP = frozenset((_FLOAT32, _FLOAT64))
_INTEGER_NP = frozenset(np.dtype(t) for t in (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8))


def _cast(arrays: list[Any], params: dict[str, Any]) -> Any:
    """To floating point: rounding is IEEE's everywhere (NumPy rounds float64 to half types once, torch twice)."""
    x, dtype = arrays[0], params["dtype"]
    if x.dtype in _FLOAT8 or dtype in _FLOAT8:
        return _cast_float8(x, dtype)
    if dtype not in FLOAT_NP or x.dtype not in FLOAT_NP | _INTEGER_NP or x.dtype is dtype:
        return None
    if dtype in _REAL_NP:
        return pointwise(COPY, [x], dtype, dtype)
    return pointwise(COPY, [x], _FLOAT32, dtype) if x.dtype is _FLOAT32 or x.dtype in HALF_NP else None


_FLOAT8 = frozenset(d.np for d in FLOAT8)


def _cast_float8(x: Any, dtype: Any) -> Any:
    """Between float8, as bytes, and other floats."""
    if dtype in _FLOAT8 and (x.dtype is _FLOAT32 or x.dtype in FLOAT_NP & HALF_NP):
        found = pointwise(_float8_rule("encoded", dtype.name), [x], _FLOAT32, _BYTE)
        return None if found is None else found.view(dtype)
    if x.dtype in _FLOAT8 and dtype in FLOAT_NP:
        return pointwise(_float8_rule("decoded", x.dtype.name), [x.view(_BYTE)], _BYTE, dtype)
    return None


@functools.cache
def _float8_rule(which: str, name: str) -> Rule:
    from tocha.inductor import float8

    convert = getattr(float8, which)
    return Rule(f"{which}_{name}", lambda o, x: o.of(convert(name, x.expr)))


_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def _clone(arrays: list[Any], params: dict[str, Any]) -> Any:
    x = arrays[0]
    if params["order"] in "CK" and x.shape[-1:] > (1,) and not x.strides[-1] and x[..., 0].flags.c_contiguous:
        return np.repeat(x[..., 0], x.shape[-1], -1).reshape(x.shape)
    if params["order"] == "C":
        return _native_moves.contiguous(x)
    bits = _BITS.get(x.dtype.itemsize)
    if params["order"] != "K" or bits is None or x.dtype.kind not in "biufV" or x.size < 1 << 18:
        return None
    found = pointwise(COPY, [x.view(bits)], bits, bits)
    return None if found is None else found.view(x.dtype)


def _where(arrays: list[Any], params: dict[str, Any]) -> Any:
    condition, x, y = arrays
    dtype = params["dtype"]
    if condition.dtype is not _BOOL or dtype not in ORDERED_NP or not (x.dtype is dtype and y.dtype is dtype):
        return None
    return pointwise(_WHERE, [condition, x, y], widened(dtype), dtype)


def _keep(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, mask = arrays
    if mask.dtype is not _BOOL or x.dtype not in FLOAT_NP:
        return None
    return pointwise(_KEEP, [x, mask], widened(x.dtype), x.dtype)


RUNS: dict[str, Run] = {
    "sum": _simple("sum", FLOAT_NP | {_INT64}), "mean": _simple("mean", FLOAT_NP), "prod": _simple("prod", FLOAT_NP | {_INT64}),
    "amax": _simple("amax", ORDERED_NP), "amin": _simple("amin", ORDERED_NP),
    "any": _simple("any", ORDERED_NP | {_BOOL}, _BOOL), "all": _simple("all", ORDERED_NP | {_BOOL}, _BOOL),
    "count_nonzero": _simple("count_nonzero", ORDERED_NP | {_BOOL}, _INT64), "var": _var, "std": _std, "vector_norm": _norm,
    "mse": _mse, "mse_backward": _mse_backward, "cross_entropy": _cross_entropy, "cross_entropy_backward": _cross_entropy_backward,
    "nll": _nll, "nll_backward": _nll_backward, "cast": _cast, "clone": _clone, "where": _where, "keep": _keep,
}  # fmt: skip
