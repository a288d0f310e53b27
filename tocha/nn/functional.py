"""torch.nn.functional: every operator registered under the word `F`, re-exported."""

from __future__ import annotations

from tocha.dispatch.registry import NAMESPACES
from tocha.ops import load  # noqa: F401

globals().update(NAMESPACES["F"])
