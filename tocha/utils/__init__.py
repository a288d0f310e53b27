"""torch.utils: checkpoint, data, and small helpers."""

import importlib
import pkgutil
import weakref
from typing import Any

_SLOTS = ("__class__", "__dict__", "_a", "_extra", "_grad", "_node", "_nr", "_rg", "_vc", "_view")


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange all there is to two tensors: memory, history, gradient, class and attributes (torch docs: torch.utils.swap_tensors). A graph
    recorded before keeps the objects that it saw: a leaf's gradient goes to the same object as before."""
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    for slot in _SLOTS:
        one, two = getattr(t1, slot), getattr(t2, slot)
        setattr(t1, slot, two)
        setattr(t2, slot, one)


def __getattr__(name: str) -> Any:
    # Submodules load on first use, so that `tocha.utils.data` needs no import of its own.
    if any(module.name == name for module in pkgutil.iter_modules(__path__)):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
