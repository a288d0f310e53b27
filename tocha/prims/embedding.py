"""Rows of a table by index, and the sum of gradients back into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.dtypes import HALF, HALF_NP

Shape = tuple[int, ...]


def add_rows(xp: Any, out: Any, indices: Any, rows: Any) -> None:
    """out[indices[i]] += rows[i], repeated indices summed (without a kernel sorted and added by runs)."""
    if not indices.size or xp.add_rows(out, indices, rows):
        return
    order = xp.argsort(indices, kind="stable")
    found = indices[order]
    first = xp.ones(found.shape, bool)
    first[1:] = found[1:] != found[:-1]
    starts = xp.flatnonzero(first)
    if len(starts) == len(found):
        out[indices] += rows
    else:
        out[found[starts]] += xp.reduce_runs(rows[order], starts)


def _embedding_vjp(g: Any, weight_shape: Shape, indices: Any, *, padding_idx: int, by_frequency: bool) -> Any:
    return embedding_backward(g, indices, rows=weight_shape[0], padding_idx=padding_idx, by_frequency=by_frequency), None


@prim(
    "embedding", "index", vjp=_embedding_vjp, half="native",
    infer=lambda weight, indices, **params: MetaArray((*indices.shape, *weight.shape[1:]), weight.dtype),
)  # fmt: skip
def embedding(xp: Any, weight: Any, indices: Any, *, padding_idx: int, by_frequency: bool) -> Any:
    """weight[indices]; `padding_idx` and `by_frequency` concern the gradient."""
    return xp.take(weight, indices, axis=0)


def _backward_vjp(h: Any, indices: Any, *, padding_idx: int, by_frequency: bool) -> Any:
    scale = frequency_scale(h, indices, padding_idx=padding_idx, by_frequency=by_frequency)
    return embedding(h, indices, padding_idx=-1, by_frequency=False) * scale, None


@prim(
    "embedding_backward", "index", vjp=_backward_vjp,
    infer=lambda g, indices, *, rows, **params: MetaArray((rows, g.shape[-1]), g.dtype),
)  # fmt: skip
def embedding_backward(xp: Any, g: Any, indices: Any, *, rows: int, padding_idx: int, by_frequency: bool) -> Any:
    """Zeros (rows, D) with each g row added at its index, none at padding_idx, divided by the index's count if `by_frequency`."""
    out = xp.zeros((rows, g.shape[-1]), g.dtype)
    flat, values = indices.reshape(-1), g.reshape(-1, g.shape[-1])
    add_rows(xp, out, flat, values)
    if by_frequency and flat.size:
        out /= xp.maximum(xp.bincount(flat, minlength=rows), 1).astype(g.dtype)[:, None]
    if padding_idx >= 0:
        out[padding_idx] = 0
    return out


@prim("frequency_scale", "index", infer=lambda h, indices, **params: MetaArray((*indices.shape, 1), h.dtype))
def frequency_scale(xp: Any, h: Any, indices: Any, *, padding_idx: int, by_frequency: bool) -> Any:
    """The factor that embedding_backward gives each row."""
    scale = xp.ones(indices.shape, h.dtype)
    if by_frequency and indices.size:
        scale /= xp.bincount(indices.reshape(-1), minlength=h.shape[0])[indices].astype(h.dtype)
    if padding_idx >= 0:
        scale[indices == padding_idx] = 0
    return scale[..., None]


@prim("bag_numbers", "index", half="native", infer=lambda indices, starts, *, padding_idx: MetaArray(indices.shape, np.int64))
def bag_numbers(xp: Any, indices: Any, starts: Any, *, padding_idx: int) -> Any:
    """The bag of each index, where bag b has those from starts[b] to before starts[b + 1]; -1 for padding and after the last bag."""
    bags = xp.searchsorted(starts, xp.arange(indices.shape[0]), side="right") - 1
    bags[(indices == padding_idx) | (bags == starts.shape[0] - 1)] = -1
    return bags


def _bag_rows(g: Any, indices: Any, starts: Any, padding_idx: int, mean: bool) -> tuple[Any, Any]:
    """For every index the gradient of its bag, and 1 where it counted."""
    g = g.float() if g.dtype in HALF else g
    bags = bag_numbers(indices, starts, padding_idx=padding_idx)
    used = (bags >= 0).to(g.dtype)
    at = bags.clamp(min=0)
    if mean:
        sizes = g.new_zeros(g.shape[0]).index_add(0, at, used).clamp(min=1)
        g = g / sizes.unsqueeze(1)
    return g.index_select(0, at), used


def _bag_weight(
    g: Any, weight_shape: Shape, indices: Any, starts: Any, factors: Any, *, padding_idx: int, mean: bool, by_frequency: bool
) -> Any:
    rows, used = _bag_rows(g, indices, starts, padding_idx, mean)
    scaled = rows * (used if factors is None else used * factors).unsqueeze(1)
    return embedding_backward(scaled, indices, rows=weight_shape[0], padding_idx=-1, by_frequency=by_frequency).to(g.dtype)


def _bag_factors(g: Any, weight: Any, indices: Any, starts: Any, *, padding_idx: int, mean: bool) -> Any:
    rows, used = _bag_rows(g, indices, starts, padding_idx, mean)
    return ((rows * embedding(weight, indices, padding_idx=-1, by_frequency=False)).sum(1) * used).to(g.dtype)


def _bag_infer(weight: Any, indices: Any, starts: Any, factors: Any, **params: Any) -> MetaArray:
    return MetaArray((starts.shape[0] - 1, weight.shape[1]), weight.dtype)


@prim("bag_sum", "index", vjp=(_bag_weight, None, None, _bag_factors), infer=_bag_infer, half="native")
def bag_sum(
    xp: Any, weight: Any, indices: Any, starts: Any, factors: Any, *, padding_idx: int, mean: bool, by_frequency: bool
) -> Any:
    """Sums (or means) of the rows weight[indices[i]], times factors[i] where given, over the bags from starts[b] to before starts[b + 1];
    padding is left out. `by_frequency` concerns the gradient."""
    count, bags = starts.shape[0] - 1, bag_numbers.impl(xp, indices, starts, padding_idx=padding_idx)
    kept = bags >= 0
    if not kept.all():
        indices, bags, factors = (None if a is None else a[kept] for a in (indices, bags, factors))
    wide = np.dtype(np.float32) if weight.dtype in HALF_NP else weight.dtype
    out = xp.zeros((count, weight.shape[1]), wide)
    rows = xp.take(weight, indices, axis=0).astype(wide, copy=False)
    add_rows(xp, out, bags, rows if factors is None else rows * factors.astype(wide, copy=False)[:, None])
    if mean and count:
        out /= xp.maximum(xp.bincount(bags, minlength=count), 1).astype(wide)[:, None]
    return out.astype(weight.dtype, copy=False)


@prim(
    "bag_maximum_place", "index", half="native", infer=lambda rows, bags, *, count: MetaArray((count, rows.shape[-1]), np.int64)
)
def bag_maximum_place(xp: Any, rows: Any, bags: Any, *, count: int) -> Any:
    """For each bag and column the row where the maximum is, -1 for empty bags; a negative bag is skipped."""
    out = xp.full((count, rows.shape[-1]), -1, xp.int64)
    bag_of = xp.to_host(bags)
    for bag in np.unique(bag_of[bag_of >= 0]):
        members = xp.asarray(np.flatnonzero(bag_of == bag))
        out[int(bag)] = members[rows[members].argmax(axis=0)]
    return out
