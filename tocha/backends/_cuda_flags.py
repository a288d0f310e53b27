"""torch.backends.cuda: what programs ask and set there. These names lie beside the kernels' in the CUDA namespace."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tocha.backends import _cuda_products, cuda

#: Kinds of attention kernels, and whether they are allowed.
_sdp = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn"), True)


class Matmul:
    """The matrix product of CUDA arrays, and the flags that torch keeps under the same name. `allow_tf32` lets cuBLAS
    round float32 operands to TF32 (10 bits)."""

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False

    def __init__(self) -> None:
        self._tf32 = False

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        return _cuda_products.matmul(a, b, out)

    @property
    def allow_tf32(self) -> bool:
        return self._tf32

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        self._tf32 = bool(value)
        if cuda.device_count():
            from cupy._core import _routines_linalg as products

            kind = products.COMPUTE_TYPE_TF32 if value else products.COMPUTE_TYPE_DEFAULT
            products.set_compute_type(np.dtype(np.float32), kind)

    @property
    def fp32_precision(self) -> str:
        return "tf32" if self._tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        self.allow_tf32 = value == "tf32"


matmul = Matmul()


def is_built() -> bool:
    """Whether CUDA can be used here, given CuPy and a device."""
    return cuda.cupy is not None


def _enable_sdp(kind: str, enabled: bool) -> None:
    _sdp[kind] = bool(enabled)


for _kind in _sdp:
    globals()[f"{_kind}_sdp_enabled"] = functools.partial(_sdp.__getitem__, _kind)
    globals()[f"enable_{_kind}_sdp"] = functools.partial(_enable_sdp, _kind)


def preferred_linalg_library(backend: Any = None) -> str:
    """cuSOLVER, through CuPy."""
    return "cusolver"


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """A context with these kinds of attention kernels allowed; there is one kernel, so that it changes nothing else."""
    held = dict(_sdp)
    _sdp.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _sdp.update(held)
