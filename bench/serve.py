"""One framework in a process that serves many rows of the grid: serve.py FRAMEWORK THREADS.

Reads a request a line, answers a line of JSON:
    make ROW FOLDER    builds the row's step, saves what it returns as FOLDER/0.npy, 1.npy … and answers how many and the seconds of a step
    time COUNT         CPU seconds of the process and wall-clock seconds of a step, over COUNT steps
A row that fails is answered with {"error": …}; the process lives on.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.grid import GRID, Step

_REST = 0.02  # seconds: OpenMP's threads spin for several milliseconds after their last loop, on a CPU that others need


class Server:
    """The row at hand and what to ask of it."""

    def __init__(self, framework: str, threads: int) -> None:
        self.torch = importlib.import_module(framework)
        self.torch.set_num_threads(threads)
        self.threads = threads
        self.step: Step = lambda: None

    def make(self, row: str, folder: str) -> dict[str, Any]:
        """Build the step of `row` and keep what it returns."""
        self.step = lambda: None
        gc.collect()
        self.torch.manual_seed(0)
        self.step = GRID[row].make(self.torch)
        found = self.step()
        outputs = list(found) if isinstance(found, (tuple, list)) else [found]
        for number, x in enumerate(outputs):
            x = x.detach()
            np.save(Path(folder) / f"{number}.npy", (x.float() if x.element_size() == 2 else x).contiguous().numpy())
        del found, outputs, x
        self.time(1)
        if self.threads > 1:
            _pin()
        return {"outputs": number + 1, **self.time(1)}

    def time(self, count: int) -> dict[str, Any]:
        """Seconds of a step, once the threads of the framework that had its turn before have gone to sleep."""
        step = self.step
        time.sleep(_REST)
        step()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            step()
        return {"cpu": (time.process_time() - cpu) / count, "wall": (time.perf_counter() - wall) / count}

    def answer(self, request: str) -> dict[str, Any]:
        """The answer to a line."""
        kind, *arguments = request.rstrip("\n").split("\t")
        try:
            return self.make(*arguments) if kind == "make" else self.time(int(arguments[0]))
        except Exception as error:  # whatever the framework raises is the row's result
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


def _pin() -> None:
    """Keep the main thread on one CPU and the others on the rest, on both sides: where the system puts two of them on one CPU, as it does on a
    machine that others use too, a row says nothing about its kernel."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    threads = [int(t) for t in os.listdir("/proc/self/task")] if len(cpus) > 1 else []
    for number, thread in enumerate(t for t in threads if t != os.getpid()):
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, {cpus[1 + number % (len(cpus) - 1)]})
    if len(threads) > 1:
        os.sched_setaffinity(os.getpid(), {cpus[0]})


def main(framework: str, threads: str) -> None:
    server = Server(framework, int(threads))
    for request in sys.stdin:
        print(json.dumps(server.answer(request)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
