"""torch._jit_internal: what libraries take from there."""

from __future__ import annotations

from tocha.futures import Future
from tocha.jit import Final, _overload, _overload_method, annotate, export, ignore, is_scripting, unused
from tocha.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Final", "Future", "_overload", "_overload_method", "annotate",
    "export", "ignore", "is_scripting", "unused",
]  # fmt: skip
