"""Streams and events of CUDA devices, on CuPy's (torch docs: torch.cuda.Stream, torch.cuda.Event)."""

from __future__ import annotations

from typing import Any

from tocha.backends import cuda as _backend
from tocha.device import device as _device

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


def _cuda() -> Any:
    _backend.require_device(_device("cuda"))
    return _backend.cupy.cuda


def _on(device: Any) -> Any:
    from tocha.cuda import _index

    return _backend.on(_index(device))


class Stream:
    """A queue of work on one device, in order. Work on different streams may overlap."""

    def __init__(self, device: Any = None, priority: int = 0, *, _held: Any = None) -> None:
        with _on(device):
            self._held = _cuda().Stream(non_blocking=True, priority=priority or None) if _held is None else _held
            self.device = _backend.current()
        self.priority = priority

    @property
    def cuda_stream(self) -> int:
        """The stream's address, as other CUDA libraries take it."""
        return int(self._held.ptr)

    @property
    def device_index(self) -> int:
        return self.device.index or 0

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        self._held.synchronize()

    def query(self) -> bool:
        """Whether all its work is done."""
        return bool(self._held.done)

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind the work queued so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work queued from now on wait for the event."""
        self._held.wait_event(event._made())

    def wait_stream(self, stream: Stream) -> None:
        """Let work queued from now on wait for what is queued on `stream` now."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device) == (other.cuda_stream, other.device)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """A mark in a stream: to wait for, and with `enable_timing` to take times between."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("torch.cuda.Event: events between processes are not supported")
        self._timing, self._blocking, self._event = enable_timing, blocking, None

    def _made(self) -> Any:
        if self._event is None:
            self._event = _cuda().Event(block=self._blocking, disable_timing=not self._timing)
        return self._event

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work queued on a stream (the current one) so far."""
        self._made().record((stream or current_stream())._held)

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream (the current one) wait for it."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the work before it is done; True if it was never recorded."""
        return self._event is None or bool(self._event.done)

    def synchronize(self) -> None:
        """Wait until the work before it is done."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two recorded events made with `enable_timing=True`; waits for the later one."""
        if not self._timing or not end_event._timing:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is None or end_event._event is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        end_event.synchronize()
        return float(_cuda().get_elapsed_time(self._event, end_event._event))

    def __repr__(self) -> str:
        return "<torch.cuda.Event uninitialized>" if self._event is None else f"<torch.cuda.Event {self._event.ptr:#x}>"


def current_stream(device: Any = None) -> Stream:
    """The stream that work on a device goes to."""
    with _on(device):
        return Stream(device, _held=_cuda().get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The device's own stream."""
    return Stream(device, _held=_cuda().Stream.null)


def set_stream(stream: Stream | None) -> None:
    """Send this thread's work to `stream` from now on."""
    if stream is not None:
        stream._held.use()


class StreamContext:
    """A context in which work goes to `stream`; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = _backend.on(self.stream.device.index)
            self._device.__enter__()
            self.stream._held.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            self.stream._held.__exit__(None, None, None)
            self._device.__exit__(None, None, None)


def stream(stream: Stream | None) -> StreamContext:
    """A context in which work goes to `stream` (torch docs: torch.cuda.stream)."""
    return StreamContext(stream)
