"""Linear algebra under torch's older names: torch.svd, qr, lu, cholesky, triangular_solve, geqrf, ormqr, trace, … (torch docs: BLAS
and LAPACK operations)."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.linalg import (
    check_matrix,
    check_square,
    cholesky_of,
    cross_of,
    lu_factor_of,
    lu_solve,
    match_batches,
    same_dtype,
    unpack_lu,
    unpack_lu_data,
)  # fmt: skip
from tocha.ops.linalg_least import pinv
from tocha.ops.matmul import matmul
from tocha.ops.results import named
from tocha.ops.whole import whole
from tocha.prims import linalg as prims
from tocha.tensor import Tensor


@op("torch method out")
def trace(input: Tensor) -> Tensor:
    """Sum of a matrix's diagonal (torch docs: torch.trace)."""
    if check_tensor(input, "trace").ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return input.diagonal().sum()


@op("torch method out", name="cross")
def _cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """`torch.linalg.cross`; without `dim` along the first dimension of size 3 (torch docs: torch.cross)."""
    if dim is None:
        found = next((i for i, n in enumerate(input._a.shape) if n == 3), None)
        if found is None:
            raise RuntimeError(f"no dimension of size 3 in input (torch.cross of {list(input.shape)})")
        dim = found
    return cross_of("linalg.cross", input, other, dim)


@op("torch method strictout")
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """`torch.linalg.cholesky`; `upper` reads the upper triangle and gives U with Uᴴ U = input (torch docs: torch.cholesky)."""
    return cholesky_of("cholesky", input, upper)


@op("torch method out")
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of A X = input, from the Cholesky factor of A (torch docs: torch.cholesky_solve)."""
    for label, x in (("b", input), ("u", L)):
        if check_tensor(x, "cholesky_solve").ndim < 2:
            raise RuntimeError(f"{label} should have at least 2 dimensions, but has {x.ndim} dimensions instead (cholesky_solve)")
    check_square("cholesky_solve", L)
    if input._a.shape[-2] != L._a.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-1]} by {L.shape[-1]} but each b "
            f"matrix is {input.shape[-2]} by {input.shape[-1]}"
        )
    same_dtype("cholesky_solve", L, input)
    a, b = match_batches("cholesky_solve", L, input)
    return prims.cholesky_solve(b, a, upper=bool(upper))


@op("torch method out")
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, from its Cholesky factor (torch docs: torch.cholesky_inverse)."""
    check_square("cholesky_inverse", L)
    n = L._a.shape[-1]
    eye = prims.vjps._eye(L, n).expand(L._a.shape)
    return cholesky_solve(eye, L, upper)


@op("torch method")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`torch.linalg.pinv` with a relative tolerance."""
    return pinv(input, rcond)


@op("torch method strictout")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S, V with input = U diag(S) Vᴴ (torch docs: torch.svd)."""
    check_matrix("linalg.svd", input)
    if not compute_uv:
        m, n = input._a.shape[-2:]
        values = prims.svd(input, full=False)[1]
        lead = tuple(input._a.shape[:-2])
        return named("svd", (input.new_zeros((*lead, m, m)), values, input.new_zeros((*lead, n, n))))
    u, s, vh = prims.svd(input, full=not some)
    return named("svd", (u, s, vh.mH))


@op("torch method strictout")
def qr(input: Tensor, some: bool = True) -> Any:
    """`torch.linalg.qr`, reduced or complete (torch docs: torch.qr)."""
    return named("qr", prims.qr(check_matrix("linalg.qr", input), mode="reduced" if some else "complete"))


@op("torch method")
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """Packed LU and pivots, and info if asked (torch docs: torch.lu)."""
    packed, pivots, info = lu_factor_of("lu", A, pivot)
    return (packed, pivots, info) if get_infos else (packed, pivots)


@op("torch out", name="lu_unpack")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """P, L, U from packed LU and pivots; what isn't asked for is empty (torch docs: torch.lu_unpack)."""
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. Note: this function is intended to be used "
            f"with the output produced by torch.linalg.lu_factor (got {LU_pivots.dtype.name})"
        )
    check_matrix("torch.lu_unpack", LU_data)
    p, lower, upper = unpack_lu(LU_data, LU_pivots) if unpack_pivots else (LU_data.new_empty(0), *unpack_lu_data(LU_data))
    if not unpack_data:
        lower, upper = LU_data.new_empty(0), LU_data.new_empty(0)
    return named("lu_unpack", (p, lower, upper))


@op("torch method out", name="lu_solve")
def _torch_lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = input from packed LU and pivots (torch docs: torch.lu_solve)."""
    return lu_solve(LU_data, LU_pivots, input)


@op("torch method out")
def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """X of A X = input (Aᵀ X with `transpose`), and a copy of A (torch docs: torch.triangular_solve)."""
    name = "triangular_solve"
    check_matrix(name, input, "b")
    check_square(name, A)
    same_dtype(name, A, input)
    if A._a.shape[-1] != input._a.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for triangular_solve: each A matrix is {A.shape[-1]} by {A.shape[-1]} but each b "
            f"matrix is {input.shape[-2]} by {input.shape[-1]}"
        )
    a, b = match_batches(name, A, input)
    x = prims.solve_triangular(a.mT if transpose else a, b, upper=bool(upper) != bool(transpose), unit=bool(unitriangular))
    return named("triangular_solve", (x, a.clone()))


# ---- Householder reflections


@op("torch method out")
def geqrf(input: Tensor) -> Any:
    """R with Householder vectors below its diagonal, and their factors (torch docs: torch.geqrf)."""
    return named("geqrf", prims.geqrf(check_matrix("torch.geqrf", input, "input")))


def _reflectors(name: str, a: Tensor, tau: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(v, tau) of each reflection I - tau v vᴴ, v as a column."""
    check_matrix(name, a, "input")
    m, n = a._a.shape[-2:]
    k = tau._a.shape[-1] if tau.ndim else 0
    if m < n and name != "torch.ormqr":
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if k > n:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if tau.ndim != a.ndim - 1 or tau._a.shape[:-1] != a._a.shape[:-2]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau.shape[:-1])}"
        )
    if tau._a.dtype is not a._a.dtype:
        raise RuntimeError(f"{name}: tau dtype {tau.dtype.name} does not match input dtype {a.dtype.name}")
    unit = (
        a.tril(-1) + prims.vjps._eye(a, m).narrow(-1, 0, n)
        if m >= n
        else a.tril(-1) + prims.vjps._cat([prims.vjps._eye(a, m), a.new_zeros((m, n - m))], -1)
    )
    return [(unit.narrow(-1, i, 1), tau.narrow(-1, i, 1).unsqueeze(-1)) for i in range(k)]


def _reflect(x: Tensor, v: Tensor, t: Tensor) -> Tensor:
    return x - matmul(v * t, matmul(v.mH, x))


@whole("LinalgHouseholderProduct")
def _product(a: Tensor, tau: Tensor) -> Tensor:
    name = "torch.linalg.householder_product"
    reflectors = _reflectors(name, a, tau)
    m, n = a._a.shape[-2:]
    q = prims.vjps._eye(a, m).narrow(-1, 0, n).expand(a._a.shape)
    for v, t in reversed(reflectors):
        q = _reflect(q, v, t)
    return q if reflectors else q.clone()


@op("linalg out")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections that geqrf describes (torch docs: torch.linalg.householder_product)."""
    return _product(A, tau)


@op("torch method out", name="orgqr")
def _orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`torch.linalg.householder_product`."""
    return _product(input, input2)


@op("torch method out")
@whole("Ormqr")
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q other, other Q, or with Qᴴ, for the full Q that geqrf describes (torch docs: torch.ormqr)."""
    name = "torch.ormqr"
    reflectors = _reflectors(name, input, tau)
    check_matrix(name, other, "other")
    size = other._a.shape[-2 if left else -1]
    if size != input._a.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{-2 if left else -1}] must be equal to input.shape[-2]")
    x = other if left else other.mH  # other Q = (Qᴴ otherᴴ)ᴴ
    adjoint = bool(transpose) == bool(left)
    for v, t in reflectors if adjoint else reversed(reflectors):
        x = _reflect(x, v, t.conj() if adjoint and t.is_complex() else t)
    return x if left else x.mH


# ---- LDL


@op("linalg out")
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """Bunch-Kaufman factors of symmetric (or Hermitian) matrices, packed, and pivots (torch docs: torch.linalg.ldl_factor)."""
    packed, pivots, _ = prims.ldl_factor(check_square("torch.linalg.ldl_factor", A), hermitian=bool(hermitian))
    return named("linalg_ldl_factor", (packed, pivots))


@op("linalg out")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """`ldl_factor` with LAPACK's info (torch docs: torch.linalg.ldl_factor_ex)."""
    found = prims.ldl_factor(check_square("torch.linalg.ldl_factor_ex", A), hermitian=bool(hermitian))
    if check_errors and bool(found[2].any()):
        raise prims.LinAlgError("torch.linalg.ldl_factor_ex: a diagonal block of D is exactly zero")
    return named("linalg_ldl_factor_ex", found)


@op("linalg out")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of A X = B from ldl_factor(A) (torch docs: torch.linalg.ldl_solve)."""
    name = "torch.linalg.ldl_solve"
    check_square(name, LD, "LD")
    if B.ndim < 2:
        raise RuntimeError(f"{name}: Expected B to have at least 2 dimensions, but it has {B.ndim} dimensions instead")
    if LD._a.shape[-1] != B._a.shape[-2]:
        raise RuntimeError(f"{name}: Expected B.size(-2) to be equal to LD.size(-1), but got {B.shape[-2]} and {LD.shape[-1]}")
    if pivots._a.shape != LD._a.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {list(pivots.shape)} instead"
        )
    if pivots.dtype.category != dtypes.INTEGRAL:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype.name}")
    same_dtype(name, LD, B)
    a, b = match_batches(name, LD, B)
    return prims.ldl_solve(a, pivots.expand(a._a.shape[:-1]), b, hermitian=bool(hermitian))


def _moved_to_linalg(name: str, instead: str) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"This function was deprecated since version 1.9 and is now removed. `torch.{name}` is replaced by `torch.{instead}`."
        )

    op("torch method" if name != "matrix_rank" else "torch", name=name, doc=f"Removed from torch; use torch.{instead}.")(refused)


for _name, _instead in (
    ("eig", "linalg.eig"),
    ("symeig", "linalg.eigh"),
    ("lstsq", "linalg.lstsq"),
    ("matrix_rank", "linalg.matrix_rank"),
    ("solve", "linalg.solve"),
):
    _moved_to_linalg(_name, _instead)
