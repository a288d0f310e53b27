"""Native kernels for primitives that are not pointwise: reductions, softmax, layer normalisation, copies with another type.

A function here takes a primitive's arrays and parameters and returns its result, or None for NumPy to compute it (tocha.backends.native).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import _native_rows, native
from tocha.dtypes import HALF_NP

_ndarray = np.ndarray
_FLOAT32, _FLOAT64, _INT64, _BOOL = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_))
_FLOAT_NP = frozenset((_FLOAT32, _FLOAT64, *(d for d in HALF_NP if d.itemsize == 2)))
Shape = tuple[int, ...]
Run = Callable[[list[Any], dict[str, Any]], Any]


def _compute(dtype: Any) -> Any:
    return _FLOAT32 if dtype in HALF_NP else dtype


# ---- reductions


def _steps(a: Any, shape: Shape) -> Shape | None:
    """Strides in elements, 0 where `a` is broadcast to `shape`; None for odd ones."""
    item = a.dtype.itemsize
    if any(s % item for s in a.strides):
        return None
    return tuple([0 if n == 1 != full else s // item for n, full, s in zip(a.shape, shape, a.strides, strict=True)])


def reduce(kind: str, arrays: list[Any], dim: Shape, keepdim: bool, out_dtype: Any, compute: Any = None) -> Any:
    """Reduce arrays of one (broadcast) shape over `dim` to an array of `out_dtype`; elements are computed with as `compute`."""
    x = arrays[0]
    shape = x.shape
    if not dim or not shape:
        return None
    modules = native.inductor()
    if modules is None:
        return None
    strides = [_steps(a, shape) for a in arrays]
    if None in strides:
        return None
    kept_shape = tuple([1 if d in dim else n for d, n in enumerate(shape)])
    out = np.empty(kept_shape, out_dtype)
    item = out_dtype.itemsize
    out_steps = tuple([0 if d in dim else s // item for d, s in enumerate(out.strides)])
    plan = native.remember(
        (kind, shape, tuple(strides), dim), lambda: modules.reduce.plan(shape, strides, out_steps, dim) or ()
    )
    if not plan:
        return None
    types = tuple([a.dtype for a in arrays])
    inner = _compute(x.dtype) if compute is None else compute

    def make() -> Any:
        names = modules.lower.NP_TYPES
        return modules.reduce.make(kind, tuple([names[t] for t in types]), names[inner], names[out_dtype], plan.key)

    builtin = native.kernel(("reduce", kind, types, out_dtype, inner, plan.key), make)
    if builtin is None:
        return None
    if plan.partial:
        builtin(out, *arrays, np.empty(plan.partial, np.float64), plan.work)  # every type of partial result fits 8 bytes
    else:
        builtin(out, *arrays, plan.work)
    return out if keepdim else out.reshape([n for d, n in enumerate(shape) if d not in dim])


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
    if x.dtype not in _FLOAT_NP:
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
    return None if kind is None or x.dtype not in _FLOAT_NP else reduce(kind, [x], params["dim"], params["keepdim"], x.dtype)


_ORDERED = _FLOAT_NP | frozenset(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8))


# ---- rows


def _work(rows: int, n: int) -> Any:
    return native.remember(("rows", rows, n), lambda: np.array([rows, max(1, 8192 // n), n], np.int64))


def _is_vector(a: Any, n: int) -> bool:
    return a is None or (a.dtype in _FLOAT_NP and a.size == n and a.flags.c_contiguous)


def _standardized_rows(input: Any, params: dict[str, Any]) -> tuple[int, int] | None:
    """Rows of a `standardize` over all its last axes, with weight and bias along them; None for other normalisations."""
    shape, axes, affine = params["shape"], params["axes"], params["affine"]
    first = len(shape) - len(axes)
    if axes != tuple(range(first, len(shape))) or not first or not input.flags.c_contiguous or not input.size:
        return None
    n = 1
    for d in axes:
        n *= shape[d]
    full = 1
    for d in affine:
        full *= d
    return (input.size // n, n) if full == n and tuple(affine[-len(axes) :]) == tuple(shape[first:]) else None


def _type_of(a: Any) -> Any:
    return None if a is None else a.dtype


def _standardize(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, weight, bias = arrays
    if x.dtype not in _FLOAT_NP or not x.flags.c_contiguous or any(a is not None and a.dtype not in _FLOAT_NP for a in (weight, bias)):
        return None
    rows = _standardized_rows(x, params)
    if rows is not None and _is_vector(weight, rows[1]) and _is_vector(bias, rows[1]):
        return _layer_norm(x, weight, bias, params, *rows)
    return _standardize_any(x, weight, bias, params)


def _layer_norm(x: Any, weight: Any, bias: Any, params: dict[str, Any], rows: int, n: int) -> Any:
    modules = native.inductor()
    if modules is None:
        return None
    names = modules.lower.NP_TYPES
    given = [_type_of(weight), _type_of(bias)]
    builtin = native.kernel(
        ("layer_norm", x.dtype, *given),
        lambda: modules.rows.layer_norm(names[x.dtype], names[_compute(x.dtype)], *[None if t is None else names[t] for t in given]),
    )
    if builtin is None:
        return None
    shape = params["shape"]
    moments = tuple([1 if d in params["axes"] else n for d, n in enumerate(shape)])
    kind = _compute(x.dtype)
    out, mean, var = np.empty(x.shape, x.dtype), np.empty(moments, kind), np.empty(moments, kind)
    builtin(out, mean, var, x, *[a for a in (weight, bias) if a is not None], params["eps"], _work(rows, n))
    return out, mean, var


def _standardize_any(input: Any, weight: Any, bias: Any, params: dict[str, Any]) -> Any:
    """Moments over any axes (batch, group and instance normalisation): two reductions and one pass that writes."""
    kind, axes, affine = _compute(input.dtype), params["axes"], params["affine"]
    x = input.reshape(params["shape"])
    mean = reduce("mean", [x], axes, True, kind, _FLOAT64)
    var = None if mean is None else reduce("apart_mean", [x, mean], axes, True, kind, _FLOAT64)
    if var is None:
        return None
    scale = 1 / np.sqrt(var + kind.type(params["eps"]))
    operands = [x, mean, scale] + [a.reshape(affine) for a in (weight, bias) if a is not None]
    rule = _STANDARDIZE if weight is None and bias is None else _STANDARDIZE_BOTH if bias is not None and weight is not None else None
    out = None if rule is None else pointwise(rule, operands, kind, input.dtype)
    return None if out is None else (out.reshape(input.shape), mean, var)


def _standardize_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, weight, mean, var = arrays
    kind = _compute(x.dtype)
    if x.dtype not in _FLOAT_NP or g.dtype is not x.dtype or mean.dtype is not kind or var.dtype is not kind:
        return None
    if not all(a.flags.c_contiguous for a in (g, x, mean, var)) or (weight is not None and weight.dtype not in _FLOAT_NP):
        return None
    rows = _standardized_rows(x, params)
    if rows is not None and _is_vector(weight, rows[1]):
        return _layer_norm_backward(g, x, weight, mean, var, params["eps"], *rows)
    return _standardize_backward_any(g, x, weight, mean, var, params)


def _layer_norm_backward(g: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float, rows: int, n: int) -> Any:
    modules = native.inductor()
    if modules is None:
        return None
    names, kind, given = modules.lower.NP_TYPES, _compute(x.dtype), _type_of(weight)
    builtin = native.kernel(
        ("layer_norm_backward", x.dtype, given),
        lambda: modules.rows.layer_norm_backward(names[x.dtype], names[kind], None if given is None else names[given]),
    )
    if builtin is None:
        return None
    units = -(-rows // modules.rows.ROWS)
    work = native.remember(("grouped rows", rows, n), lambda: np.array([units, max(1, 8192 // (n * modules.rows.ROWS)), n, rows], np.int64))
    out, of_weight, of_bias = np.empty(x.shape, x.dtype), np.empty(n, kind), np.empty(n, kind)
    partial = np.empty(2 * units * n, kind)
    builtin(out, of_weight, of_bias, partial, g, x, mean, var, *([] if weight is None else [weight]), eps, work)
    shape = (n,) if weight is None else weight.shape
    return out, of_weight.reshape(shape), of_bias.reshape(shape)


def _standardize_backward_any(grad: Any, input: Any, weight: Any, mean: Any, var: Any, params: dict[str, Any]) -> Any:
    """As the primitive's formula says, each sum over elements one reduction."""
    kind, shape, axes, affine = _compute(input.dtype), params["shape"], params["axes"], params["affine"]
    g, x = grad.reshape(shape), input.reshape(shape)
    scale = 1 / np.sqrt(var + kind.type(params["eps"]))
    lead = len(shape) - len(affine)
    summed = (*range(lead), *(lead + i for i, s in enumerate(affine) if s == 1 and shape[lead + i] != 1))
    of_weight, of_bias = reduce("normal_sum", [g, x, mean, scale], summed, True, kind), reduce("sum", [g], summed, True, kind)
    if of_weight is None or of_bias is None:
        return None
    factor = None if weight is None else weight.reshape((1,) * lead + affine)
    if summed == axes:
        total, along = (of_bias, of_weight) if factor is None else (of_bias * factor, of_weight * factor)
    elif factor is None:
        total, along = reduce("sum", [g], axes, True, kind), reduce("normal_sum", [g, x, mean, scale], axes, True, kind)
    else:
        wide = np.broadcast_to(factor, shape)
        total = reduce("weighted_sum", [g, wide], axes, True, kind)
        along = reduce("weighted_normal_sum", [g, wide, x, mean, scale], axes, True, kind)
    if total is None or along is None:
        return None
    n = kind.type(x.size // max(1, total.size))
    operands = [g, x, mean, scale, total / n, along / n]
    rule = _STANDARDIZE_SLOPE if factor is None else _WEIGHTED_SLOPE
    out = pointwise(rule, operands if factor is None else [*operands, factor], kind, input.dtype)
    flat = (of_weight.size,) if weight is None else weight.shape
    return None if out is None else (out.reshape(input.shape), of_weight.reshape(flat), of_bias.reshape(flat))


# ---- losses


def _mse(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, y = arrays
    reduction = params["reduction"]
    if reduction == "none" or x.dtype not in _FLOAT_NP or y.dtype is not x.dtype or x.shape != y.shape:
        return None
    return reduce("apart_mean" if reduction == "mean" else "apart_sum", [x, y], tuple(range(x.ndim)), False, x.dtype)


def _mse_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, y = arrays
    if x.dtype not in _FLOAT_NP or y.dtype is not x.dtype or g.dtype is not x.dtype or x.shape != y.shape:
        return None
    factor = 2 / max(x.size, 1) if params["reduction"] == "mean" else 2.0
    return pointwise(_MSE_SLOPE, [g, x, y], _compute(x.dtype), x.dtype, {"factor": factor})


def _plain_targets(x: Any, target: Any, weight: Any, params: dict[str, Any]) -> bool:
    """Whether logits are rows, and every target is a class that counts."""
    if weight is not None or params["smoothing"] or x.ndim != 2 or not x.size or not x.flags.c_contiguous or x.dtype not in _FLOAT_NP:
        return False
    if target.dtype is not _INT64 or not target.flags.c_contiguous or target.shape != x.shape[:1]:
        return False
    return bool(np.max(target.view(np.uint64)) < x.shape[1]) and not 0 <= params["ignore_index"] < x.shape[1]


def _cross_entropy(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, target, weight = arrays
    modules = native.inductor()
    if modules is None or not _plain_targets(x, target, weight, params):
        return None
    names, kind = modules.lower.NP_TYPES, _compute(x.dtype)
    builtin = native.kernel(("cross_entropy", x.dtype), lambda: modules.rows.cross_entropy(names[x.dtype], names[kind]))
    if builtin is None:
        return None
    losses, probability = np.empty(x.shape[0], kind), np.empty(x.shape, x.dtype)
    builtin(losses, probability, x, target, _work(*x.shape))
    value = losses if params["reduction"] == "none" else losses.sum() if params["reduction"] == "sum" else losses.mean()
    return np.asarray(value).astype(x.dtype, copy=False), probability, np.asarray(x.shape[0]).astype(x.dtype)


def _cross_entropy_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, probability, target, weight, total = arrays
    modules = native.inductor()
    if modules is None or params["reduction"] == "none" or g.shape or not _plain_targets(probability, target, weight, params):
        return None
    rows = probability.shape[0]
    if float(total) != rows:
        return None  # not all targets counted, or the count isn't a number of this type
    names, kind = modules.lower.NP_TYPES, _compute(probability.dtype)
    builtin = native.kernel(
        ("cross_entropy_backward", probability.dtype),
        lambda: modules.rows.cross_entropy_backward(names[probability.dtype], names[kind]),
    )
    if builtin is None:
        return None
    out = np.empty(probability.shape, probability.dtype)
    factor = float(kind.type(g) / kind.type(rows)) if params["reduction"] == "mean" else float(g)
    builtin(out, probability, target, factor, _work(*probability.shape))
    return out


# ---- copies


class _Rule:
    """A scalar rule of no primitive of its own."""

    def __init__(self, name: str, impl: Callable[..., Any]) -> None:
        self.name, self.impl = name, impl


_COPY = _Rule("copy", lambda o, x: x)
_WHERE = _Rule("where", lambda o, c, x, y: o.where(c, x, y))
_KEEP = _Rule("keep", lambda o, x, c: o.where(c, x, 0))
_STANDARDIZE = _Rule("standardize", lambda o, x, m, s: o.mul(o.sub(x, m), s))
_STANDARDIZE_BOTH = _Rule("standardize_both", lambda o, x, m, s, w, b: o.add(o.mul(o.mul(o.sub(x, m), s), w), b))
_STANDARDIZE_SLOPE = _Rule(
    "standardize_slope", lambda o, g, x, m, s, total, along: o.mul(o.sub(o.sub(g, o.mul(o.mul(o.sub(x, m), s), along)), total), s)
)
_WEIGHTED_SLOPE = _Rule(
    "weighted_slope", lambda o, g, x, m, s, t, a, w: o.mul(o.sub(o.sub(o.mul(g, w), o.mul(o.mul(o.sub(x, m), s), a)), t), s)
)
_MSE_SLOPE = _Rule("mse_slope", lambda o, g, x, y, *, factor: o.mul(o.sub(x, y), o.mul(g, factor)))


def pointwise(rule: Any, operands: list[Any], compute: Any, target: Any, params: dict[str, Any] | None = None) -> Any:
    return native.pointwise(rule, operands, compute, target, params or {}, lambda shapes: np.broadcast_shapes(*shapes), "half")


_REAL_NP = frozenset((_FLOAT32, _FLOAT64))
_INTEGER_NP = frozenset(np.dtype(t) for t in (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8))


def _cast(arrays: list[Any], params: dict[str, Any]) -> Any:
    """To floating point: rounding is IEEE's everywhere (NumPy rounds float64 to half types once, torch twice)."""
    x, dtype = arrays[0], params["dtype"]
    if dtype not in _FLOAT_NP or x.dtype not in _FLOAT_NP | _INTEGER_NP or x.dtype is dtype:
        return None
    if dtype in _REAL_NP:
        return pointwise(_COPY, [x], dtype, dtype)
    return pointwise(_COPY, [x], _FLOAT32, dtype) if x.dtype is _FLOAT32 or x.dtype in HALF_NP else None


_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def _clone(arrays: list[Any], params: dict[str, Any]) -> Any:
    x = arrays[0]
    bits = _BITS.get(x.dtype.itemsize)
    if params["order"] != "K" or bits is None or x.dtype.kind not in "biufV" or x.size < 1 << 18:
        return None
    found = pointwise(_COPY, [x.view(bits)], bits, bits)
    return None if found is None else found.view(x.dtype)


def _where(arrays: list[Any], params: dict[str, Any]) -> Any:
    condition, x, y = arrays
    dtype = params["dtype"]
    if condition.dtype is not _BOOL or dtype not in _ORDERED or not (x.dtype is dtype and y.dtype is dtype):
        return None
    return pointwise(_WHERE, [condition, x, y], _compute(dtype), dtype)


def _keep(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, mask = arrays
    if mask.dtype is not _BOOL or x.dtype not in _FLOAT_NP:
        return None
    return pointwise(_KEEP, [x, mask], _compute(x.dtype), x.dtype)


RUNS: dict[str, Run] = {
    "sum": _simple("sum", _FLOAT_NP | {_INT64}), "mean": _simple("mean", _FLOAT_NP), "prod": _simple("prod", _FLOAT_NP | {_INT64}),
    "amax": _simple("amax", _ORDERED), "amin": _simple("amin", _ORDERED),
    "any": _simple("any", _ORDERED | {_BOOL}, _BOOL), "all": _simple("all", _ORDERED | {_BOOL}, _BOOL),
    "count_nonzero": _simple("count_nonzero", _ORDERED | {_BOOL}, _INT64), "var": _var, "std": _std, "vector_norm": _norm,
    **_native_rows.RUNS,
    "mse": _mse, "mse_backward": _mse_backward, "cross_entropy": _cross_entropy, "cross_entropy_backward": _cross_entropy_backward,
    "cast": _cast, "clone": _clone, "where": _where, "keep": _keep,
    "standardize": _standardize, "standardize_backward": _standardize_backward,
}  # fmt: skip
