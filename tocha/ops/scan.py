"""Cumulative operators, differences and the trapezoidal rule along a dimension."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.dispatch.inplace import assign, check_writable
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_dtype, check_tensor, wrap_dim
from tocha.ops.convert import to
from tocha.ops.reduce import accumulated
from tocha.ops.results import named
from tocha.ops.shape import cat
from tocha.prims import scan as prims
from tocha.tensor import Tensor


def _cumulative(name: str, prim: Any) -> None:
    def scan(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        input = accumulated(input, dtype, name)
        where = wrap_dim(dim, input._a.ndim, name)
        if not input._a.ndim:
            return input.clone()
        if input.dtype is dtypes.bool_:  # with dtype=bool, sums of bools are "or", products "and"
            return to(prim(to(input, dtypes.int64), dim=where), dtypes.bool_)
        return prim(input, dim=where)

    def scan_(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        check_writable(input, name + "_")
        kind = check_dtype(dtype, name)
        if kind is not None and kind is not input.dtype:
            raise RuntimeError(f"{name}_(): expected dtype {input.dtype}, the tensor's own, got {kind}")
        return assign(input, scan(input, dim, dtype=input.dtype), name + "_")

    doc = f"{name} along a dimension; integers become int64 (torch docs: torch.{name})."
    op("torch method typedout", name=name, doc=doc)(scan)
    op("method", name=name + "_", doc=f"`{name}` in place, in the tensor's own type.")(scan_)


_cumulative("cumsum", prims.cumsum)
_cumulative("cumprod", prims.cumprod)


@op("torch method strictout")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the cumulative sum of exponentials (torch docs: torch.logcumsumexp)."""
    if input._a.dtype.kind in "biu":
        raise NotImplementedError(f'"logcumsumexp_out_cpu" not implemented for {input.dtype.name}')
    where = wrap_dim(dim, input._a.ndim, "logcumsumexp")
    return prims.logcumsumexp(input, dim=where) if input._a.ndim else input.clone()


def _running(name: str, prim: Any) -> None:
    def running(input: Tensor, dim: int) -> Any:
        if input._a.dtype.kind == "c":
            raise NotImplementedError(f'"{name}_cpu" not implemented for complex tensors')
        where = wrap_dim(dim, input._a.ndim, name)
        if not input._a.ndim:
            return named(name, (input.clone(), input.new_zeros((), dtype=dtypes.int64)))
        return named(name, prim(input, dim=where))

    doc = f"Running {name[3:]}imum and the index of its last occurrence (torch docs: torch.{name})."
    op("torch method strictout", name=name, doc=doc)(running)


_running("cummax", prims.cummax)
_running("cummin", prims.cummin)


# ---- differences and integrals


@op("torch method out")
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The n-th differences along a dimension (torch docs: torch.diff)."""
    if input._a.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    where = wrap_dim(dim, input._a.ndim, "diff")
    for name, edge in (("prepend", prepend), ("append", append)):
        if edge is not None and edge._a.ndim != input._a.ndim:
            raise RuntimeError(
                f"diff expects {name} to have the same number of dimensions as input, got {edge._a.ndim} and {input._a.ndim}"
            )
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    parts = [edge for edge in (prepend, input, append) if edge is not None]
    joined = cat(parts, where) if len(parts) > 1 else input
    if n == 0:
        return joined.clone()
    n = min(n, joined._a.shape[where])
    for _ in range(n):
        length = joined._a.shape[where]
        high, low = joined.narrow(where, 1, length - 1), joined.narrow(where, 0, length - 1)
        joined = high ^ low if joined.dtype is dtypes.bool_ else high - low
    return joined


def _trapezia(y: Tensor, x: Any, dx: Any, dim: int, name: str) -> tuple[Tensor, int]:
    """The area of each interval along `dim`."""
    check_tensor(y, name, "y")
    where = wrap_dim(dim, y._a.ndim, name)
    if y._a.ndim and y._a.shape[where] == 0:
        return y, where
    if isinstance(x, Tensor):
        if x._a.ndim == 0:
            raise RuntimeError(f"{name}: Currently we only support dx as a real number, use dx= for a constant spacing")
        width = _spacing(y, x, where, name)
    else:
        width = dx
    n = y._a.shape[where]
    pairs = y.narrow(where, 0, n - 1) + y.narrow(where, 1, n - 1)
    return pairs * width / 2, where


def _spacing(y: Tensor, x: Tensor, dim: int, name: str) -> Tensor:
    if x._a.ndim == 1 and y._a.ndim > 1:
        if x._a.shape[0] != y._a.shape[dim]:
            raise RuntimeError(
                f"{name}: There must be one `x` value for each sample point: {x._a.shape[0]} for {y._a.shape[dim]} points"
            )
        x = x.reshape(*(-1 if i == dim else 1 for i in range(y._a.ndim)))
        return diff(x, dim=dim)
    missing = y._a.ndim - x._a.ndim
    if missing > 0:
        x = x.reshape(*(1,) * missing, *x._a.shape)
    return diff(x, dim=dim)


@op("torch", alias=("trapz",))
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral by the trapezoidal rule, over points x or steps dx (torch docs: torch.trapezoid)."""
    areas, where = _trapezia(y, x, 1 if dx is None else dx, dim, "trapezoid")
    return areas.sum(where)


@op("torch")
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral by the trapezoidal rule (torch docs: torch.cumulative_trapezoid)."""
    areas, where = _trapezia(y, x, 1 if dx is None else dx, dim, "cumulative_trapezoid")
    return areas.cumsum(where)


# ---- numerical gradient


@op("torch")
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Central differences along dimensions, one-sided at the edges (torch docs: torch.gradient)."""
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = tuple(range(input._a.ndim)) if dim is None else tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    dims = tuple(wrap_dim(d, input._a.ndim, "gradient") for d in dims)
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"gradient: dim {list(dims)} appears multiple times in the list of dims")
    steps = _steps(1 if spacing is None else spacing, dims)
    for d in dims:
        if input._a.shape[d] <= edge_order:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    if input._a.dtype.kind in "biu":
        input = to(input, dtypes.get_default_dtype()) if input.dtype is not dtypes.bool_ else input
    return tuple(_slope(input, step, d, edge_order) for step, d in zip(steps, dims, strict=True))


def _steps(spacing: Any, dims: tuple[int, ...]) -> list[Any]:
    if not isinstance(spacing, (tuple, list)):
        if isinstance(spacing, Tensor) and spacing._a.ndim and len(dims) > 1:
            raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar, or a list of its dimensions' length")
        return [spacing] * len(dims)
    if len(spacing) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(dims)}, but got a list of "
            f"length {len(spacing)}"
        )
    return list(spacing)


def _slope(x: Tensor, step: Any, dim: int, edge_order: int) -> Tensor:
    """Second-order differences on a grid that may be uneven (Fornberg 1988), of order `edge_order` at both ends."""
    n = x._a.shape[dim]

    def at(start: int, length: int) -> Tensor:
        return x.narrow(dim, start, length)

    if isinstance(step, Tensor) and step._a.ndim:
        if step._a.shape[0] != n:
            raise RuntimeError(
                "torch.gradient expected each element of spacing to have one coordinate for each point of its dimension"
            )
        widths = diff(step).reshape(*(-1 if i == dim else 1 for i in range(x._a.ndim)))
    else:
        widths = None
    size = (lambda start, length: step) if widths is None else (lambda start, length: widths.narrow(dim, start, length))
    if n > 2 and widths is None:
        inner = [(at(2, n - 2) - at(0, n - 2)) / (step * 2)]
    elif n > 2:
        a, b = size(0, n - 2), size(1, n - 2)
        inner = [-b / (a * (a + b)) * at(0, n - 2) + (b - a) / (a * b) * at(1, n - 2) + a / (b * (a + b)) * at(2, n - 2)]
    else:
        inner = []
    if edge_order == 1:
        first, last = (at(1, 1) - at(0, 1)) / size(0, 1), (at(n - 1, 1) - at(n - 2, 1)) / size(n - 2, 1)
    else:
        a, b = size(0, 1), size(1, 1)
        first = -(2 * a + b) / (a * (a + b)) * at(0, 1) + (a + b) / (a * b) * at(1, 1) - a / (b * (a + b)) * at(2, 1)
        a, b = size(n - 3, 1), size(n - 2, 1)
        last = b / (a * (a + b)) * at(n - 3, 1) - (a + b) / (a * b) * at(n - 2, 1) + (a + 2 * b) / (b * (a + b)) * at(n - 1, 1)
    return cat([first, *inner, last], dim)


# ---- covariance


@op("torch method")
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Covariance of variables in rows, with integer and real weights of the observations (torch docs: torch.cov)."""
    if input._a.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input._a.ndim} dimensions"
        )
    if input.dtype is dtypes.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = input.reshape(1, -1) if input._a.ndim < 2 else input
    count = rows._a.shape[1]
    _check_weights("fweights", fweights, count, "iu")
    _check_weights("aweights", aweights, count, "f")
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        middle = rows.sum(1, keepdim=True) / count
        degrees: Any = max(count - correction, 0)
    else:
        whole = weights.sum()
        if count and bool(whole == 0):
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        middle = (rows * weights).sum(1, keepdim=True) / whole
        lost = correction if aweights is None else (weights * aweights).sum() / whole * correction
        degrees = (whole - lost).clamp(min=0)
    _warn_if_none_left(degrees)
    centred = rows - middle
    other = centred if weights is None else to(centred * weights, centred.dtype)
    return (other @ centred.conj().transpose(0, 1) / degrees).squeeze()


def _warn_if_none_left(degrees: Any) -> None:
    if float(degrees) <= 0:
        import warnings

        warnings.warn("cov(): degrees of freedom is <= 0", UserWarning, stacklevel=4)


def _check_weights(name: str, weights: Tensor | None, count: int, kinds: str) -> None:
    if weights is None:
        return
    if weights._a.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights._a.ndim} dimensions"
        )
    if weights._a.dtype.kind not in kinds:
        wanted = "integral" if kinds == "iu" else "floating point"
        raise RuntimeError(f"cov(): expected {name} to have {wanted} dtype but got {name} with {weights.dtype.name} dtype")
    if weights._a.size != count:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input: {weights._a.size} and {count}"
        )
    if bool((weights < 0).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@op("torch method")
def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlation of variables in rows (torch docs: torch.corrcoef)."""
    if input._a.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input._a.ndim} dimensions"
        )
    found = cov(input)
    if found._a.ndim == 0:
        return found / found
    scale = found.diagonal().sqrt()
    found = found / scale.unsqueeze(-1) / scale.unsqueeze(0)
    if found.is_complex():
        from tocha.dispatch.registry import NAMESPACES

        return NAMESPACES["torch"]["complex"](found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)
