"""Order statistics, distinct values, histograms and searching."""

from __future__ import annotations

import math
from typing import Any

from tocha import dtypes
from tocha.dispatch.promote import common_dtype, number_type
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.arguments import check_int, check_tensor, wrap_dim
from tocha.ops.convert import to
from tocha.ops.results import named
from tocha.prims import sort as prims
from tocha.tensor import Tensor


def _ordered(input: Tensor, name: str) -> None:
    if input._a.dtype.kind == "c":
        raise RuntimeError(f"{name}(): complex tensors have no order: sort does not support complex dtypes")


@op("torch method strictout")
def sort(input: Tensor, dim: Any = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """Values sorted along a dimension, and their old indices (torch docs: torch.sort)."""
    _ordered(input, "sort")
    return named("sort", prims.sort(input, dim=wrap_dim(dim, input._a.ndim, "sort"), descending=bool(descending)))


@op("torch method")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort along a dimension (torch docs: torch.argsort)."""
    _ordered(input, "argsort")
    return prims.argsort(input, dim=wrap_dim(dim, input._a.ndim, "argsort"), descending=bool(descending))


@op("torch method out")
def msort(input: Tensor) -> Tensor:
    """Values sorted along the first dimension (torch docs: torch.msort)."""
    return sort(input, 0)[0]


@op("torch method strictout")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest along a dimension, in order, and their indices (torch docs: torch.topk)."""
    _ordered(input, "topk")
    where = wrap_dim(dim, input._a.ndim, "topk")
    k = check_int(k, "topk", "k")
    if not 0 <= k <= (input._a.shape[where] if input._a.ndim else 1):
        raise RuntimeError(f"topk(): selected index k out of range: k={k} of {list(input.shape)} along dim {where}")
    return named("topk", prims.topk(input, k=k, dim=where, largest=bool(largest)))


@op("torch method strictout")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest along a dimension, k from 1, and its index (torch docs: torch.kthvalue)."""
    _ordered(input, "kthvalue")
    where = wrap_dim(dim, input._a.ndim, "kthvalue")
    k = check_int(k, "kthvalue", "k")
    if not 1 <= k <= (input._a.shape[where] if input._a.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {where}: k={k}, shape {list(input.shape)}")
    return named("kthvalue", prims.kthvalue(input, k=k, dim=where, keepdim=keepdim))


def _along(name: str, prim: Any, whole: Any) -> None:
    def statistic(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        _ordered(input, name)
        if dim is None and whole is not None:
            return whole(input)
        where = wrap_dim(-1 if dim is None else dim, input._a.ndim, name)
        if input._a.ndim and input._a.shape[where] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {where} to have non-zero size.")
        return named(name, prim(input, dim=where, keepdim=keepdim))

    doc = f"The {name}, of all elements or along a dimension with its index (torch docs: torch.{name})."
    op("torch method strictout", name=name, doc=doc)(statistic)


_along("median", prims.median_dim, prims.median)
_along("nanmedian", prims.nanmedian_dim, prims.nanmedian)
_along("mode", prims.mode, None)

# ---- quantiles

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if input._a.size == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of {_INTERPOLATIONS}, but got {interpolation}")
    levels = _levels(name, input, q)
    flat = (
        input.reshape(-1)
        if dim is None
        else input.movedim(wrap_dim(dim, input._a.ndim, name), -1)
        if input._a.ndim
        else input.reshape(1)
    )
    values = sort(flat, -1)[0]
    ranks = _ranks(name, values, levels.reshape(-1), interpolation)
    low = ranks.floor()
    found = values.gather(-1, low.long())
    if interpolation in ("linear", "midpoint"):
        above = values.gather(-1, ranks.ceil().long())
        found = found.lerp(above, (ranks - low) if interpolation == "linear" else low.new_full((), 0.5))
    if keepdim:
        where = range(input._a.ndim) if dim is None else (wrap_dim(dim, input._a.ndim, name),)
        shape = [1 if i in where else n for i, n in enumerate(input._a.shape)]
        found = found.movedim(-1, 0).reshape(-1, *shape)
    else:
        found = found.movedim(-1, 0)
    return found if levels._a.ndim else found.squeeze(0)


def _levels(name: str, input: Tensor, q: Any) -> Tensor:
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        return input.new_tensor(q)
    if q._a.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor: {q.dtype} and {input.dtype}")
    if not q.is_meta and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _ranks(name: str, values: Tensor, levels: Tensor, interpolation: str) -> Tensor:
    """Positions among the sorted values, whole numbers where nothing is interpolated. A NaN, sorted last, is every rank's
    value unless NaN is ignored."""
    n = values._a.shape[-1]
    missing = values.detach().isnan()
    if name == "nanquantile":
        last = (n - missing.sum(-1, True) - 1).clamp(min=0)
        ranks = levels * last
    else:
        ranks = levels.expand(*values._a.shape[:-1], -1) * (n - 1)
        ranks = ranks.masked_fill(missing.any(-1, True), float(n - 1))
    if interpolation == "lower":
        return ranks.floor()
    if interpolation == "higher":
        return ranks.ceil()
    return ranks.round() if interpolation == "nearest" else ranks


@op("torch method strictout")
def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """Quantiles along a dimension; those of several levels in a new first dimension (torch docs: torch.quantile)."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@op("torch method strictout")
def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """Quantiles of the elements that aren't NaN (torch docs: torch.nanquantile)."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


# ---- distinct values


def _distinct(input: Tensor, dim: int | None, consecutive: bool, inverse: bool, counts: bool) -> Any:
    where = None if dim is None else wrap_dim(dim, input._a.ndim, "unique")
    found = prims.unique(input.detach(), dim=where if input._a.ndim else None, consecutive=consecutive, inverse=inverse)
    kept = [found[0]] + [found[1]] * inverse + [found[2]] * counts
    return kept[0] if len(kept) == 1 else tuple(kept)


@op("torch method")
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Distinct elements (or slices along `dim`), sorted, with each element's number and the counts if asked (torch docs:
    torch.unique)."""
    return _distinct(input, dim, False, return_inverse, return_counts)


@op("torch method")
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The input without repetitions of a neighbour (torch docs: torch.unique_consecutive)."""
    return _distinct(input, dim, True, return_inverse, return_counts)


@op("torch strictout")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among test_elements (torch docs: torch.isin)."""
    given = next((a for a in (elements, test_elements) if isinstance(a, Tensor)), None)
    if given is None:
        raise TypeError("isin(): at least one of elements and test_elements must be a Tensor")
    if given._a.dtype.kind == "b":
        raise RuntimeError("Unsupported input type encountered for isin(): Bool")
    elements, test_elements = (
        a if isinstance(a, Tensor) else given.new_tensor(a, dtype=number_type(a)) for a in (elements, test_elements)
    )
    found = prims.isin(elements, test_elements)
    return ~found if invert else found


# ---- searching and counting


def _search(name: str, edges: Tensor, values: Any, out_int32: bool, right: bool) -> Tensor:
    if not isinstance(values, Tensor):
        values = edges.new_tensor(values, dtype=dtypes.of_scalar(values))
    if edges._a.ndim == 0:
        raise RuntimeError(f"{name}(): boundaries tensor must have positive dimension, but got 0 dimension")
    if edges._a.ndim > 1 and (values._a.ndim != edges._a.ndim or values._a.shape[:-1] != edges._a.shape[:-1]):
        raise RuntimeError(
            f"torch.{name}(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input "
            f"value tensor must match, but we got boundaries tensor {list(edges.shape)} and input value tensor {list(values.shape)}"
        )
    kind = common_dtype((edges, values), "same") if edges.dtype is not values.dtype else edges.dtype
    found = prims.searchsorted(to(edges, kind), to(values, kind), right=right)
    return to(found, dtypes.int32) if out_int32 else found


@op("torch strictout")
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where values would go in sorted sequences, before or after equal ones (torch docs: torch.searchsorted)."""
    check_tensor(sorted_sequence, "searchsorted", "sorted_sequence")
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    if sorter is not None:
        if sorter._a.shape != sorted_sequence._a.shape:
            raise RuntimeError(
                f"torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor {list(sorted_sequence.shape)} "
                f"and got sorter tensor {list(sorter.shape)}"
            )
        if sorter.dtype is not dtypes.int64:
            raise RuntimeError(f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {sorter.dtype}")
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    return _search("searchsorted", sorted_sequence, input, out_int32, right or side == "right")


@op("torch strictout")
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket between sorted boundaries that each value falls in (torch docs: torch.bucketize)."""
    check_tensor(boundaries, "bucketize", "boundaries", 2)
    if boundaries._a.ndim != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries._a.ndim})")
    return _search("bucketize", boundaries, input, out_int32, right)


@op("torch method")
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer occurs, or the sum of its weights (torch docs: torch.bincount)."""
    if input._a.dtype.kind not in "biu":
        raise NotImplementedError(f'"bincount_cpu" not implemented for {input.dtype.name}')
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input._a.ndim != 1 or (input._a.size and bool((input < 0).any())):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None:
        if weights._a.shape != input._a.shape:
            raise RuntimeError("weights should be 1-d and have the same length as input")
        kind = weights.dtype if weights.dtype is dtypes.float32 else dtypes.float64
        return to(prims.bincount(to(input, dtypes.int64), to(weights, dtypes.float64), minlength=minlength), kind)
    return prims.bincount(to(input, dtypes.int64), None, minlength=minlength)


def _range(name: str, values: Tensor, low: float, high: float) -> tuple[float, float]:
    """The given range, or the data's if it is empty, widened where that is a point."""
    if low == high and values._a.size:
        low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{name}: range of [{low}, {high}] is not finite")
    if low == high:
        return low - 0.5 * (2 if name == "histc" else 1), high + 0.5 * (2 if name == "histc" else 1)
    if low > high:
        raise RuntimeError(f"torch.{name}: max must be larger than min")
    return low, high


@op("torch method strictout")
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts in `bins` equal cells between min and max (the data's extremes if equal) (torch docs: torch.histc)."""
    if not input.is_floating_point():
        raise NotImplementedError(f'"histogram_cpu" not implemented for {input.dtype.name}')
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins}")
    flat = input.detach().reshape(-1)
    low, high = _range("histc", flat, min, max)
    inside = flat[(flat >= low) & (flat <= high)]
    cell = ((inside - low) * bins / (high - low)).long().clamp(max=bins - 1)
    return to(prims.bincount(cell, None, minlength=bins), input.dtype)


def _edges(name: str, columns: Tensor, bins: Any, range: Any, i: int, given: Tensor | None) -> Tensor:
    """The edges of one column's cells."""
    if given is not None:
        return given
    if range is None:
        column = columns.select(1, i)
        if not column._a.size:
            low, high = 0.0, 1.0
        else:
            low, high = _range(name, column, 0.0, 0.0)
    else:
        low, high = float(range[2 * i]), float(range[2 * i + 1])
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"torch.{name}: dimension {i}'s range [{low}, {high}] is not finite")
        if low > high:
            raise RuntimeError(f"torch.{name}: min {low} should not exceed max {high} for dimension {i}")
        if low == high:
            low, high = low - 0.5, high + 0.5
    return NAMESPACES["torch"]["linspace"](low, high, bins + 1, dtype=columns.dtype, device=columns.device)


def _density(counts: Tensor, edges: list[Tensor]) -> Tensor:
    found = counts / counts.sum()
    for i, e in enumerate(edges):
        widths = e.diff()
        found = found / widths.reshape(*(-1 if j == i else 1 for j in range(len(edges))))
    return found


@op("torch method out")
def histogram(input: Tensor, bins: Any = 100, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """Counts (or weights, or density) in the cells of given edges or `bins` equal ones (torch docs: torch.histogram)."""
    columns = input.detach().reshape(-1, 1)
    given = bins if isinstance(bins, Tensor) else None
    edges = _edges("histogram", columns, bins, range, 0, given)
    if weight is not None and weight._a.shape != input._a.shape:
        raise RuntimeError("torch.histogram(): if weight tensor is provided it should have the same shape as the input tensor")
    counts = prims.histogram(columns, None if weight is None else weight.detach().reshape(-1), edges)
    return named("histogram", (_density(counts, [edges]) if density else counts, edges))


@op("torch")
def histogramdd(input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """Counts of points, in rows, in the cells of a grid (torch docs: torch.histogramdd)."""
    if input._a.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    n = input._a.shape[-1]
    columns = input.detach().reshape(-1, n)
    sizes = [bins] * n if isinstance(bins, int) else list(bins)
    if len(sizes) != n:
        raise RuntimeError(f"torch.histogramdd: expected {n} sequences of bin edges or bin counts but got {len(sizes)}")
    edges = [
        _edges("histogramdd", columns, size, range, i, size if isinstance(size, Tensor) else None) for i, size in enumerate(sizes)
    ]
    counts = prims.histogram(columns, None if weight is None else weight.detach().reshape(-1), *edges)
    return named("histogramdd", (_density(counts, edges) if density else counts, tuple(edges)))
