"""Loading by worker processes: who loads what, in which order results come out, and how it all ends.

Every worker has a channel of its own. Batch `i` goes to the next worker in turn, `prefetch_factor` batches
per worker are under way, and results are given out in the order of `i` (or, with `in_order=False`, as they
come).
"""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import os
import pickle
import selectors
import signal
import sys
import time
import warnings
from typing import Any

from . import shared
from .channel import Channel, pair
from .dataloader import DataLoader, _BaseDataLoaderIter
from .worker import EndOfData, ExceptionWrapper, Fetch, Result, Resume, WorkerSetup, worker_main

#: Seconds a worker gets to end by itself, and then to react to SIGTERM.
SHUTDOWN_TIMEOUT = 5.0
TERMINATE_TIMEOUT = 1.0
#: Seconds between looks at the workers' processes while none of them sends anything.
POLL_INTERVAL = 1.0

_PENDING = object()


class _Worker:
    """A worker process as the loader sees it."""

    def __init__(self, number: int, process: Any, channel: Channel) -> None:
        self.number = number
        self.process = process
        self.channel = channel
        #: It has data left in this epoch.
        self.active = True
        self.outstanding = 0

    def describe(self) -> str:
        """Which worker, and how its process ended."""
        code = self.process.exitcode
        text = f"worker {self.number} (pid {self.process.pid})"
        if code is None:
            return f"{text} closed its connection"
        if code >= 0:
            return f"{text} ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = {
            "SIGKILL": ", as the system does when memory runs out",
            "SIGBUS": ", as happens when shared memory runs out",
            "SIGSEGV": ", a crash in native code",
        }.get(name, "")
        return f"{text} was killed by {name}{hint}"


class _Task:
    """A batch under way: whose it is, and the result once it is here."""

    __slots__ = ("result", "worker")

    def __init__(self, worker: _Worker) -> None:
        self.worker = worker
        self.result: Any = _PENDING


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Loading by worker processes.

    Workers end when the epoch or the iterator does, unless they are persistent.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        # With less than one batch under way nothing would ever be loaded.
        self._prefetch_factor = max(1, loader.prefetch_factor or 0)
        self._in_order = loader.in_order
        self._owner = os.getpid()
        self._epoch = 0
        self._shutdown = False
        self._patience = SHUTDOWN_TIMEOUT
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        try:
            self._start_workers(loader)
        except BaseException:
            self._shutdown_workers()
            raise
        self._begin_epoch()

    # --- starting ---

    def _start_workers(self, loader: DataLoader[Any]) -> None:
        context: Any = loader.multiprocessing_context or multiprocessing.get_context()
        forks = context.get_start_method() == "fork"
        for number in range(self._num_workers):
            channel, sock = pair()
            setup = WorkerSetup(
                kind=self._dataset_kind,
                dataset=self._dataset,
                auto_collation=self._auto_collation,
                collate_fn=self._collate_fn,
                drop_last=self._drop_last,
                base_seed=self._base_seed,
                init_fn=loader.worker_init_fn,
                id=number,
                num_workers=self._num_workers,
                parent_pid=self._owner if context.get_start_method() != "forkserver" else -1,
            )
            inherited = [worker.channel for worker in self._workers] + [channel] if forks else []
            process = context.Process(target=worker_main, args=(setup, sock, inherited), daemon=True)
            try:
                with warnings.catch_warnings():
                    # The children of a process with threads touch nothing that those hold.
                    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                    process.start()
            except BaseException:
                channel.close()
                raise
            finally:
                # The worker's copy has to be the only one, or its death would go unnoticed.
                sock.close()
            worker = _Worker(number, process, channel)
            self._workers.append(worker)
            self._selector.register(channel, selectors.EVENT_READ, worker)

    def _reset(self, loader: DataLoader[Any]) -> None:
        super()._reset(loader)
        self._check_owner()
        self._epoch += 1
        self._tasks.clear()
        self._arrived.clear()
        request = pickle.dumps(Resume(self._epoch))
        waiting = set()
        for worker in self._workers:
            self._post(worker, request)
            waiting.add(worker.number)
        # What is left of an epoch that was not read to its end comes before the answer, and is dropped.
        while waiting:
            worker, message = self._receive()
            if isinstance(message, Resume) and message.epoch == self._epoch:
                waiting.discard(worker.number)
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._tasks: dict[int, _Task] = {}
        self._arrived: collections.deque[tuple[_Worker, Any]] = collections.deque()
        self._sent = 0
        self._given = 0
        self._turn = itertools.cycle(self._workers)
        for worker in self._workers:
            worker.active = True
            worker.outstanding = 0
        for _ in range(self._prefetch_factor * self._num_workers):
            self._request_next()

    # --- requests and results ---

    def _request_next(self) -> None:
        """Ask the next worker in turn for the next batch, unless all is under way or done."""
        for _ in range(self._num_workers):
            worker = next(self._turn)
            if worker.active and (self._in_order or worker.outstanding < self._prefetch_factor):
                break
        else:
            return
        try:
            items = self._next_index()
        except StopIteration:
            return
        self._tasks[self._sent] = _Task(worker)
        worker.outstanding += 1
        self._post(worker, pickle.dumps(Fetch(self._sent, items)))
        self._sent += 1

    def _next_data(self) -> Any:
        self._check_owner()
        while True:
            index = self._next_task()
            if index is None:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            task = self._tasks[index]
            if task.result is _PENDING:
                self._store(self._receive()[1])
                continue
            del self._tasks[index]
            self._request_next()
            result = task.result
            if isinstance(result, EndOfData):
                task.worker.active = False
                if not self._persistent_workers:
                    self._dismiss(task.worker)
                continue
            if isinstance(result, ExceptionWrapper):
                result.reraise()
            return result

    def _next_task(self) -> int | None:
        """The number of the batch to give out next; None at the end of the epoch."""
        if not self._in_order:
            arrived = next((i for i, task in self._tasks.items() if task.result is not _PENDING), None)
            if arrived is not None:
                return arrived
        while self._given < self._sent:
            task = self._tasks.get(self._given)
            if task is not None:
                if task.result is not _PENDING or task.worker.active:
                    return self._given
                # Asked of a worker that turned out to have no more data.
                del self._tasks[self._given]
            self._given += 1
        return None

    def _store(self, result: Result) -> None:
        task = self._tasks.get(result.number)
        if task is not None:
            task.result = result.data
            task.worker.outstanding -= 1

    # --- the channels ---

    def _post(self, worker: _Worker, payload: bytes) -> None:
        if worker.channel.closed:
            return
        worker.channel.post(payload)
        self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        """Wait for room in the worker's channel, too, while something is queued for it."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.channel.pending else 0)
        self._selector.modify(worker.channel, events, worker)

    def _receive(self) -> tuple[_Worker, Any]:
        """The next message of any worker. Raises RuntimeError when a worker dies or the time is over."""
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while not self._arrived:
            wait = POLL_INTERVAL
            if deadline is not None:
                wait = min(wait, deadline - time.monotonic())
                if wait <= 0:
                    self._raise_timeout()
            events = self._selector.select(wait)
            dead = []
            for key, mask in events:
                worker = key.data
                if mask & selectors.EVENT_WRITE:
                    worker.channel.flush()
                    self._watch(worker)
                if mask & selectors.EVENT_READ and not self._read(worker):
                    dead.append(worker)
            if not events:
                dead = [w for w in self._workers if not w.channel.closed and not w.process.is_alive()]
            if dead and not self._arrived:
                self._raise_dead(dead)
        return self._arrived.popleft()

    def _read(self, worker: _Worker) -> bool:
        """Take what has arrived from a worker; False when its channel has ended."""
        messages, ended = worker.channel.poll()
        for i, (payload, descriptor) in enumerate(messages):
            try:
                self._arrived.append((worker, shared.loads(payload, descriptor)))
            except BaseException:
                for _, other in messages[i + 1 :]:
                    if other is not None:
                        os.close(other)
                raise
        return not ended

    # --- trouble ---

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                "a DataLoader iterator was used in a forked process: its workers belong to the process "
                f"{self._owner}. Make a new iterator in this process."
            )

    def _raise_timeout(self) -> None:
        # A worker that hangs will not end by itself either.
        self._patience = 0.0
        owing = sorted({task.worker.number for task in self._tasks.values() if task.result is _PENDING})
        names = ", ".join(f"{n} (pid {self._workers[n].process.pid})" for n in owing)
        raise RuntimeError(
            f"DataLoader timed out after {self._timeout} seconds, waiting for worker {names or 'any'}. "
            "Loading a batch took longer, or the data set hangs; raise `timeout` or use "
            "num_workers=0 to debug it."
        )

    def _raise_dead(self, dead: list[_Worker]) -> None:
        for worker in dead:
            # The channel closes a moment before the process can be waited for.
            worker.process.join(TERMINATE_TIMEOUT)
        pids = ", ".join(str(worker.process.pid) for worker in dead)
        what = "; ".join(worker.describe() for worker in dead)
        self._shutdown_workers()
        raise RuntimeError(
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly: {what}. "
            "Use num_workers=0 to see an error in the main process."
        )

    # --- the end ---

    def _dismiss(self, worker: _Worker) -> None:
        """Let one worker end."""
        if not worker.channel.closed:
            self._selector.unregister(worker.channel)
            worker.channel.close()

    def _shutdown_workers(self) -> None:
        """End all workers: by closing their channels, then by SIGTERM, then by SIGKILL."""
        if self._shutdown or os.getpid() != self._owner:
            return
        self._shutdown = True
        for worker in self._workers:
            self._dismiss(worker)
        self._selector.close()
        deadline = time.monotonic() + self._patience
        for worker in self._workers:
            process = worker.process
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join(TERMINATE_TIMEOUT)
            if process.is_alive():
                process.kill()
                process.join()
        self._tasks = {}

    def __del__(self) -> None:
        # At exit multiprocessing has ended the workers already, and modules may be gone.
        if not sys.is_finalizing() and hasattr(self, "_selector"):
            self._shutdown_workers()
