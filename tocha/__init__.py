"""tocha: the PyTorch 2 stack in pure Python. `import tocha as torch` and go on as before."""

from __future__ import annotations

from typing import Any

from tocha.dispatch.registry import NAMESPACES as _NAMESPACES
from tocha.dtypes import (  # noqa: F401
    bfloat16, complex64, complex128, dtype, finfo, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu,
    float16, float32, float64, get_default_dtype, iinfo, int8, int16, int32, int64, promote_types, set_default_dtype, uint8, uint16,
    uint32, uint64,
)  # fmt: skip
from tocha.device import (  # noqa: F401
    Size, channels_last, channels_last_3d, contiguous_format, device, get_default_device, layout, memory_format, preserve_format,
    set_default_device, sparse_coo, sparse_csr, strided,
)  # fmt: skip
from tocha.autograd.mode import (  # noqa: F401
    enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled,
)  # fmt: skip
from tocha.tensor import Tensor  # noqa: F401
from tocha.dtypes import bool_ as bool  # noqa: F401, A004
from tocha import dtypes as _dtypes
from tocha.ops import load as _load  # noqa: F401
from tocha.random import (  # noqa: F401
    Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state,
)  # fmt: skip
from tocha import serialization, storage  # noqa: F401
from tocha.serialization import load, save  # noqa: F401
from tocha.storage import LEGACY_CLASSES as _LEGACY_STORAGES, TypedStorage, UntypedStorage  # noqa: F401

globals().update(_LEGACY_STORAGES)
globals().update({_d.alias: _d for _d in _dtypes.ALL if _d.alias})
globals().update(_NAMESPACES["torch"])
