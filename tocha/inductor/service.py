"""Kernels on request: taken from the cache at once, else compiled in the background while the caller does without.

So a process whose kernels are all cached computes the same bits in every run; a first run switches from NumPy to a kernel when that
is ready, which may change last bits in between. `TOCHA_COMPILE=now` compiles at once instead.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from tocha.inductor import jit
from tocha.inductor.lower import Unsupported

FAILED = object()  # what a request's result is when there is no kernel for it
_requests: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
_worker: threading.Thread | None = None
failures: list[str] = []  # why kernels were refused, for `tocha doctor`
compiled = 0
wait = False  # set by torch.use_deterministic_algorithms


def now() -> bool:
    """Whether the caller waits for its kernel: `TOCHA_COMPILE=now`, or `strict`, which also lets defects of the compiler show."""
    return wait or os.environ.get("TOCHA_COMPILE") in ("now", "strict")


def request(make: Callable[[], Any], put: Callable[[Any], None]) -> None:
    """Have `put(make())` done, at once if the cache has what `make` loads, else soon; `put(FAILED)` when it is impossible."""
    global _worker
    if now():
        _serve(make, put)
        return
    if _serve_from_cache(make, put):
        return
    if _worker is None or not _worker.is_alive():
        _worker = threading.Thread(target=_work, name="tocha-compile", daemon=True)
        _worker.start()
    _requests.put((make, put))


def _serve_from_cache(make: Callable[[], Any], put: Callable[[Any], None]) -> bool:
    """Whether that was possible: not while something else is being compiled."""
    if not jit.LOCK.acquire(blocking=False):
        return False
    try:
        with jit.only_cached():
            _serve(make, put)
    except jit.NotCached:
        return False
    finally:
        jit.LOCK.release()
    return True


def _work() -> None:
    while (item := _requests.get()) is not None:
        _serve(*item)


def _serve(make: Callable[[], Any], put: Callable[[Any], None]) -> None:
    global compiled
    try:
        with jit.LOCK:
            made = make()
    except jit.NotCached:
        raise
    except Exception as error:  # whatever goes wrong here, NumPy serves
        if os.environ.get("TOCHA_COMPILE") == "strict" and not isinstance(error, (Unsupported, jit.CompileError)):
            raise
        failures.append(f"{error.__class__.__name__}: {error}")
        del failures[:-100]
        put(FAILED)
    else:
        compiled += 1
        put(made)


def self_test() -> bool:
    """Whether a kernel compiled now (or taken from the cache) computes x² - x right, threads included."""
    import numpy as np

    from tocha.inductor import entry, pointwise

    made = pointwise.make("self_test", lambda o, x: o.sub(o.mul(x, x), x), ("f64",), "f64", "f64", {}, 1, "11")
    x = np.linspace(-3, 3, 500_001)
    out = np.empty_like(x)
    with jit.LOCK:
        builtin = entry.build(made.kernel, made.grain)
    builtin(out, x, x.size)
    return bool(np.array_equal(out, x * x - x))


def _stop() -> None:
    """LLVM must not be at work while the process takes its libraries down."""
    global _worker
    worker, _worker = _worker, None
    if worker is not None and worker.is_alive():
        while not _requests.empty():
            try:
                _requests.get_nowait()
            except queue.Empty:
                break
        _requests.put(None)
        worker.join(timeout=10)


def _forget_worker() -> None:
    """In a child after fork: its thread and the requests it had are gone; they are asked for again by whoever needs them."""
    global _worker, _requests
    _worker, _requests = None, queue.SimpleQueue()
    for reset in on_fork:
        reset()
    jit.LOCK.release()


on_fork: list[Callable[[], None]] = []  # called in children
atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=jit.LOCK.acquire, after_in_parent=jit.LOCK.release, after_in_child=_forget_worker)
