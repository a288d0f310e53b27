"""Channel shuffle (torch docs: torch.nn.ChannelShuffle)."""

from __future__ import annotations

from typing import Any

from tocha.nn import functional as F
from tocha.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Regroup channels: (N, g·n, *) read as (N, g, n, *) and transposed."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Any) -> Any:
        """(N, C, *) with shuffled channels."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
