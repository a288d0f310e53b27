"""Native kernels for normalisation: layer and RMS normalisation in one pass over rows, the others by reductions and one pass that writes."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tocha.backends import _native_norm_small as small
from tocha.backends import native
from tocha.backends._native_prims import FLOAT_NP, Rule, Run, pointwise, reduce, row_work, widened

_FLOAT32 = np.dtype(np.float32)
_CHANNELS, _LANES, _MOST = 8, 8, 8192  # of batch normalisation's kernels: least channels, places of a row, most elements of a channel
_FEW = 16  # elements for each of the sums that are summed again

_SCALED = Rule("scaled", lambda o, x, scale, shift: o.add(o.mul(x, scale), shift))
_TIMES = Rule("times", lambda o, x, y: o.mul(x, y))
_STANDARDIZE = {  # whether the scale holds the weight, and whether there is a bias
    (True, False): Rule("standardize", lambda o, x, m, s: o.mul(o.sub(x, m), s)),
    (True, True): Rule("standardize_bias", lambda o, x, m, s, b: o.add(o.mul(o.sub(x, m), s), b)),
    (False, False): Rule("standardize_weight", lambda o, x, m, s, w: o.mul(o.mul(o.sub(x, m), s), w)),
    (False, True): Rule("standardize_both", lambda o, x, m, s, w, b: o.add(o.mul(o.mul(o.sub(x, m), s), w), b)),
}
_SLOPE = Rule(
    "standardize_slope", lambda o, g, x, m, of_g, of_x, rest: o.add(o.add(o.mul(g, of_g), o.mul(o.sub(x, m), of_x)), rest)
)


def is_vector(a: Any, n: int) -> bool:
    return a is None or (a.dtype in FLOAT_NP and a.size == n and a.flags.c_contiguous)


def standardized_rows(input: Any, params: dict[str, Any]) -> tuple[int, int] | None:
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


def _is_few(x: Any, params: dict[str, Any]) -> bool:
    """Whether plain loops are quicker than kernels by rows or channels."""
    return x.size < native.LEAST["row" if x.dtype in native.SCALARS else "half"] and not _by_channel(x, params)


def _standardize(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, weight, bias = arrays
    if _is_few(x, params):
        return small.standardize(x, weight, bias, params)
    if (
        x.dtype not in FLOAT_NP
        or not x.flags.c_contiguous
        or any(a is not None and a.dtype not in FLOAT_NP for a in (weight, bias))
    ):
        return None
    rows = standardized_rows(x, params)
    if rows is not None and is_vector(weight, rows[1]) and is_vector(bias, rows[1]):
        return _layer_norm(x, weight, bias, params, *rows)
    if _by_channel(x, params):
        return _batch_norm(x, weight, bias, params)
    return _standardize_any(x, weight, bias, params)


def _layer_norm(x: Any, weight: Any, bias: Any, params: dict[str, Any], rows: int, n: int) -> Any:
    modules = native.inductor()
    if modules is None:
        return None
    names = modules.lower.NP_TYPES
    given = [_type_of(weight), _type_of(bias)]
    builtin = native.kernel(
        ("layer_norm", x.dtype, *given),
        lambda: modules.rows.layer_norm(
            names[x.dtype], names[widened(x.dtype)], *[None if t is None else names[t] for t in given]
        ),
    )
    if builtin is None:
        return None
    shape = params["shape"]
    moments = tuple([1 if d in params["axes"] else n for d, n in enumerate(shape)])
    kind = widened(x.dtype)
    out, mean, var = np.empty(x.shape, x.dtype), np.empty(moments, kind), np.empty(moments, kind)
    builtin(out, mean, var, x, *[a for a in (weight, bias) if a is not None], params["eps"], row_work(rows, n))
    return out, mean, var


def _standardize_any(input: Any, weight: Any, bias: Any, params: dict[str, Any]) -> Any:
    """Moments over any axes (batch, group and instance normalisation): two reductions and one pass that writes."""
    kind, axes, affine = widened(input.dtype), params["axes"], params["affine"]
    x = input.reshape(params["shape"])
    mean = reduce("mean", [x], axes, True, kind)
    var = None if mean is None else reduce("apart_mean", [x, mean], axes, True, kind)
    if var is None:
        return None
    scale = 1 / np.sqrt(var + kind.type(params["eps"]))
    weight, bias = (None if a is None else a.reshape(affine) for a in (weight, bias))
    few = weight is None or math.prod(np.broadcast_shapes(scale.shape, weight.shape)) * _FEW <= x.size
    if few:
        operands = [x, mean, scale if weight is None else scale * weight.astype(kind, copy=False)]
    else:
        operands = [x, mean, scale, weight]
    operands += [] if bias is None else [bias]
    out = pointwise(_STANDARDIZE[few, bias is not None], operands, kind, input.dtype)
    return None if out is None else (out.reshape(input.shape), mean, var)


def _standardize_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, weight, mean, var = arrays
    if _is_few(x, params):
        return small.standardize_backward(g, x, weight, mean, var, params)
    kind = widened(x.dtype)
    if x.dtype not in FLOAT_NP or g.dtype is not x.dtype or mean.dtype is not kind or var.dtype is not kind:
        return None
    if not all(a.flags.c_contiguous for a in (g, x, mean, var)) or (weight is not None and weight.dtype not in FLOAT_NP):
        return None
    rows = standardized_rows(x, params)
    if rows is not None and is_vector(weight, rows[1]):
        return _rows_backward(g, x, weight, (mean, var), params["eps"], *rows)
    if _by_channel(x, params):
        return _batch_norm_backward(g, x, weight, mean, var, params)
    return _standardize_backward_any(g, x, weight, mean, var, params)


def _rows_backward(g: Any, x: Any, weight: Any, moments: tuple[Any, ...], eps: float, rows: int, n: int) -> Any:
    """The gradients of layer normalisation with respect to input, weight and bias; without moments, of RMS normalisation."""
    modules = native.inductor()
    if modules is None:
        return None
    names, kind, given = modules.lower.NP_TYPES, widened(x.dtype), _type_of(weight)
    builtin = native.kernel(
        ("norm_backward", x.dtype, given, bool(moments)),
        lambda: modules.rows.norm_backward(names[x.dtype], names[kind], None if given is None else names[given], bool(moments)),
    )
    if builtin is None:
        return None
    units = -(-rows // modules.rows.ROWS)
    work = native.remember(
        ("grouped rows", rows, n), lambda: np.array([units, max(1, 8192 // (n * modules.rows.ROWS)), n, rows], np.int64)
    )
    summed = [np.empty(n, kind) for _ in range(2 if moments else 1)]
    out, partial = np.empty(x.shape, x.dtype), np.empty(len(summed) * units * n, kind)
    builtin(out, *summed, partial, g, x, *moments, *([] if weight is None else [weight]), eps, work)
    shape = (n,) if weight is None else weight.shape
    return out, *[s.reshape(shape) for s in summed]


# ---- batch normalisation, by the batch's own statistics


def _by_channel(x: Any, params: dict[str, Any]) -> bool:
    """Whether these are statistics of float32 channels, enough of them for the threads, with rows of vectors and so few elements
    that adding them in float64 costs less than passes of their own."""
    shape, affine = params["shape"], params["affine"]
    return (
        x.dtype is _FLOAT32 and params["axes"] == (0, 2) and len(shape) == 3 and affine == (shape[1], 1)
        and shape[1] >= _CHANNELS and shape[2] >= _LANES and 0 < shape[0] * shape[2] <= _MOST
    )  # fmt: skip


def _channel_kernel(name: str) -> Any:
    def build() -> Any:
        from tocha.inductor.templates import batch_norm

        modules = native.inductor()
        assert modules is not None
        make = modules.entry.build_template
        if name == "batch_norm":
            return make(name, batch_norm.BUFFERS, batch_norm.SIZES, batch_norm.code())
        return make(name, batch_norm.BACKWARD_BUFFERS, batch_norm.SIZES, batch_norm.backward_code())

    return native.built((name,), build) if native.inductor() else None


def _channel_work(shape: tuple[int, ...]) -> Any:
    return native.remember(
        ("channels", shape), lambda: np.array([shape[1], max(1, 8192 // (shape[0] * shape[2])), *shape], np.int64)
    )


@functools.lru_cache(maxsize=64)
def _same(channels: int, value: float) -> Any:
    return np.full(channels, value, np.float32)


def _vector(a: Any, channels: int, value: float) -> Any:
    """A weight or bias as contiguous float32; `value` where there is none."""
    return _same(channels, value) if a is None else np.ascontiguousarray(a, np.float32)


def _batch_norm(x: Any, weight: Any, bias: Any, params: dict[str, Any]) -> Any:
    kernel, (_, c, _) = _channel_kernel("batch_norm"), params["shape"]
    if kernel is None:
        return None
    out, mean, var = np.empty(x.shape, _FLOAT32), np.empty((1, c, 1), _FLOAT32), np.empty((1, c, 1), _FLOAT32)
    kernel(
        out, mean, var, x, _vector(weight, c, 1.0), _vector(bias, c, 0.0), np.array([params["eps"]]), _channel_work(params["shape"])
    )
    return out, mean, var


def _batch_norm_backward(g: Any, x: Any, weight: Any, mean: Any, var: Any, params: dict[str, Any]) -> Any:
    kernel, (_, c, _) = _channel_kernel("batch_norm_backward"), params["shape"]
    if kernel is None:
        return None
    out, of_weight, of_bias = np.empty(x.shape, _FLOAT32), np.empty(c, _FLOAT32), np.empty(c, _FLOAT32)
    kernel(out, of_weight, of_bias, g, x, _vector(weight, c, 1.0), mean, var, np.array([params["eps"]]), _channel_work(params["shape"]))
    return out, of_weight, of_bias


def _period(few: tuple[int, ...], many: tuple[int, ...]) -> tuple[int, int] | None:
    """How often each element of shape `few`, broadcast to `many`, is repeated, and after how many elements all come again; None for other
    patterns."""
    apart = [d for d, n in enumerate(many) if n != 1 and few[d] == n]
    if not apart:
        return max(1, math.prod(many)), 1
    first, last = apart[0], apart[-1]
    run = many[first : last + 1]
    return (math.prod(many[last + 1 :]), math.prod(run)) if run == few[first : last + 1] else None


def _sums(g: Any, x: Any, mean: Any, scale: Any, dims: tuple[int, ...], factor: Any = None) -> tuple[Any, ...] | None:
    """Sums of g * (x - mean) * scale and of g over `dims`, or some of them: over the last in one pass, if those are long enough. The dimensions
    stay, of size 1. The pass also gives g * factor, if that is asked for and of mean's shape."""
    kind, last = widened(x.dtype), x.ndim
    while last and (last - 1 in dims or x.shape[last - 1] == 1):
        last -= 1
    kept, n = x.shape[:last], math.prod(x.shape[last:])
    modules = native.inductor()
    if not dims or modules is None:
        return None
    rows = None if n < _FEW or not x.flags.c_contiguous or not g.flags.c_contiguous else _period(mean.shape[:last], kept)
    if rows is None:
        wide = [np.broadcast_to(v, x.shape) for v in (mean, scale)]
        products = reduce("normal_sum", [g, x, *wide], dims, True, kind)
        grads = None if products is None else reduce("sum", [g], dims, True, kind)
        if grads is None or factor is None:
            return None if grads is None else (products, grads)
        scaled = pointwise(_TIMES, [g, factor], kind, x.dtype)
        return None if scaled is None else (products, grads, scaled)
    names, given = modules.lower.NP_TYPES, factor is not None
    builtin = native.kernel(("normal_sums", x.dtype, given), lambda: modules.rows.normal_sums(names[x.dtype], names[kind], given))
    if builtin is None:
        return None
    shape = (*kept, *[1] * (x.ndim - last))
    products, grads = np.empty(shape, kind), np.empty(shape, kind)
    work = native.remember(
        ("normal sums", shape, n, rows), lambda: np.array([math.prod(kept), max(1, 8192 // n), n, *rows], np.int64)
    )
    if not given:
        builtin(products, grads, g, x, mean, scale, work)
        return products, grads
    out = np.empty(x.shape, x.dtype)
    builtin(out, products, grads, g, x, mean, scale, factor, work)
    return products, grads, out


def _standardize_backward_any(grad: Any, input: Any, weight: Any, mean: Any, var: Any, params: dict[str, Any]) -> Any:
    """Two reductions over the dimensions that the moments and the affine parameters have in common; the rest of the sums are over their few
    results. Then one pass that writes."""
    kind, shape, axes, affine = widened(input.dtype), params["shape"], params["axes"], params["affine"]
    g, x = grad.reshape(shape), input.reshape(shape)
    scale = 1 / np.sqrt(var + kind.type(params["eps"]))
    lead = len(shape) - len(affine)
    summed = (*range(lead), *(lead + i for i, s in enumerate(affine) if s == 1 and shape[lead + i] != 1))
    shared = tuple([d for d in axes if d in summed and shape[d] != 1])
    sums = _sums(g, x, mean, scale, shared)
    if sums is None or sums[0].size * _FEW > x.size:
        return None
    products, grads = sums[:2]
    of_weight, of_bias = products.sum(summed, keepdims=True), grads.sum(summed, keepdims=True)
    factor = None if weight is None else weight.reshape((1,) * lead + affine)
    if factor is not None:
        products, grads = products * factor, grads * factor
    n = kind.type(x.size // max(1, mean.size))
    total, along = grads.sum(axes, keepdims=True) / n, products.sum(axes, keepdims=True) / n
    # (g * factor - normal * along - total) * scale, with as little as can be left to the pass
    operands = [g, x, mean, scale if factor is None else scale * factor, -scale * scale * along, -total * scale]
    out = pointwise(_SLOPE, operands, kind, input.dtype)
    flat = (of_weight.size,) if weight is None else weight.shape
    return None if out is None else (out.reshape(input.shape), of_weight.reshape(flat), of_bias.reshape(flat))


# ---- batch normalisation with given statistics


def _channels(x: Any, *vectors: Any) -> list[Any] | None:
    """Vectors with an element for each channel as arrays that broadcast to x, in the type computed with; None if they are no such vectors."""
    kind = widened(x.dtype)
    if (
        x.dtype not in FLOAT_NP
        or x.ndim < 2
        or any(v is not None and (v.dtype not in FLOAT_NP or v.shape != x.shape[1:2]) for v in vectors)
    ):
        return None
    return [None if v is None else v.astype(kind, copy=False).reshape(-1, *[1] * (x.ndim - 2)) for v in vectors]


def _batch_norm_given(arrays: list[Any], params: dict[str, Any]) -> Any:
    """x * scale + shift, both found for each channel beforehand."""
    x, *vectors = arrays
    found = _channels(x, *vectors)
    if found is None:
        return None
    weight, bias, mean, var = found
    kind = widened(x.dtype)
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(var + kind.type(params["eps"]))
        scale = scale if weight is None else scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
    return pointwise(_SCALED, [x, scale, shift], kind, x.dtype)


def _batch_norm_given_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, *vectors = arrays
    found = _channels(x, *vectors)
    if found is None or g.dtype is not x.dtype or g.shape != x.shape:
        return None
    weight, mean, var = found
    scale = 1 / np.sqrt(var + widened(x.dtype).type(params["eps"]))
    dims = (0, *range(2, x.ndim))
    sums = _sums(g, x, mean[None], scale[None], dims, (scale * weight)[None])
    return None if sums is None else (sums[2], sums[0].sum(dims), sums[1].sum(dims))


# ---- root mean square


def _rms_rows(x: Any, weight: Any, dims: int) -> tuple[int, int] | None:
    """Number and length of the rows to normalise; None if memory isn't so."""
    n = math.prod(x.shape[x.ndim - dims :])
    if x.dtype not in FLOAT_NP or not x.size or not x.flags.c_contiguous or not is_vector(weight, n):
        return None
    return x.size // n, n


def _rms_norm(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, weight = arrays
    rows = _rms_rows(x, weight, params["dims"])
    modules = native.inductor()
    if rows is None or modules is None:
        return None
    names, given = modules.lower.NP_TYPES, _type_of(weight)
    builtin = native.kernel(
        ("rms_norm", x.dtype, given),
        lambda: modules.rows.rms_norm(names[x.dtype], names[widened(x.dtype)], None if given is None else names[given]),
    )
    if builtin is None:
        return None
    out = np.empty(x.shape, x.dtype)
    builtin(out, x, *([] if weight is None else [weight]), params["eps"], row_work(*rows))
    return out


def _rms_norm_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, weight = arrays
    rows = _rms_rows(x, weight, params["dims"])
    if rows is None or g.dtype is not x.dtype or g.shape != x.shape or not g.flags.c_contiguous:
        return None
    found = _rows_backward(g, x, weight, (), params["eps"], *rows)
    return None if found is None else (found[0], found[1].reshape(x.shape[x.ndim - params["dims"] :]))


RUNS: dict[str, Run] = {
    "standardize": _standardize, "standardize_backward": _standardize_backward, "batch_norm_given": _batch_norm_given,
    "batch_norm_given_backward": _batch_norm_given_backward, "rms_norm": _rms_norm, "rms_norm_backward": _rms_norm_backward,
}  # fmt: skip
