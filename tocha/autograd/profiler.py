"""torch.autograd.profiler: the older path of torch.profiler."""

from __future__ import annotations

from typing import Any

from tocha.autograd.mode import _ContextDecorator

__all__ = ["EventList", "emit_nvtx", "profile", "record_function"]


class record_function(_ContextDecorator):
    """A named region for profilers, as a context manager or decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def clone(self) -> record_function:
        return type(self)(self.name, self.args)

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exc: object) -> None:
        """The region ends."""


class EventList(list[Any]):
    """A list of profiled events."""


class profile:
    """RuntimeError unless `enabled` is False: there is no profiler yet."""

    def __init__(self, enabled: bool = True, **kwargs: Any) -> None:
        if enabled:
            raise RuntimeError("torch.autograd.profiler.profile: there is no profiler yet; Python's cProfile sees every operator")

    def __enter__(self) -> None:
        """Not enabled."""

    def __exit__(self, *exc: object) -> None:
        """Not enabled."""


class emit_nvtx(profile):
    """RuntimeError unless `enabled` is False."""
