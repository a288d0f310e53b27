"""torch.autograd.grad_mode: the gradient modes under torch's module path."""

from __future__ import annotations

from typing import Any

from tocha.autograd.mode import _ContextDecorator, enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class set_multithreading_enabled(_ContextDecorator):
    """Whether backward may use several threads: remembered only, the engine walks in the caller's thread."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def clone(self) -> set_multithreading_enabled:
        return type(self)(self.mode)

    def __enter__(self) -> Any:
        """Nothing changes."""

    def __exit__(self, *exc: object) -> None:
        """Nothing changed."""
