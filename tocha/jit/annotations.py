"""torch.jit.annotations: types of scripted signatures, as plain annotations."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, Union  # noqa: UP035


class _BroadcastingList:
    """`BroadcastingList2[int]` is `List[int]`: an int stands for that many of it in scripted calls."""

    def __getitem__(self, kind: type) -> object:
        return List[kind]  # type: ignore[valid-type]  # noqa: UP006


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip
