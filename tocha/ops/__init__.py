"""The torch API: functions with torch's signatures, written on primitives. Importing `tocha.ops.load` registers them all.

Under the name `torch.ops` this package also answers for the operators by name: `torch.ops.aten.add.Tensor`,
`torch.ops.<library>.<operator>`.
"""

from __future__ import annotations

import pkgutil
from typing import Any

_MODULES = frozenset(module.name for module in pkgutil.iter_modules(__path__))


def load_library(path: Any) -> None:
    """RuntimeError: libraries of compiled torch operators can't be loaded, there is no libtorch here to link them with."""
    raise RuntimeError(f"torch.ops.load_library({str(path)!r}): operators compiled against libtorch can't be loaded into tocha")


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name in _MODULES:
        raise AttributeError(name)
    from tocha.dispatch.overload import namespace

    return namespace(name)
