"""Short matrix products called straight: all numbers of the call are known, so that nothing is asked or allocated but the result.

A call then takes 0.1 to 0.2 µs and its multiplications, half of what BLAS takes through NumPy up to 64 cubed. It keeps Python's lock (and
doesn't ask for threads), so products and threads share one piece of scratch memory.

Products of any length that share their right factor, as the steps of a loop do, have it packed once: 16 rows times (256, 1024), a hundred times,
take 0.72 of their time (a column of the factor lies dense in memory; packing it takes a third of such a product).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import threads
from tocha._inductor import calls
from tocha._inductor.access import Access, Shape
from tocha._inductor.nodes import prim_name, shape_of
from tocha.backends import _native_products, native
from tocha.fx import Node

_MOST = 1 << 21  # multiply-adds, of all products of a batch
_TALL = 384  # rows of more are for kernels that pack the right factor once
_WIDE = 12000  # elements of a right factor from which on more than a few rows are better off with it unpacked
_SHARED = 1 << 14  # elements that would be packed again
Step = tuple[int, int]  # from row to row, and from column to column
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
    return columns and _is_short(m, math.prod(found.lead) * m * n * found.k)


def _is_short(rows: int, work: int) -> bool:
    return rows <= _TALL and work <= _MOST


def pays_packing(group: list[Node]) -> bool:
    """Whether packing the right factor that products share, a call of 2 µs, is less than what each of them then saves."""
    return bool(group) and (len(group) - 1) * math.prod(shape_of(group[0].args[1])) >= _SHARED


def shared_factor(node: Node) -> tuple[Node, bool] | None:
    """The right factor of a product that reads it packed where others share it, and whether it is turned; None if it isn't such a product."""
    found = sizes(node)
    if found is None or not _flat(node) or native.inductor() is None:
        return None
    few = _native_products.SWEEPS
    if math.prod(found.lead) * found.m <= few or found.n <= few or found.n * found.k > _native_products.MOST_PACKED:
        return None
    return node.args[1], node.kwargs["tb"]


@dataclasses.dataclass
class Direct:
    """A call: `builtin(out, a, b, *held, finish, work, arrays of the epilogue…)`. What is None in `held` is the factor packed before."""

    builtin: Any
    held: dict[str, Any]
    work: Any


def direct(node: Node, accesses: list[Access], finish: bool) -> Direct | None:
    """The call of a short product whose factors' elements lie at these places of the arrays given; `finish`: it has an epilogue."""
    found, (left, right), dtype = _flattened(node, accesses, _TALL), _steps(node, accesses), node.meta["val"].dtype
    name, lead, m, n, k = _native_products.NAMES[dtype], found.lead, found.m, found.n, found.k
    if not lead and accesses[0].offset == accesses[1].offset == 0:
        thin = _thin(name, dtype, m, n, k, [left, right])
        if thin is not None:
            return thin
    from tocha.inductor.templates import matmul

    main = _native_products.kernel_of(name, False)
    if main is None:
        return None
    plan = matmul.plan(_native_products.spec_of(name), math.prod(lead), m, n, k, left, right, n, 1, False, finish)
    if plan.packed:
        return None
    starts = [_starts(x, lead, shape_of(a)[:-2] if lead else ()) for x, a in zip(accesses, node.args, strict=True)]
    held = {"packed": _UNUSED, "flags": _FLAGS, "scratch": _scratch(plan.scratch, dtype), "offsets": np.stack(starts, axis=-1)}
    return Direct(main, held, _at_once(plan.work))


def direct_packed(node: Node, accesses: list[Access], finish: bool) -> Direct | None:
    """`direct` of a product of any length whose right factor was packed before (`packing`)."""
    found, (left, right), dtype = _flattened(node, accesses, sys.maxsize), _steps(node, accesses), node.meta["val"].dtype
    main = _native_products.kernel_of(_native_products.NAMES[dtype], False)
    if main is None or packing(node) is None or found.lead:
        return None
    call = _packed_call(main, dtype, found.m, found.n, found.k, left, right, finish)
    return dataclasses.replace(call, held=call.held | {"offsets": np.array([[accesses[0].offset, 0]])})


@functools.lru_cache(maxsize=256)
def _packed_call(main: Any, dtype: Any, m: int, n: int, k: int, left: Step, right: Step, finish: bool) -> Direct:
    from tocha.inductor.templates import matmul

    @functools.cache
    def plan(slots: int) -> Any:
        spec = _native_products.spec_of(_native_products.NAMES[dtype])
        return matmul.plan(spec, 1, m, n, k, left, right, n, slots, True, finish)

    if _is_short(m, m * n * k):
        held = {"packed": None, "flags": _FLAGS, "scratch": _scratch(plan(1).scratch, dtype)}
        return Direct(main, held, _at_once(plan(1).work))

    def threaded(out: Any, a: Any, b: Any, packed: Any, offsets: Any, finish: int, work: None, *arrays: Any) -> None:
        slots = threads.get_num_threads()
        planned = plan(slots)
        flags, scratch = np.zeros(slots, np.int64), np.empty(slots * planned.scratch, dtype)
        main(out, a, b, packed, flags, scratch, offsets, finish, planned.work, *arrays)

    return Direct(threaded, {"packed": None}, None)


def packing(node: Node) -> Callable[[Any], Any] | None:
    """A function that packs a product's right factor."""
    pack, turned = _native_products.packing(_native_products.NAMES[node.meta["val"].dtype]), node.kwargs["tb"]
    return None if pack is None else lambda b: pack((b.T if turned else b)[None])


def _flattened(node: Node, accesses: list[Access], most: int) -> Sizes:
    """A product's sizes; up to `most` rows times one matrix are one product."""
    found = sizes(node)
    assert found is not None
    left, lead, rows = accesses[0].steps[:-1], found.lead, math.prod(found.lead) * found.m
    if _flat(node) and rows <= most and all(x == y * n for x, y, n in zip(left, left[1:], (*lead[1:], found.m), strict=False)):
        return dataclasses.replace(found, lead=(), m=rows)
    return found


def _steps(node: Node, accesses: list[Access]) -> list[Step]:
    return [_strides(access, node.kwargs[turned]) for access, turned in zip(accesses, ("ta", "tb"), strict=True)]


def _strides(access: Access, turned: bool) -> Step:
    row, column = access.steps[-2:]
    return (column, row) if turned else (row, column)


def _flat(node: Node) -> bool:
    return node.args[1].meta["val"].ndim == 2 and not node.kwargs["ta"]


def _thin(name: str, dtype: Any, m: int, n: int, k: int, steps: list[Step]) -> Direct | None:
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
