"""How primitives run on CUDA: as a fused kernel where there is one, otherwise as CuPy's functions one after the other."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tocha.backends import cuda
from tocha.backends.shared import half_type, narrowed, number, widened
from tocha.dtypes import FLOAT8_NP

cupy: Any = cuda.cupy
# Half types on which CuPy's own loops compute in float32 and round once, by NumPy's name of the function.
HALF_FUNCTIONS = frozenset(("add", "subtract", "multiply", "divide", "negative", "maximum", "minimum"))
# Primitives that have a kernel of their own (tocha.backends._cuda_kernels).
FUSED = frozenset(("softmax", "log_softmax", "softmax_backward", "log_softmax_backward", "standardize"))
FUSED_LEAST = 1 << 21  # elements from which on Triton's kernel of a single function is faster than CuPy's, measured on an H200
# Primitives whose products cuBLAS accumulates in float32 by itself.
HALF_PRODUCTS = frozenset(("mm", "mv", "linear", "linear_backward"))
_MOVES_BYTES = frozenset((
    "clone", "cat", "flip", "roll", "repeat", "index", "gather", "scatter", "index_scatter", "embedding", "to_columns", "unsafe_view",
))  # fmt: skip
_OWN_WAY = frozenset(("cast", "to_device", "where"))


@functools.cache
def _kernels() -> Any:
    """The module of fused kernels."""
    from tocha.backends import _cuda_kernels

    return _cuda_kernels


# ---- primitives


def run_prim(prim: Any, arrays: list[Any], params: dict[str, Any]) -> Any:
    """A primitive's result on arrays of any type."""
    half = half_type(prim, arrays)
    if half is None or (half not in FLOAT8_NP and _keeps_half(prim, arrays)):
        return _run_once(prim, arrays, params)
    return narrowed(cuda.cast, _run_once(prim, widened(cuda.cast, arrays), params), half)


def _keeps_half(prim: Any, arrays: list[Any]) -> bool:
    """Whether a primitive is to run on half types as they are. Single elements are left out: CuPy sums them up in the type."""
    return prim.name in HALF_PRODUCTS and not all(a is None or 1 in a.shape for a in arrays)


def _run_once(prim: Any, arrays: list[Any], params: dict[str, Any]) -> Any:
    """The primitive's kernel; on float8 only those that move elements, as bytes."""
    for a in arrays:
        if a is not None and a.dtype in cuda.BYTES and prim.name not in _OWN_WAY:
            return _run_on_bytes(prim, arrays, params, a.dtype)
    if prim.name in FUSED:
        got = cuda.run(functools.partial(_kernels().prim, prim.name, params), *arrays)
        if got is not None:
            return got
    return cuda.run(prim.impl, cuda, *arrays, **params)


def _run_on_bytes(prim: Any, arrays: list[Any], params: dict[str, Any], kind: Any) -> Any:
    if prim.name not in _MOVES_BYTES:
        raise NotImplementedError(
            f"\"{prim.name}\" not implemented for '{kind.name}' on CUDA: convert it first, with .to(torch.float32)"
        )
    seen = [a.view(np.uint8) if a is not None and a.dtype in cuda.BYTES else a for a in arrays]
    return cuda.run(prim.impl, cuda, *seen, **params).view(kind)


# ---- pointwise rules


def run_rule(rule: Any, operands: list[Any], given: Any, compute: Any, target: Any, params: dict[str, Any]) -> Any:
    """A pointwise rule on arrays and Python numbers whose common type is `given`: computed in type `compute` and returned as
    `target` by one fused kernel, or else by CuPy. CuPy's loops for single functions of half types round once as well."""
    got = _fused(rule, [x if hasattr(x, "strides") else number(x, compute) for x in operands], given, compute, target, params)
    if got is not None:
        return got
    if compute is not given and rule.ufunc is not None and rule.ufunc.__name__ in HALF_FUNCTIONS:
        if given not in FLOAT8_NP and all(getattr(x, "dtype", None) == given for x in operands):
            compute = given
    operands = [cuda.cast(x, compute) if hasattr(x, "astype") else number(x, compute) for x in operands]
    try:
        got = cuda.run(rule.impl, cuda, *operands, **params)
    except ValueError:
        rule.broadcast([np.shape(x) for x in operands])  # raises torch's error if shapes are at fault
        raise
    if not hasattr(got, "strides"):
        got = cuda.asarray(got)
    if got.dtype is not target:
        return cuda.run(cuda.cast, got, target)
    return got.copy() if any(got is x for x in operands) else got


def _fused(rule: Any, operands: list[Any], given: Any, compute: Any, target: Any, params: dict[str, Any]) -> Any:
    """The result of one kernel on operands of float type `given`; None if CuPy is to compute it, as it does single functions of small
    arrays (it enters its kernels sooner, but those move half the bytes a second)."""
    single = rule.ufunc is not None and (compute is given or rule.ufunc.__name__ in HALF_FUNCTIONS)
    for x in operands:
        if hasattr(x, "strides") and x.ndim and x.__class__ is not cupy.ndarray:
            return None
        if x.__class__ is cupy.ndarray:
            if x.dtype != given:
                return None
            single = single and x.size < FUSED_LEAST
    kernels = _kernels()
    if single or given not in kernels.FLOAT_NP:
        return None
    return cuda.run(lambda *arrays: kernels.pointwise(rule, list(arrays), compute, target, params, rule.broadcast), *operands)
