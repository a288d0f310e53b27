"""torch.futures: values to come (torch docs: torch.futures)."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A value that some other part of the program will set."""

    def __init__(self, *, devices: Any = None) -> None:
        self._inner: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether the value, or an exception, was set."""
        return self._inner.done()

    def wait(self) -> T:
        """The value, as soon as it is set; raises the exception if one was set."""
        return self._inner.result()

    def value(self) -> T:
        """The value; RuntimeError if it isn't set yet."""
        if not self.done():
            raise RuntimeError("value(): the future is not completed yet")
        return self._inner.result()

    def set_result(self, result: T) -> None:
        """Set the value, once."""
        try:
            self._inner.set_result(result)
        except concurrent.futures.InvalidStateError:
            raise RuntimeError("Attempting to mark a completed Future as complete again") from None

    def set_exception(self, result: BaseException) -> None:
        """Set the exception that `wait` raises."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._inner.set_exception(result)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of `callback(this future)`, called when this one is done."""
        following: Future[S] = Future()

        def run(_: Any) -> None:
            try:
                following.set_result(callback(self))
            except Exception as error:
                following._inner.set_exception(error)

        self._inner.add_done_callback(run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback(this future)` when it is done."""
        self._inner.add_done_callback(lambda _: callback(self))


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list itself, done when all are."""
    together: Future[list[Future[Any]]] = Future()
    left = [len(futures)]

    def one_done(_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            together.set_result(futures)

    if not futures:
        together.set_result(futures)
    for future in futures:
        future.add_done_callback(one_done)
    return together


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of all."""
    return [future.wait() for future in collect_all(futures).wait()]
