"""Least squares, pseudo-inverse and rank (torch docs: torch.linalg)."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.linalg import check_matrix, check_square, eigvalsh, match_batches, same_dtype, svdvals
from tocha.ops.matmul import matmul
from tocha.ops.results import named
from tocha.prims import linalg as prims
from tocha.prims.activation import ON_TENSORS
from tocha.tensor import Tensor


@op("linalg")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Least squares solution of A X = B with residuals, rank and singular values, as the driver gives them (torch docs:
    torch.linalg.lstsq)."""
    name = "torch.linalg.lstsq"
    check_matrix(name, A, "input")
    same_dtype(name, A, B)
    if B.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension")
    how = "gelsy" if driver is None else driver
    if how not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    vector = A.ndim - 1 == B.ndim and A._a.shape[:-1] == B._a.shape
    rhs = B.unsqueeze(-1) if vector else B
    if rhs.ndim < 2 or rhs._a.shape[-2] != A._a.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({'-1' if vector else '-2'})")
    a, b = match_batches(name, A, rhs)
    m, n = a._a.shape[-2:]
    solution, residuals, rank, values = prims.lstsq(a, b, rcond=rcond, driver=how)
    if m <= n or how == "gelsy" or (how != "gels" and m > n and not bool((rank == n).all())):
        residuals = residuals.reshape(-1).narrow(0, 0, 0)
    else:
        residuals = matmul(a, solution) - b
        residuals = (residuals.abs() ** 2).sum(-2)
    rank = rank.new_empty(0) if how == "gels" else rank
    values = values.detach() if how in ("gelsd", "gelss") else values.detach().new_empty(0)
    return named("linalg_lstsq", (solution.squeeze(-1) if vector else solution, residuals, rank, values))


def _tolerances(name: str, a: Tensor, atol: Any, rtol: Any) -> tuple[Tensor, Tensor]:
    """Absolute and relative tolerance as tensors; rtol defaults to eps * max(m, n) unless a positive atol is given."""
    kind = a.dtype.to_real()
    read = []
    for label, x in (("atol", atol), ("rtol", rtol)):
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(f"{name}: {label} tensor of complex type is not supported.")
        read.append(x.detach().to(kind) if isinstance(x, Tensor) else None if x is None else a.new_full((), float(x), dtype=kind))
    absolute = a.new_zeros((), dtype=kind) if read[0] is None else read[0]
    if read[1] is None:
        eps = dtypes.finfo(a.dtype).eps * max(a._a.shape[-2:])
        relative = ON_TENSORS.where(absolute > 0, 0.0, eps).to(kind)
    else:
        relative = read[1]
    return absolute, relative


@op("linalg out")
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """How many singular values exceed the tolerance (torch docs: torch.linalg.matrix_rank)."""
    name = "torch.linalg.matrix_rank"
    check_matrix(name, A, "input")
    if tol is not None:
        atol, rtol = tol, 0.0
    a = A.detach()
    if not a._a.size:
        return a.new_zeros(a._a.shape[:-2], dtype=dtypes.int64)
    values = eigvalsh(a).abs() if hermitian else svdvals(a)
    absolute, relative = _tolerances(name, a, atol, rtol)
    limit = ON_TENSORS.maximum(values.amax(-1) * relative, absolute)
    return (values > limit.unsqueeze(-1)).sum(-1)


@op("linalg out")
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The Moore-Penrose inverse; singular values up to the tolerance count as 0 (torch docs: torch.linalg.pinv)."""
    name = "torch.linalg.pinv"
    if check_tensor(A, name).ndim < 2:
        raise RuntimeError(
            f"linalg.pinv({A.dtype.name}{{{list(A.shape)}}}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types"
        )
    check_matrix(name, A)
    if rcond is not None:
        rtol = rcond
    if not A._a.size:
        return A.mT.new_zeros((*A._a.shape[:-2], A._a.shape[-1], A._a.shape[-2])) + A.sum() * 0
    if hermitian:
        check_square(name, A)
    return prims.pinv(A, *_tolerances(name, A, atol, rtol), hermitian=bool(hermitian))
