"""Errors that torch has classes of its own for."""

from __future__ import annotations


class OutOfMemoryError(RuntimeError):
    """A device has no memory left for an allocation (torch docs: torch.OutOfMemoryError)."""


class AcceleratorError(RuntimeError):
    """A device reported an error (torch docs: torch.AcceleratorError)."""


OutOfMemoryError.__module__ = AcceleratorError.__module__ = "torch"
