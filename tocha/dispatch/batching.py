"""Batching rules of single primitives: one call does the work of all examples.

A rule gets (prim, values, which of them are batched, params, batch size), batched values with the batch first, and returns
the result(s) in the same way, or None where it doesn't apply and examples go one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tocha.dispatch.prim import Prim

Shape = tuple[int, ...]
Rule = Callable[[Prim, list[Any], list[bool], dict[str, Any], int], Any]


def lifted(v: Any, is_batched: bool, size: int) -> Any:
    """A value with the batch first, expanded if it has none; None stays."""
    return v if v is None or is_batched else v.unsqueeze(0).expand(size, *v.shape)


def _all_lifted(values: list[Any], mine: list[bool], size: int) -> list[Any]:
    return [lifted(v, m, size) for v, m in zip(values, mine, strict=True)]


def _ranks(values: list[Any], mine: list[bool]) -> list[int]:
    return [0 if v is None else v.ndim - m for v, m in zip(values, mine, strict=True)]


def _of_rank(v: Any, rank: int) -> Any:
    """A lifted value whose examples have `rank` dimensions, new ones in front."""
    return None if v is None else v.reshape(v.shape[0], *(1,) * (rank + 1 - v.ndim), *v.shape[1:])


def _each(outs: Any, change: Callable[[Any], Any]) -> Any:
    return tuple(change(o) for o in outs) if isinstance(outs, tuple) else change(outs)


def along(name: str) -> Rule:
    """For primitives that work along the dimension(s) `name` of all of their arguments."""

    def rule(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
        values = _all_lifted(values, mine, size)
        d = params[name]
        if isinstance(d, tuple):
            return prim(*values, **{**params, name: tuple(i + 1 for i in d)})
        shape = values[-1].shape if prim.family == "index" and len(values) == 2 else values[0].shape
        flat = [v.unsqueeze(-1) if v.ndim == 1 else v for v in values]  # 0-d examples
        got = prim(*flat, **{**params, name: d + 1})
        return _each(got, lambda o: o.reshape(shape)) if len(shape) == 1 else got

    return rule


def direct(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    """For primitives that take any leading dimensions, which broadcast."""
    values = _all_lifted(values, mine, size)
    rank = max(v.ndim for v in values if v is not None) - 1
    return prim(*[_of_rank(v, rank) for v in values], **params)


def _folded(v: Any, is_batched: bool, size: int) -> Any:
    """Examples joined along their first dimension."""
    return lifted(v, is_batched, size).flatten(0, 1)


def first_is_many(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    """For primitives of one argument whose first dimension is a batch already."""
    return _each(prim(values[0].flatten(0, 1), **params), lambda o: o.unflatten(0, (size, -1) if size else (0, o.shape[0])))


def _arg(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    """argmax and argmin, also of all elements."""
    if params["dim"] is not None:
        return along("dim")(prim, values, mine, params, size)
    v = values[0]
    out = prim(v.reshape(size, -1), dim=1, keepdim=False)
    return out.reshape(size, *(1,) * (v.ndim - 1)) if params["keepdim"] else out


def _reshape(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return prim(values[0], shape=(size, *params["shape"]))


def _stack(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return prim(*_all_lifted(values, mine, size), dim=params["dim"] + 1)


def _repeat(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    repeats = params["repeats"]
    return prim(_of_rank(values[0], len(repeats)), repeats=(1, *repeats))


def _pad(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return prim(values[0], pad=((0, 0), *params["pad"]), value=params["value"])


def _equal(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    a, b = _all_lifted(values, mine, size)
    return (a == b).reshape(size, -1).all(1)


def _median(name: str) -> Rule:
    def rule(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
        return getattr(values[0].reshape(size, -1), name)(1)[0] if values[0].numel() else None

    return rule


def _searchsorted(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    if not mine[0] and values[0].ndim == 1:
        return prim(*values, **params)
    edges, wanted = _all_lifted(values, mine, size)
    if edges.ndim == 2:
        return prim(edges, wanted.reshape(size, -1), **params).reshape(wanted.shape)
    return prim(edges, wanted, **params)


# ---- index tensors


def _numbers(size: int, rank: int, like: Any) -> Any:
    from tocha.ops.ranges import arange

    return arange(size, device=like.device).reshape(size, *(1,) * rank)


def _index_ranks(indices: list[Any], mine: list[bool], size: int) -> tuple[list[Any], int]:
    """Index tensors that broadcast with the batch first, and the rank of an example's."""
    ranks = _ranks(indices, mine)
    rank = max(ranks)
    return [_of_rank(i, rank) if m else i for i, m in zip(indices, mine, strict=True)], rank


def _index(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    dims = params["dims"]
    adjacent = dims[-1] - dims[0] == len(dims) - 1
    before = dims[0] if adjacent else 0  # how many unindexed dimensions come first in an example's result
    indices, rank = _index_ranks(values[1:], mine[1:], size)
    if not any(mine[1:]):
        out = prim(values[0], *indices, dims=tuple(d + 1 for d in dims))
        return out if adjacent else out.movedim(rank, 0)
    if not mine[0]:
        return prim(values[0], *indices, dims=dims).movedim(before, 0)
    out = prim(values[0], _numbers(size, rank, values[0]), *indices, dims=(0, *(d + 1 for d in dims)))
    first = rank + 1
    return out.permute(0, *range(first, first + before), *range(1, first), *range(first + before, out.ndim))


def _index_put(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    dims = params["dims"]
    adjacent = dims[-1] - dims[0] == len(dims) - 1
    before = dims[0] if adjacent else 0
    target = lifted(values[0], mine[0], size)
    indices, rank = _index_ranks(values[2:], mine[2:], size)
    full = rank + target.ndim - 1 - len(dims)  # dimensions of what an example's values broadcast to
    new = _of_rank(values[1], full) if mine[1] else values[1]
    shifted = tuple(d + 1 for d in dims)
    if not any(mine[2:]):
        if mine[1] and not adjacent:
            new = new.movedim(0, rank)
        elif not mine[1] and not adjacent and new.ndim == full:
            new = new.unsqueeze(rank)
        return prim(target, new, *indices, dims=shifted, accumulate=params["accumulate"])
    if not mine[1]:
        new = new.reshape(1, *(1,) * (full - new.ndim), *new.shape)
    new = new.permute(0, *range(before + 1, before + 1 + rank), *range(1, before + 1), *range(before + 1 + rank, full + 1))
    return prim(target, new, _numbers(size, rank, target), *indices, dims=(0, *shifted), accumulate=params["accumulate"])


def _embedding(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    weight, indices = values
    if not mine[0]:
        return None if params["by_frequency"] else prim(weight, indices, **params)
    if params["by_frequency"] or params["padding_idx"] >= 0:
        return None
    return prim(weight.flatten(0, 1), _offset(indices, mine[1], size, weight.shape[1]), **params)


def _offset(indices: Any, is_batched: bool, size: int, rows: int) -> Any:
    """Indices into tables of `rows` laid one after the other."""
    indices = lifted(indices, is_batched, size)
    return indices + rows * _numbers(size, indices.ndim - 1, indices)


def _embedding_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    rows = params["rows"]
    if params["by_frequency"] or params["padding_idx"] >= 0:
        return None
    g = lifted(values[0], mine[0], size)
    out = prim(g, _offset(values[1], mine[1], size, rows), **{**params, "rows": size * rows})
    return out.reshape(size, rows, -1)


# ---- products


def _mv(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    a, x = values
    return (a @ x.unsqueeze(-1)).squeeze(-1)


def _dot(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return (values[0] * values[1]).sum(-1)


def _linear(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    x, weight, bias = values
    if not mine[1] and not mine[2]:
        return prim(x, weight, bias)
    rank = x.ndim - mine[0]
    if mine[1]:
        x = lifted(x, mine[0], size)
        out = (x.reshape(size, -1, x.shape[-1]) @ weight.mT).reshape(*x.shape[:-1], -1)
    else:
        out = lifted(prim(x, weight, None), mine[0], size)
    if bias is not None:
        out = out + (_of_rank(bias, rank) if mine[2] else bias)
    return out


def _linear_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    g, x, weight = values
    bias = lifted(g, mine[0], size).sum(1)
    return lifted(g @ weight, mine[0] or mine[2], size), lifted(g.mT @ x, mine[0] or mine[1], size), bias


def _flash_attention_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    *operands, lse = _all_lifted(values, mine, size)
    rank = operands[1].ndim - 1
    outs = prim(*[_of_rank(v, rank) for v in operands], lse, **params)
    return tuple(o.reshape(v.shape) for o, v in zip(outs, operands[1:4], strict=True))


def _place_one(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return prim(*_all_lifted(values, mine, size), shape=(size, *params["shape"]), dim=params["dim"] + 1)


# ---- convolution: examples become samples, or groups where each has its own kernels


def _apart(v: Any, groups: int) -> Any:
    """Kernels (size, groups * n, …) of all examples, those of one group together: (groups * size * n, …)."""
    return v.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 2)


def _channels(v: Any) -> Any:
    """Examples (size, N, C, …) as channels: (N, size * C, …)."""
    return v.transpose(0, 1).flatten(1, 2)


def _of_channels(v: Any, size: int, groups: int = 1) -> Any:
    """The inverse of `_channels`, where each group holds the channels of all examples."""
    return v.unflatten(1, (groups, size, -1)).movedim(2, 0).flatten(2, 3)


def _conv(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    """Also for its gradient by the input, whose kernels have their outputs second."""
    x, weight, bias = values
    groups = params["groups"]
    if not mine[1]:
        out = prim(_folded(x, mine[0], size), weight, None if mine[2] else bias, **params).unflatten(0, (size, -1))
    elif not mine[0]:
        apart = _apart(weight, groups) if prim.name == "conv" else _channels(weight)
        out = _of_channels(prim(x, apart, None, **params), size, groups)
    else:
        out = prim(_channels(x), weight.flatten(0, 1), None, **{**params, "groups": groups * size})
        out = _of_channels(out, size)
    if bias is not None and (mine[1] or mine[2]):
        out = out + bias.reshape(size if mine[2] else 1, 1, -1, *(1,) * (out.ndim - 3))
    return out


def _conv_weight(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    g, x = _all_lifted(values, mine, size)
    out = prim(_channels(g), _channels(x), **{**params, "groups": params["groups"] * size})
    return out.unflatten(0, (size, -1))


# ---- normalisation


def _standardize(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    shape, affine = params["shape"], params["affine"]
    values = [lifted(values[0], mine[0], size), *values[1:]]
    if any(mine[1:3]):
        affine = (size, *(1,) * (len(shape) - len(affine)), *affine)
        values[1:] = _all_lifted(values[1:], mine[1:], size)
    shifted = {"shape": (size, *shape), "axes": tuple(a + 1 for a in params["axes"]), "affine": affine}
    return prim(*values, **{**params, **shifted})


def _standardize_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    shape, affine = params["shape"], params["affine"]
    shifted = {
        "shape": (size, *shape), "axes": tuple(a + 1 for a in params["axes"]),
        "affine": (size, *(1,) * (len(shape) - len(affine)), *affine),
    }  # fmt: skip
    of_input, *rest = prim(*_all_lifted(values, mine, size), **{**params, **shifted})
    return of_input, *(r if values[2] is not None else r.reshape(size, -1) for r in rest)


def _batch_norm_given(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    if not any(mine[1:]):
        return prim(values[0].flatten(0, 1), *values[1:], **params).unflatten(0, (size, -1))
    x, *given = _all_lifted(values, mine, size)
    return _of_channels(prim(_channels(x), *(None if v is None else v.flatten(0, 1) for v in given), **params), size)


def _rms_norm(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    x, weight = values
    if not mine[1]:
        return prim(x, weight, **params)
    out = lifted(prim(x, None, **params), mine[0], size)
    return out * _of_rank(weight, out.ndim - 1)


def _rms_norm_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    g, x, weight = _all_lifted(values, mine, size)
    dims = params["dims"]
    axes = tuple(range(x.ndim - dims, x.ndim))
    normal = x * ((x * x).mean(axes, keepdim=True) + params["eps"]).rsqrt()
    rest = tuple(range(1, x.ndim - dims))
    of_weight = (g * normal).sum(rest) if rest else g * normal
    scaled = g if weight is None else g * _of_rank(weight, x.ndim - 1)
    return prim(scaled, x, None, **params)[0], of_weight


# ---- losses of class indices: each example's rows without reduction, then reduced


def _totals(target: Any, weight: Any, ignore_index: int) -> Any:
    """For each example the sum of its rows' weights, by which the mean divides."""
    kept = target != ignore_index
    scale = kept if weight is None else weight.detach()[target.where(kept, 0)] * kept
    return scale.reshape(target.shape[0], -1).sum(1)


def _reduced(rows: Any, totals: Any, reduction: str) -> Any:
    if reduction == "none":
        return rows
    out = rows.reshape(rows.shape[0], -1).sum(1)
    return out / totals if reduction == "mean" else out


def _class_loss(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    x, target, weight = values
    target = lifted(target, mine[1], size)
    if mine[2] or target._a.dtype.kind not in "iu":
        return None
    got = prim(_folded(x, mine[0], size), target.flatten(0, 1), weight, **{**params, "reduction": "none"})
    rows, *middle, total = (o.unflatten(0, (size, -1)) if o.ndim else o for o in got)
    totals = _totals(target, weight, params["ignore_index"]).to(total.dtype)
    return _reduced(rows, totals.to(rows.dtype), params["reduction"]), *middle, totals


def _row_gradient(g: Any, is_batched: bool, rows: Shape, total: Any, reduction: str, size: int) -> Any:
    """The loss's gradient as that of the rows (size, N, …), joined."""
    g = lifted(g, is_batched, size)
    if reduction == "mean":
        g = g / total
    ones = (1,) * (len(rows) - 1)
    return (g if reduction == "none" else g.reshape(size, *ones).expand(rows)).flatten(0, 1)


def _nll_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    g, target, weight, total = values
    if mine[2]:
        return None
    target = lifted(target, mine[1], size)
    rows = _row_gradient(g, mine[0], tuple(target.shape), total, params["reduction"], size)
    shape = params["shape"]
    shifted = {"shape": (size * shape[0], *shape[1:]), "reduction": "none"}
    return prim(rows, target.flatten(0, 1), weight, total, **{**params, **shifted}).unflatten(0, (size, -1))


def _cross_entropy_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    probability, g, target, weight, total = values
    if mine[3]:
        return None
    target = lifted(target, mine[2], size)
    rows = _row_gradient(g, mine[1], tuple(target.shape), total, params["reduction"], size)
    folded = _folded(probability, mine[0], size)
    return prim(folded, rows, target.flatten(0, 1), weight, total, **{**params, "reduction": "none"}).unflatten(0, (size, -1))


def _mse(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    rows = prim(*_all_lifted(values, mine, size), reduction="none")
    if params["reduction"] == "none":
        return rows
    flat = rows.reshape(size, -1)
    return flat.mean(1) if params["reduction"] == "mean" else flat.sum(1)


def _mse_backward(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    g, x, y = _all_lifted(values, mine, size)
    if params["reduction"] == "mean":
        g = g / max(math.prod(x.shape[1:]), 1)
    return prim(_of_rank(g, 0).reshape(*g.shape, *(1,) * (x.ndim - g.ndim)), x, y, reduction="sum")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "all", "any", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "gather", "kthvalue", "log_softmax_backward",
            "logcumsumexp", "logsumexp", "max_dim", "median_dim", "min_dim", "mode", "nanmedian_dim", "prod",
            "reversed_cumsum", "scatter", "scatter_add", "scatter_reduce", "softmax_backward", "sort", "argsort", "std",
            "topk", "var", "vector_norm",
        ),
        along("dim"),
    ),
    **dict.fromkeys(("flip", "roll", "fft_c2c", "fft_r2c", "fft_c2r"), along("dims")),
    **dict.fromkeys(
        (
            "adaptive_max_pool", "attention", "attention_backward", "avg_pool", "avg_pool_backward", "cholesky",
            "cholesky_solve", "coded_places",
            "det", "eig", "eigh", "flash_attention", "inverse", "lu_factor", "matrix_exp", "max_pool", "max_pool_backward",
            "max_pool_coded", "max_pool_values",
            "place", "qr", "qr_r", "resample", "resample_backward", "slogdet", "solve", "svd", "triangular_solve_prim",
            "tril", "triu", "view_dtype",
        ),
        direct,
    ),
    "argmax": _arg, "argmin": _arg, "batch_norm_given": _batch_norm_given, "constant_pad": _pad, "conv": _conv, "conv_input": _conv,
    "conv_weight": _conv_weight, "cross_entropy": _class_loss, "cross_entropy_backward": _cross_entropy_backward, "dot": _dot,
    "embedding": _embedding, "embedding_backward": _embedding_backward, "equal": _equal,
    "flash_attention_backward": _flash_attention_backward, "from_columns": first_is_many, "index": _index,
    "index_put": _index_put, "linear": _linear, "linear_backward": _linear_backward, "median": _median("median"), "mse": _mse,
    "mse_backward": _mse_backward, "mv": _mv, "nanmedian": _median("nanmedian"), "nll": _class_loss,
    "nll_backward": _nll_backward, "place_one": _place_one, "repeat": _repeat, "rms_norm": _rms_norm, "rms_norm_backward": _rms_norm_backward,
    "searchsorted": _searchsorted,
    "stack": _stack, "standardize": _standardize, "standardize_backward": _standardize_backward, "to_columns": first_is_many,
    "unsafe_view": _reshape,
}  # fmt: skip
