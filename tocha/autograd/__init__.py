"""torch.autograd: the tape (`graph`), the engine that walks it, gradient modes, custom functions and checks.

Names load on first use: most programs need only `backward` and `grad`.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "engine": ("backward", "grad"),
    "function": ("Function", "once_differentiable"),
    "grad_mode": ("enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"),
    "anomaly": ("detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"),
    "gradcheck": ("gradcheck", "gradgradcheck"),
    "variable": ("Variable",),
}
_MODULES = frozenset((
    "anomaly_mode", "forward_ad", "function", "functional", "grad_mode", "gradcheck", "graph", "profiler", "variable",
))  # fmt: skip
_NAMES = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _NAMES.get(name)
    if home is None and name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if home is None:
        raise AttributeError(f"module 'torch.autograd' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
