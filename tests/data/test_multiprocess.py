"""Worker processes: what they load, how they fail, and that nothing of them stays."""

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import tocha
from tocha.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals and fork"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


class Images(Dataset):
    """Large enough to travel in shared memory."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return tocha.full((64, 64), float(i)), i, f"name {i}"


class Numbers(Dataset):
    """Does what `act` says at sample 2."""

    def __init__(self, act=lambda: 2, n=6):
        self.act, self.n = act, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.act() if i == 2 else i


class Draws(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return get_worker_info().seed, random.random(), np.random.rand(), tocha.rand(1).item()


class Uneven(IterableDataset):
    def __iter__(self):
        w = get_worker_info()
        return iter(range(w.id * 100, w.id * 100 + (3 if w.id else 7)))


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def fail(error):
    raise error


def kill(sig):
    os.kill(os.getpid(), sig)


@contextlib.contextmanager
def nothing_left(seconds=10.0):
    """No process, no descriptor, no mapping, no name in /dev/shm stays; and all is done in time."""

    def names():
        return sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else []

    def counts():
        gc.collect()
        if not os.path.isdir("/proc/self"):
            return (0, 0)
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), maps.read().count("tocha-batch")

    shm, before, start = names(), counts(), time.monotonic()
    yield
    assert counts() == before
    assert multiprocessing.active_children() == []
    assert names() == shm
    assert time.monotonic() - start < seconds


def test_all_batches_come_in_order():
    with nothing_left():
        seen = []
        for x, i, name in DataLoader(Images(), batch_size=5, num_workers=2):
            assert x[:, 3, 4].tolist() == i.tolist() and name[0] == f"name {int(i[0])}"
            seen += i.tolist()
        assert seen == list(range(24))
        del x, i


def test_shuffle_does_not_depend_on_workers():
    tocha.manual_seed(0)
    assert [int(x) for x in DataLoader(list(range(7)), shuffle=True, num_workers=2)] == [0, 4, 1, 5, 2, 6, 3]


def test_workers_are_seeded_as_in_torch():
    tocha.manual_seed(0)
    rows = list(DataLoader(Draws(), num_workers=2, batch_size=None))
    expected = [
        (900450186894289455, 0.21315340548154382, 0.8371640508861415, 0.7821398973464966),
        (900450186894289456, 0.7733861492043289, 0.6702704958690073, 0.6938178539276123),
        (900450186894289455, 0.2764485855185723, 0.38757835109739946, 0.053598999977111816),
        (900450186894289456, 0.1634220007200502, 0.07589687641367027, 0.29795897006988525),
    ]
    for row, (seed, *values) in zip(rows, expected):
        assert row[0] == seed and list(row[1:]) == pytest.approx(values, abs=1e-7)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_iterable_workers_take_turns_until_each_ends(prefetch):
    loader = DataLoader(Uneven(), num_workers=3, batch_size=2, prefetch_factor=prefetch)
    expected = [[0, 1], [100, 101], [200, 201], [2, 3], [102], [202], [4, 5], [6]]
    with nothing_left():
        assert [b.tolist() for b in loader] == expected
        assert [b.tolist() for b in loader] == expected


def test_persistent_workers_stay_and_start_again_after_a_break():
    with nothing_left():
        loader = DataLoader(Images(), batch_size=4, num_workers=2, persistent_workers=True)
        pids = set()
        for epoch in range(3):
            got = []
            for _, i, _ in loader:
                got += i.tolist()
                if epoch == 1:
                    break
            pids.add(tuple(w.process.pid for w in loader._iterator._workers))
            assert got == list(range(4 if epoch == 1 else 24))
        assert len(pids) == 1
        del loader, i, _


def test_out_of_order_does_not_wait_for_the_slow_one():
    data = Numbers(lambda: time.sleep(0.7) or 2)
    with nothing_left():
        got = list(DataLoader(data, num_workers=2, batch_size=None, in_order=False))
        assert sorted(got) == list(range(6)) and got.index(2) > 2
        assert list(DataLoader(data, num_workers=2, batch_size=None)) == list(range(6))


def test_kept_batches_live_on_after_the_workers():
    batches = list(DataLoader(Images(), batch_size=8, num_workers=1))
    batches[0][0].add_(1)
    assert batches[0][0][3, 0, 0].item() == 4.0 and batches[2][0][7, 1, 1].item() == 23.0


def test_break_leaves_nothing():
    with nothing_left():
        it = iter(DataLoader(Images(), batch_size=2, num_workers=2))
        next(it)
        del it


@pytest.mark.parametrize(
    "error,kind,text",
    [
        (ValueError("no such picture"), ValueError, "no such picture"),
        (KeyError("label"), KeyError, "label"),
        (Odd(1, 2), RuntimeError, "Caught Odd"),
        (StopIteration(), RuntimeError, "Caught StopIteration"),
    ],
)
def test_exception_comes_back_with_the_workers_traceback(error, kind, text):
    with nothing_left():
        loader = DataLoader(Numbers(lambda: fail(error)), num_workers=1)
        with pytest.raises(kind, match=text) as caught:
            list(loader)
        message = str(caught.value)
        assert "in DataLoader worker process 0" in message and "in fail" in message and "\n" in message
        del caught


def test_loading_goes_on_after_an_exception():
    it = iter(DataLoader(Numbers(lambda: fail(ValueError("x"))), num_workers=2, batch_size=None))
    assert [next(it), next(it)] == [0, 1]
    with pytest.raises(ValueError):
        next(it)
    assert list(it) == [3, 4, 5]


def test_failing_worker_init_and_its_argument():
    with pytest.raises(ValueError, match="worker 0"):
        list(DataLoader(Numbers(), num_workers=1, worker_init_fn=lambda i: fail(ValueError(f"worker {i}"))))


def test_sample_that_can_not_be_sent_is_an_error_of_its_batch():
    with nothing_left():
        loader = DataLoader(Numbers(lambda: lambda: 0), num_workers=1, batch_size=None)
        with pytest.raises(Exception, match="pickle") as caught:
            list(loader)
        assert "DataLoader worker process 0" in str(caught.value)
        del caught


@pytest.mark.parametrize(
    "act,text",
    [
        (lambda: kill(signal.SIGKILL), "killed by SIGKILL"),
        (lambda: kill(signal.SIGUSR1), "killed by SIGUSR1"),
        (lambda: os._exit(7), "exit code 7"),
    ],
)
def test_dead_worker_is_reported_at_once(act, text):
    with nothing_left(seconds=5.0):
        loader = DataLoader(Numbers(act), num_workers=2, batch_size=None)
        with pytest.raises(RuntimeError, match=f"exited unexpectedly.*{text}"):
            list(loader)


def test_worker_killed_from_outside_while_others_work():
    with nothing_left(seconds=5.0):
        it = iter(DataLoader(Images(), num_workers=2, prefetch_factor=1))
        next(it)
        os.kill(it._workers[1].process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=str(it._workers[1].process.pid)):
            for _ in range(24):
                next(it)
        del it


def test_hanging_worker_is_reported_after_the_timeout():
    with nothing_left(seconds=5.0):
        loader = DataLoader(Numbers(lambda: time.sleep(60)), num_workers=2, batch_size=None, timeout=0.5)
        with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds, waiting for worker 0"):
            list(loader)


def test_large_requests_and_results_do_not_block_each_other():
    class Echo(Dataset):
        def __getitems__(self, indices):
            return ["x" * 400_000] * 5

    batches = [list(range(100_000))] * 12
    with nothing_left(seconds=20.0):
        loader = DataLoader(Echo(), batch_sampler=batches, num_workers=2, prefetch_factor=4)
        assert [len(b) for b in loader] == [5] * 12


def test_forked_process_can_not_use_or_end_the_iterator():
    with nothing_left():
        it = iter(DataLoader(Numbers(), num_workers=1, batch_size=None))
        assert next(it) == 0
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                next(it)
            except RuntimeError as error:
                code = 0 if "forked process" in str(error) else 2
            del it
            gc.collect()
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert list(it) == [1, 2, 3, 4, 5]
        del it


def test_worker_info():
    assert get_worker_info() is None
    infos = DataLoader(
        Numbers(),
        num_workers=2,
        batch_size=None,
        collate_fn=lambda x: (get_worker_info().id, repr(get_worker_info())),
    )
    ids, texts = zip(*infos)
    assert ids == (0, 1, 0, 1, 0, 1) and "num_workers=2" in texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method):
    loader = DataLoader(list(range(6)), batch_size=2, num_workers=2, multiprocessing_context=method)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4, 5]]
    assert multiprocessing.active_children() == []


SCRIPT = """
import sys, time
{prelude}
from tocha.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i): time.sleep(0.2); return i
it = iter(DataLoader(Slow(), num_workers=2, batch_size=None))
next(it)
print(*[w.process.pid for w in it._workers], flush=True)
{rest}
"""


def run_script(rest, sig=None):
    """Exit code and stderr of a program with workers, and whether those ended within seconds."""
    prelude = f"sys.path[:0] = {sys.path!r}"
    program = SCRIPT.format(prelude=prelude, rest=textwrap.dedent(rest))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workers = [int(pid) for pid in process.stdout.readline().split()]
    if sig is not None:
        time.sleep(0.2)
        (os.killpg if sig == signal.SIGINT else os.kill)(process.pid, sig)
    _, errors = process.communicate(timeout=30)

    def alive(pid):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + 8
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return process.returncode, errors, [pid for pid in workers if alive(pid)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rest,sig,code",
    [
        ("sys.exit(0)", None, 0),
        ("raise ValueError('boom')", None, 1),
        ("for _ in it: pass", signal.SIGINT, -signal.SIGINT),
        ("for _ in it: pass", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_workers_end_with_the_program(rest, sig, code):
    returned, errors, left = run_script(rest, sig)
    assert returned == code and left == []
    assert errors.count("Traceback") == (1 if code in (1, -signal.SIGINT) else 0), errors
