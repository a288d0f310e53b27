"""torch.linalg: solvers, factorisations and functions of matrices (torch docs: torch.linalg). Norms are in ops.linalg_norm, the
functions torch keeps under older names in ops.linalg_legacy."""

from __future__ import annotations

import math
from typing import Any

from tocha import dtypes
from tocha.dispatch.override import elements
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor, wrap_dim
from tocha.ops.matmul import matmul
from tocha.ops.results import named
from tocha.ops.whole import whole
from tocha.prims import linalg as prims
from tocha.prims.activation import ON_TENSORS
from tocha.prims.linalg import LinAlgError
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor

_PRECISE = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def check_matrix(name: str, a: Tensor, label: str = "A", half: bool = False) -> Tensor:
    """RuntimeError unless `a` is a batch of floating-point or complex matrices (NotImplementedError for half precision)."""
    if check_tensor(a, name).ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {label} must have at least 2 dimensions.")
    return check_inexact(name, a, half)


def check_inexact(name: str, a: Tensor, half: bool = False) -> Tensor:
    """RuntimeError for integers, NotImplementedError for half precision unless `half`."""
    if a.dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {a.dtype.name}")
    if not half and a.dtype not in _PRECISE:
        raise NotImplementedError(f"{name}: Low precision dtypes not supported. Got {a.dtype.name}")
    return a


def check_square(name: str, a: Tensor, label: str = "A") -> Tensor:
    """check_matrix, and RuntimeError unless matrices are square."""
    check_matrix(name, a, label)
    m, n = a._a.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {label} must be batches of square matrices, but they are {m} by {n} matrices")
    return a


def same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    check_tensor(b, name, "B", 2)
    if a._a.dtype is not b._a.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {a.dtype.name} and B of type {b.dtype.name} instead"
        )


def _failed(info: Tensor) -> tuple[int, str, int] | None:
    """The first non-zero info: its value, '(Batch element i): ' and i."""
    if info.is_meta or not info._a.size or not bool(elements(info).any()):
        return None
    flat = info.reshape(-1)
    i = int((flat != 0).to(dtypes.int64).argmax())
    return int(flat[i]), prims.which(i, tuple(info.shape)), i


def match_batches(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Batch dimensions made equal."""
    if a._a.shape[:-2] == b._a.shape[:-2]:
        return a, b
    lead = broadcast_shapes(name, a._a.shape[:-2], b._a.shape[:-2])
    return a.expand((*lead, *a._a.shape[-2:])), b.expand((*lead, *b._a.shape[-2:]))


# ---- inverse, determinant, solve


def _inverse(name: str, a: Tensor) -> Tensor:
    out, info = prims.inverse(check_square(name, a))
    bad = _failed(info)
    if bad:
        raise LinAlgError(
            f"{name}: {bad[1]}The diagonal element {bad[0]} is zero, the inversion could not be completed because the input matrix is singular."
        )
    return out


@op("linalg strictout")
def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices; LinAlgError if singular (torch docs: torch.linalg.inv)."""
    return _inverse("linalg.inv", A)


@op("torch method strictout")
def inverse(input: Tensor) -> Tensor:
    """`torch.linalg.inv`."""
    return _inverse("linalg.inv", input)


@op("linalg out")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse, and the place of a zero pivot (0: none) for each matrix (torch docs: torch.linalg.inv_ex)."""
    if check_errors:
        _inverse("linalg.inv_ex", A)
    return named("linalg_inv_ex", prims.inverse(check_square("linalg.inv_ex", A)))


def _det(name: str, a: Tensor) -> Tensor:
    return prims.det(check_square(name, a))


@op("linalg strictout")
def det(A: Tensor) -> Tensor:
    """The determinant of square matrices (torch docs: torch.linalg.det)."""
    return _det("linalg.det", A)


@op("torch method", name="det")
def _torch_det(input: Tensor) -> Tensor:
    """`torch.linalg.det`."""
    return _det("linalg.det", input)


@op("linalg strictout")
def slogdet(A: Tensor) -> Any:
    """Sign and log of the absolute determinant (torch docs: torch.linalg.slogdet)."""
    return named("linalg_slogdet", prims.slogdet(check_square("linalg.slogdet", A)))


@op("torch method out", name="slogdet")
def _torch_slogdet(input: Tensor) -> Any:
    """`torch.linalg.slogdet`."""
    return named("slogdet", prims.slogdet(check_square("linalg.slogdet", input)))


@op("torch method")
def logdet(input: Tensor) -> Tensor:
    """Log of the determinant; NaN where it is negative (torch docs: torch.logdet)."""
    sign, log = prims.slogdet(check_square("logdet", input))
    if input.is_complex():
        return log + sign.log()
    return log + sign.detach().log() if not sign.is_meta else log


def _solve_ex(name: str, a: Tensor, b: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    check_square(name, a)
    same_dtype(name, a, b)
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and a._a.shape[:-1] == b._a.shape)
    rhs = b.unsqueeze(-1) if vector else b
    if vector and not left:
        raise RuntimeError(
            f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve "
            "is equivalent to B / A.squeeze(-1)"
        )
    if rhs._a.shape[-2 if left else -1] != a._a.shape[-1]:
        n, m = rhs._a.shape[-2:]
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({a.shape[-2]}x{a.shape[-1]} and {n}x{m})"
        )
    if not left:
        a, rhs = a.mT, rhs.mT
    out, info = prims.solve(*match_batches(name, a, rhs))
    out = out if left else out.mT
    return out.squeeze(-1) if vector else out, info


@op("linalg strictout")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B (or X A = B) for square A; B may be a vector for each matrix; LinAlgError if singular (torch docs:
    torch.linalg.solve)."""
    out, info = _solve_ex("linalg.solve", A, B, left)
    bad = _failed(info)
    if bad:
        raise LinAlgError(f"torch.linalg.solve: {bad[1]}The solver failed because the input matrix is singular.")
    return out


@op("linalg out")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """`solve`, and the place of a zero pivot (0: none) for each matrix (torch docs: torch.linalg.solve_ex)."""
    out, info = _solve_ex("linalg.solve_ex", A, B, left)
    bad = _failed(info)
    if bad and check_errors:
        raise LinAlgError(f"torch.linalg.solve_ex: {bad[1]}The solver failed because the input matrix is singular.")
    return named("linalg_solve_ex", (out, info))


@op("linalg out")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of A X = B (or X A = B) for triangular A (torch docs: torch.linalg.solve_triangular)."""
    name = "linalg.solve_triangular"
    check_square(name, A)
    check_matrix(name, B, "B")
    same_dtype(name, A, B)
    if B._a.shape[-2 if left else -1] != A._a.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and "
            f"{B.shape[-2]}x{B.shape[-1]})"
        )
    a, b = match_batches(name, A, B)
    if left:
        return prims.solve_triangular(a, b, upper=bool(upper), unit=bool(unitriangular))
    return prims.solve_triangular(a.mT, b.mT, upper=not upper, unit=bool(unitriangular)).mT


# ---- Cholesky


def cholesky_of(name: str, a: Tensor, upper: bool) -> Tensor:
    """The factor; LinAlgError if some matrix isn't positive definite."""
    check_square(name, a)
    factor, info = prims.cholesky(a.mH if upper else a)
    bad = _failed(info)
    if bad:
        raise LinAlgError(
            f"{name}: {bad[1]}The factorization could not be completed because the input is not positive-definite (the leading minor of order "
            f"{bad[0]} is not positive-definite)."
        )
    return factor.mH if upper else factor


@op("linalg strictout")
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """Lower triangular L with L Lᴴ = A, or upper U with Uᴴ U = A (torch docs: torch.linalg.cholesky)."""
    return cholesky_of("linalg.cholesky", A, upper)


@op("linalg out")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """`cholesky`, and the order of the first minor that isn't positive definite (0: all are) (torch docs:
    torch.linalg.cholesky_ex)."""
    if check_errors:
        cholesky_of("linalg.cholesky_ex", A, upper)
    factor, info = prims.cholesky(check_square("linalg.cholesky_ex", A.mH if upper else A))
    return named("linalg_cholesky_ex", (factor.mH if upper else factor, info))


# ---- LU


def unpack_lu_data(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L and U of a packed LU."""
    m, n = packed._a.shape[-2:]
    k = min(m, n)
    eye = prims.vjps._eye(packed, m).narrow(-1, 0, k)
    return packed.narrow(-1, 0, k).tril(-1) + eye, packed.narrow(-2, 0, k).triu()


def unpack_lu(LU: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P, L, U from lu_factor's result."""
    return prims.pivots_to_matrix(pivots, size=LU._a.shape[-2], dtype=LU._a.dtype), *unpack_lu_data(LU)


def lu_factor_of(name: str, a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """LU, pivots and info; partial pivoting is the only kind on the CPU."""
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")
    return prims.lu_factor(check_matrix(name, a))


@op("linalg out")
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L and U packed in one matrix, and row exchanges counted from 1 (torch docs: torch.linalg.lu_factor)."""
    packed, pivots, info = lu_factor_of("linalg.lu_factor", A, pivot)
    bad = _failed(info)
    if bad:
        raise RuntimeError(
            f"torch.linalg.lu_factor: {bad[1]}U[{bad[0]},{bad[0]}] is zero and using it on lu_solve would result in a division by zero. If you "
            "still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
        )
    return named("linalg_lu_factor", (packed, pivots))


@op("linalg out")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """`lu_factor`, and the place of a zero pivot (0: none) for each matrix (torch docs: torch.linalg.lu_factor_ex)."""
    if check_errors:
        lu_factor(A, pivot=pivot)
    return named("linalg_lu_factor_ex", lu_factor_of("linalg.lu_factor_ex", A, pivot))


@op("linalg strictout")
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """P, L, U with A = P L U (torch docs: torch.linalg.lu)."""
    packed, pivots, _ = lu_factor_of("linalg.lu", A, pivot)
    return named("linalg_lu", unpack_lu(packed, pivots))


@op("linalg out")
@whole("LinalgLuSolve")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of A X = B (X A = B, Aᴴ X = B, …) from lu_factor(A) (torch docs: torch.linalg.lu_solve)."""
    name = "linalg.lu_solve"
    check_square(name, LU, "LU")
    check_matrix(name, B, "B")
    same_dtype(name, LU, B)
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32. Got {pivots.dtype.name}")
    if B._a.shape[-2 if left else -1] != LU._a.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B ({LU.shape[-2]}x{LU.shape[-1]} and {B.shape[-2]}x{B.shape[-1]})"
        )
    if pivots._a.shape != LU._a.shape[:-1]:
        raise RuntimeError(
            f"{name}: Number of pivots per batch should be same as the dimension of the matrix, got {list(pivots.shape)} for {list(LU.shape)}"
        )
    p, lower, upper = unpack_lu(LU, pivots)
    if not left:  # X A = B is Aᴴ Xᴴ = Bᴴ
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    if adjoint:  # Aᴴ = Uᴴ Lᴴ Pᴴ
        half = solve_triangular(upper.mH, B, upper=False)
        return matmul(p, solve_triangular(lower.mH, half, upper=True, unitriangular=True))
    half = solve_triangular(lower, matmul(p.mT, B), upper=False, unitriangular=True)
    return solve_triangular(upper, half, upper=True)


# ---- QR, SVD, eigenvalues


@op("linalg strictout")
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """Q and R with A = Q R: 'reduced', 'complete', or 'r' (Q empty) (torch docs: torch.linalg.qr)."""
    check_matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    if mode == "r":
        return named("linalg_qr", (A.new_empty(0), prims.qr_r(A)))
    return named("linalg_qr", prims.qr(A, mode=mode))


@op("linalg strictout")
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """U, S, Vh with A = U diag(S) Vh (torch docs: torch.linalg.svd)."""
    _check_driver(A, driver)
    return named("linalg_svd", prims.svd(check_matrix("linalg.svd", A), full=bool(full_matrices)))


def _check_driver(a: Tensor, driver: str | None) -> None:
    if driver is not None and not a.is_cuda:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")


@op("linalg strictout")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values, descending (torch docs: torch.linalg.svdvals)."""
    _check_driver(A, driver)
    return prims.svd(check_matrix("linalg.svdvals", A), full=False)[1]


def _triangle(UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper() == "L"


@op("linalg strictout")
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """Eigenvalues (ascending) and eigenvectors of Hermitian matrices (torch docs: torch.linalg.eigh)."""
    lower = _triangle(UPLO)
    return named("linalg_eigh", prims.eigh(check_square("linalg.eigh", A), lower=lower))


@op("linalg strictout")
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of Hermitian matrices, ascending (torch docs: torch.linalg.eigvalsh)."""
    lower = _triangle(UPLO)
    return prims.eigh(check_square("linalg.eigvalsh", A), lower=lower)[0]


@op("linalg out")
def eig(A: Tensor) -> Any:
    """Eigenvalues and eigenvectors of square matrices, complex (torch docs: torch.linalg.eig)."""
    return named("linalg_eig", prims.eig(check_square("linalg.eig", A)))


@op("linalg out")
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of square matrices, complex (torch docs: torch.linalg.eigvals)."""
    return prims.eig(check_square("linalg.eigvals", A))[0]


# ---- functions of matrices


def matrix_power_of(a: Tensor, n: int) -> Tensor:
    """Repeated squaring; the inverse for negative powers."""
    check_tensor(a, "linalg.matrix_power")
    if a.ndim < 2:
        raise RuntimeError("linalg.matrix_power: The input tensor A must have at least 2 dimensions.")
    if a._a.shape[-1] != a._a.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices"
        )
    if n == 0:
        eye = prims.vjps._eye(a, a._a.shape[-1])
        return ON_TENSORS.where(eye == eye, eye, a)
    if n < 0:
        a, n = inv(a), -n
    if n == 1:
        return a.clone()
    result: Tensor | None = None
    while n:
        if n & 1:
            result = a if result is None else matmul(result, a)
        n >>= 1
        if n:
            a = matmul(a, a)
    assert result is not None
    return result


@op("linalg strictout")
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied n times by itself; negative n through the inverse (torch docs: torch.linalg.matrix_power)."""
    return matrix_power_of(A, n)


@op("torch method out", name="matrix_power")
def _torch_matrix_power(input: Tensor, n: int) -> Tensor:
    """`torch.linalg.matrix_power`."""
    return matrix_power_of(input, n)


def _matrix_exp(a: Tensor) -> Tensor:
    check_matrix("linalg.matrix_exp", a, half=True)
    if a._a.shape[-1] != a._a.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_exp: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices"
        )
    return prims.matrix_exp(a)


@op("linalg")
def matrix_exp(A: Tensor) -> Tensor:
    """The matrix exponential (torch docs: torch.linalg.matrix_exp)."""
    return _matrix_exp(A)


@op("torch method", name="matrix_exp")
def _torch_matrix_exp(input: Tensor) -> Tensor:
    """`torch.linalg.matrix_exp`."""
    return _matrix_exp(input)


@op("linalg out")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A as a map from its last dimensions to its first `ind` (torch docs: torch.linalg.tensorinv)."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    first, last = A._a.shape[:ind], A._a.shape[ind:]
    m, n = 1, 1
    for s in first:
        m *= s
    for s in last:
        n *= s
    if m != n:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}"
        )
    return inv(A.reshape(m, n)).reshape((*last, *first))


@op("linalg out")
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B (torch docs: torch.linalg.tensorsolve)."""
    a = A
    if dims is not None:
        moved = [wrap_dim(d, A.ndim, "tensorsolve") for d in dims]
        a = A.permute(*[d for d in range(A.ndim) if d not in moved], *moved)
    shape = a._a.shape[B.ndim :]
    rows = B._a.size
    columns = math.prod(shape)
    if rows != columns or a._a.size != rows * columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{columns} != {rows}"
        )
    return solve(a.reshape(rows, rows), B.reshape(-1)).reshape(shape)


@op("linalg")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 … N-1 of each element, in a new last dimension (torch docs: torch.linalg.vander)."""
    if check_tensor(x, "linalg.vander", "x").ndim == 0:
        x = x.reshape(1)
    n = x._a.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError("N must be greater than 1.")
    kind = x if x.dtype.category >= dtypes.FLOATING or x.dtype.category == dtypes.INTEGRAL else x.to(dtypes.int64)
    kind = kind if kind.dtype.category != dtypes.INTEGRAL else kind.to(dtypes.int64)
    powers = kind.unsqueeze(-1).expand((*x._a.shape, n - 1)).cumprod(-1)
    return prims.vjps._cat([powers.new_ones((*x._a.shape, 1)), powers], -1)


@op("linalg out")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of conj(x) y along a dimension (torch docs: torch.linalg.vecdot)."""
    check_inexact("linalg.vecdot", check_tensor(x, "linalg.vecdot"), half=True)
    return ((x.conj() if x.is_complex() else x) * y).sum(dim)


@op("linalg", name="diagonal")
def _linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """`torch.diagonal` of matrices by default (torch docs: torch.linalg.diagonal)."""
    return A.diagonal(offset, dim1, dim2)


@whole("LinalgCross")
def cross_of(name: str, x: Tensor, y: Tensor, dim: int) -> Tensor:
    """x × y along a dimension of size 3, broadcast."""
    if check_tensor(x, name).ndim != check_tensor(y, name, "other", 2).ndim:
        raise RuntimeError(f"{name}: inputs must have the same number of dimensions. Got {x.ndim} and {y.ndim}")
    d = wrap_dim(dim, x.ndim, name)
    if x.ndim == 0 or x._a.shape[d] != 3 or y._a.shape[d] != 3:
        sizes = [t._a.shape[d] if t.ndim else 1 for t in (x, y)]
        raise RuntimeError(f"{name}: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}")
    shape = broadcast_shapes(name, x._a.shape, y._a.shape)
    a, b = x.expand(shape).unbind(d), y.expand(shape).unbind(d)
    from tocha.ops.shape import stack

    return stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], d)


@op("linalg strictout")
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product along a dimension of size 3 (torch docs: torch.linalg.cross)."""
    return cross_of("linalg.cross", input, other, dim)
