"""Short matrix products called straight: all numbers of the call are known, so that nothing is asked or allocated but the result.

A call then takes 0.1 to 0.2 µs and its multiplications, half of what BLAS takes through NumPy up to 64 cubed. It keeps Python's lock (and
doesn't ask for threads), so products and threads share one piece of scratch memory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from tocha._inductor import calls
from tocha._inductor.access import Access, Shape
from tocha._inductor.nodes import prim_name, shape_of
from tocha.backends import _native_products, native
from tocha.fx import Node

_MOST = 1 << 21  # multiply-adds, of all products of a batch
_TALL = 384  # rows of more are for kernels that pack the right factor once
_WIDE = 12000  # elements of a right factor from which on more than a few rows are better off with it unpacked
_FLAGS, _UNUSED = np.zeros(1, np.int64), np.zeros(1, np.int64)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """(m, k) @ (k, n) for each of `lead`."""

    lead: Shape
    m: int
    n: int
    k: int


def sizes(node: Node) -> Sizes | None:
    """The sizes of a product of one float type whose result is row-major and not empty."""
    if prim_name(node) != "mm":
        return None
    a, b = (x.meta["val"] for x in node.args)
    if b.dtype is not a.dtype or a.dtype not in calls.PLAIN or min(a.ndim, b.ndim) < 2 or not calls.row_major(node):
        return None
    *lead, m, n = shape_of(node)
    k = a.shape[-2 if node.kwargs["ta"] else -1]
    return Sizes(tuple(lead), m, n, k) if k else None


def is_short(node: Node) -> bool:
    """Whether a product is called straight."""
    found = sizes(node)
    if found is None or native.inductor() is None:
        return False
    m, n = found.m, found.n
    columns = n > _native_products.SWEEPS or m <= _native_products.SWEEPS
    return columns and m <= _TALL and math.prod(found.lead) * m * n * found.k <= _MOST


@dataclasses.dataclass
class Direct:
    """A call: `builtin(out, a, b, *held, finish, work, arrays of the epilogue…)`."""

    builtin: Any
    held: dict[str, Any]
    work: Any


def direct(node: Node, accesses: list[Access], finish: bool) -> Direct | None:
    """The call of a short product whose factors' elements lie at these places of the arrays given; `finish`: it has an epilogue."""
    found = sizes(node)
    assert found is not None
    lead, m, n, k = found.lead, found.m, found.n, found.k
    dtype = node.meta["val"].dtype
    name = _native_products.NAMES[dtype]
    steps = [_strides(access, node.kwargs[turned]) for access, turned in zip(accesses, ("ta", "tb"), strict=True)]
    left = accesses[0].steps[:-1]
    if _flat(node) and all(
        x == y * size for x, y, size in zip(left, left[1:], (*lead[1:], m), strict=False)
    ):  # many rows times one matrix
        if math.prod(lead) * m <= _TALL:
            lead, m = (), math.prod(lead) * m
    if not lead and accesses[0].offset == accesses[1].offset == 0:
        thin = _thin(name, dtype, m, n, k, steps)
        if thin is not None:
            return thin
    from tocha.inductor.templates import matmul

    main = _native_products.kernel_of(name, False)
    if main is None:
        return None
    count = math.prod(lead)
    plan = matmul.plan(_native_products.spec_of(name), count, m, n, k, steps[0], steps[1], n, 1, False, finish)
    if plan.packed:
        return None
    starts = [_starts(x, lead, shape_of(a)[:-2] if lead else ()) for x, a in zip(accesses, node.args, strict=True)]
    held = {"packed": _UNUSED, "flags": _FLAGS, "scratch": _scratch(plan.scratch, dtype), "offsets": np.stack(starts, axis=-1)}
    return Direct(main, held, _at_once(plan.work))


def _strides(access: Access, turned: bool) -> tuple[int, int]:
    """From row to row, and from column to column."""
    row, column = access.steps[-2:]
    return (column, row) if turned else (row, column)


def _flat(node: Node) -> bool:
    return node.args[1].meta["val"].ndim == 2 and not node.kwargs["ta"]


def _thin(name: str, dtype: Any, m: int, n: int, k: int, steps: list[tuple[int, int]]) -> Direct | None:
    """For few rows: the right factor is read as it lies."""
    (a_row, a_k), (b_k, b_n) = steps
    dots = b_k == 1 or k == 1
    few = m <= _native_products.SWEEPS and (dots or b_n == 1)
    some = m <= _native_products.DOTS and dots and n * k > _WIDE
    if (a_k != 1 and k > 1) or not (few or some):
        return None
    from tocha.inductor.templates import thin

    main = _native_products.thin_kernel_of(name, dots)
    if main is None:
        return None
    work, scratch = thin.plan(_native_products.spec_of(name), dots, m, n, k, a_row, b_n if dots else b_k, 1)
    return Direct(main, {"flags": _FLAGS, "scratch": _scratch(scratch, dtype)}, _at_once(work))


def _at_once(work: Any) -> Any:
    """All units as one piece, which runs without the pool."""
    work = work.copy()
    work[1] = work[0]
    return work


def _starts(access: Access, lead: Shape, own: Shape) -> Any:
    """Where the matrices of a batch start."""
    found = np.full(lead, access.offset, np.int64)
    for axis, (size, step) in enumerate(zip(own, access.steps, strict=False), len(lead) - len(own)):
        if size > 1:
            found += (np.arange(size) * step).reshape(-1, *[1] * (len(lead) - axis - 1))
    return found.reshape(-1)


def _scratch(count: int, dtype: Any) -> Any:
    return _shared(1 << (count - 1).bit_length(), dtype)


@functools.cache
def _shared(count: int, dtype: Any) -> Any:
    return np.empty(count, dtype)
