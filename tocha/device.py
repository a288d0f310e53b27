"""Devices: cpu, cuda:N and meta, and the size, layout and memory-format names that go with a tensor."""

from __future__ import annotations

import copyreg
import math
import threading
from typing import Any

_TYPES = ("cpu", "cuda", "meta", "mps", "xpu")


class device:
    """Where a tensor lives: `device('cuda', 1)`, `device('cuda:1')`, `device('cpu')`. Usable as a context manager
    that makes it the default of factory functions (torch docs: torch.device)."""

    __slots__ = ("_previous", "index", "type")
    type: str
    index: int | None

    def __new__(cls, type: Any = None, index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        self = object.__new__(cls)
        if isinstance(type, int):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, int or device, not {type.__class__.__name__}")
        if ":" in type:
            kind, _, number = type.partition(":")
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            type, index = kind, int(number)
        if type not in _TYPES:
            raise RuntimeError(f"Expected one of {', '.join(_TYPES)} device type at start of device string: {type}")
        self.type, self.index, self._previous = type, index, []  # type: ignore[attr-defined]
        return self

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index) if self.index is not None else (self.type,)

    def __enter__(self) -> device:
        self._previous.append(get_default_device())  # type: ignore[attr-defined]
        set_default_device(self)
        return self

    def __exit__(self, *exc: object) -> None:
        set_default_device(self._previous.pop())  # type: ignore[attr-defined]


device.__module__ = "torch"

CPU = device("cpu")
META = device("meta")


class _Default(threading.local):
    device = CPU


_default = _Default()


def get_default_device() -> device:
    """The device factory functions use in this thread when none is named."""
    return _default.device


def set_default_device(where: Any) -> None:
    """Make `where` the device of this thread's factory functions; None means the CPU."""
    _default.device = CPU if where is None else device(where)


class layout:
    """How elements are laid out; only `strided` tensors exist so far."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class memory_format(layout):
    """A name for an order of strides."""


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple with `numel()` (torch docs: torch.Size)."""

    __slots__ = ()

    def numel(self) -> int:
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    __str__ = __repr__

    def __getitem__(self, index: Any) -> Any:
        got = tuple.__getitem__(self, index)
        return Size(got) if isinstance(index, slice) else got

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count: Any) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


Size.__module__ = "torch"


def _named(name: str) -> device:
    return device(name)


def _layout(name: str) -> Any:
    return globals()[name]


def _size(values: tuple[int, ...]) -> Size:
    return Size(values)


# These classes go by torch's names, under which a plain pickle would look for them.
copyreg.pickle(device, lambda d: (_named, (str(d),)))
copyreg.pickle(Size, lambda s: (_size, (tuple(s),)))
copyreg.pickle(layout, lambda named: (_layout, (named.name,)))
copyreg.pickle(memory_format, lambda named: (_layout, (named.name,)))
