"""Kernels on request: from the cache on disk, else compiled while the caller waits (once a machine), so that a call computes the same bits every
time. Long code is compiled twice: in haste for the caller, and well by another thread meanwhile (`jit.load_twice`). Refused kernels are remembered.

`TOCHA_COMPILE=now` has the caller wait for good code; `background` lets NumPy serve until a kernel is ready, and the last digits of results
change then. `strict` is `now` and lets defects of the compiler show as errors rather than leave the call to NumPy.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tocha.inductor import jit
from tocha.inductor.lower import Unsupported

FAILED = object()  # what a request's result is when there is no kernel for it
_waiting: list[Callable[[], None]] = []  # what the other thread has to do, the job it is at included
_change = threading.Condition()  # of the list
_worker: threading.Thread | None = None
_patient = False
_STAYS = 1.0  # seconds that the other thread waits for more
_AFTER = 0.03  # seconds after a caller got a kernel: his next had better not wait for LLVM or a core
_quiet_from = 0.0  # when these have passed
_stopping = False
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
    if now():
        _serve(make, put)
    elif not _serve_from_cache(make, put):
        _later(lambda: _serve(make, put))


def be_patient() -> None:
    """From now on callers wait for good code: for programs that compile graphs, which take their time anyway, and would take a quarter more."""
    global _patient
    _patient = True


def _later(job: Callable[[], None]) -> None:
    """Have another thread do it."""
    global _worker
    with _change:
        _waiting.append(job)
        _change.notify()
        if _worker is None:
            _worker = threading.Thread(target=_work, name="tocha-compile", daemon=True)
            _worker.start()


def _work() -> None:
    """Do what is waiting; end when nothing comes for a while (a process that forks had better have few threads)."""
    global _worker
    while True:
        with _change:
            if not _waiting and not _change.wait_for(lambda: _waiting, _STAYS):
                _worker = None
                return
            job = _waiting[0]
        while not _stopping and time.monotonic() < _quiet_from:
            time.sleep(_AFTER)
        try:
            job()
        except Exception as error:  # what was compiled in haste goes on serving
            failures.append(f"{error.__class__.__name__}: {error}")
        with _change:
            _waiting.pop(0)


def finish(seconds: float = 60.0) -> bool:
    """Wait until all is compiled that was asked for so far; whether it is."""
    deadline = time.monotonic() + seconds
    while _waiting and _worker is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    return not _waiting or _worker is None


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


def _serve(make: Callable[[], Any], put: Callable[[Any], None]) -> None:
    global compiled, _quiet_from
    mode = os.environ.get("TOCHA_COMPILE", "")
    _quiet_from = math.inf
    try:
        with jit.LOCK, contextlib.nullcontext() if mode or _patient else jit.haste(_later):
            made = make()
    except jit.NotCached:
        raise
    except (KeyboardInterrupt, SystemExit):
        put(FAILED)  # others may be waiting
        raise
    except Exception as error:  # whatever goes wrong here, NumPy serves
        if mode == "strict" and not isinstance(error, (Unsupported, jit.CompileError)):
            put(FAILED)
            raise
        failures.append(f"{error.__class__.__name__}: {error}")
        del failures[:-100]
        put(FAILED)
    else:
        compiled += 1
        put(made)
    finally:
        _quiet_from = time.monotonic() + _AFTER


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
    """LLVM must not be at work while the process takes its libraries down; what was begun, the next process needn't begin again."""
    global _stopping
    _stopping = True
    if not finish(2.0):
        with _change:
            del _waiting[1:]
        finish()


def _before_fork() -> None:
    jit.AT_WORK.acquire()
    jit.LOCK.acquire()


def _after_fork() -> None:
    jit.LOCK.release()
    jit.AT_WORK.release()


def _forget_worker() -> None:
    """In a child after fork: its thread is gone; what that had to do is done by one of the child's, once there is one."""
    global _worker, _change
    _worker, _change = None, threading.Condition()
    for reset in on_fork:
        reset()
    _after_fork()


on_fork: list[Callable[[], None]] = []  # called in children
atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_worker)
