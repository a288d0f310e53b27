"""torch._dynamo.eval_frame: the module that torch.compile makes of a module."""

from __future__ import annotations

from typing import Any

from tocha.nn import Module

__all__ = ["OptimizedModule"]


class OptimizedModule(Module):
    """A module as torch.compile returns it: the original is `_orig_mod`, whose attributes it answers with."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._orig_mod = mod

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's call."""
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_orig_mod", "training") or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)
