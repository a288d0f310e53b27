"""Native kernels for scans (tocha.inductor.scan)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import native, native_out
from tocha.dtypes import HALF_NP

_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
_SUMMED = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.int64))
_ORDERED = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8))
_PIECE = 16384  # elements worth a thread's while


def _scan(kind: str, x: Any, dim: int, reverse: bool) -> Any:
    modules = native.inductor()
    if modules is None or not x.ndim or not x.size:
        return None
    picks = kind in ("max", "min")
    outer, n, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    columns = inner > 1
    scan = modules.scan
    builtin = native.kernel(
        ("scan", kind, x.dtype, columns, reverse), lambda: scan.make(kind, modules.lower.NP_TYPES[x.dtype], columns, reverse)
    )
    if builtin is None:
        return None
    blocks = -(-inner // scan.COLUMNS) if columns else 1
    units = outer * blocks if columns else -(-outer // scan.rows_at_once(kind, modules.lower.NP_TYPES[x.dtype]))
    grain = max(1, _PIECE * units // x.size)
    if units <= grain and x.size > _PIECE:
        units = grain + 1  # long enough to release the GIL
    out = native_out.room(x.shape, x.dtype)
    places = [np.empty(x.shape, _INT64)] if picks else []
    builtin(out, *places, np.ascontiguousarray(x), np.array([units, grain, outer, n, inner, blocks], np.int64))
    return (out, places[0]) if picks else out


def _sums(kind: str, reverse: bool = False) -> Callable[[list[Any], dict[str, Any]], Any]:
    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x = arrays[0]
        if x.dtype in HALF_NP and x.dtype.itemsize == 2:
            found = _scan(kind, x.astype(_FLOAT32), params["dim"], reverse)
            return None if found is None else found.astype(x.dtype)
        return _scan(kind, x, params["dim"], reverse) if x.dtype in _SUMMED else None

    return run


def _extremes(kind: str) -> Callable[[list[Any], dict[str, Any]], Any]:
    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x = arrays[0]
        if x.dtype not in _ORDERED and not (x.dtype in HALF_NP and x.dtype.itemsize == 2):
            return None
        return _scan(kind, x, params["dim"], False)

    return run


RUNS = {
    "cumsum": _sums("add"), "reversed_cumsum": _sums("add", True), "cumprod": _sums("mul"), "cummax": _extremes("max"), "cummin": _extremes("min"),
}  # fmt: skip
