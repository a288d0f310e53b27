"""`mode="max-autotune"`: between ways of computing the same, the one that took less time here, where otherwise a formula says.

What was found is kept beside the kernels, for this CPU and number of threads, so that other processes decide the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tocha import threads
from tocha.aot import journal
from tocha.inductor import cache, jit, memo

_ROUNDS = 5
_LEAST = 1e-3  # seconds that a round of one way takes


def fastest(what: str, ways: Mapping[str, Callable[[], Any]]) -> str:
    """The name of the quickest of `ways`, which are called in turns. `what` tells this choice from others."""
    key = cache.key_of("fastest", what, *ways, memo.sources(), jit.versions(), *jit.host(), str(threads.get_num_threads()))
    stored = (cache.read(key) or b"").decode(errors="replace")
    if stored in ways:
        return stored
    counts = {name: max(1, round(_LEAST / max(_seconds(way, 2) / 2, 1e-7))) for name, way in ways.items()}  # compiles what is missing, too
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            best[name] = min(best[name], _seconds(way, counts[name]) / counts[name])
    found = min(best, key=best.__getitem__)
    journal.note("autotuned", what=what, seconds=best, chosen=found)
    cache.write(key, found.encode())
    return found


def _seconds(way: Callable[[], Any], times: int) -> float:
    way()
    start = time.perf_counter()
    for _ in range(times):
        way()
    return time.perf_counter() - start
