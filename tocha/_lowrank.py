"""Approximate decompositions: svd_lowrank and pca_lowrank (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1), and lobpcg."""

from __future__ import annotations

from typing import Any

from tocha.dispatch.registry import NAMESPACES
from tocha.tensor import Tensor

__all__ = ["lobpcg", "pca_lowrank", "svd_lowrank"]


def _orthonormal(x: Any) -> Any:
    return NAMESPACES["linalg"]["qr"](x)[0]


def _basis(A: Any, q: int, niter: int) -> Any:
    """Orthonormal columns (…, m, q) that about span A's leading left singular vectors."""
    found = _orthonormal(A @ NAMESPACES["torch"]["randn"](A.shape[-1], q, dtype=A.dtype, device=A.device))
    for _ in range(niter):
        found = _orthonormal(A @ _orthonormal(A.mH @ found))
    return found


def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """U (…, m, q), S (…, q) and V (…, n, q) of about the leading part of A - M (torch docs: torch.svd_lowrank)."""
    rank, rounds = 6 if q is None else q, 2 if niter is None else niter
    if rounds < 0:
        raise ValueError(f"svd_lowrank: niter (={rounds}) must be a non-negative integer")
    A = A if M is None else A - M.broadcast_to(A.shape)
    basis = _basis(A, rank, rounds)
    U, S, Vh = NAMESPACES["linalg"]["svd"](basis.mH @ A, full_matrices=False)
    return basis @ U, S, Vh.mH.resolve_conj()


def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of A (…, m, n) less the mean of its rows (torch docs: torch.pca_lowrank)."""
    m, n = A.shape[-2:]
    rank = min(6, m, n) if q is None else q
    if not 0 <= rank <= min(m, n):
        raise ValueError(f"q(={rank}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, rank, niter)


def lobpcg(
    A: Any, k: int | None = None, B: Any = None, X: Any = None, n: int | None = None, iK: Any = None, niter: int | None = None,
    tol: float | None = None, largest: bool | None = None, method: str | None = None, tracker: Any = None, ortho_iparams: Any = None,
    ortho_fparams: Any = None, ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest (or smallest) eigenvalues of a symmetric matrix, or of the pair A, B, and their vectors (torch docs:
    torch.lobpcg). Matrices are dense here, so the whole decomposition is computed: results are exact whatever is said of iterations."""
    if A.shape[-1] != A.shape[-2]:
        raise ValueError(f"lobpcg: A must be square, got shape {list(A.shape)}")
    count = (1 if X is None else X.shape[-1]) if k is None else k
    if not 1 <= count <= A.shape[-1] // 3:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={A.shape[-1]}) is smaller than 3 x the number of "
            f"requested eigenpairs (={count})"
        )
    linalg = NAMESPACES["linalg"]
    if B is None:
        values, vectors = linalg["eigh"](A)
    else:
        lower = linalg["cholesky"](B)
        half = linalg["solve_triangular"](lower, A, upper=False)
        values, vectors = linalg["eigh"](linalg["solve_triangular"](lower, half.mH, upper=False))
        vectors = linalg["solve_triangular"](lower.mH, vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :count], vectors[..., :count]
