"""Reductions: sum, mean, max, var, norm, any, … over given dimensions."""

from __future__ import annotations

import math
from typing import Any

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.backends import cpu, native
from tocha.dispatch.override import INTERPRETERS
from tocha.dispatch.prim import record
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops.arguments import check_dtype, check_tensor, wrap_dim, wrap_dims
from tocha.ops.convert import to
from tocha.ops.results import named
from tocha.prims import reduce as prims
from tocha.tensor import Tensor, wrap

Dims = int | tuple[int, ...] | None


_ALL_DIMS = tuple(tuple(range(n)) for n in range(10))
_REAL_NP = frozenset((dtypes.float32.np, dtypes.float64.np))
_TRUTH_NP = _REAL_NP | {dtypes.bool_.np}


def all_dims(input: Tensor) -> tuple[int, ...]:
    """Every dimension."""
    n = input._a.ndim
    return _ALL_DIMS[n] if n < 10 else tuple(range(n))


def _short(kernel: Any, prim: Any = None, types: Any = _REAL_NP, along: bool = False) -> Any:
    """The reduction, by `kernel(array, axis)`, of a small tensor of some types: of all its elements, or with `along` also of one
    dimension; of a large one by the native kernel of `prim`, which is also what is recorded: without it there are neither."""

    def short(input: Any, axis: Any = None, keepdim: Any = False, *more: Any) -> Tensor | None:
        if more or input.__class__ is not Tensor or keepdim.__class__ is not bool:
            return None
        a = input._a
        if a.__class__ is not cpu.Array or a.dtype not in types or not (0 < a.size < 512 or (prim and a.size >= native.LEAST["reduce"])):
            return None
        wanted = input._rg and state.grad
        if INTERPRETERS or (wanted and prim is None):
            return None
        if axis is not None and not (along and axis.__class__ is int and -a.ndim <= axis < a.ndim):
            return None
        if axis is None and keepdim:
            return None
        if a.size >= 512 and wanted:
            return None
        found = state.run(kernel, a, axis) if a.size < 512 else native.reduced(prim.name, a, axis)
        if found is None:
            return None
        if found.__class__ is not cpu.Array:
            found = cpu.as_array(found)
        if axis is not None and axis < 0:
            axis += a.ndim
        if keepdim:
            found = found.reshape(*a.shape[:axis], 1, *a.shape[axis + 1 :])
        out = wrap(found if found.flags.c_contiguous else found.copy())
        if wanted:
            record(prim, (input,), (out,), {"dim": all_dims(input) if axis is None else (axis,), "keepdim": keepdim})
        return out

    return short


def accumulated(input: Tensor, dtype: Any, name: str) -> Tensor:
    """The input as the type sums and products are made in: `dtype`, or int64 for integers and bools."""
    found = check_dtype(dtype, name)
    if found is None:
        found = dtypes.int64 if input._a.dtype.kind in "biu" else None
    return input if found is None or found.np is input._a.dtype else to(input, found)


def _inexact(input: Tensor, name: str, complex_too: bool = True) -> None:
    """RuntimeError unless floating point (or complex)."""
    if input._a.dtype.kind in "biu" or (not complex_too and input._a.dtype.kind == "c"):
        kinds = "floating point or complex" if complex_too else "floating point"
        raise RuntimeError(f"{name}(): input dtype must be {kinds}, but got {input.dtype}")


def _real(input: Tensor, name: str) -> None:
    if input._a.dtype.kind == "c":
        raise NotImplementedError(f'"{name}" not implemented for complex tensors')


def _not_empty(input: Tensor, dims: tuple[int, ...], name: str) -> None:
    """IndexError where a reduction without identity would run over no elements."""
    shape = input._a.shape
    for d in dims:
        if shape and shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


# ---- sums


def _mean(a: Any, axis: int | None) -> Any:
    return cpu.reduce_add(a, axis) / (a.size if axis is None else a.shape[axis])


@op("torch method typedout", short=_short(cpu.reduce_add, prims.sum_, along=True))
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum over all or the given dimensions; integers sum to int64 (torch docs: torch.sum)."""
    if dtype is not None or input._a.dtype.kind in "biu":
        input = accumulated(input, dtype, "sum")
    return prims.sum_(input, dim=all_dims(input) if dim is None else wrap_dims(dim, input._a.ndim, "sum"), keepdim=keepdim)


@op("torch method typedout", short=_short(_mean, prims.mean, along=True))
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Mean over all or the given dimensions, of floating-point or complex tensors (torch docs: torch.mean)."""
    if dtype is not None:
        input = to(input, check_dtype(dtype, "mean"))
    if input._a.dtype.kind in "biu":
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {input.dtype.name} (cast it or pass dtype=)"
        )
    return prims.mean(input, dim=all_dims(input) if dim is None else wrap_dims(dim, input._a.ndim, "mean"), keepdim=keepdim)


@op("torch method typedout")
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum with NaN counted as 0 (torch docs: torch.nansum)."""
    if input._a.dtype.kind == "c":
        raise RuntimeError("nansum does not support complex inputs")
    if input._a.dtype.kind in "biu":
        return sum(input, dim, keepdim, dtype=dtype)
    return sum(NAMESPACES["torch"]["where"](input.isnan(), 0, input), dim, keepdim, dtype=dtype)


@op("torch method typedout")
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Mean of the elements that aren't NaN (torch docs: torch.nanmean)."""
    if input._a.dtype.kind in "biu":
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.name}")
    valid = input.detach().isnan().logical_not()
    return nansum(input, dim, keepdim, dtype=dtype) / sum(valid, dim, keepdim)


@op("torch method typedout")
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Product over all dimensions or one; integers multiply to int64 (torch docs: torch.prod)."""
    input = accumulated(input, dtype, "prod")
    dims = all_dims(input) if dim is None else wrap_dims(wrap_dim(dim, input._a.ndim, "prod"), input._a.ndim)
    return prims.prod(input, dim=dims, keepdim=keepdim)


@op("torch method out")
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log of the sum of exponentials, without overflow (torch docs: torch.logsumexp)."""
    if input._a.dtype.kind in "biu":
        input = to(input, dtypes.get_default_dtype())
    return prims.logsumexp(input, dim=wrap_dims(dim, input._a.ndim, "logsumexp"), keepdim=keepdim)


op("special")(logsumexp)

# ---- extremes


def _over(name: str, prim: Any, kernel: Any) -> Any:
    def reduction(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        _real(input, name)
        dims = wrap_dims(dim, input._a.ndim, name)
        if (dim is None or (isinstance(dim, (tuple, list)) and not dim)) and input._a.size == 0:
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the dim.")
        _not_empty(input, dims, name)
        return prim(input, dim=dims, keepdim=keepdim)

    doc = f"The extreme over dimensions; ties share the gradient (torch docs: torch.{name})."
    return op("torch method strictout", name=name, short=_short(kernel, prim, along=True), doc=doc)(reduction)


amax = _over("amax", prims.amax, cpu.reduce_max)
amin = _over("amin", prims.amin, cpu.reduce_min)


def _extreme(name: str, pick: Any, reduce: Any, whole: Any) -> Any:
    """max and min: over everything, along a dimension (with indices), or of two tensors."""
    between = NAMESPACES["torch"][name + "imum"]

    def extreme(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if dim is None and other is None:
            if input._a.size == 0:
                raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the dim.")
            _real(input, name)
            return reduce(input, dim=all_dims(input), keepdim=False)
        if other is not None or isinstance(dim, Tensor):
            return between(input, dim if other is None else other)
        _real(input, name)
        where = wrap_dim(dim, input._a.ndim, name)
        _not_empty(input, (where,), name)
        return named(name, pick(input, dim=where, keepdim=keepdim))

    doc = f"The {name}imum of all elements, along a dimension, or of two tensors (torch docs: torch.{name})."
    return op("torch method out", name=name, short=_short(whole, reduce), doc=doc)(extreme)


max = _extreme("max", prims.max_dim, prims.amax, cpu.reduce_max)
min = _extreme("min", prims.min_dim, prims.amin, cpu.reduce_min)


def _index_of(name: str, prim: Any) -> Any:
    def index(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if input._a.dtype.kind in "bc":
            kind = "bool" if input._a.dtype.kind == "b" else "complex"
            raise RuntimeError(f"{name}(): does not support {kind} input")
        if dim is None:
            if input._a.size == 0:
                raise IndexError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim"
                )
        else:
            dim = wrap_dim(dim, input._a.ndim, name)
            _not_empty(input, (dim,), name)
        return prim(input, dim=dim, keepdim=keepdim)

    doc = f"The first index of the extreme, of the flattened tensor or along a dimension (torch docs: torch.{name})."
    return op("torch method strictout", name=name, doc=doc)(index)


argmax = _index_of("argmax", prims.argmax)
argmin = _index_of("argmin", prims.argmin)


@op("torch method strictout")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """Both extremes, over everything or along a dimension (torch docs: torch.aminmax)."""
    _real(input, "aminmax")
    if dim is None:
        dims = all_dims(input)
        if input._a.size == 0:
            raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    else:
        dims = wrap_dims(wrap_dim(dim, input._a.ndim, "aminmax"), input._a.ndim)
        _not_empty(input, dims, "aminmax")
    return named("aminmax", (prims.amin(input, dim=dims, keepdim=keepdim), prims.amax(input, dim=dims, keepdim=keepdim)))


# ---- logic and counts


def _logic(name: str, prim: Any, kernel: Any) -> Any:
    def reduction(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        found = prim(input, dim=wrap_dims(dim, input._a.ndim, name, empty_is_all=False), keepdim=keepdim)
        return to(found, dtypes.uint8) if input.dtype is dtypes.uint8 else found

    doc = f"Whether {name} elements are non-zero, as bool (uint8 of uint8) (torch docs: torch.{name})."
    return op("torch method out", name=name, short=_short(kernel, None, _TRUTH_NP, along=True), doc=doc)(reduction)


any = _logic("any", prims.any_, cpu.reduce_or)
all = _logic("all", prims.all_, cpu.reduce_and)


@op("torch method")
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements aren't zero (torch docs: torch.count_nonzero)."""
    return prims.count_nonzero(input, dim=wrap_dims(dim, input._a.ndim, "count_nonzero"))


# ---- variance


def _spread_arguments(name: str, input: Tensor, dim: Any, unbiased: Any, correction: Any) -> tuple[tuple[int, ...], float]:
    """dim and correction from torch's two signatures: f(input, unbiased) and f(input, dim, unbiased | correction=)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    _inexact(input, name)
    if correction is None:
        correction = 1.0 if unbiased is None else float(bool(unbiased))
    dims = wrap_dims(dim, input._a.ndim, name)
    if prims.count(input._a.shape, dims) - correction <= 0:
        _warn_degrees(name)
    return dims, float(correction)


def _warn_degrees(name: str) -> None:
    import warnings

    warnings.warn(
        f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
        "divided by output numel).",
        UserWarning,
        stacklevel=5,
    )


def _dispersion(name: str, prim: Any, with_mean: bool) -> None:
    full = name + "_mean" if with_mean else name

    def reduction(
        input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
    ) -> Any:
        dims, correction = _spread_arguments(full, input, dim, unbiased, correction)
        found = prim(input, dim=dims, keepdim=keepdim, correction=correction)
        return (found, prims.mean(input, dim=dims, keepdim=keepdim)) if with_mean else found

    doc = f"{full} with Bessel's or another correction (torch docs: torch.{full})."
    op("torch" if with_mean else "torch method out", name=full, doc=doc)(reduction)


for _name, _prim in (("var", prims.var), ("std", prims.std)):
    _dispersion(_name, _prim, False)
    _dispersion(_name, _prim, True)

# ---- norms


@op("torch method strictout")
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Vector norm over dimensions, or 'fro'/'nuc' of matrices (torch docs: torch.norm)."""
    kind = check_dtype(dtype, "norm")
    if kind is not None:
        input = to(input, kind)
    _inexact(input, "norm")
    if isinstance(p, str):
        if p == "nuc":
            linalg = NAMESPACES["linalg"]["matrix_norm"]
            return linalg(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
        if p != "fro":
            raise RuntimeError(f"Only valid p values are numbers, 'fro' and 'nuc', got {p!r}")
        p = 2
    p = 2 if p is None else p
    if isinstance(p, Tensor):
        p = p.item()
    dims = wrap_dims(dim, input._a.ndim, "norm")
    if p < 0 or p == math.inf:
        for d in dims:
            if input._a.shape[d] == 0:
                raise RuntimeError(f"norm: a norm of order {p} of an empty dimension has no identity")
    return prims.vector_norm(input, ord=float(p), dim=dims, keepdim=keepdim)


@op("torch method")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other (torch docs: torch.dist)."""
    check_tensor(other, "dist", "other", 2)
    return norm(input - other, p)


@op("torch method inplace strictout")
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` scaled down to p-norm maxnorm where they exceed it (torch docs: torch.renorm)."""
    if input._a.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input._a.ndim} dimensions")
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    where = wrap_dim(dim, input._a.ndim, "renorm")
    others = tuple(i for i in range(input._a.ndim) if i != where)
    size = prims.vector_norm(input, ord=float(p), dim=others, keepdim=True)
    factor = NAMESPACES["torch"]["where"](size > maxnorm, maxnorm / (size + 1e-7), 1.0)
    return input * to(factor, input.dtype)
