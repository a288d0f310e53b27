"""torch.masked: reductions and normalisations over the elements that a mask keeps (torch docs: torch.masked)."""

from __future__ import annotations

import math
from typing import Any

from tocha import dtypes
from tocha.dispatch.registry import NAMESPACES, op
from tocha.ops import reduce
from tocha.ops.arguments import wrap_dims
from tocha.ops.convert import to
from tocha.tensor import Tensor

_TORCH = NAMESPACES["torch"]


def _lowest(dtype: dtypes.dtype) -> Any:
    if dtype is dtypes.bool_:
        return False
    return -math.inf if dtype.category >= dtypes.FLOATING else dtypes.iinfo(dtype).min


def _highest(dtype: dtypes.dtype) -> Any:
    if dtype is dtypes.bool_:
        return True
    return math.inf if dtype.category >= dtypes.FLOATING else dtypes.iinfo(dtype).max


def _mask_of(input: Tensor, mask: Tensor | None, name: str) -> Tensor | None:
    """The mask as bool, broadcastable to the input."""
    if mask is None:
        return None
    if mask._a.ndim > input._a.ndim:
        raise IndexError(f"masked.{name}: expected broadcastable mask (got mask dimensionality higher than of the input)")
    return to(mask, dtypes.bool_)


def _filled(input: Tensor, mask: Tensor | None, value: Any, name: str) -> Tensor:
    """The input with `value`, which leaves the operation's result alone, where the mask doesn't hold."""
    mask = _mask_of(input, mask, name)
    return input if mask is None else input.masked_fill(~mask, value)


def _cast(input: Tensor, dtype: Any) -> Tensor:
    return input if dtype is None else to(input, dtype)


def _float(input: Tensor, dtype: Any) -> Tensor:
    if dtype is None and input._a.dtype.kind in "biu":
        dtype = dtypes.get_default_dtype()
    return _cast(input, dtype)


@op("masked")
def sum(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Sum of the elements kept."""
    input = reduce.accumulated(input, dtype, "sum")
    return reduce.sum(_filled(input, mask, 0, "sum"), dim, bool(keepdim))


@op("masked")
def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """Product of the elements kept."""
    input = _filled(reduce.accumulated(input, dtype, "prod"), mask, 1, "prod")
    return reduce.prims.prod(input, dim=wrap_dims(dim, input._a.ndim, "prod"), keepdim=bool(keepdim))


@op("masked")
def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The largest of the elements kept; the type's lowest value if there are none."""
    input = _cast(input, dtype)
    return reduce.amax(_filled(input, mask, _lowest(input.dtype), "amax"), dim, bool(keepdim))


@op("masked")
def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The smallest of the elements kept; the type's highest value if there are none."""
    input = _cast(input, dtype)
    return reduce.amin(_filled(input, mask, _highest(input.dtype), "amin"), dim, bool(keepdim))


@op("masked")
def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """Index of the largest of the elements kept, in the input's type as in torch."""
    input = _cast(input, dtype)
    found = reduce.argmax(_filled(input, mask, _lowest(input.dtype), "argmax"), dim, bool(keepdim))
    return to(found, input.dtype)


@op("masked")
def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """Index of the smallest of the elements kept, in the input's type as in torch."""
    input = _cast(input, dtype)
    found = reduce.argmin(_filled(input, mask, _highest(input.dtype), "argmin"), dim, bool(keepdim))
    return to(found, input.dtype)


def _count(input: Tensor, mask: Tensor | None, dims: tuple[int, ...], name: str) -> Tensor:
    """How many elements are kept in each reduction, with dimensions kept."""
    mask = _mask_of(input, mask, name)
    kept = input.new_ones(input._a.shape, dtype=dtypes.int64) if mask is None else to(mask.expand(input._a.shape), dtypes.int64)
    return reduce.sum(kept, dims, True) if dims else kept


@op("masked")
def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """Mean of the elements kept; NaN if there are none."""
    input = _cast(input, dtype)
    if input._a.dtype.kind in "biu":
        raise ValueError(
            "mean(): Could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {input.dtype}"
        )
    if mask is None:
        return reduce.mean(input, dim, bool(keepdim))
    dims = wrap_dims(dim, input._a.ndim, "mean")
    found = reduce.sum(_filled(input, mask, 0, "mean"), dims, True) / _count(input, mask, dims, "mean")
    return found if keepdim else found.squeeze(dims)


@op("masked")
def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Lower median of the elements kept along a dimension; NaN if there are none."""
    input = _cast(input, dtype)
    if not input.is_floating_point():
        raise ValueError(f"input dtype must be floating point for masked.median, got {input.dtype}")
    if mask is None:
        return _TORCH["median"](input, dim, keepdim).values
    if bool(input.detach().isnan().any()):
        raise ValueError("masked.median expected no NaN in the input where a mask is given")
    return _TORCH["nanmedian"](_filled(input, mask, math.nan, "median"), dim, keepdim).values


@op("masked")
def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """log of the sum of exponentials of the elements kept, in the input's type as in torch."""
    input = _cast(input, dtype)
    found = reduce.logsumexp(
        _filled(input, mask, _lowest(input.dtype), "logsumexp"), wrap_dims(dim, input._a.ndim, "logsumexp"), keepdim
    )
    return to(found, input.dtype)


@op("masked")
def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None
) -> Tensor:
    """logaddexp where an operand's masked elements count as log(0)."""
    first = _filled(_float(input, dtype), input_mask, -math.inf, "logaddexp")
    second = _filled(_float(other, dtype), other_mask, -math.inf, "logaddexp")
    return _TORCH["logaddexp"](first, second)


@op("masked")
def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Any = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Vector norm of the elements kept."""
    input = _float(input, dtype)
    ord = 2.0 if ord is None else float(ord)
    return reduce.norm(
        _filled(input, mask, 0 if ord >= 0 else math.inf, "norm"), ord, wrap_dims(dim, input._a.ndim, "norm"), bool(keepdim)
    )


def _variance(input: Tensor, dim: Any, unbiased: Any, correction: Any, keepdim: Any, dtype: Any, mask: Any, name: str) -> Tensor:
    if unbiased is not None and correction is not None:
        raise RuntimeError(f"masked.{name}: Only one of unbiased and correction may be given")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    input = _float(input, dtype)
    dims = wrap_dims(dim, input._a.ndim, name)
    number = _count(input, mask, dims, name)
    centred = input - reduce.sum(_filled(input, mask, 0, name), dims, True) / number
    square = centred * centred if not centred.is_complex() else centred * centred.conj()  # torch keeps the type
    total = reduce.sum(_filled(square, mask, 0, name), dims, True)
    found = total / to((number - correction).clamp(min=0), total.dtype)
    return found if keepdim else found.squeeze(dims)


@op("masked")
def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool | None = False,
    dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Variance of the elements kept."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask, "var")


@op("masked")
def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool | None = False,
    dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Standard deviation of the elements kept."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask, "std").sqrt()


# ---- results of the input's shape


@op("masked")
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Cumulative sum of the elements kept."""
    input = _cast(input, dtype)
    return _filled(input, mask, 0, "cumsum").cumsum(dim, dtype=input.dtype)


@op("masked")
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Cumulative product of the elements kept."""
    input = _cast(input, dtype)
    return _filled(input, mask, 1, "cumprod").cumprod(dim, dtype=input.dtype)


@op("masked")
def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Softmax over the elements kept, 0 elsewhere."""
    return _TORCH["softmax"](_filled(_cast(input, dtype), mask, -math.inf, "softmax"), dim)


@op("masked")
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Logarithm of the softmax over the elements kept."""
    return _TORCH["log_softmax"](_filled(_cast(input, dtype), mask, -math.inf, "log_softmax"), dim)


@op("masked")
def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Softmax of the negated elements kept."""
    return softmax(-_filled(_cast(input, dtype), mask, math.inf, "softmin"), dim)


@op("masked")
def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The elements kept over their norm along a dimension, 0 elsewhere."""
    input = _float(input, dtype)
    size = norm(input, ord, dim, keepdim=True, mask=mask)
    return _filled(input, mask, 0, "normalize") / size.clamp(min=eps)
