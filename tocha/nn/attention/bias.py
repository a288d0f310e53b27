"""Causal masks as attention biases (torch docs: torch.nn.attention.bias)."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import tocha

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Which corner the diagonal of the mask starts from when the two lengths differ."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(tocha.Tensor):
    """A boolean mask (seq_len_q, seq_len_kv), True where attention is allowed."""

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant)}")
        offset = 0 if variant == CausalVariant.UPPER_LEFT else seq_len_kv - seq_len_q
        mask = tocha.ones((seq_len_q, seq_len_kv), dtype=tocha.bool).tril(diagonal=offset)
        bias = tocha.Tensor._make_subclass(cls, mask, False)
        bias.variant = variant
        bias.seq_len_q = seq_len_q
        bias.seq_len_kv = seq_len_kv
        return bias

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        pass

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._materialize())

    def _materialize(self, device: Any = None) -> Any:
        """The mask as a plain tensor."""
        return self.as_subclass(tocha.Tensor).to(device)


def causal_upper_left(*size: int) -> CausalBias:
    """Position i attends to positions up to i."""
    if len(size) != 2:
        raise AssertionError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, size[0], size[1])


def causal_lower_right(*size: int) -> CausalBias:
    """The last position attends to all, the one before it to all but one, and so on."""
    if len(size) != 2:
        raise AssertionError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, size[0], size[1])
