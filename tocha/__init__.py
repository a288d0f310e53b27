"""tocha: the PyTorch 2 stack in pure Python. `import tocha as torch` and go on as before.

Operators come from the registry; submodules load when first touched.
"""

# ruff: noqa: I001
from __future__ import annotations

import importlib as _importlib
import sys as _sys
from typing import Any

from tocha import dtypes as _dtypes
from tocha.autograd.mode import (
    enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled,
)  # fmt: skip
from tocha.device import (
    Size, channels_last, channels_last_3d, contiguous_format, device, get_default_device, layout, memory_format, preserve_format,
    set_default_device, jagged, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided,
)  # fmt: skip
from tocha.dispatch.registry import NAMESPACES as _NAMESPACES
from tocha.dtypes import bool_ as bool
from tocha.dtypes import (
    bfloat16, complex64, complex128, dtype, finfo, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu,
    float16, float32, float64, get_default_dtype, iinfo, int8, int16, int32, int64, promote_types, set_default_dtype, uint8, uint16,
    uint32, uint64,
)  # fmt: skip
from tocha.ops import load as _load
from tocha.tensor import Tensor
from tocha.version import __version__

# Modules reached as attributes without an import of their own, as in torch.
_SUBMODULES = frozenset((
    "_C", "__config__", "_custom_ops", "_dynamo", "_functorch", "_higher_order_ops", "_inductor", "_jit_internal", "_logging",
    "_lowrank", "_tensor_str", "_utils", "accelerator", "amp", "ao", "autograd", "backends", "compiler", "cpu", "cuda",
    "data", "distributed", "distributions", "export", "fft", "func", "functional", "futures", "fx", "hub", "jit", "library", "linalg",
    "masked", "multiprocessing", "nn", "onnx", "ops", "optim", "overrides", "profiler", "random", "return_types",
    "serialization", "signal", "special", "storage", "testing", "torch_version", "types", "utils", "version", "xpu",
))  # fmt: skip
# Names whose homes load on first use.
_LATER = {
    name: home
    for home, names in {
        "random": ("Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"),
        "serialization": ("load", "save"),
        "storage": ("TypedStorage", "UntypedStorage"),
        "threads": ("get_num_interop_threads", "get_num_threads", "set_num_interop_threads", "set_num_threads"),
        "func": ("vmap",),
        "compiler": ("compile",),
        "_higher_order_ops": ("cond", "while_loop"),
        "settings": (
            "SymBool",
            "SymFloat",
            "SymInt",
            "_assert",
            "are_deterministic_algorithms_enabled",
            "compiled_with_cxx11_abi",
            "get_deterministic_debug_mode",
            "get_device_module",
            "get_float32_matmul_precision",
            "is_deterministic_algorithms_warn_only_enabled",
            "is_vulkan_available",
            "is_warn_always_enabled",
            "set_default_tensor_type",
            "set_deterministic_debug_mode",
            "set_flush_denormal",
            "set_float32_matmul_precision",
            "set_warn_always",
            "sym_float",
            "sym_int",
            "sym_ite",
            "sym_max",
            "sym_min",
            "sym_not",
            "sym_sqrt",
            "sym_sum",
            "use_deterministic_algorithms",
        ),
        "_lowrank": ("lobpcg", "pca_lowrank", "svd_lowrank"),
        "_segments": ("embedding_bag", "segment_reduce"),
        "_streams": ("Event", "Stream"),
        "jit": ("ScriptFunction", "ScriptModule", "fork", "wait"),
        "futures": ("Future",),
        "dispatch.override": ("DisableTorchFunction", "DisableTorchFunctionSubclass"),
        "amp.grad_scaler": ("GradScaler",),
        "amp.autocast_mode": (
            "autocast",
            "autocast_decrement_nesting",
            "autocast_increment_nesting",
            "clear_autocast_cache",
            "get_autocast_cpu_dtype",
            "get_autocast_dtype",
            "get_autocast_gpu_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_cpu_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_cpu_dtype",
            "set_autocast_cpu_enabled",
            "set_autocast_dtype",
            "set_autocast_enabled",
            "set_autocast_gpu_dtype",
        ),
        "autograd.anomaly": ("is_anomaly_check_nan_enabled", "is_anomaly_enabled"),
        "errors": ("AcceleratorError", "OutOfMemoryError"),
        "_checks": (
            "_check",
            "_check_index",
            "_check_is_size",
            "_check_not_implemented",
            "_check_tensor_all",
            "_check_type",
            "_check_value",
        ),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        found = getattr(_importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    elif name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    elif name.endswith("Storage"):
        from tocha.storage import LEGACY_CLASSES

        if name not in LEGACY_CLASSES:
            raise AttributeError(f"module 'torch' has no attribute {name!r}")
        found = LEGACY_CLASSES[name]
    elif name.endswith("Tensor"):
        from tocha.legacy import tensor_type

        found = tensor_type(name)
    else:
        raise AttributeError(f"module 'torch' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_LATER})


from math import e, inf, nan, pi  # noqa: E402

newaxis = None
torch = _sys.modules[__name__]  # torch.torch is torch there too
globals().update({_d.alias: _d for _d in _dtypes.ALL if _d.alias})
globals().update(_NAMESPACES["torch"])
