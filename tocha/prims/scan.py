"""Scans: sums, products and extremes of everything up to each place along one dimension.

Floats accumulate in float64 and round once for each element, as torch's do on the CPU.
"""

from __future__ import annotations

from typing import Any

from tocha.autograd.mode import is_grad_enabled
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.elementary import conj, keep
from tocha.prims.reduce import some_hold


def _infer(input: Any, *, dim: int) -> MetaArray:
    return MetaArray(input.shape, input.dtype)


def _infer_picked(input: Any, *, dim: int) -> tuple[MetaArray, MetaArray]:
    return MetaArray(input.shape, input.dtype), MetaArray(input.shape, "int64")


def _scan(xp: Any, name: str, x: Any, dim: int) -> Any:
    wide = {"f4": xp.dtype("f8"), "c8": xp.dtype("c16")}.get(x.dtype.str[1:], x.dtype)
    return xp.scan(name, x, dim, wide).astype(x.dtype, copy=False)


@prim("cumsum", "scan", vjp=lambda g, *, dim: reversed_cumsum(g, dim=dim), infer=_infer)
def cumsum(xp: Any, input: Any, *, dim: int) -> Any:
    return _scan(xp, "add", input, dim)


@prim("reversed_cumsum", "scan", vjp=lambda g, *, dim: cumsum(g, dim=dim), infer=_infer)
def reversed_cumsum(xp: Any, input: Any, *, dim: int) -> Any:
    """The sum of what follows each place, itself included."""
    return xp.flip(_scan(xp, "add", xp.flip(input, dim), dim), dim).copy()


def _cumprod_vjp(g: Any, input: Any, out: Any, *, dim: int) -> Any:
    zeros = input == 0
    if some_hold(zeros) is False:
        return reversed_cumsum(g * conj(out), dim=dim) / conj(input)
    if is_grad_enabled():
        return _cumprod_slowly(g, input, dim)
    # Up to the first zero the usual formula holds with what comes before it; the first zero itself gets the products of
    # what follows, with the zero taken out; nothing after it has a gradient.
    seen = cumsum(zeros.long(), dim=dim)
    before, first = seen == 0, zeros & (seen == 1)
    filled = input.masked_fill(zeros, 1)
    head = keep(reversed_cumsum(keep(g * conj(out), before), dim=dim) / conj(filled), before)
    skipped = cumprod(input.masked_fill(first, 1), dim=dim)
    return head + keep(reversed_cumsum(keep(g * conj(skipped), ~before), dim=dim), first)


def _cumprod_slowly(g: Any, input: Any, dim: int) -> Any:
    """Place by place, from products that leave that place out: quadratic, but it differentiates again where inputs are 0."""
    n = input.shape[dim]
    grads = []
    before = input.new_ones(input.select(dim, 0).shape).unsqueeze(dim)
    for k in range(n):
        after = before
        if k + 1 < n:
            rest = cumprod(input.narrow(dim, k + 1, n - k - 1), dim=dim)
            after = before * _joined(rest.new_ones(before.shape), rest, dim)
        grads.append((g.narrow(dim, k, n - k) * conj(after)).sum(dim, True))
        before = before * input.narrow(dim, k, 1)
    from tocha.prims.move import cat

    return cat(*grads, dim=dim)


def _joined(a: Any, b: Any, dim: int) -> Any:
    from tocha.prims.move import cat

    return cat(a, b, dim=dim)


@prim("cumprod", "scan", vjp=_cumprod_vjp, infer=_infer)
def cumprod(xp: Any, input: Any, *, dim: int) -> Any:
    return _scan(xp, "multiply", input, dim)


# ---- running extremes


def _picked_vjp(g: Any, input_shape: Any, indices: Any, *, dim: int) -> Any:
    return None if g[0] is None else g[0].new_zeros(input_shape).scatter_add(dim, indices, g[0])


def _running(xp: Any, input: Any, dim: int, name: str) -> Any:
    """Extremes so far and where they were last reached; once NaN is met it stays."""
    values = xp.scan(name, input, dim)
    reached = xp.eq(input, values)
    if input.dtype.kind == "f":
        reached = xp.logical_or(reached, xp.isnan(input))
    places = xp.arange(input.shape[dim]).reshape((-1,) + (1,) * (input.ndim - dim - 1))
    return values, xp.scan("maximum", xp.where(reached, places, 0), dim)


@prim("cummax", "scan", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def cummax(xp: Any, input: Any, *, dim: int) -> Any:
    return _running(xp, input, dim, "maximum")


@prim("cummin", "scan", vjp=_picked_vjp, outputs=("values", "indices"), infer=_infer_picked)
def cummin(xp: Any, input: Any, *, dim: int) -> Any:
    return _running(xp, input, dim, "minimum")


# ---- running log of a sum of exponentials


def _logcumsumexp_vjp(g: Any, input: Any, out: Any, *, dim: int) -> Any:
    """The sum over later places of g e^(x - out). Kept in logarithms, parts of each sign apart, so that nothing
    overflows however far x and out are from 0."""
    if g.is_complex():
        inner = g * conj((-out).exp())
        return reversed_cumsum(inner, dim=dim) * conj(input.exp())
    low = float("-inf")
    out = out.masked_fill(out == low, 0)  # sums of nothing but zeros: no gradient rather than NaN
    parts = []
    for part in (g, -g):
        logs = part.masked_fill(part <= 0, 1).log().masked_fill(part <= 0, low)
        later = logcumsumexp((logs - out).flip(dim), dim=dim).flip(dim)
        parts.append((later + input).exp())
    return parts[0] - parts[1]


@prim("logcumsumexp", "scan", vjp=_logcumsumexp_vjp, infer=_infer)
def logcumsumexp(xp: Any, input: Any, *, dim: int) -> Any:
    if input.dtype.kind == "f":
        return xp.scan("logaddexp", input, dim)
    from tocha.prims.elementary import _logaddexp

    out = input.copy()
    lead = (slice(None),) * dim
    for i in range(1, input.shape[dim]):  # NumPy's logaddexp has no complex form
        out[(*lead, i)] = _logaddexp(xp, out[(*lead, i - 1)], out[(*lead, i)])
    return out
