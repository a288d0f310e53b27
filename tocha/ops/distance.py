"""Distances between vectors (torch docs: torch.nn.functional, distance functions)."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.dispatch.promote import result_type
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.whole import whole
from tocha.prims.activation import ON_TENSORS
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor

_FEW = 25  # up to this many vectors distances are computed from differences, beyond by a matrix product


@op("F torch")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 · x2 over the product of their lengths, each at least `eps`, along `dim` (torch docs: torch.nn.functional.cosine_similarity)."""
    kind = result_type((x1, x2))
    if not kind.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {kind.name} (cosine_similarity)")
    shape = broadcast_shapes("cosine_similarity", x1._a.shape, x2._a.shape)
    a, b = x1.to(kind).expand(shape), x2.to(kind).expand(shape)
    length1, length2 = a.norm(2, dim, keepdim=True), b.norm(2, dim, keepdim=True)
    return ((a / length1.clamp(min=eps)) * (b / length2.clamp(min=eps))).sum(dim)


@op("F torch")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension (torch docs: torch.nn.functional.pairwise_distance)."""
    check_tensor(x1, "pairwise_distance", "x1")
    check_tensor(x2, "pairwise_distance", "x2", 2)
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def _euclid_vjp(g: Tensor, a: Tensor, b: Tensor, out: Tensor, *, needs: Any) -> Any:
    ratio = ON_TENSORS.where(out == 0, 0.0, g / out)
    of_a = a * ratio.sum(-1, keepdim=True) - ratio.matmul(b) if needs[0] else None
    of_b = b * ratio.sum(-2).unsqueeze(-1) - ratio.mT.matmul(a) if needs[1] else None
    return of_a, of_b


@prim("euclidean", "contract", vjp=_euclid_vjp, infer=lambda a, b: MetaArray((*a.shape[:-1], b.shape[-2]), a.dtype))
def euclidean(xp: Any, a: Any, b: Any) -> Any:
    """Distances between rows of a (…, P, M) and of b (…, R, M), by |a|² + |b|² - 2ab."""
    square = xp.matmul(a, b.swapaxes(-1, -2))
    square *= -2
    square += (a * a).sum(-1)[..., None]
    square += (b * b).sum(-1)[..., None, :]
    return xp.sqrt(xp.maximum(square, 0))


_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@op("torch")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = _MODES[0]) -> Tensor:
    """p-norm distances between all rows of x1 (…, P, M) and x2 (…, R, M) -> (…, P, R) (torch docs: torch.cdist)."""
    if check_tensor(x1, "cdist", "x1").ndim < 2 or check_tensor(x2, "cdist", "x2", 2).ndim < 2:
        raise RuntimeError(f"cdist only supports at least 2D tensors, X1 got: {x1.ndim}D and X2 got: {x2.ndim}D")
    if x1._a.shape[-1] != x2._a.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    for label, x in (("X1", x1), ("X2", x2)):
        if not x.dtype.is_floating_point:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {label} got: {x.dtype.name}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    kind = result_type((x1, x2))
    a, b = x1.to(kind), x2.to(kind)
    lead = broadcast_shapes("cdist", a._a.shape[:-2], b._a.shape[:-2])
    a, b = a.expand((*lead, *a._a.shape[-2:])), b.expand((*lead, *b._a.shape[-2:]))
    many = max(a._a.shape[-2], b._a.shape[-2]) > _FEW and compute_mode == _MODES[0]
    if p == 2 and (many or compute_mode == _MODES[1]) and a._a.size and b._a.size:
        return euclidean(a, b)
    return _between(a, b, p)


@whole("Cdist")
def _between(a: Tensor, b: Tensor, p: float) -> Tensor:
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def _norm(difference: Tensor, p: float) -> Tensor:
    if 0 in difference._a.shape:
        return difference.sum(-1)
    return difference.norm(p, -1)


@op("F torch")
@whole("PdistForward")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """p-norm distances between every two rows of (N, M), in the order of the upper triangle (torch docs:
    torch.nn.functional.pdist)."""
    if check_tensor(input, "pdist").ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"pdist only supports floating-point dtypes, got: {input.dtype.name}")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = input._a.shape[0]
    first = input.new_tensor([i for i in range(n) for _ in range(i + 1, n)], dtype=dtypes.int64)
    second = input.new_tensor([j for i in range(n) for j in range(i + 1, n)], dtype=dtypes.int64)
    return _norm(input.index_select(0, first) - input.index_select(0, second), p)
