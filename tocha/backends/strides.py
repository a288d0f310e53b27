"""The strides of results: which dimension of a pointwise result lies where in memory, as torch decides it.

Dimensions are sorted by the operands' strides: the first operand that has an opinion on two dimensions (that is, strides that differ and
aren't 0 there) decides; without one they stay in order (torch docs: tensor_attributes, "memory format"; the rule was found by trying).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.backends.meta import MetaArray, contiguous_strides, is_dense

Shape = tuple[int, ...]
_ndarray = np.ndarray


def uneven(operands: Sequence[Any]) -> bool:
    """Whether some operand isn't contiguous, so that the order of a result's dimensions is in question."""
    for x in operands:
        if hasattr(x, "flags") and x.ndim > 1 and not x.flags.c_contiguous:
            return True
    return False


def result_strides(shape: Shape, itemsize: int, operands: Sequence[Any], common: Any = None) -> Shape:
    """The strides in bytes of a new array that a pointwise operator on `operands` (arrays; anything else is left out) fills. Operands of
    another type than the `common` one are first made copies of that type."""
    arrays = [_Cast(x, common) if common is not None and x.dtype is not common else x for x in operands if hasattr(x, "strides")]
    if all(x.shape == shape for x in arrays):
        steps = [tuple([s // x.dtype.itemsize for s in x.strides]) for x in arrays]
        if all(s == steps[0] for s in steps) and is_dense(arrays[0]):
            return tuple([s * itemsize for s in steps[0]])
    if 0 in shape:
        return contiguous_strides(shape, itemsize)
    votes = [_spread(x, shape) for x in arrays if x.shape]
    order = list(range(len(shape)))[::-1]  # from the innermost dimension on
    for i in range(1, len(order)):
        place = i
        for other in range(i - 1, -1, -1):
            sign = _compare(order[other], order[place], shape, votes)
            if sign > 0:
                order[other], order[place] = order[place], order[other]
                place = other
            elif sign < 0:
                break
    strides, step = [0] * len(shape), itemsize
    for d in order:
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


class _Cast:
    """What a cast of an array to another type looks like."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, x: Any, dtype: Any) -> None:
        self.shape, self.dtype = x.shape, dtype
        self.strides = result_strides(x.shape, dtype.itemsize, (x,))


def _spread(x: Any, shape: Shape) -> Shape:
    """The operand's strides in the result's dimensions, 0 where it is broadcast."""
    lead = len(shape) - len(x.shape)
    return (0,) * lead + tuple([0 if n == 1 and m != 1 else s for n, m, s in zip(x.shape, shape[lead:], x.strides, strict=True)])


def _compare(a: int, b: int, shape: Shape, votes: list[Shape]) -> int:
    """1 if dimension a is to lie outside of dimension b, -1 if inside, 0 if no operand says."""
    for strides in votes:
        if not strides[a] or not strides[b]:
            continue
        if strides[a] != strides[b]:
            return 1 if strides[a] > strides[b] else -1
        if shape[a] > shape[b]:
            return 1
    return 0


def settled(result: Any, operands: Sequence[Any], xp: Any, common: Any = None) -> Any:
    """A fresh result with the strides that it has in torch: itself, or a copy."""
    want = result_strides(result.shape, result.dtype.itemsize, operands, common)
    if result.strides == want:
        return result
    laid = _laid(result, want)
    if isinstance(laid, MetaArray):
        return laid.with_strides(want)
    return laid if laid.strides == want else xp.restride(laid, laid.shape, want)


#: Primitives whose results are row-major in torch whatever their inputs are (`sum` and `mean` see to it themselves); those in the second
#: set keep channels_last memory.
ROW_MAJOR = frozenset((
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "gather", "kthvalue", "log_softmax",
    "logcumsumexp", "logsumexp", "max_dim", "median_dim", "min_dim", "mode", "nanmedian_dim", "prod", "repeat", "softmax", "stack",
    "std", "topk", "tril", "triu", "var", "vector_norm",
))  # fmt: skip
_ROWS_OR_CHANNELS = frozenset(("batch_norm_given", "cat", "rms_norm", "roll", "standardize"))

#: Primitives whose results lie in memory as pointwise ones would; and those whose results lie as their input does where that is channels_last,
#: by the ranks at which they do so.
_AS_OPERANDS = frozenset(("argsort", "complex", "index_put", "polar", "sort"))
_AS_CHANNELS = {
    **dict.fromkeys(("constant_pad", "max_pool", "max_pool_coded", "max_pool_values", "resample"), (4, 5)),
    **dict.fromkeys(("adaptive_max_pool", "avg_pool"), (4,)),
}  # fmt: skip


#: Fourier transforms, whose transformed dimensions are inmost.
_TRANSFORMS = frozenset(("fft_c2c", "fft_c2r", "fft_r2c"))


def as_operands(name: str, results: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """What a primitive's kernel gave (an array, or several), in the memory order that torch gives it for these operands."""
    if name in _TRANSFORMS:
        place = lambda a: _transformed(a, operands[0].strides, params["dims"], name != "fft_c2c")  # noqa: E731
        return tuple(map(place, results)) if isinstance(results, (tuple, list)) else place(results)
    if name in _AS_OPERANDS:
        given = [x for x in operands if x is not None] if name in ("complex", "polar") else operands[:1]
        if not uneven(given):
            return results
        place = lambda a: _laid(a, result_strides(a.shape, a.dtype.itemsize, given))  # noqa: E731
    elif name in _AS_CHANNELS and operands[0].ndim in _AS_CHANNELS[name]:
        if operands[0].flags.c_contiguous or not _channels_last(operands[0]):
            return results
        if name == "resample" and params["specs"][0][0] in (("circular", "area") if operands[0].ndim == 5 else ("circular",)):
            return results
        place = _in_channels
    elif name in _ROWS_OR_CHANNELS:  # of meta arrays: kernels give it themselves
        given = [x for x in (operands if name == "cat" else operands[:1]) if x.size]
        given = [x.with_strides(result_strides(x.shape, x.itemsize, (x,))) for x in given]
        if not all(map(_channels_last, given)) or all(x.flags.c_contiguous for x in given):
            return results
        place = lambda a: _in_channels(a) if a.ndim in (4, 5) else a  # noqa: E731
    else:
        return results
    return tuple(map(place, results)) if isinstance(results, (tuple, list)) else place(results)


def _transformed(a: Any, strides: Shape, dims: Shape, halved: bool) -> Any:
    """By the input's strides, transformed dimensions inside of others and one of half a spectrum inside of all."""
    order = sorted(range(a.ndim), key=lambda d: (d in dims, halved and d == dims[-1], -strides[d]))
    want, step = [0] * a.ndim, a.dtype.itemsize
    for d in reversed(order):
        want[d] = step
        step *= a.shape[d]
    return _laid(a, tuple(want))


def _in_channels(a: Any) -> Any:
    n, c, *spatial = a.shape
    outer, *inner, last = contiguous_strides((n, *spatial, c), a.dtype.itemsize)
    return _laid(a, (outer, last, *inner))


def _laid(a: Any, want: Shape) -> Any:
    """The array, or a copy of it, with these strides (where there is more than one element)."""
    if all(n == 1 or have == wanted for n, have, wanted in zip(a.shape, a.strides, want, strict=True)):
        return a
    if isinstance(a, MetaArray):
        return a.with_strides(want)
    order = sorted(range(a.ndim), key=lambda d: -want[d])
    return a.transpose(order).copy().transpose([order.index(d) for d in range(a.ndim)])


def in_rows(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel (or its native form) whose results get the memory order that torch gives them: itself, where that is its own affair."""
    if name in _AS_OPERANDS or name in _AS_CHANNELS or name in _TRANSFORMS:

        @functools.wraps(function)
        def follow(*args: Any, **kwargs: Any) -> Any:
            got = function(*args, **kwargs)
            if got is None or isinstance(args[0], (list, tuple)):  # a native form
                return got if got is None else as_operands(name, got, *args)
            return as_operands(name, got, args[1:], kwargs)

        return follow
    if name not in ROW_MAJOR and name not in _ROWS_OR_CHANNELS:
        return function
    channels = name in _ROWS_OR_CHANNELS

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        got = function(*args, **kwargs)
        if got.__class__ is tuple:
            for g in got:
                if g.__class__ is not _ndarray or not g.flags.c_contiguous:
                    return tuple(map(ordered, got))
            return got
        return got if got.__class__ is _ndarray and got.flags.c_contiguous else ordered(got)

    def ordered(got: Any) -> Any:
        if got is None or not hasattr(got, "flags") or got.flags.c_contiguous or (channels and _channels_last(got)):
            return got
        return got.copy()

    return run


def _channels_last(a: Any) -> bool:
    return a.ndim in (4, 5) and a.transpose((0, *range(2, a.ndim), 1)).flags.c_contiguous
