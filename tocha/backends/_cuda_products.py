"""Products of batches of float16 and bfloat16 matrices, accumulated in float32 by cuBLAS. CuPy's `matmul` makes them of
float32 copies, or takes bfloat16 for an integer type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tocha.backends import cuda

HALF_TYPES = {np.dtype(np.float16): "CUDA_R_16F", np.dtype(ml_dtypes.bfloat16): "CUDA_R_16BF"}
_CODES = {"CUDA_R_16F": 2, "CUDA_R_16BF": 14}  # cudaDataType
_COMPUTE_32F, _TENSOR_OP = 68, 99  # cublasComputeType_t and cublasGemmAlgo_t
_ONE, _ZERO = np.array(1, np.float32), np.array(0, np.float32)


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """NumPy's matmul on CuPy arrays."""
    cupy = cuda.cupy
    if a.dtype not in HALF_TYPES or a.dtype != b.dtype or max(a.ndim, b.ndim) < 3 or 1 in (a.ndim, b.ndim):
        return cupy.matmul(a, b) if out is None else cupy.matmul(a, b, out=out)
    got = _batched(cupy, a, b)
    if out is None:
        return got
    out[...] = got
    return out


def _batched(cupy: Any, a: Any, b: Any) -> Any:
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    if b.shape[-2] != inner:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} are not aligned")
    out = cupy.empty((*lead, rows, columns), a.dtype)
    if not out.size or not inner:
        return cupy.zeros(out.shape, a.dtype)
    (a, step_a), (b, step_b) = _dense(cupy, a, lead), _dense(cupy, b, lead)
    from cupy_backends.cuda.libs import cublas  # type: ignore[import-not-found, unused-ignore]

    kind, batch = _CODES[HALF_TYPES[out.dtype]], out.size // (rows * columns)
    # cuBLAS counts columns first: the transposed product is bᵀ aᵀ.
    cublas.gemmStridedBatchedEx(
        cupy.cuda.device.get_cublas_handle(), 0, 0, columns, rows, inner, _ONE.ctypes.data, b.data.ptr, kind, columns, step_b,
        a.data.ptr, kind, inner, step_a, _ZERO.ctypes.data, out.data.ptr, kind, columns, rows * columns, batch, _COMPUTE_32F, _TENSOR_OP,
    )  # fmt: skip
    return out


def _dense(cupy: Any, x: Any, lead: tuple[int, ...]) -> tuple[Any, int]:
    """The matrices one after the other, and the step between them: 0 where one serves the whole batch."""
    if x.size == x.shape[-2] * x.shape[-1]:
        return cupy.ascontiguousarray(x), 0
    whole = x if x.shape[:-2] == lead else cupy.broadcast_to(x, (*lead, *x.shape[-2:]))
    return cupy.ascontiguousarray(whole), x.shape[-2] * x.shape[-1]
