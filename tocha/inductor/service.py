"""Kernels on request: from the cache on disk, else compiled while the caller waits (once a machine; 10 to 120 ms, some of convolutions and
attention up to 530), so that a call computes the same bits every time. Refused kernels are remembered.

`TOCHA_COMPILE=background` lets NumPy serve until a kernel is ready instead, and the last digits of results change then. `strict` lets defects
of the compiler show as errors rather than leave the call to NumPy.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tocha.inductor import jit
from tocha.inductor.lower import Unsupported

FAILED = object()  # what a request's result is when there is no kernel for it
_requests: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
_worker: threading.Thread | None = None
failures: list[str] = []  # why kernels were refused, for `tocha doctor`
compiled = 0


def now() -> bool:
    """Whether callers wait for their kernels."""
    return os.environ.get("TOCHA_COMPILE") != "background"


def settle(done: Callable[[], bool]) -> None:
    """Wait until another thread has compiled what `done` asks for."""
    while not done():
        with jit.LOCK:
            pass
        time.sleep(0.001)


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
    except (KeyboardInterrupt, SystemExit):
        put(FAILED)  # others may be waiting
        raise
    except Exception as error:  # whatever goes wrong here, NumPy serves
        if os.environ.get("TOCHA_COMPILE") == "strict" and not isinstance(error, (Unsupported, jit.CompileError)):
            put(FAILED)
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
