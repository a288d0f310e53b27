"""One framework and one case in a process of its own: worker.py FRAMEWORK CASE DEVICE THREADS SECONDS.

Answers every line of standard input with the seconds a step takes, measured over about SECONDS.
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
    step = CASES[case](torch, device)

    def steps(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            step()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    steps(2)
    count = 1
    while (taken := steps(count)) < float(seconds) / 4:
        count *= 2
    count = max(1, int(count * float(seconds) / taken))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(steps(count) / count, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
