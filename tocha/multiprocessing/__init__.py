"""torch.multiprocessing: the standard library's multiprocessing, through whose queues, pipes and arguments tensors travel
as shared memory (torch docs: torch.multiprocessing)."""

from __future__ import annotations

import multiprocessing as _standard
import sys as _sys
from multiprocessing import *
from typing import Any

from tocha.multiprocessing.reductions import init_reductions
from tocha.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
    *_standard.__all__,
]  # fmt: skip

_STRATEGIES = {"file_system"} if _sys.platform in ("darwin", "win32") else {"file_descriptor", "file_system"}
_strategy = "file_system" if _sys.platform in ("darwin", "win32") else "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """Names that `set_sharing_strategy` takes here."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The strategy that was set."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose a strategy by name. Memory is shared by descriptors of nameless files under each of them: nothing can be left
    behind in a file system."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"invalid sharing strategy {new_strategy!r}, expected one of {sorted(_STRATEGIES)}")
    _strategy = new_strategy


def __getattr__(name: str) -> Any:
    return getattr(_standard, name)


init_reductions()
