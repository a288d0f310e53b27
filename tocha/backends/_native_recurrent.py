"""The steps of an LSTM on native kernels (tocha.inductor.recurrent): one for what follows the product, one for its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import _native_products, native

_FLOAT32 = np.dtype(np.float32)
_PIECE = 2048  # elements worth a thread's while


class Cell:
    """The kernels of a type. Arrays are C-contiguous: (rows, n) states and (rows, 4n) gates."""

    def __init__(self, forward: Any, backward: Any) -> None:
        self._forward, self._backward = forward, backward

    def forward(self, gates: Any, gx: Any, product: Any, bias: Any, c: Any, cells: Any, h: Any, out: Any) -> None:
        self._forward(gates, gx, product, bias, c, cells, h, out, _work(*c.shape))

    def backward(self, d: Any, dc: Any, dh: Any, gates: Any, cells: Any, before: Any) -> None:
        self._backward(d, dc, dh, gates, cells, before, _work(*dc.shape))

    def products(self, rows: int, b: Any) -> Callable[[Any], Any]:
        """A function that multiplies up to `rows` rows by b; it may reuse what it returned before."""
        multiply = _native_products.prepared(b) if rows > _native_products.SWEEPS else None
        if multiply is None:
            return lambda a: self.product(a, b)
        out = np.empty((rows, b.shape[1]), b.dtype)

        def product(a: Any) -> Any:
            found = out[: a.shape[0]]
            multiply(a, found)
            return found

        return product

    def product(self, a: Any, b: Any) -> Any:
        found = _native_products.multiply(a, b)
        return np.matmul(a, b) if found is None else found


def _work(rows: int, n: int) -> Any:
    return native.remember(("lstm", rows, n), lambda: np.array([rows, max(1, _PIECE // n), n], np.int64))


def lstm_cell(gates: Any, *others: Any) -> Cell | None:
    """The kernels for a layer whose gates of all steps are an array like this, `others` its weight and states; None for NumPy to compute it."""
    if gates.size < native.LEAST["row"] or not gates.flags.c_contiguous or any(a.dtype is not _FLOAT32 for a in (gates, *others)):
        return None
    if native.inductor() is None:
        return None
    from tocha.inductor import recurrent

    forward = native.kernel("lstm_cell", lambda: recurrent.forward("f32"))
    backward = native.kernel("lstm_cell_backward", lambda: recurrent.backward("f32"))
    return None if forward is None or backward is None else Cell(forward, backward)
