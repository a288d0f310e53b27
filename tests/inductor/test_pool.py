"""The pool of threads among everything else a process does: interrupts, exits, forks and other processes."""

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import tocha as torch
from tocha.inductor import pool

ROOT = Path(__file__).parents[2]


def in_a_process(program: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        env={**os.environ, **settings},
    )


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_the_pieces_of_all_shares_are_run_once_each(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            pool.addresses()["tocha_run"]
        )
        for n, grain in [(0, 1), (1, 1), (2, 1), (3, 1), (7, 2), (40, 1), (41, 3), (1000, 7), (1000, 999), (1000, 1000)]:
            pieces: list[tuple[int, int]] = []
            task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
                lambda _, lo, hi, pieces=pieces: pieces.append((lo, hi))
            )
            run(ctypes.cast(task, ctypes.c_void_p), None, n, grain)
            edges = sorted(pieces)
            assert edges[0][0] == 0 and edges[-1][1] == n
            assert all(hi == lo for (_, hi), (lo, _) in itertools.pairwise(edges))
            assert all(lo % grain == 0 and (lo < hi or n == 0) for lo, hi in edges)
            if threads > 1 and n > grain:  # so that the threads end together
                assert edges[-1][1] - edges[-1][0] <= grain
    finally:
        torch.set_num_threads(before)


def test_an_interrupt_comes_through_between_kernels_and_leaves_the_pool_usable(two_threads) -> None:
    x = torch.linspace(-3, 3, 2_000_000)
    expected = torch.tanh(x)
    for _ in range(3):
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            end = time.monotonic() + 30
            while time.monotonic() < end:
                torch.tanh(x)
        timer.join()
        assert torch.equal(torch.tanh(x), expected)


@pytest.mark.parametrize("daemons", [1, 3])
def test_the_interpreter_ends_while_daemon_threads_run_kernels(daemons: int) -> None:
    got = in_a_process(f"""
        import threading, time
        import tocha as torch
        torch.set_num_threads(2)
        x = torch.linspace(-3, 3, 1_000_000)
        expected = torch.tanh(x)
        def work():
            while True:
                torch.tanh(x)
        for _ in range({daemons}):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        print(torch.equal(torch.tanh(x), expected))
    """)
    assert (got.returncode, got.stdout, got.stderr) == (0, "True\n", "")


def test_programs_are_started_while_kernels_run(two_threads) -> None:
    x = torch.linspace(-3, 3, 1_000_000)
    expected, wrong, stop = torch.tanh(x), [], threading.Event()

    def work() -> None:
        while not stop.is_set():
            if not torch.equal(torch.tanh(x), expected):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for w in workers:
        w.start()
    try:
        for n in range(10):
            assert subprocess.run(["/bin/echo", str(n)], capture_output=True, text=True, check=True).stdout == f"{n}\n"
    finally:
        stop.set()
        for w in workers:
            w.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_forked_while_kernels_run_compute_on_threads_of_their_own() -> None:
    got = in_a_process("""
        import os, threading
        import tocha as torch
        torch.set_num_threads(2)
        x = torch.linspace(-3, 3, 1_000_000)
        expected = torch.tanh(x)
        stop = False
        def work():
            while not stop:
                torch.tanh(x)
        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(8):
            child = os.fork()
            if not child:
                right = all(torch.equal(torch.tanh(x), expected) for _ in range(5))
                torch.set_num_threads(4)
                right = right and torch.equal(torch.tanh(x), expected)
                os._exit(0 if right else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=" ")
        stop = True
        worker.join()
        print(torch.equal(torch.tanh(x), expected))
    """)
    assert (got.stdout, got.returncode) == ("0 0 0 0 0 0 0 0 True\n", 0), got.stderr


def test_a_kernel_reached_from_inside_a_backward_hook_on_another_thread(two_threads) -> None:
    x = torch.linspace(-3, 3, 300_000, requires_grad=True)
    seen = []

    def hook(grad: torch.Tensor) -> None:
        t = threading.Thread(target=lambda: seen.append(torch.equal(torch.tanh(grad), torch.tanh(grad))))
        t.start()
        t.join()

    y = torch.tanh(x)
    y.register_hook(hook)
    y.sum().backward()
    assert seen == [True]
    torch.testing.assert_close(x.grad, 1 - torch.tanh(x.detach()) ** 2)
