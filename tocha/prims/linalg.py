"""Matrix factorisations and solvers over (…, m, n) batches, by LAPACK through NumPy and SciPy. CUDA arrays go through the host.

Errors are LinAlgError with torch's wording. Gradients are in prims.linalg_vjp.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims import linalg_vjp as vjps

Shape = tuple[int, ...]
_INT32 = np.dtype(np.int32)


class LinAlgError(RuntimeError):
    """A matrix for which a factorisation or solution doesn't exist or wasn't found (torch docs: torch.linalg.LinAlgError)."""


LinAlgError.__module__ = "torch.linalg"


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel on NumPy arrays whatever the device."""

    @functools.wraps(function)
    def call(xp: Any, *arrays: Any, **params: Any) -> Any:
        return xp.on_host(function, *arrays, **params)

    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def each(function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply a function of matrices to every matrix of the batches; a tuple of stacked results."""
    lead = arrays[0].shape[:-2]
    if not lead:
        return tuple(np.asarray(x) for x in function(*arrays))
    count = int(np.prod(lead))
    flat = [a.reshape(count, *a.shape[-2:]) for a in arrays]
    if count == 0:
        stand_in = function(*(np.eye(*a.shape[-2:], dtype=a.dtype) for a in arrays))
        return tuple(np.empty((*lead, *np.shape(x)), np.asarray(x).dtype) for x in stand_in)
    results = [function(*matrices) for matrices in zip(*flat, strict=True)]
    return tuple(np.stack([r[i] for r in results]).reshape(*lead, *np.shape(results[0][i])) for i in range(len(results[0])))


def _lapack(name: str, a: Any) -> Any:
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs((name,), (a,))[0]


def _blas(name: str, a: Any) -> Any:
    from scipy.linalg import get_blas_funcs

    return get_blas_funcs((name,), (a,))[0]


def which(index: Any, lead: Shape) -> str:
    """'(Batch element i): ' where there is a batch."""
    return f"(Batch element {int(index)}): " if lead else ""


def _converged(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A NumPy decomposition; its failure as torch's error."""
    try:
        return function(*args, **options)
    except np.linalg.LinAlgError:
        why = "" if np.isfinite(args[0]).all() else " because the input matrix contained non-finite values"
        raise LinAlgError(f"{name}: The algorithm failed to converge{why}.") from None


def _meta(*shapes: Shape, dtype: Any) -> list[MetaArray]:
    return [MetaArray(s, dtype) for s in shapes]


def _real(dtype: Any) -> Any:
    return np.zeros((), dtype).real.dtype


# ---- Cholesky


@prim(
    "cholesky", "linalg", outputs=("L", "info"), vjp=vjps.cholesky,
    infer=lambda a: [MetaArray(a.shape, a.dtype), MetaArray(a.shape[:-2], _INT32)],
)  # fmt: skip
@on_host
def cholesky(xp: Any, a: Any) -> Any:
    """Lower L with L Lᴴ = a (its lower triangle is read), and for each matrix 0 or the order of the first minor that fails."""
    try:
        return np.linalg.cholesky(a), np.zeros(a.shape[:-2], _INT32)
    except np.linalg.LinAlgError:
        factor = _lapack("potrf", a)
        lower, info = each(lambda m: factor(m, lower=1, clean=1), a)
        return lower, info.astype(_INT32)


# ---- solve, inverse, determinant


def _singular(a: Any) -> Any:
    """For each matrix 0, or the place of the first zero pivot."""
    factor = _lapack("getrf", a)
    return each(lambda m: (factor(m)[2],), a)[0].astype(_INT32)


def _or_infinite(function: Callable[..., Any], a: Any, *rest: Any) -> Any:
    """`function(a, *rest)`, infinite for matrices that are singular, and what `_singular` says of them."""
    try:
        return function(a, *rest), np.zeros(a.shape[:-2], _INT32)
    except np.linalg.LinAlgError:
        info = _singular(a)
        good = np.where((info == 0)[..., None, None], a, np.eye(a.shape[-1], dtype=a.dtype))
        return np.where((info == 0)[..., None, None], function(good, *rest), np.asarray(np.inf, a.dtype)), info


@prim(
    "solve", "linalg", outputs=("out", "info"), vjp=vjps.solve,
    infer=lambda a, b: [MetaArray(b.shape, b.dtype), MetaArray(a.shape[:-2], _INT32)],
)  # fmt: skip
@on_host
def solve(xp: Any, a: Any, b: Any) -> Any:
    """x with a x = b for square a, and for each matrix 0 or the place of a zero pivot."""
    if not a.size or not b.size:
        return np.zeros(b.shape, b.dtype), np.zeros(a.shape[:-2], _INT32)
    return _or_infinite(np.linalg.solve, a, b)


@prim(
    "inverse", "linalg", outputs=("out", "info"), vjp=vjps.inverse,
    infer=lambda a: [MetaArray(a.shape, a.dtype), MetaArray(a.shape[:-2], _INT32)],
)  # fmt: skip
@on_host
def inverse(xp: Any, a: Any) -> Any:
    """The inverse, and for each matrix 0 or the place of a zero pivot."""
    return _or_infinite(np.linalg.inv, a)


@prim("det", "linalg", vjp=vjps.det, infer=lambda a: MetaArray(a.shape[:-2], a.dtype))
@on_host
def det(xp: Any, a: Any) -> Any:
    """The determinant."""
    return np.asarray(np.linalg.det(a)).astype(a.dtype, copy=False)


@prim(
    "slogdet", "linalg", outputs=("sign", "logabsdet"), vjp=vjps.slogdet,
    infer=lambda a: [MetaArray(a.shape[:-2], a.dtype), MetaArray(a.shape[:-2], _real(a.dtype))],
)  # fmt: skip
@on_host
def slogdet(xp: Any, a: Any) -> Any:
    """Sign (or unit complex number) and logarithm of the absolute value of the determinant."""
    sign, log = np.linalg.slogdet(a)
    return np.asarray(sign, a.dtype), np.asarray(log, _real(a.dtype))


@prim(
    "triangular_solve_prim", "linalg", vjp=vjps.solve_triangular, infer=lambda a, b, *, upper, unit: MetaArray(b.shape, b.dtype)
)
@on_host
def solve_triangular(xp: Any, a: Any, b: Any, *, upper: bool, unit: bool) -> Any:
    """x with a x = b, reading one triangle of a (a unit diagonal if `unit`)."""
    if not b.size:
        return np.zeros(b.shape, b.dtype)
    substitute = _blas("trsm", a)
    return each(lambda m, r: (substitute(1.0, m, r, side=0, lower=int(not upper), trans_a=0, diag=int(unit)),), a, b)[0]


@prim("cholesky_solve", "linalg", vjp=vjps.cholesky_solve, infer=lambda b, factor, *, upper: MetaArray(b.shape, b.dtype))
@on_host
def cholesky_solve(xp: Any, b: Any, factor: Any, *, upper: bool) -> Any:
    """x with a x = b from the Cholesky factor of a."""
    if not b.size:
        return np.zeros(b.shape, b.dtype)
    solver = _lapack("potrs", factor)
    return each(lambda m, r: (solver(m, r, lower=int(not upper))[0],), factor, b)[0]


# ---- LU


def _lu_infer(a: Any) -> list[MetaArray]:
    k = min(a.shape[-2:])
    return [MetaArray(a.shape, a.dtype), MetaArray((*a.shape[:-2], k), _INT32), MetaArray(a.shape[:-2], _INT32)]


@prim("lu_factor", "linalg", outputs=("LU", "pivots", "info"), vjp=vjps.lu_factor, infer=_lu_infer)
@on_host
def lu_factor(xp: Any, a: Any) -> Any:
    """L and U packed in one matrix, row exchanges (counted from 1), and for each matrix 0 or the place of a zero pivot."""
    if 0 in a.shape[-2:]:
        return a.copy(), np.zeros((*a.shape[:-2], 0), _INT32), np.zeros(a.shape[:-2], _INT32)
    factor = _lapack("getrf", a)
    packed, pivots, info = each(factor, a)
    return packed, (pivots + 1).astype(_INT32), info.astype(_INT32)


@prim("pivots_to_matrix", "linalg", infer=lambda pivots, *, size, dtype: MetaArray((*pivots.shape[:-1], size, size), dtype))
@on_host
def pivots_to_matrix(xp: Any, pivots: Any, *, size: int, dtype: Any) -> Any:
    """The permutation P of A = P L U from row exchanges."""
    lead = pivots.shape[:-1]
    swaps = pivots.reshape(int(np.prod(lead)), pivots.shape[-1]).astype(np.int64) - 1
    order = np.tile(np.arange(size), (swaps.shape[0], 1))
    rows = np.arange(swaps.shape[0])
    for i in range(swaps.shape[1]):
        kept = order[rows, i].copy()
        order[rows, i] = order[rows, swaps[:, i]]
        order[rows, swaps[:, i]] = kept
    out = np.zeros((swaps.shape[0], size, size), dtype)
    out[rows[:, None], order, np.arange(size)[None]] = 1
    return out.reshape(*lead, size, size)


# ---- QR, SVD, eigenvalues


def _qr_infer(a: Any, *, mode: str) -> list[MetaArray]:
    m, n = a.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    return _meta((*a.shape[:-2], m, k), (*a.shape[:-2], k, n), dtype=a.dtype)


@prim("qr", "linalg", outputs=("Q", "R"), vjp=vjps.qr, infer=_qr_infer)
@on_host
def qr(xp: Any, a: Any, *, mode: str) -> Any:
    """Orthonormal Q and upper triangular R, 'reduced' or 'complete'."""
    got: Any = np.linalg.qr(a, mode=mode)  # type: ignore[call-overload]
    return np.ascontiguousarray(got[0]), np.ascontiguousarray(got[1])


def _needs_q(g: Any) -> Any:
    raise RuntimeError(
        "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced') if you are "
        "going to backpropagate"
    )


@prim("qr_r", "linalg", vjp=_needs_q, infer=lambda a: MetaArray((*a.shape[:-2], min(a.shape[-2:]), a.shape[-1]), a.dtype))
@on_host
def qr_r(xp: Any, a: Any) -> Any:
    """R of the QR decomposition."""
    return np.ascontiguousarray(np.linalg.qr(a, mode="reduced")[1])


def _svd_infer(a: Any, *, full: bool) -> list[MetaArray]:
    m, n = a.shape[-2:]
    k, lead = min(m, n), a.shape[:-2]
    u, v = ((m, m), (n, n)) if full else ((m, k), (k, n))
    return [MetaArray((*lead, *u), a.dtype), MetaArray((*lead, k), _real(a.dtype)), MetaArray((*lead, *v), a.dtype)]


@prim("svd", "linalg", outputs=("U", "S", "Vh"), vjp=vjps.svd, infer=_svd_infer)
@on_host
def svd(xp: Any, a: Any, *, full: bool) -> Any:
    """Singular value decomposition a = U diag(S) Vh."""
    return tuple(_converged("linalg.svd", np.linalg.svd, a, full_matrices=full))


@prim(
    "eigh", "linalg", outputs=("w", "V"), vjp=vjps.eigh,
    infer=lambda a, *, lower: [MetaArray(a.shape[:-1], _real(a.dtype)), MetaArray(a.shape, a.dtype)],
)  # fmt: skip
@on_host
def eigh(xp: Any, a: Any, *, lower: bool) -> Any:
    """Eigenvalues (ascending) and vectors of a Hermitian matrix of which one triangle is read."""
    return tuple(_converged("linalg.eigh", np.linalg.eigh, a, UPLO="L" if lower else "U"))


def _complex(dtype: Any) -> Any:
    return np.result_type(dtype, np.complex64)


@prim(
    "eig", "linalg", outputs=("w", "V"), vjp=vjps.eig,
    infer=lambda a: [MetaArray(a.shape[:-1], _complex(a.dtype)), MetaArray(a.shape, _complex(a.dtype))],
)  # fmt: skip
@on_host
def eig(xp: Any, a: Any) -> Any:
    """Eigenvalues and vectors of a square matrix, complex."""
    if not np.isfinite(a).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    w, v = _converged("linalg.eig", np.linalg.eig, a)
    return w.astype(_complex(a.dtype)), v.astype(_complex(a.dtype))


# ---- others


@prim(
    "lstsq", "linalg", outputs=("solution", "residuals", "rank", "singular_values"), vjp=vjps.lstsq,
    infer=lambda a, b, *, rcond, driver: [
        MetaArray((*a.shape[:-2], a.shape[-1], b.shape[-1]), a.dtype), MetaArray((*a.shape[:-2], b.shape[-1]), _real(a.dtype)),
        MetaArray(a.shape[:-2], np.int64), MetaArray((*a.shape[:-2], min(a.shape[-2:])), _real(a.dtype)),
    ],
)  # fmt: skip
@on_host
def lstsq(xp: Any, a: Any, b: Any, *, rcond: float | None, driver: str) -> Any:
    """x of least |a x - b|, squared residuals, rank and singular values of a."""
    import scipy.linalg

    cond = np.finfo(a.dtype).eps * max(a.shape[-2:]) if rcond is None else rcond
    how = {"gels": "gelsy"}.get(driver, driver)

    def one(m: Any, r: Any) -> Any:
        x, _, rank, s = scipy.linalg.lstsq(m, r, cond=cond, lapack_driver=how)
        residual = (np.abs(m @ x - r) ** 2).sum(0)
        values = np.zeros(min(m.shape), _real(a.dtype)) if s is None else s
        return x, residual, np.int64(rank), values

    return each(one, a, b)


@prim("matrix_exp", "linalg", vjp=vjps.matrix_exp, infer=lambda a: MetaArray(a.shape, a.dtype))
@on_host
def matrix_exp(xp: Any, a: Any) -> Any:
    """The exponential of a square matrix."""
    import scipy.linalg

    wide = a.astype(np.result_type(a.dtype, np.float64))  # scaling and squaring loses digits in single precision
    return np.asarray(scipy.linalg.expm(wide)).astype(a.dtype) if a.size else a.copy()


@prim(
    "geqrf", "linalg", outputs=("a", "tau"),
    infer=lambda a: _meta(a.shape, (*a.shape[:-2], min(a.shape[-2:])), dtype=a.dtype),
)  # fmt: skip
@on_host
def geqrf(xp: Any, a: Any) -> Any:
    """R with Householder vectors below its diagonal, and their factors."""
    if 0 in a.shape[-2:]:
        return a.copy(), np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    factor = _lapack("geqrf", a)
    return each(lambda m: factor(m)[:2], a)


@prim(
    "ldl_factor", "linalg", outputs=("LD", "pivots", "info"),
    infer=lambda a, *, hermitian: [MetaArray(a.shape, a.dtype), MetaArray(a.shape[:-1], _INT32), MetaArray(a.shape[:-2], _INT32)],
)  # fmt: skip
@on_host
def ldl_factor(xp: Any, a: Any, *, hermitian: bool) -> Any:
    """Bunch-Kaufman factors of a symmetric (or Hermitian) matrix, packed, LAPACK's pivots (from 1), and info."""
    if not a.size:
        return a.copy(), np.zeros(a.shape[:-1], _INT32), np.zeros(a.shape[:-2], _INT32)
    factor = _lapack("hetrf" if hermitian and a.dtype.kind == "c" else "sytrf", a)
    packed, pivots, info = each(lambda m: factor(m, lower=1), a)
    return packed, pivots.astype(_INT32), info.astype(_INT32)


@prim("ldl_solve", "linalg", infer=lambda packed, pivots, b, *, hermitian: MetaArray(b.shape, b.dtype))
@on_host
def ldl_solve(xp: Any, packed: Any, pivots: Any, b: Any, *, hermitian: bool) -> Any:
    """x with A x = b from ldl_factor's result."""
    if not b.size:
        return np.zeros(b.shape, b.dtype)
    return each(lambda m, p, r: (_ldl_solve(m, p[0], r, hermitian),), packed, pivots[..., None, :], b)[0]


def _ldl_solve(packed: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """Forward through L, then the blocks of D, then back through Lᴴ, with the row exchanges of LAPACK's ?sytrf (lower)."""
    n, x = packed.shape[0], b.copy()
    flip = np.conj if hermitian else (lambda v: v)
    k, blocks = 0, []
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        other = abs(int(pivots[k + size - 1])) - 1
        here = k + size - 1
        if other != here:
            x[[here, other]] = x[[other, here]]
        x[k + size :] -= packed[k + size :, k : k + size] @ x[k : k + size]
        blocks.append((k, size, here, other))
        k += size
    for k, size, _, _ in blocks:
        if size == 1:
            x[k] = x[k] / (packed[k, k].real if hermitian else packed[k, k])
        else:
            low = packed[k + 1, k]
            block = np.array([[packed[k, k], flip(low)], [low, packed[k + 1, k + 1]]])
            x[k : k + 2] = np.linalg.solve(block, x[k : k + 2])
    for k, size, here, other in reversed(blocks):
        x[k : k + size] -= flip(packed[k + size :, k : k + size]).T @ x[k + size :]
        if other != here:
            x[[here, other]] = x[[other, here]]
    return x


@prim(
    "pinv", "linalg", vjp=(lambda g, a, out: vjps.pinv_gradient(g, a, out), None, None),
    infer=lambda a, atol, rtol, *, hermitian: MetaArray((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype),
)  # fmt: skip
@on_host
def pinv(xp: Any, a: Any, atol: Any, rtol: Any, *, hermitian: bool) -> Any:
    """The pseudo-inverse; singular values up to max(atol, rtol * the largest) count as 0."""
    if hermitian:
        w, v = _converged("linalg.eigh", np.linalg.eigh, a)
        size = np.abs(w)
        left, right = v, v.conj().swapaxes(-1, -2)
    else:
        u, w, vh = _converged("linalg.svd", np.linalg.svd, a, full_matrices=False)
        size = w
        left, right = vh.conj().swapaxes(-1, -2), u.conj().swapaxes(-1, -2)
    limit = np.maximum(atol, rtol * size.max(-1))[..., None]
    scale = np.where(size > limit, 1 / np.where(w == 0, 1, w), 0)
    return np.matmul(left * scale[..., None, :], right).astype(a.dtype, copy=False)
