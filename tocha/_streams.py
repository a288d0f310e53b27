"""torch.Stream and torch.Event: those of a device type, chosen by the device they are made for."""

from __future__ import annotations

from typing import Any

from tocha.device import device as Device
from tocha.device import get_default_device

__all__ = ["Event", "Stream"]


class _Chooser(type):
    """`isinstance` holds for the streams (or events) of every device type."""

    def __instancecheck__(cls, instance: Any) -> bool:
        import tocha.cpu
        import tocha.cuda

        return isinstance(
            instance, (getattr(tocha.cuda, cls.__name__), *((tocha.cpu.Stream,) if cls.__name__ == "Stream" else (_HostEvent,)))
        )


def _on_cuda(where: Any) -> bool:
    return (get_default_device() if where is None else Device(where)).type == "cuda"


class Stream(metaclass=_Chooser):
    """A queue of work on a device (torch docs: torch.Stream)."""

    def __new__(cls, device: Any = None, *, priority: int = 0) -> Any:
        import tocha.cpu
        import tocha.cuda

        return tocha.cuda.Stream(Device(device or "cuda"), priority) if _on_cuda(device) else tocha.cpu.Stream(priority)


class _HostEvent:
    """On the CPU all work before is done when it is recorded."""

    def record(self, stream: Any = None) -> None:
        """Nothing is waited for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing is waited for."""

    def synchronize(self) -> None:
        """Nothing is waited for."""

    def query(self) -> bool:
        """Whether all work before is done: yes."""
        return True


class Event(metaclass=_Chooser):
    """A mark in a stream that others can wait for (torch docs: torch.Event)."""

    def __new__(
        cls, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Any:
        import tocha.cuda

        return tocha.cuda.Event(enable_timing, blocking, interprocess) if _on_cuda(device) else _HostEvent()
