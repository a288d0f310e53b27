"""Order: sort, the k largest, medians, modes. NaN counts as the largest value throughout, as in torch."""

from __future__ import annotations

import math
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.reduce import _infer_picked, _picked_vjp, place, take


def _sort_vjp(g: Any, input_shape: Any, indices: Any, *, dim: int) -> Any:
    return None if g[0] is None else place(g[0], indices, input_shape, dim, True)


def _infer_sort(input: Any, *, dim: int, **unused: Any) -> tuple[MetaArray, MetaArray]:
    return MetaArray(input.shape, input.dtype), MetaArray(input.shape, "int64")


def order(xp: Any, x: Any, dim: int, descending: bool) -> Any:
    """Indices that sort, equal elements in their old order."""
    if not descending:
        return xp.argsort(x, axis=dim, kind="stable")
    # The reversed array's ascending order, reversed again: largest first, with ties in their old order.
    n = x.shape[dim]
    back = (slice(None),) * dim + (slice(None, None, -1),)
    return n - 1 - xp.argsort(x[back], axis=dim, kind="stable")[back]


@prim("sort", "sort", vjp=_sort_vjp, outputs=("values", "indices"), infer=_infer_sort)
def sort(xp: Any, input: Any, *, dim: int, descending: bool) -> Any:
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    indices = order(xp, input, dim, descending)
    return take(xp, input, indices, dim), indices


@prim("argsort", "sort", infer=lambda input, *, dim, descending: MetaArray(input.shape, "int64"))
def argsort(xp: Any, input: Any, *, dim: int, descending: bool) -> Any:
    return order(xp, input, dim, descending) if input.shape else xp.zeros((), "int64")


_FEW = 64  # elements that are sorted in less time than some are chosen


def _infer_topk(input: Any, *, k: int, dim: int, **unused: Any) -> tuple[MetaArray, MetaArray]:
    shape = (*input.shape[:dim], k, *input.shape[dim + 1 :]) if input.shape else ()
    return MetaArray(shape, input.dtype), MetaArray(shape, "int64")


@prim("topk", "sort", vjp=_sort_vjp, outputs=("values", "indices"), infer=_infer_topk)
def topk(xp: Any, input: Any, *, k: int, dim: int, largest: bool) -> Any:
    """The k largest (or smallest) in order."""
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    n = input.shape[dim]
    lead = (slice(None),) * dim
    if 0 < k < n // 2 and n > _FEW:  # choose first, sort only the chosen
        chosen = xp.extreme_places(input, k, dim, largest)
        values = take(xp, input, chosen, dim)
        within = order(xp, values, dim, largest)
        return take(xp, values, within, dim), take(xp, chosen, within, dim)
    indices = order(xp, input, dim, largest)[(*lead, slice(0, k))]
    indices = indices if k == n else indices.copy()  # not all of the order is kept for a part
    return take(xp, input, indices, dim), indices


def _pick(xp: Any, input: Any, indices: Any, dim: int, keepdim: bool) -> Any:
    """Values and int64 indices from indices that kept the dimension."""
    values = take(xp, input, indices, dim)
    indices = indices.astype("int64", copy=False)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@prim("kthvalue", "sort", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def kthvalue(xp: Any, input: Any, *, k: int, dim: int, keepdim: bool) -> Any:
    """The k-th smallest, k from 1."""
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    lead = (slice(None),) * dim
    found = xp.argpartition(input, k - 1, axis=dim)[(*lead, slice(k - 1, k))].copy()
    return _pick(xp, input, found, dim, keepdim)


def _ranked(xp: Any, x: Any, k: int, dim: int) -> Any:
    """Index, along a dimension which it keeps, of the element at place k of a stable sort; of what has no NaN."""
    value = xp.partition(x, k, axis=dim)[(slice(None),) * dim + (slice(k, k + 1),)]
    equal = x == value
    rank = k - (x < value).sum(axis=dim, keepdims=True)  # among its equals
    return (xp.cumsum(equal, axis=dim) > rank if rank.any() else equal).argmax(axis=dim, keepdims=True)


def _middle(xp: Any, input: Any, dim: int, ignore_nan: bool) -> Any:
    """Index of the lower median along a dimension, which it keeps; a NaN, if any, unless ignored."""
    n = input.shape[dim]
    missing = xp.isnan(input) if input.dtype.kind == "f" else None
    if input.size and (missing is None or not missing.any()):
        return _ranked(xp, input, (n - 1) // 2, dim)
    ranked = order(xp, input, dim, False)
    if missing is None:
        return ranked[(slice(None),) * dim + (slice((n - 1) // 2, (n - 1) // 2 + 1),)]
    known = n - missing.sum(axis=dim, keepdims=True)
    at = xp.maximum(known - 1, 0) // 2 if ignore_nan else xp.where(known < n, known, (n - 1) // 2)
    return xp.take_along_axis(ranked, at, dim)


@prim("median_dim", "sort", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def median_dim(xp: Any, input: Any, *, dim: int, keepdim: bool) -> Any:
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    return _pick(xp, input, _middle(xp, input, dim, False), dim, keepdim)


@prim("nanmedian_dim", "sort", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def nanmedian_dim(xp: Any, input: Any, *, dim: int, keepdim: bool) -> Any:
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    return _pick(xp, input, _middle(xp, input, dim, True), dim, keepdim)


def _equal_share(g: Any, input: Any, out: Any) -> Any:
    from tocha.prims.reduce import _tied

    return _tied(g, input, out, dim=tuple(range(input.ndim)), keepdim=False)


@prim("median", "sort", vjp=_equal_share, infer=lambda input: MetaArray((), input.dtype))
def median(xp: Any, input: Any) -> Any:
    """The lower median of all elements; NaN if any is, or if there are none."""
    flat = input.reshape(-1)
    if not flat.size or (input.dtype.kind == "f" and xp.isnan(flat).any()):
        return xp.full((), float("nan"), input.dtype)
    k = (flat.size - 1) // 2
    return xp.partition(flat, k)[k]


@prim("nanmedian", "sort", vjp=_equal_share, infer=lambda input: MetaArray((), input.dtype))
def nanmedian(xp: Any, input: Any) -> Any:
    """The lower median of the elements that aren't NaN."""
    flat = input.reshape(-1)
    return take(xp, flat, _middle(xp, flat, 0, True), 0)[0] if flat.size else xp.full((), float("nan"), input.dtype)


@prim("mode", "sort", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def mode(xp: Any, input: Any, *, dim: int, keepdim: bool) -> Any:
    """The most frequent value, the smallest of equally frequent ones, and its last index."""
    if not input.shape:
        return input.copy(), xp.zeros((), "int64")
    x = xp.moveaxis(input, dim, -1)
    indices = order(xp, x, -1, False)
    ranked = take(xp, x, indices, -1)
    n = x.shape[-1]
    places = xp.arange(n)
    starts = xp.ones(ranked.shape, bool)
    starts[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    begun = xp.scan("maximum", xp.where(starts, places, 0), -1)
    best = xp.argmax(places - begun, axis=-1)[..., None]  # the longest run's end: runs' lengths are reached there first
    found = xp.moveaxis(take(xp, indices, best, -1), -1, dim)
    return _pick(xp, input, found, dim, keepdim)


# ---- distinct values


def unique_rows(xp: Any, rows: Any, consecutive: bool) -> tuple[Any, Any, Any]:
    """Distinct rows of a 2-d array, each row's number among them, and how many of each. Sorted unless `consecutive`,
    where only neighbours are compared. NaN differs from itself."""
    n, width = rows.shape
    if consecutive or not width:
        ranked = xp.arange(n)
    elif width == 1:
        ranked = xp.argsort(rows[:, 0], kind="stable")
    else:
        ranked = xp.lexsort(rows[:, ::-1].T)  # the last key counts first
    ordered = rows[ranked]
    new = xp.ones(n, bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = xp.cumsum(new) - 1
    inverse = xp.empty(n, "int64")
    inverse[ranked] = number
    starts = xp.flatnonzero(new)
    counts = xp.diff(xp.concatenate([starts, xp.asarray([n], dtype=starts.dtype)])).astype("int64")
    return ordered[new], inverse, counts


def _searchable(xp: Any, flat: Any) -> bool:
    """Whether equal elements look alike: neither NaN nor zeros of both signs."""
    return flat.dtype.kind in "iu" or (flat.dtype.kind == "f" and not bool((xp.isnan(flat) | (flat == 0)).any()))


@prim("unique", "sort", outputs=("values", "inverse", "counts"), tags=("dynamic",))
def unique(xp: Any, input: Any, *, dim: int | None, consecutive: bool, inverse: bool) -> Any:
    """Distinct elements, or slices along `dim`. Without `inverse`, which takes sorting indices, the second result is empty."""
    flat = input.reshape(-1)
    if dim is None and not consecutive and (not inverse or (flat.size and _searchable(xp, flat))):
        values, _, counts = unique_rows(xp, xp.sort(flat).reshape(-1, 1), True)
        if not inverse:
            return values[:, 0], xp.zeros(0, "int64"), counts
        return values[:, 0], xp.searchsorted(values[:, 0], flat).astype("int64", copy=False).reshape(input.shape), counts
    if dim is None:
        values, number, counts = unique_rows(xp, input.reshape(-1, 1), consecutive)
        return values[:, 0], number.reshape(input.shape), counts
    moved = xp.moveaxis(input, dim, 0)
    width = moved.size // moved.shape[0] if moved.shape[0] else 0
    values, number, counts = unique_rows(xp, moved.reshape(moved.shape[0], width), consecutive)
    return xp.moveaxis(values.reshape(values.shape[0], *moved.shape[1:]), 0, dim), number, counts


# ---- counting in bins


@prim("searchsorted", "sort", infer=lambda edges, values, *, right: MetaArray(values.shape, "int64"))
def searchsorted(xp: Any, edges: Any, values: Any, *, right: bool) -> Any:
    """Where values go in sorted edges: 1-d ones, or one row of edges for each row of values."""
    side = "right" if right else "left"
    if edges.ndim == 1:
        return xp.asarray(xp.searchsorted(edges, values, side=side)).astype("int64", copy=False)
    out = xp.empty(values.shape, "int64")
    flat_edges, flat_values = edges.reshape(-1, edges.shape[-1]), values.reshape(-1, values.shape[-1])
    flat = out.reshape(flat_values.shape)
    for i in range(flat_edges.shape[0]):
        flat[i] = xp.searchsorted(flat_edges[i], flat_values[i], side=side)
    return out


@prim("bincount", "sort", tags=("dynamic",))
def bincount(xp: Any, input: Any, weights: Any, *, minlength: int) -> Any:
    return xp.bincount(input, weights, minlength)


@prim("histogram", "sort", outputs=("counts",))
def histogram(xp: Any, input: Any, weight: Any, *edges: Any) -> Any:
    """Weights (rows count 1 without) summed in the cells that edges of each column make; the last edge is inside."""
    shape = tuple(e.shape[0] - 1 for e in edges)
    inside = xp.ones(input.shape[0], bool)
    cell = xp.zeros(input.shape[0], "int64")
    for i, e in enumerate(edges):
        x = input[:, i]
        inside &= (x >= e[0]) & (x <= e[-1])
        cell = cell * shape[i] + xp.clip(xp.searchsorted(e, x, side="right") - 1, 0, shape[i] - 1)
    total = math.prod(shape)
    counts = xp.bincount(cell[inside], None if weight is None else weight[inside], total)
    return counts.reshape(shape).astype(input.dtype)


@prim("isin", "sort", infer=lambda elements, test: MetaArray(elements.shape, "bool"))
def isin(xp: Any, elements: Any, test: Any) -> Any:
    return xp.isin(elements, test)
