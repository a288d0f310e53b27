"""Fused kernels of the CUDA backend: which calls run as one Triton kernel (tocha.inductor) instead of a CuPy kernel for every step.

`pointwise(...)` and `prim(...)` return the result, or None: then CuPy computes it. None is the answer for what has no kernel, and without
Triton. A kernel not in the cache is compiled while the first call waits (tocha.inductor.service). `TOCHA_EAGER=cupy` switches the tier off.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import cuda, native
from tocha.dtypes import HALF_NP

cupy: Any = cuda.cupy
_FLOAT32 = np.dtype(np.float32)
FLOAT_NP = frozenset((_FLOAT32, np.dtype(np.float64), *(d for d in HALF_NP if d.itemsize == 2)))
_kernels: dict[Any, Any] = {}


@functools.cache
def launcher() -> Any:
    """The module that compiles and launches; None where kernels can't be made."""
    if os.environ.get("TOCHA_EAGER") in ("cupy", "numpy") or cupy is None or importlib.util.find_spec("triton") is None:
        return None
    if native.inductor() is None:
        return None
    from tocha.inductor import launch_cuda

    return launch_cuda


class _Variant:
    """A pointwise kernel for certain parameters."""

    def __init__(self, made: Any, kernel: Any, params: dict[str, Any]) -> None:
        self.made, self.kernel, self.params = made, kernel, params

    def serves(self, params: dict[str, Any], holds: Callable[..., bool]) -> bool:
        """Whether it computes the call with these parameters."""
        for name, value in params.items():
            mine = self.params[name]
            if (value.__class__ is not float or mine.__class__ is not float) and (
                mine.__class__ is not value.__class__ or mine != value
            ):
                return False
        return holds(self.made.guards, params)


def pointwise(
    rule: Any, operands: list[Any], compute: Any, target: Any, params: dict[str, Any], broadcast: Callable[..., tuple[int, ...]]
) -> Any:
    """`rule.impl` on CuPy arrays and numbers, computed in dtype `compute` and stored as `target`; None if CuPy shall do it."""
    modules, launch = native.inductor(), launcher()
    if launch is None or modules is None:
        return None
    arrays = [a for a in operands if a.__class__ is cupy.ndarray]
    shape, flat = arrays[0].shape, True
    for a in arrays:
        if a.shape != shape or not a.flags.c_contiguous:
            shape, flat = broadcast([a.shape for a in arrays]), False
            break
    count = math.prod(shape)
    if count == 0:
        return None
    types = tuple([a.dtype if a.__class__ is cupy.ndarray else None for a in operands])
    place: Any = None
    if not flat:
        memory = ("cuda", shape, target, *[(a.shape, a.strides, a.dtype) for a in arrays])
        place = native.remember(memory, lambda: native._place(arrays, shape, target, None))
        if not place:
            return None
    key = (rule.name, types, compute, target, None if place is None else place.key)
    variants = _kernels.setdefault(key, [])
    variant = next((v for v in variants if v is not None and v.serves(params, modules.lower.holds)), None)
    if variant is None:
        if None in variants or len(variants) >= native._VARIANTS:
            return None
        variant = _variant(modules, launch, rule, types, compute, target, params, place)
        variants.append(variant)
        if variant is None:
            return None
    numbers = [a.item() if isinstance(a, np.generic) else a for a in operands if a.__class__ is not cupy.ndarray]
    numbers += [params[n] for n in variant.made.params]
    if place is None:
        out = cupy.empty(shape, target)
        sizes, span = {}, count
    else:
        item = place.like.itemsize
        strides = [s // item * target.itemsize for s in place.like.strides]
        out = cupy.ndarray(shape, target, cupy.cuda.alloc(count * target.itemsize), strides)
        sizes = native.remember((memory, variant.made.kernel), lambda: launch.place_sizes(variant.made.kernel, place.layout))
        span = native.remember((memory, "span"), lambda: launch.span_of(place.layout))
    return out if variant.kernel.elements([out, *arrays], numbers, count, sizes, span) else None


def _variant(
    modules: Any, launch: Any, rule: Any, types: Any, compute: Any, target: Any, params: dict[str, Any], place: Any
) -> _Variant | None:
    names, arrays = modules.lower.NP_TYPES, 1 + sum(t is not None for t in types)
    dimensions, inner = (1, "1" * arrays) if place is None else place.key
    try:
        spelled = tuple(["number" if t is None else names[t] for t in types])
        made = modules.pointwise.make(rule.name, rule.impl, spelled, names[compute], names[target], params, dimensions, inner)
        kernel = launch.CudaKernel(made.kernel, ask=True)
        kernel.source()
    except (KeyError, ValueError, OverflowError, modules.lower.Unsupported):
        return None
    return _Variant(made, kernel, dict(params))


# ---- rows


def _kernel(key: Any, make: Callable[[], Any]) -> Any:
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = launcher().CudaKernel(make(), ask=True)
    return found


def _compute(dtype: Any) -> Any:
    return _FLOAT32 if dtype in HALF_NP else dtype


def _on_rows(name: str) -> Callable[..., Any]:
    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        x, modules = arrays[0], native.inductor()
        if modules is None or not x.ndim or not x.size or params["dim"] not in (-1, x.ndim - 1) or x.dtype not in FLOAT_NP:
            return None
        if any(a.dtype != x.dtype or a.shape != x.shape or not a.flags.c_contiguous for a in arrays):
            return None
        names, n = modules.lower.NP_TYPES, x.shape[-1]
        kernel = _kernel((name, x.dtype), lambda: getattr(modules.rows, name)(names[x.dtype], names[_compute(x.dtype)]))
        out = cupy.empty(x.shape, x.dtype)
        return out if kernel.rows([out, *arrays], [], x.size // n, n) else None

    return run


def _standardize(arrays: list[Any], params: dict[str, Any]) -> Any:
    """Layer normalisation over the last axes."""
    from tocha.backends._native_norm import is_vector, standardized_rows

    x, modules = arrays[0], native.inductor()
    if modules is None or x.dtype not in FLOAT_NP or not x.flags.c_contiguous:
        return None
    rows = standardized_rows(x, params)
    if rows is None or not all(is_vector(a, rows[1]) for a in arrays[1:]):
        return None
    names, kind = modules.lower.NP_TYPES, _compute(x.dtype)
    given = [None if a is None else names[a.dtype] for a in arrays[1:]]
    kernel = _kernel(("layer_norm", x.dtype, *given), lambda: modules.rows.layer_norm(names[x.dtype], names[kind], *given))
    moments = tuple([1 if d in params["axes"] else n for d, n in enumerate(params["shape"])])
    out, mean, var = cupy.empty(x.shape, x.dtype), cupy.empty(moments, kind), cupy.empty(moments, kind)
    done = kernel.rows([out, mean, var, x, *[a for a in arrays[1:] if a is not None]], [params["eps"]], *rows)
    return (out, mean, var) if done else None


RUNS: dict[str, Callable[..., Any]] = {
    "softmax": _on_rows("softmax"), "log_softmax": _on_rows("log_softmax"), "softmax_backward": _on_rows("softmax_backward"),
    "log_softmax_backward": _on_rows("log_softmax_backward"), "standardize": _standardize,
}  # fmt: skip


def prim(name: str, params: dict[str, Any], *arrays: Any) -> Any:
    """The result of a primitive that isn't pointwise, as its kernel returns it; None if CuPy shall compute it."""
    if launcher() is None or any(a is not None and a.__class__ is not cupy.ndarray for a in arrays):
        return None
    return RUNS[name](list(arrays), params)
