"""Normalisation of few elements (layer, group, batch and instance normalisation) and its gradients: each one native call of plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.backends import native

Shape = tuple[int, ...]
_FLOAT64 = np.dtype(np.float64)
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
    """The moments' shape and the numbers that the templates' `SIZES` name behind units and grain; None for another pattern of axes."""
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


def _builtin(kind: str, x: Any, weight: Any, bias: Any) -> Any:
    """The builtin of a call on dense arrays of one type, with or without weight and bias; None where there is none."""
    modules = native.inductor()
    given = weight is not None, bias is not None
    if modules is None or x.dtype not in native.SCALARS or not x.size or not x.flags.c_contiguous:
        return None
    for a in (weight, bias):
        if a is not None and (a.dtype is not x.dtype or not a.flags.c_contiguous):
            return None

    def build() -> Any:
        from tocha.inductor.templates import few_norms as norms

        code = norms.code(kind, native.SCALARS[x.dtype], x.itemsize, *given)
        return modules.entry.build_template(f"norm_{kind}", norms.BUFFERS[kind], norms.SIZES, code, short_loops=True, params=norms.PARAMS)

    return native.built(("small norm", kind, x.dtype, *given), build)
