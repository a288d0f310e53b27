"""Which memory belongs to NumPy arrays of the program: tensors on it can't move to larger memory."""

from __future__ import annotations

import weakref
from typing import Any

from tocha.backends import namespace


class _Lent(weakref.ref[Any]):
    """A NumPy array whose memory the program lent to a tensor; `key` is its id."""

    __slots__ = ("key",)
    key: int


_LENT: dict[int, _Lent] = {}


def lend(array: Any) -> None:
    """Note that a NumPy array's memory is its owner's: tensors on it can't move to larger memory."""
    owner = namespace(array).root(array)
    if id(owner) not in _LENT:
        note = _LENT[id(owner)] = _Lent(owner, lambda gone: _LENT.pop(gone.key, None))
        note.key = id(owner)


def check_resizable(array: Any) -> None:
    """RuntimeError if the memory below an array was lent."""
    if id(namespace(array).root(array)) in _LENT:
        raise RuntimeError(
            "Trying to resize storage that is not resizable: its memory belongs to a NumPy array. clone() the tensor first"
        )
