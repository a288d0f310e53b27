"""torch.backends.cuda: what programs ask and set there. These names lie beside the kernels' in the CUDA namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tocha.backends import cuda
from tocha.backends._cuda_products import matmul

_FLASH, _MEMORY_EFFICIENT, _MATH, _CUDNN = "flash", "mem_efficient", "math", "cudnn"
_sdp = {_FLASH: True, _MEMORY_EFFICIENT: True, _MATH: True, _CUDNN: True}


class Matmul:
    """The matrix product of CUDA arrays, and the flags that torch keeps under the same name. `allow_tf32` lets cuBLAS
    round float32 operands to TF32 (10 bits)."""

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False

    def __init__(self) -> None:
        self._tf32 = False

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        return matmul(a, b, out)

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


class Flags:
    """The table of names."""

    matmul = Matmul()

    @staticmethod
    def is_built() -> bool:
        """Whether CUDA can be used here, given CuPy and a device."""
        return cuda.cupy is not None

    @staticmethod
    def flash_sdp_enabled() -> bool:
        return _sdp[_FLASH]

    @staticmethod
    def enable_flash_sdp(enabled: bool) -> None:
        _sdp[_FLASH] = bool(enabled)

    @staticmethod
    def mem_efficient_sdp_enabled() -> bool:
        return _sdp[_MEMORY_EFFICIENT]

    @staticmethod
    def enable_mem_efficient_sdp(enabled: bool) -> None:
        _sdp[_MEMORY_EFFICIENT] = bool(enabled)

    @staticmethod
    def math_sdp_enabled() -> bool:
        return _sdp[_MATH]

    @staticmethod
    def enable_math_sdp(enabled: bool) -> None:
        _sdp[_MATH] = bool(enabled)

    @staticmethod
    def cudnn_sdp_enabled() -> bool:
        return _sdp[_CUDNN]

    @staticmethod
    def enable_cudnn_sdp(enabled: bool) -> None:
        _sdp[_CUDNN] = bool(enabled)

    @staticmethod
    def preferred_linalg_library(backend: Any = None) -> str:
        """cuSOLVER, through CuPy."""
        return "cusolver"

    @staticmethod
    @contextlib.contextmanager
    def sdp_kernel(
        enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
    ) -> Iterator[None]:
        """A context with these kinds of attention kernels allowed; there is one kernel, so that it changes nothing else."""
        held = dict(_sdp)
        _sdp.update({_FLASH: enable_flash, _MATH: enable_math, _MEMORY_EFFICIENT: enable_mem_efficient, _CUDNN: enable_cudnn})
        try:
            yield
        finally:
            _sdp.update(held)
