"""torch._check and its relatives: conditions that raise an error of one's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.dispatch.override import require
from tocha.tensor import Tensor

Message = Callable[[], Any] | None


def _raise_unless(cond: Any, error: type[Exception], message: Message) -> None:
    if not isinstance(cond, bool):
        if isinstance(cond, Tensor):
            raise TypeError(
                "cond must be a bool, but got a Tensor. For tensor conditions, use torch._check_tensor_all() to assert that all elements "
                "are true."
            )
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error(_text(message))


def _text(message: Message) -> str:
    if message is None:
        return "Expected cond to be True, but got False."
    if not callable(message):
        raise TypeError("message must be a callable")
    return str(message())


def _check(cond: Any, message: Message = None) -> None:
    """RuntimeError unless `cond`; `message()` gives the words (torch docs: torch._check)."""
    _raise_unless(cond, RuntimeError, message)


def _check_index(cond: Any, message: Message = None) -> None:
    """`_check` that raises IndexError."""
    _raise_unless(cond, IndexError, message)


def _check_value(cond: Any, message: Message = None) -> None:
    """`_check` that raises ValueError."""
    _raise_unless(cond, ValueError, message)


def _check_type(cond: Any, message: Message = None) -> None:
    """`_check` that raises TypeError."""
    _raise_unless(cond, TypeError, message)


def _check_not_implemented(cond: Any, message: Message = None) -> None:
    """`_check` that raises NotImplementedError."""
    _raise_unless(cond, NotImplementedError, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """RuntimeError unless i is a size: not negative, and at most `max`."""
    _raise_unless(i >= 0 and (max is None or i <= max), RuntimeError, message)


def _check_tensor_all(cond: Any, message: Message = None) -> None:
    """RuntimeError unless all elements of a tensor are true; in a graph, when it runs."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    assert_all(cond, _text(message))


def assert_all(cond: Tensor, text: str) -> None:
    """`_check_tensor_all`, as a node of graphs."""
    require(cond, RuntimeError, text)


assert_all.impure = True  # type: ignore[attr-defined]
