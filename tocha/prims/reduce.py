"""Reductions over dimensions. `dim` is a tuple of non-negative dimensions, () meaning none.

Sums are the backend's (`xp.total`).
"""

from __future__ import annotations

import math
from typing import Any

from tocha.autograd.mode import state
from tocha.backends import cpu, namespace
from tocha.backends.meta import MetaArray
from tocha.dispatch.override import INTERPRETERS
from tocha.dispatch.prim import prim, view_of
from tocha.dtypes import HALF_NP
from tocha.prims.elementary import conj, keep
from tocha.prims.pointwise import pointwise
from tocha.prims.view import expand, view
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def reduced_shape(shape: Shape, dim: Shape, keepdim: bool) -> Shape:
    """The shape left after reducing `dim`."""
    if keepdim:
        return tuple(1 if i in dim else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dim)


def count(shape: Shape, dim: Shape) -> int:
    """How many elements are reduced into one."""
    return math.prod([shape[i] for i in dim])


def unsqueezed(g: Any, shape: Shape, dim: Shape, keepdim: bool) -> Any:
    """A reduction's result or gradient with the reduced dimensions back, of size 1."""
    return g if keepdim or not dim else view(g, shape=reduced_shape(shape, dim, True))


def spread(g: Any, shape: Shape, dim: Shape, keepdim: bool) -> Any:
    """Undo the shape of a reduction: g with the reduced dimensions back, expanded to `shape`."""
    if (
        g.__class__ is not Tensor
        or g._a.__class__ is not cpu.Array
        or INTERPRETERS
        or (g._rg and state.grad)
        or not g._a.size
        or 1 in [shape[d] for d in dim]
    ):
        return expand(unsqueezed(g, shape, dim, keepdim), shape=shape)
    steps = iter(g._a.strides)
    if keepdim:
        strides = tuple([0 if d in dim else s for d, s in enumerate(steps)])
    else:
        strides = tuple([0 if d in dim else next(steps) for d in range(len(shape))])
    seen = cpu.restride(g._a, shape, strides)  # both views at once
    if not keepdim and dim:
        return view_of(g, seen, view, {"shape": reduced_shape(shape, dim, True)}, then=(expand, {"shape": shape}))
    return view_of(g, seen, expand, {"shape": shape})


def _infer(input: Any, *, dim: Shape, keepdim: bool) -> MetaArray:
    return MetaArray(reduced_shape(input.shape, dim, keepdim), input.dtype)


def _infer_bool(input: Any, *, dim: Shape, keepdim: bool) -> MetaArray:
    return MetaArray(reduced_shape(input.shape, dim, keepdim), "bool")


# ---- sum and mean


@prim("sum", "reduce", vjp=lambda g, input_shape, *, dim, keepdim: spread(g, input_shape, dim, keepdim), infer=_infer)
def sum_(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    got = xp.total(input, dim, keepdim)
    return got if got.flags.c_contiguous else got.copy()  # by itself, as `in_rows` would take the time of a call


@prim("mean", "reduce", infer=_infer,
      vjp=lambda g, input_shape, *, dim, keepdim: spread(g / count(input_shape, dim), input_shape, dim, keepdim))  # fmt: skip
def mean(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.div(sum_.impl(xp, input, dim=dim, keepdim=keepdim), input.dtype.type(count(input.shape, dim)))


# ---- product


def some_hold(condition: Any) -> bool | None:
    """Whether a condition holds anywhere; None where that isn't known, as in a graph that is being traced."""
    any_of = condition.any()
    return namespace(any_of._a).truth(any_of)


def _prod_vjp(g: Any, input: Any, out: Any, *, dim: Shape, keepdim: bool) -> Any:
    """g times the product of the other factors. Dividing by a factor of 0 is no way to get it, nor would it
    differentiate again, so then products of what comes before and after are used."""
    from tocha.autograd.mode import is_grad_enabled

    g, out = unsqueezed(g, input.shape, dim, keepdim), unsqueezed(out, input.shape, dim, keepdim)
    zeros = input == 0
    if some_hold(zeros) is False:
        return g * conj(out / input)
    return _products_of_others(g, input, dim) if is_grad_enabled() or g.is_complex() else _one_zero(g, input, zeros, dim)


def _one_zero(g: Any, input: Any, zeros: Any, dim: Shape) -> Any:
    """Without a zero the rest's product over each factor, with one only that factor has a gradient, with two none."""
    filled = input.masked_fill(zeros, 1)
    product = prod(filled, dim=dim, keepdim=True)
    number = zeros.to(input.dtype).sum(dim, True)
    return keep(g * product / filled, (number == 0) | ((number == 1) & zeros))


def _products_of_others(g: Any, input: Any, dim: Shape) -> Any:
    rest = tuple(i for i in range(input.ndim) if i not in dim)
    order = rest + dim
    moved = input.permute(order)
    rows = moved.reshape(*moved.shape[: len(rest)], -1)
    one = rows.new_ones((*rows.shape[:-1], 1))
    before = _joined(one, rows.narrow(-1, 0, rows.shape[-1] - 1)).cumprod(-1)
    after = _joined(one, rows.flip(-1).narrow(-1, 0, rows.shape[-1] - 1)).cumprod(-1).flip(-1)
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d] = i
    return g * conj((before * after).reshape(moved.shape).permute(inverse))


def _joined(a: Any, b: Any) -> Any:
    from tocha.prims.move import cat

    return cat(a, b, dim=a.ndim - 1)


@prim("prod", "reduce", vjp=_prod_vjp, infer=_infer)
def prod(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.reduce_mul(input, axis=dim, keepdims=keepdim, dtype=input.dtype)


# ---- extremes


def _same(o: Any, x: Any, y: Any) -> Any:
    """Whether equal, or both NaN."""
    return o.logical_or(o.eq(x, y), o.logical_and(o.ne(x, x), o.ne(y, y)))


_at_extreme = pointwise("at_extreme", _same, output="bool", spell="", refuse=("complex",))
_keep_extreme = pointwise(
    "keep_extreme", lambda o, g, x, y: o.where(_same(o, x, y), g, 0), spell="", refuse=("complex",),
    vjp=(lambda g, x, y: _keep_extreme(g, x, y), None, None),
)  # fmt: skip


def _tied(g: Any, input: Any, out: Any, *, dim: Shape, keepdim: bool) -> Any:
    """The gradient in equal parts to all elements equal to the extreme (to all NaN ones if that is NaN)."""
    g, out = unsqueezed(g, input.shape, dim, keepdim), unsqueezed(out, input.shape, dim, keepdim)
    if dim:
        count = unsqueezed(count_nonzero(_at_extreme(input, out), dim=dim), input.shape, dim, False)
        g = (g.float() / count).to(g.dtype) if g._a.dtype in HALF_NP else g / count  # half types don't hold large counts
    return _keep_extreme(g, input, out)


@prim("amax", "reduce", vjp=_tied, infer=_infer)
def amax(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.reduce_max(input, axis=dim, keepdims=keepdim)


@prim("amin", "reduce", vjp=_tied, infer=_infer)
def amin(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.reduce_min(input, axis=dim, keepdims=keepdim)


def place(g: Any, indices: Any, shape: Shape, dim: int, keepdim: bool) -> Any:
    """g at the picked indices of one dimension, 0 elsewhere."""
    if not shape:
        return g.reshape(shape)
    if not keepdim:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    if g.shape[dim] == 1:
        return place_one(g, indices, shape=shape, dim=dim % len(shape))
    return g.new_zeros(shape).scatter(dim, indices, g)


@prim("place_one", "reduce", half="native", infer=lambda g, indices, *, shape, dim: MetaArray(shape, g.dtype),
      vjp=(lambda h, indices, *, dim: h.gather(dim, indices), None))  # fmt: skip
def place_one(xp: Any, g: Any, indices: Any, *, shape: Shape, dim: int) -> Any:
    """g at indices along `dim` of an array of `shape`, 0 elsewhere; g and the indices have size 1 along `dim`."""
    out = xp.zeros(shape, g.dtype)
    xp.put_along_axis(out, indices, g, axis=dim)
    return out


def _picked_vjp(g: Any, input_shape: Shape, indices: Any, *, dim: int, keepdim: bool) -> Any:
    return None if g[0] is None else place(g[0], indices, input_shape, dim, keepdim)


def _infer_picked(input: Any, *, dim: int, keepdim: bool, **unused: Any) -> tuple[MetaArray, MetaArray]:
    shape = reduced_shape(input.shape, (dim,), keepdim) if input.shape else ()
    return MetaArray(shape, input.dtype), MetaArray(shape, "int64")


def take(xp: Any, x: Any, indices: Any, dim: int) -> Any:
    """`take_along_axis` with indices that kept the dimension; by flat positions where memory allows."""
    if x.ndim == 1:
        return x.take(indices)
    if dim in (x.ndim - 1, -1) and x.size and x.flags.c_contiguous:
        rows = xp.arange(0, x.size, x.shape[-1]).reshape(x.shape[:-1] + (1,))
        return x.reshape(-1).take(rows + indices)
    return xp.take_along_axis(x, indices, dim)


def _extreme(xp: Any, input: Any, dim: int, keepdim: bool, values: Any, arg: Any) -> Any:
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    return values(input, axis=dim, keepdims=keepdim), arg(axis=dim, keepdims=keepdim)


@prim("max_dim", "reduce", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def max_dim(xp: Any, input: Any, *, dim: int, keepdim: bool) -> Any:
    """The largest values along a dimension and the first index of each; NaN counts as largest."""
    return _extreme(xp, input, dim, keepdim, xp.reduce_max, input.argmax)


@prim("min_dim", "reduce", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def min_dim(xp: Any, input: Any, *, dim: int, keepdim: bool) -> Any:
    """The smallest values along a dimension and the first index of each; NaN counts as smallest."""
    return _extreme(xp, input, dim, keepdim, xp.reduce_min, input.argmin)


def _infer_arg(input: Any, *, dim: int | None, keepdim: bool) -> MetaArray:
    dims = tuple(range(len(input.shape))) if dim is None else (dim,)
    return MetaArray(reduced_shape(input.shape, dims, keepdim) if input.shape else (), "int64")


@prim("argmax", "reduce", infer=_infer_arg)
def argmax(xp: Any, input: Any, *, dim: int | None, keepdim: bool) -> Any:
    return input.argmax(axis=dim, keepdims=keepdim) if input.shape else xp.zeros((), "int64")


@prim("argmin", "reduce", infer=_infer_arg)
def argmin(xp: Any, input: Any, *, dim: int | None, keepdim: bool) -> Any:
    return input.argmin(axis=dim, keepdims=keepdim) if input.shape else xp.zeros((), "int64")


# ---- logic and counts


@prim("any", "reduce", infer=_infer_bool)
def any_(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.reduce_or(input if input.dtype.kind == "b" else xp.ne(input, 0), axis=dim, keepdims=keepdim)


@prim("all", "reduce", infer=_infer_bool)
def all_(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    return xp.reduce_and(input if input.dtype.kind == "b" else xp.ne(input, 0), axis=dim, keepdims=keepdim)


@prim("count_nonzero", "reduce", infer=lambda input, *, dim: MetaArray(reduced_shape(input.shape, dim, False), "int64"))
def count_nonzero(xp: Any, input: Any, *, dim: Shape) -> Any:
    return xp.reduce_add(xp.ne(input, 0), axis=dim, keepdims=False, dtype=xp.dtype("int64"))


@prim("equal", "reduce", infer=lambda input, other: MetaArray((), "bool"))
def equal(xp: Any, input: Any, other: Any) -> Any:
    """Whether all elements of two arrays of one shape agree."""
    return xp.reduce_and(xp.eq(input, other), axis=None)


# ---- variance


def _infer_real(input: Any, *, dim: Shape, keepdim: bool, correction: float = 0, ord: float = 0) -> MetaArray:
    dtype = input.dtype if input.dtype.kind != "c" else f"f{input.dtype.itemsize // 2}"
    return MetaArray(reduced_shape(input.shape, dim, keepdim), dtype)


def _centred(g: Any, input: Any, dim: Shape, keepdim: bool, correction: float) -> Any:
    """The gradient of var: 2 g (x - mean) / (n - correction)."""
    factor = _inverse(count(input.shape, dim) - correction) * 2
    return centred_product(unsqueezed(g, input.shape, dim, keepdim), input, mean(input, dim=dim, keepdim=True), factor=factor)


centred_product = pointwise(
    "centred_product", lambda o, g, x, m, *, factor: o.mul(o.mul(g, o.sub(x, m)), factor), spell="",
    vjp=(
        lambda h, x, m, *, factor: h * conj((x - m) * factor), lambda h, g, *, factor: h * conj(g * factor),
        lambda h, g, *, factor: -h * conj(g * factor),
    ),
)  # fmt: skip


def _inverse(n: float) -> float:
    return 1 / n if n else float("inf")


def _variance(xp: Any, input: Any, dim: Shape, keepdim: bool, correction: float) -> Any:
    """In two passes, so that a large mean costs no digits."""
    n = count(input.shape, dim)
    apart = xp.sub(input, xp.div(xp.total(input, dim, True), n))
    squares = xp.mul(apart, apart) if input.dtype.kind != "c" else xp.add(xp.square(apart.real), xp.square(apart.imag))
    return xp.div(xp.total(squares, dim, keepdim), max(n - correction, 0))


def _deviation(xp: Any, input: Any, dim: Shape, keepdim: bool, correction: float) -> Any:
    return xp.sqrt(_variance(xp, input, dim, keepdim, correction))


@prim("var", "reduce", infer=_infer_real,
      vjp=lambda g, input, *, dim, keepdim, correction: _centred(g, input, dim, keepdim, correction))  # fmt: skip
def var(xp: Any, input: Any, *, dim: Shape, keepdim: bool, correction: float) -> Any:
    return _variance(xp, input, dim, keepdim, correction)


def _std_vjp(g: Any, input: Any, out: Any, *, dim: Shape, keepdim: bool, correction: float) -> Any:
    return _centred(keep(g / (2 * out), out != 0), input, dim, keepdim, correction)


@prim("std", "reduce", infer=_infer_real, vjp=_std_vjp)
def std(xp: Any, input: Any, *, dim: Shape, keepdim: bool, correction: float) -> Any:
    return xp.keeping_range(_deviation, input, dim, keepdim, correction)


# ---- norms


def _norm_vjp(g: Any, input: Any, out: Any, *, ord: float, dim: Shape, keepdim: bool) -> Any:
    """Source: torch docs and the formula d|x|_p = sgn(x) |x|^(p-1) |x|_p^(1-p), with subgradient 0 at the zero vector."""
    g, out = unsqueezed(g, input.shape, dim, keepdim), unsqueezed(out, input.shape, dim, keepdim)
    if ord == 0:
        return [None]
    if ord == 1:
        return g * input.sgn()
    if ord == 2:
        return input * keep(g / out, out != 0)
    size = input.abs()
    if ord in (float("inf"), float("-inf")):
        reached = (size == out) | (size.isnan() & out.isnan())
        return input.sgn() * keep(g / reached.sum(dim, True) if dim else g, reached)
    if ord < 1:
        return input.sgn() * keep(size ** (ord - 1), input != 0) * g * keep(out ** (1 - ord), out != 0)
    if ord < 2:
        return input.sgn() * size ** (ord - 1) * keep(g / out ** (ord - 1), out != 0)
    return input * size ** (ord - 2) * keep(g / out ** (ord - 1), out != 0)


@prim("vector_norm", "reduce", vjp=_norm_vjp, infer=_infer_real)
def vector_norm(xp: Any, input: Any, *, ord: float, dim: Shape, keepdim: bool) -> Any:
    """The norm of the vectors that `dim` make up: ord 0 counts non-zeros, ±inf are extremes of |x|."""
    if ord == 0:
        return xp.total(xp.ne(input, 0).astype(input.real.dtype), dim, keepdim)
    if ord == 2 and input.dtype.kind == "f":
        return xp.sqrt(xp.total(xp.mul(input, input), dim, keepdim))
    size = xp.abs(input)
    if ord == float("inf"):
        return xp.reduce_max(size, axis=dim, keepdims=keepdim) if count(size.shape, dim) else xp.total(size, dim, keepdim)
    if ord == float("-inf"):
        return xp.reduce_min(size, axis=dim, keepdims=keepdim)
    if ord == 1:
        return xp.total(size, dim, keepdim)
    if ord == 2:
        return xp.sqrt(xp.total(xp.mul(size, size), dim, keepdim))
    kind = size.dtype.type
    return xp.pow(xp.total(xp.pow(size, kind(ord)), dim, keepdim), kind(1 / ord))


# ---- log of a sum of exponentials


@prim("logsumexp", "reduce", infer=_infer,
      vjp=lambda g, input, out, *, dim, keepdim: unsqueezed(g, input.shape, dim, keepdim)
      * conj((input - unsqueezed(out, input.shape, dim, keepdim)).exp()))  # fmt: skip
def logsumexp(xp: Any, input: Any, *, dim: Shape, keepdim: bool) -> Any:
    """log(sum(exp(x))) without overflow; infinities come out as they should."""
    if not count(input.shape, dim):
        return xp.log(xp.total(input, dim, keepdim))
    top = xp.reduce_max(input.real, axis=dim, keepdims=True)
    top = xp.where(xp.isinf(top), top.dtype.type(0), top)
    found = xp.log(xp.total(xp.exp(xp.sub(input, top)), dim, keepdim))
    return xp.add(found, top if keepdim else top.reshape(reduced_shape(input.shape, dim, False)))
