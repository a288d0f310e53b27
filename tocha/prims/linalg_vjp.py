"""Gradients of matrix factorisations, in ordinary operators.

Sources: Giles 2008, "An extended collection of matrix derivative results"; Townsend 2016 (SVD); Seeger et al. 2017 (QR, Cholesky,
eigh); Boeddeker et al. 2017 (complex eigenproblems); Golub and Pereyra 1973 (least squares); Al-Mohy and Higham 2009 (exponential).
ᴴ is the conjugate transpose; gradients of complex matrices follow torch's convention.
"""

from __future__ import annotations

from typing import Any


def _prims() -> Any:
    from tocha.prims import linalg

    return linalg


def _eye(like: Any, n: int) -> Any:
    from tocha.ops.ranges import eye

    return eye(n, dtype=like.dtype, device=like.device)


def _diag(x: Any) -> Any:
    """Diagonal matrices from the last dimension."""
    return x.unsqueeze(-1) * _eye(x, x.shape[-1])


def _diagonal(x: Any) -> Any:
    return x.diagonal(0, -2, -1)


def _real_like(g: Any, dtype: Any) -> Any:
    """The real part, where the matrix was real."""
    return g.real if g.is_complex() and not dtype.is_complex else g


def _solve(a: Any, b: Any) -> Any:
    return _prims().solve(a, b)[0]


def _tri_solve(a: Any, b: Any, upper: bool, unit: bool = False) -> Any:
    return _prims().solve_triangular(a, b, upper=upper, unit=unit)


def cholesky(g: Any, L: Any) -> Any:
    g = g[0]
    if g is None:
        return None
    phi = L.mH.matmul(g).tril()
    phi = phi - _diag(_diagonal(phi)) * 0.5
    half = _tri_solve(L.mH, phi, True)  # L^-H φ
    found = _tri_solve(L.mH, half.mH, True).mH  # … L^-1
    return (found + found.mH) * 0.5


def solve(g: Any, a: Any, out: Any, *, needs: Any) -> Any:
    g = g[0]
    if g is None:
        return None, None
    of_b = _solve(a.mH, g)
    return -of_b.matmul(out.mH) if needs[0] else None, of_b


def inverse(g: Any, out: Any) -> Any:
    return None if g[0] is None else -out.mH.matmul(g[0]).matmul(out.mH)


def det(g: Any, a: Any, out: Any) -> Any:
    if a.is_meta or not out._a.size or not a.shape[-1]:
        return a.new_zeros(a.shape)
    if bool((out.detach() == 0).any()):
        return _det_singular(g, a)
    wide = _diag((g * out.conj()).unsqueeze(-1).expand(a.shape[:-1]))
    return _solve(a.mH, wide)


def _det_singular(g: Any, a: Any) -> Any:
    """By the cofactors, from the SVD: each singular value's factor is the product of the others."""
    from tocha.ops.shape import stack

    u, s, vh = _prims().svd(a, full=True)
    n = a.shape[-1]
    others = []
    for i in range(n):
        product: Any = 1.0
        for j in range(n):
            if j != i:
                product = product * s.select(-1, j)
        others.append(product if n > 1 else s.select(-1, 0) * 0 + 1)
    phase = (_prims().det(u) * _prims().det(vh)).conj()
    middle = stack(others, -1) * (g * phase).unsqueeze(-1)
    return (u * middle.unsqueeze(-2)).matmul(vh)


def slogdet(g: Any, a: Any, sign: Any) -> Any:
    of_sign, of_log = g
    factor: Any = None if of_log is None else of_log
    if a.is_complex() and of_sign is not None:
        turn = (of_sign.conj() * sign).imag
        factor = -1j * turn if factor is None else factor - 1j * turn
    if factor is None:
        return None
    if not a.shape[-1]:
        return a.new_zeros(a.shape)
    return _solve(a.mH, _diag(factor.to(a.dtype).unsqueeze(-1).expand(a.shape[:-1])))


def solve_triangular(g: Any, a: Any, out: Any, *, upper: bool, unit: bool, needs: Any) -> Any:
    of_b = _tri_solve(a.mH, g, not upper, unit)
    of_a = None
    if needs[0]:
        of_a = -of_b.matmul(out.mH)
        offset = int(unit)
        of_a = of_a.triu(offset) if upper else of_a.tril(-offset)
    return of_a, of_b


def cholesky_solve(g: Any, factor: Any, out: Any, *, upper: bool, needs: Any) -> Any:
    of_b = _prims().cholesky_solve(g, factor, upper=upper)
    if not needs[1]:
        return of_b, None
    both = of_b.matmul(out.mH)
    both = both + both.mH
    return of_b, -factor.matmul(both) if upper else -both.matmul(factor)


def lu_factor(g: Any, a_shape: Any, LU: Any, pivots: Any) -> Any:
    g = g[0]
    if g is None:
        return None
    m, n = a_shape[-2:]
    k = min(m, n)
    if k == 0:
        return g
    lower, upper = LU.narrow(-1, 0, k).tril(-1), LU.narrow(-2, 0, k).triu()
    l1 = lower.narrow(-2, 0, k) + _eye(LU, k)
    u1 = upper.narrow(-1, 0, k)
    of_lower, of_upper = g.narrow(-1, 0, k).tril(-1), g.narrow(-2, 0, k).triu()
    left = l1.mH.matmul(of_lower.narrow(-2, 0, k))
    right = of_upper.narrow(-1, 0, k).matmul(u1.mH)
    if n > k:
        left = left - of_upper.narrow(-1, k, n - k).matmul(upper.narrow(-1, k, n - k).mH)
    if m > k:
        right = right - lower.narrow(-2, k, m - k).mH.matmul(of_lower.narrow(-2, k, m - k))
    inner = _tri_solve(l1.mH, left.tril(-1) + right.triu(), True, True)
    square = _tri_solve(u1, inner.mH, True).mH if n <= m or n > k else inner
    whole = square
    if n > k:
        whole = _cat([square, _tri_solve(l1.mH, of_upper.narrow(-1, k, n - k), True, True)], -1)
    if m > k:
        whole = _cat([square, _tri_solve(u1, of_lower.narrow(-2, k, m - k).mH, True).mH], -2)
    return _prims().pivots_to_matrix(pivots, size=m, dtype=LU._a.dtype).matmul(whole)


def _cat(parts: list[Any], dim: int) -> Any:
    from tocha.ops.shape import cat

    return cat(parts, dim)


def qr(g: Any, Q: Any, R: Any, *, mode: str) -> Any:
    of_q, of_r = g
    m, n = Q.shape[-2], R.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    if of_q is None and of_r is None:
        return None
    if m >= n:
        return _qr_tall(of_q, of_r, Q, R)
    u, of_u, of_v = R.narrow(-1, 0, m), None, None
    if of_r is not None:
        of_u, of_v = of_r.narrow(-1, 0, m), of_r.narrow(-1, m, n - m)
        # V = Qᴴ Y: its gradient reaches Q through Y
        y = Q.matmul(R.narrow(-1, m, n - m))
        through = y.matmul(of_v.mH)
        of_q = through if of_q is None else of_q + through
    of_x = _qr_tall(of_q, of_u, Q, u)
    of_y = Q.new_zeros((*Q.shape[:-1], n - m)) if of_v is None else Q.matmul(of_v)
    return _cat([of_x, of_y], -1)


def _qr_tall(of_q: Any, of_r: Any, q: Any, r: Any) -> Any:
    middle: Any = 0
    if of_r is not None:
        middle = r.matmul(of_r.triu().mH)
    if of_q is not None:
        middle = middle - of_q.mH.matmul(q)
    lower = middle.tril(-1)
    diagonal = _diagonal(middle)
    both = lower + lower.mH + _diag(diagonal.real.to(diagonal.dtype) if diagonal.is_complex() else diagonal)
    inner = q.matmul(both)
    if of_q is not None:
        inner = inner + of_q
    return _tri_solve(r, inner.mH, True).mH


def _gaps(values: Any) -> Any:
    """values_j - values_i, 1 on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + _eye(values, values.shape[-1])


def _skew(x: Any) -> Any:
    return x - x.mH


def svd(g: Any, a_shape: Any, U: Any, S: Any, Vh: Any, *, full: bool) -> Any:
    of_u, of_s, of_vh = g
    if of_u is None and of_vh is None:
        if of_s is None:
            return None
        k = S.shape[-1]
        return (U.narrow(-1, 0, k) * of_s.to(U.dtype).unsqueeze(-2)).matmul(Vh.narrow(-2, 0, k))
    m, n = a_shape[-2:]
    k = min(m, n)
    if full and m != n:
        U, Vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
        of_u = None if of_u is None else of_u.narrow(-1, 0, k)
        of_vh = None if of_vh is None else of_vh.narrow(-2, 0, k)
    S = S.to(U.dtype)
    gaps = _gaps(S * S)
    middle: Any = 0 if of_s is None else _diag(of_s.to(U.dtype))
    along_u = along_v = None
    if of_u is not None:
        along_u = U.mH.matmul(of_u)
        middle = middle + _skew(along_u) / gaps * S.unsqueeze(-2)
    if of_vh is not None:
        along_v = Vh.matmul(of_vh.mH)
        middle = middle + S.unsqueeze(-1) * (_skew(along_v) / gaps)
    if U.is_complex() and along_u is not None:  # the phase of each pair of vectors is free
        middle = (
            middle - _diag(_diagonal(middle)) + _diag(_diagonal(middle).real.to(U.dtype) + _diagonal(_skew(along_u)) / (2 * S))
        )
    found = U.matmul(middle).matmul(Vh)
    if m > k and of_u is not None:
        found = found + ((of_u - U.matmul(along_u)) / S.unsqueeze(-2)).matmul(Vh)
    if n > k and of_vh is not None:
        found = found + (U / S.unsqueeze(-2)).matmul(of_vh - along_v.mH.matmul(Vh))  # type: ignore[union-attr]
    return found


def eigh(g: Any, w: Any, V: Any, *, lower: bool) -> Any:
    of_w, of_v = g
    if of_v is None:
        return None if of_w is None else (V * of_w.to(V.dtype).unsqueeze(-2)).matmul(V.mH)
    middle = V.mH.matmul(of_v) / _gaps(w)
    middle = middle - _diag(_diagonal(middle))
    if of_w is not None:
        middle = middle + _diag(of_w.to(V.dtype))
    return V.matmul(middle).matmul(V.mH)


def eig(g: Any, a_dtype: Any, w: Any, V: Any) -> Any:
    of_w, of_v = g
    if of_v is None:
        if of_w is None:
            return None
        return _real_like(_solve(V.mH, of_w.unsqueeze(-1) * V.mH), a_dtype)
    along = V.mH.matmul(of_v)
    scale = _diagonal(along).real.to(V.dtype)
    middle = (along - V.mH.matmul(V * scale.unsqueeze(-2))) / _gaps(w).conj()
    middle = middle - _diag(_diagonal(middle))
    if of_w is not None:
        middle = middle + _diag(of_w)
    return _real_like(_solve(V.mH, middle.matmul(V.mH)), a_dtype)


def pinv_gradient(g: Any, a: Any, p: Any) -> Any:
    """Of the pseudo-inverse p of a, for constant rank."""
    ph = p.mH
    found = -ph.matmul(g).matmul(ph)
    gh = g.mH
    found = found + (gh - a.matmul(p.matmul(gh))).matmul(p).matmul(ph)
    return found + ph.matmul(p.matmul(gh) - p.matmul(gh).matmul(p).matmul(a))


def lstsq(g: Any, a: Any, b: Any, *, needs: Any) -> Any:
    g = g[0]
    if g is None:
        return None, None
    zero = a.new_zeros((), dtype=a.dtype.to_real())
    p = _prims().pinv(a, zero, zero + 1e-12, hermitian=False)
    of_a = pinv_gradient(g.matmul(b.mH), a, p) if needs[0] else None
    return of_a, p.mH.matmul(g) if needs[1] else None


def matrix_exp(g: Any, a: Any) -> Any:
    """The Fréchet derivative, read off the exponential of a block triangular matrix."""
    n = a.shape[-1]
    ah = a.mH
    top = _cat([ah, g], -1)
    bottom = _cat([a.new_zeros(a.shape), ah], -1)
    return _prims().matrix_exp(_cat([top, bottom], -2)).narrow(-2, 0, n).narrow(-1, n, n)
