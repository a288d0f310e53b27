"""Batches to pinned memory, from which copies to a GPU overlap with computing."""

from __future__ import annotations

import collections.abc
from typing import Any

from tocha.tensor import Tensor

from .collate import _is_namedtuple, _same_mapping, _same_sequence


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with all tensors inside it in pinned memory; objects with a `pin_memory` method pin
    themselves.
    """
    if isinstance(data, Tensor):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return _same_mapping(data, {key: pin_memory(value, device) for key, value in data.items()})
    if _is_namedtuple(data):
        return type(data)(*(pin_memory(value, device) for value in data))
    if isinstance(data, tuple):
        return [pin_memory(value, device) for value in data]
    if isinstance(data, collections.abc.Sequence):
        return _same_sequence(data, [pin_memory(value, device) for value in data])
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    return data
