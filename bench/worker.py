"""One framework and one case in a process of its own: worker.py FRAMEWORK CASE DEVICE THREADS SECONDS.

First prints the case's result (sum and sum of magnitudes), then answers every line of standard input with the seconds
a step takes, measured over about SECONDS: CPU time of the process on the CPU, wall-clock time on a GPU.
"""

from __future__ import annotations

import importlib
import sys
import time

from bench.cases import CASES


def main(framework: str, case: str, device: str, threads: str, seconds: str) -> None:
    torch = importlib.import_module(framework)
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    step = CASES[case].make(torch, device)
    clock = time.process_time if device == "cpu" else time.perf_counter

    def steps(count: int) -> float:
        started = clock()
        for _ in range(count):
            step()
        if device != "cpu":
            torch.cuda.synchronize()
        return clock() - started

    result = step().detach().double()
    steps(2)
    count = 1
    while (taken := steps(count)) < float(seconds) / 4:
        count *= 2
    count = max(1, int(count * float(seconds) / taken))
    print(float(result.sum()), float(result.abs().sum()), flush=True)
    for _ in sys.stdin:
        print(steps(count) / count, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
