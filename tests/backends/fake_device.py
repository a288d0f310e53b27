"""The parts of the stand-in for CuPy that aren't arrays: streams, events, one device."""

from __future__ import annotations

from typing import Any


class Stream:
    """A stream on which everything is done at once."""

    ptr, done = 1, True
    null: Any
    current: list[Stream] = []

    def __init__(self, non_blocking: bool = False, priority: Any = None) -> None:
        pass

    def __enter__(self) -> None:
        Stream.current.append(self)

    def __exit__(self, *exc: object) -> None:
        Stream.current.pop()

    def use(self) -> None:
        Stream.current[:] = [self]

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        assert event.recorded

    def is_capturing(self) -> bool:
        return False


Stream.null = Stream()
Stream.current.append(Stream.null)


class Event:
    """A mark; times between marks are a millisecond."""

    ptr, done, recorded = 2, True, False

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.timing = not disable_timing

    def record(self, stream: Stream) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        pass


class Flags:
    def __init__(self, n: Any) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = n.flags.c_contiguous, n.flags.f_contiguous, n.flags.owndata
        self.forc = self.c_contiguous or self.f_contiguous


class Device:
    def __init__(self, id: int = 0) -> None:
        if id != 0:
            raise ValueError(f"there is one fake device, not device {id}")
        self.id = id

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def synchronize(self) -> None:
        pass
