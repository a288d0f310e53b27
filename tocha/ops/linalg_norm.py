"""torch.linalg's norms and condition numbers (torch docs: torch.linalg)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import Number, check_dtype, check_tensor, wrap_dim, wrap_dims
from tocha.ops.join import stack
from tocha.ops.linalg import check_inexact, check_matrix, check_square, svdvals
from tocha.prims import native_rows as rows
from tocha.prims import reduce as prims
from tocha.tensor import Tensor, wrap


def _typed(name: str, x: Tensor, dtype: Any) -> Tensor:
    kind = check_dtype(dtype, name)
    check_inexact(name, check_tensor(x, name), half=True)
    if kind is None:
        return x
    if kind.category < dtypes.FLOATING:
        raise RuntimeError(f"{name}: dtype should be floating point or complex. Got {kind.name}")
    if x.is_complex() != kind.is_complex:
        raise RuntimeError(
            f"{name}: dtype should be {'complex' if x.is_complex() else 'real'} for {x.dtype.name} inputs, but got {kind.name}"
        )
    if dtypes.promote_types(x.dtype, kind) is not kind:
        raise RuntimeError(
            f"{name}: the dtype of the input ({x.dtype.name}) should be convertible without narrowing to the specified dtype ({kind.name})"
        )
    return x.to(kind)


@op("linalg strictout")
def vector_norm(x: Tensor, ord: Number = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The ord-norm of x as a vector, over all or the given dimensions (torch docs: torch.linalg.vector_norm)."""
    name = "linalg.vector_norm"
    if isinstance(ord, (complex, str)):
        raise RuntimeError(f"{name}: Expected a non-complex scalar as the order of norm, got {ord!r}")
    x = _typed(name, x, dtype)
    dims = wrap_dims(dim, x._a.ndim, name)
    if ord < 0 or ord == math.inf:
        if dim is None or (isinstance(dim, (tuple, list)) and not dim):
            if not x._a.size:
                raise RuntimeError(
                    f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not have an identity"
                )
        for d in dims:
            if x._a.shape[d] == 0:
                raise RuntimeError(
                    f"linalg.vector_norm cannot compute the {ord} norm on the dimension {d} because this dimension is empty and the operation "
                    "does not have an identity"
                )
    return prims.vector_norm(x, ord=float(ord), dim=dims, keepdim=keepdim)


def _moved(a: Tensor, dims: tuple[int, int]) -> Tensor:
    """The two dimensions put last."""
    rest = [i for i in range(a.ndim) if i not in dims]
    return a if dims == (a.ndim - 2, a.ndim - 1) else a.permute(*rest, *dims)


_SUMS = {1.0: "abs_sum", 2.0: "square_sum", math.inf: "abs_max"}


def norms_at_once(tensors: list[Tensor], ord: float) -> Tensor | None:
    """vector_norm of each tensor by one native call; None unless they are plain CPU tensors whose history isn't recorded."""
    found = rows.reduced(_SUMS[ord], tensors) if ord in _SUMS else None
    return None if found is None else wrap((np.sqrt(found) if ord == 2 else found).astype(tensors[0]._a.dtype, copy=False))


def norms(tensors: list[Tensor], ord: float) -> Tensor:
    """vector_norm of each tensor, on the first one's device."""
    found = norms_at_once(tensors, ord)
    if found is not None:
        return found
    device = tensors[0].device
    each = [vector_norm(t, ord) for t in tensors]
    return stack([n if n.device == device else n.to(device) for n in each])


@op("linalg out")
def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """'fro', 'nuc', 2, -2 (singular values), 1, -1, inf, -inf norm of matrices (torch docs: torch.linalg.matrix_norm)."""
    name = "linalg.matrix_norm"
    A = _typed(name, A, dtype)
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {dim}")
    d0, d1 = (wrap_dim(d, A.ndim, name) for d in dim)
    if d0 == d1:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"{name}: Order {ord} not supported.")
        if ord == "fro":
            return vector_norm(A, 2, (d0, d1), keepdim)
        found = _singular(A, (d0, d1)).sum(-1)
        return _kept(found, (d0, d1)) if keepdim else found
    if abs(ord) not in (1, 2, math.inf):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    if abs(ord) == 2:
        values = _singular(A, (d0, d1))
        found = _extreme(name, ord, values, -1, False)
        return _kept(found, (d0, d1)) if keepdim else found
    first, second = (d0, d1) if abs(ord) == 1 else (d1, d0)  # sums over rows for 1, over columns for inf
    sums = vector_norm(A, 1, first, True)
    found = _extreme(name, ord, sums, second, True)
    return found if keepdim else found.squeeze((d0, d1))


@op("torch out")
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The 2-norm over up to two dimensions, all if `dim` is empty (torch docs: torch.norm, p="fro")."""
    if isinstance(dim, (tuple, list)) and len(dim) > 2:
        raise RuntimeError(f"frobenius_norm: Expected at most 2 dimensions, but got {len(dim)} dimensions instead.")
    return vector_norm(input, 2, dim, keepdim)


@op("torch out")
def nuclear_norm(input: Tensor, *args: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of singular values, f(input, keepdim) or f(input, dim, keepdim) (torch docs: torch.norm, p="nuc")."""
    if args and isinstance(args[0], bool):
        (keepdim,) = args
    else:
        dim, keepdim = (*args, dim, keepdim)[:2] if len(args) != 1 else (args[0], keepdim)
    return matrix_norm(input, "nuc", dim, keepdim)


@op("torch")
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """Norms over all dimensions but `dim`, kept; over all of them if it is -1 (Salimans and Kingma 2016, weight normalisation)."""
    if dim == -1:
        return vector_norm(v, pow)
    kept = wrap_dim(dim, check_tensor(v, "norm_except_dim").ndim, "norm_except_dim")
    others = [d for d in range(v.ndim) if d != kept]
    return vector_norm(v, pow, others, True) if others else v.abs()


def _extreme(name: str, ord: Any, values: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The largest (for a positive order; 0 of none) or least of values that aren't negative."""
    if values._a.shape[dim]:
        return values.amax(dim, keepdim=keepdim) if ord > 0 else values.amin(dim, keepdim=keepdim)
    if ord < 0:
        raise IndexError(
            f"{name}: the {ord} norm of matrices without elements: expected reduction dim {dim} to have non-zero size"
        )
    return values.sum(dim, keepdim=keepdim)


def _singular(a: Tensor, dims: tuple[int, int]) -> Tensor:
    kind = a.dtype
    moved = _moved(a, dims)
    return svdvals(moved.to(dtypes.float32)).to(kind) if kind in dtypes.HALF else svdvals(moved)


def _kept(x: Tensor, dims: tuple[int, int]) -> Tensor:
    for d in sorted(dims):
        x = x.unsqueeze(d)
    return x


@op("linalg strictout")
def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A matrix norm over two dimensions, a vector norm over one; without ord the 2-norm of everything named (torch docs:
    torch.linalg.norm)."""
    dims = None if dim is None else tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, dtype=dtype)
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if dims is None and A.ndim not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D.")
    if isinstance(ord, str):
        if (dims is not None and len(dims) != 2) or (dims is None and A.ndim != 2):
            raise RuntimeError(
                f"linalg.norm: If ord is '{ord}', dim must name two dimensions and the input have 2, got dim={dim} and {A.ndim}D"
            )
        return matrix_norm(A, ord, dims or (0, 1), keepdim, dtype=dtype)
    if (dims is not None and len(dims) == 2) or (dims is None and A.ndim == 2):
        return matrix_norm(A, ord, dims or (0, 1), keepdim, dtype=dtype)
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)


@op("linalg out")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the ratio of singular values (None, 2, -2), or norm(A) norm(inv(A)) (torch docs: torch.linalg.cond)."""
    name = "linalg.cond"
    check_matrix(name, A)
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not values._a.shape[-1]:
            return values.new_zeros(values._a.shape[:-1])
        ratio = values.select(-1, 0) / values.select(-1, -1)
        return ratio if p != -2 else values.select(-1, -1) / values.select(-1, 0)
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RuntimeError(f"{name} got an invalid norm type: {p}")
    check_square(name, A)
    if not A._a.shape[-1]:
        return A.new_zeros(A._a.shape[:-2], dtype=A.dtype.to_real())
    from tocha.prims.linalg import inverse

    inverted, info = inverse(A)
    if not info.is_meta and bool(info.any()):  # singular: infinite, as torch says
        from tocha.prims.activation import ON_TENSORS

        finite = matrix_norm(A, p) * matrix_norm(ON_TENSORS.where((info == 0).reshape((*info.shape, 1, 1)), inverted, 0.0), p)
        return ON_TENSORS.where(info == 0, finite, math.inf).to(finite.dtype)
    return matrix_norm(A, p) * matrix_norm(inverted, p)
