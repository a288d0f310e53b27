"""torch.profiler: marks of regions, which cost nothing while nobody profiles; and the profiler, which isn't there yet."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from tocha.autograd.profiler import record_function

__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]


class ProfilerActivity(enum.Enum):
    """What to observe."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4


class ProfilerAction(enum.Enum):
    """What a schedule says to do in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class profile:
    """RuntimeError: use cProfile, or `tocha bench`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch.profiler.profile: there is no profiler yet; Python's cProfile sees every operator")


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A function from step numbers to actions: wait, warm up and record in turns (torch docs: torch.profiler.schedule)."""

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        cycle = wait + warmup + active
        if skip_first_wait:
            step += wait
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no profiler to write for."""
    raise RuntimeError("torch.profiler.tensorboard_trace_handler: there is no profiler yet")
