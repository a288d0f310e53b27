"""torch.nn.functional: every operator registered under the word `F`, re-exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tocha.dispatch.registry import NAMESPACES
from tocha.ops import load  # noqa: F401

globals().update(NAMESPACES["F"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
