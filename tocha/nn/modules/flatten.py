"""Reshaping layers (torch docs: torch.nn.Flatten, Unflatten)."""

from __future__ import annotations

from typing import Any

from tocha.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Merge the dimensions `start_dim` to `end_dim` into one."""

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Any) -> Any:
        """The flattened input."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split dimension `dim` into the sizes `unflattened_size` (pairs with names for a named one)."""

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: int | str, unflattened_size: Any) -> None:
        super().__init__()
        if isinstance(dim, int):
            self._require_sizes(unflattened_size)
        elif isinstance(dim, str):
            self._require_pairs(unflattened_size)
        else:
            raise TypeError("invalid argument type for dim parameter")
        self.dim = dim
        self.unflattened_size = unflattened_size

    def _require_sizes(self, value: Any) -> None:
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"unflattened_size must be a tuple of ints, but found type {type(value).__name__}")
        for i, item in enumerate(value):
            if not isinstance(item, int):
                raise TypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {type(item).__name__} at pos {i}"
                )

    def _require_pairs(self, value: Any) -> None:
        if not isinstance(value, tuple):
            raise TypeError(f"unflattened_size must be a tuple of tuples, but found type {type(value).__name__}")
        for i, item in enumerate(value):
            if not isinstance(item, tuple):
                raise TypeError(
                    f"unflattened_size must be tuple of tuples, but found element of type {type(item).__name__} at pos {i}"
                )

    def forward(self, input: Any) -> Any:
        """The unflattened input."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
