"""torch.utils: checkpoint, data, and small helpers."""

import importlib
import pkgutil
from typing import Any


def __getattr__(name: str) -> Any:
    # Submodules load on first use, so that `tocha.utils.data` needs no import of its own.
    if any(module.name == name for module in pkgutil.iter_modules(__path__)):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
