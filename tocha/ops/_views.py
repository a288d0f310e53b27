"""The commonest views of plain tensors in CPU memory, without the way through `bind`; None: take that way."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tocha.autograd.names import Dropped, Swapped
from tocha.backends import cpu
from tocha.device import Size
from tocha.dispatch.override import INTERPRETERS, PLAIN
from tocha.dispatch.prim import view_of
from tocha.prims import view as prims
from tocha.tensor import Tensor


def plain(input: Any) -> bool:
    return input.__class__ in PLAIN and input._a.__class__ is np.ndarray and not INTERPRETERS


def short_view(input: Any, *shape: Any) -> Tensor | None:
    if not plain(input):
        return None
    a = input._a
    if not a.flags.c_contiguous or a.size < 2:
        return None
    try:
        got = a.reshape(shape)
    except (TypeError, ValueError):
        return None  # the general way raises in words
    if got.shape != shape and -1 not in shape:  # NumPy takes any negative size for -1
        return None
    return view_of(input, got, prims.view, {"shape": got.shape})


@functools.cache
def exchanged(n: int, d0: int, d1: int) -> Swapped:
    """The order of n dimensions with two exchanged."""
    order = list(range(n))
    if n:
        order[d0], order[d1] = order[d1], order[d0]
    return Swapped(order)


def short_transpose(input: Any, dim0: Any = None, dim1: Any = None, *more: Any) -> Tensor | None:
    if more or dim0.__class__ is not int or dim1.__class__ is not int or not plain(input):
        return None
    n = input._a.ndim
    if not (-n <= dim0 < n and -n <= dim1 < n):
        return None
    dims = exchanged(n, dim0, dim1)
    return view_of(input, input._a.transpose(dims), prims.permute, {"dims": dims})


def short_permute(input: Any, *dims: Any) -> Tensor | None:
    if not plain(input) or len(dims) != input._a.ndim:
        return None
    for d in dims:
        if d.__class__ is not int or not 0 <= d < len(dims) or dims.count(d) > 1:
            return None
    return view_of(input, input._a.transpose(dims), prims.permute, {"dims": dims})


def short_unsqueeze(input: Any, dim: Any = None, *more: Any) -> Tensor | None:
    if more or dim.__class__ is not int or not plain(input):
        return None
    a = input._a
    n = a.ndim + 1
    if not -n <= dim < n:
        return None
    d, shape = dim % n, a.shape
    dense = a.size > 1 and a.flags.c_contiguous  # then NumPy's strides of the new dimension are torch's
    got = a.reshape((*shape[:d], 1, *shape[d:])) if dense else prims.unsqueeze.impl(cpu, a, dim=d)
    return view_of(input, got, prims.unsqueeze, {"dim": d})


def short_expand(input: Any, *size: Any) -> Tensor | None:
    if not plain(input) or not size:
        return None
    a = input._a
    lead = len(size) - a.ndim
    if lead < 0:
        return None
    wanted, strides = size[:lead], (0,) * lead
    for n, own, step in zip(size[lead:], a.shape, a.strides, strict=True):
        if n == own and n.__class__ is int:
            strides += (step,)
        elif n.__class__ is not int or (n != -1 and (own != 1 or n < 0)):
            return None
        else:
            strides += (step if n == -1 else 0,)
        wanted += (own if n == -1 else n,)
    for n in size[:lead]:
        if n.__class__ is not int or n < 0:
            return None
    return view_of(input, cpu.restride(a, wanted, strides), prims.expand, {"shape": wanted})


def short_like(short: Any) -> Any:
    """A short way by sizes as one by a tensor of these sizes."""
    return lambda x, other=None, *more: short(x, *other._a.shape) if other.__class__ is Tensor and not more else None


def short_squeeze(input: Any, dim: Any = None, *more: Any) -> Tensor | None:
    if more or dim.__class__ is not int or not plain(input) or not -input._a.ndim <= dim < input._a.ndim:
        return None
    a = input._a
    d = dim % a.ndim
    one = a.shape[d] == 1
    return view_of(input, a.squeeze(d) if one else a[...], prims.squeeze, {"dims": Dropped([d] if one else [])})


def short_size(input: Any, dim: Any = None, *more: Any) -> Any:
    if more or input.__class__ not in PLAIN:
        return None
    shape = input._a.shape
    if dim is None:
        return Size(shape)
    return shape[dim] if dim.__class__ is int and -len(shape) <= dim < len(shape) else None
