"""Batches of matrix products on the convolution kernel: a product is a convolution of kernel 1, a batch its groups.

Columns of the right operand are positions, its rows channels, the left operand is the weight; both may be transposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import threads
from tocha.backends import _native_conv as convolutions
from tocha.backends import native

# Products of no more multiply-adds each, with so many columns, run on the kernel: in 0.57 to 0.87 of NumPy's time (f32, one thread).
# Fewer columns don't pay for packing the left operand.
MOST, COLUMNS = 1 << 24, 128
_TYPES = frozenset((np.dtype(np.float32), np.dtype(np.float64)))


def batched(a: Any, b: Any) -> Any:
    """a @ b for (…, m, k) and (…, k, n) of equal batches; None for NumPy to compute it."""
    batch, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
    if m * k * n > MOST or a.size == 0 or b.shape[:-2] != batch or a.dtype not in _TYPES or b.dtype is not a.dtype or n < COLUMNS or m < 8:
        return None
    a, b = (x if x.ndim == 3 else _three(x) for x in (a, b))
    if a is None or b is None:
        return None
    item, groups = a.dtype.itemsize, a.shape[0]
    steps = [s // item for s in (*a.strides, *b.strides)]
    if groups < 2 or any(s % item for s in (*a.strides, *b.strides)) or 1 not in steps[4:]:
        return None
    main, pack = convolutions.builtin("conv", a.dtype), convolutions.builtin("pack", a.dtype)
    if main is None or pack is None:
        return None
    slots = threads.get_num_threads()

    def make() -> Any:
        from tocha.inductor.templates import conv

        lines = [conv.forward_line(size, 1, 1, 1, 0, size) for size in (1, 1, n)]
        return conv.plan(
            convolutions.tile(a.dtype), lines, 1, groups, k, m, (0, steps[4], 0, 0, steps[5]), (0, n, 0, 0, 1), steps[0],
            (steps[1], steps[2]), slots, x_group=steps[3],
        )  # fmt: skip

    plan = native.remember(("mm", a.dtype, a.shape, b.shape, *steps, slots), make)
    out = np.empty((groups, m, n), a.dtype)
    packed = np.empty(plan.packed_size, a.dtype)
    pack(packed, a, plan.taps, plan.pack_work)
    convolutions.call(main, plan, out, b, packed, np.zeros(plan.bias_size, a.dtype))
    return out.reshape(*batch, m, n)


def _three(x: Any) -> Any:
    """x with its batch dimensions as one, a view; None if that takes a copy."""
    try:
        return x.reshape(-1, *x.shape[-2:], copy=False)
    except ValueError:
        return None
