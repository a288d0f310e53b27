"""What runs in a worker process: seeds, the loop over requests, and errors on their way back."""

from __future__ import annotations

import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import Any, NamedTuple

import tocha

from . import shared
from .channel import Channel
from .fetch import _DatasetKind

#: How often, in seconds, an idle worker looks whether its parent still lives.
PARENT_CHECK_INTERVAL = 2.0

_worker_info: WorkerInfo | None = None


class WorkerInfo:
    """Which worker this is: `id` of `num_workers`, its `seed`, and its copy of the `dataset`. Read-only."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any
    worker_method: str | None

    def __init__(
        self,
        id: int,
        num_workers: int,
        seed: int,
        dataset: Any,
        rng: Any = None,
        worker_method: str | None = "multiprocessing",
    ) -> None:
        fields = {
            "id": id,
            "num_workers": num_workers,
            "seed": seed,
            "dataset": dataset,
            "rng": rng,
            "worker_method": worker_method,
        }
        self.__dict__.update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"Cannot assign attributes to {type(self).__name__} objects")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a loader, which worker it is; None in the main process."""
    return _worker_info


class ExceptionWrapper:
    """An exception caught in a worker, with its traceback as text, to be raised again in the main process."""

    def __init__(self, where: str) -> None:
        kind, value, _ = sys.exc_info()
        self.name = "an exception" if kind is None else kind.__name__
        self.exc_type = kind
        self.exc_msg = "".join(traceback.format_exception(value))
        self.where = where
        try:
            pickle.dumps(kind)
        except Exception:
            # A class defined inside a function can't be sent; its name and traceback can.
            self.exc_type = None

    def reraise(self) -> None:
        """Raise an exception of the same type whose message holds the worker's traceback."""
        message = f"Caught {self.name} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(_Multiline(message))
        if self.exc_type is None or not issubclass(self.exc_type, Exception):
            raise RuntimeError(message)
        if issubclass(self.exc_type, StopIteration):
            # Raised as itself it would end the loop over the loader without a word.
            raise RuntimeError(message)
        try:
            exception = self.exc_type(message)
        except Exception:
            # The type wants other arguments than one message.
            raise RuntimeError(message) from None
        raise exception


class _Multiline(str):
    """A message that a KeyError, which shows the repr of its argument, shows with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Fetch(NamedTuple):
    """A request for the batch with running number `number`."""

    number: int
    items: Any


class Resume(NamedTuple):
    """A request to begin another epoch; the worker sends it back."""

    epoch: int


class Result(NamedTuple):
    """The answer to a `Fetch`: a batch, an ExceptionWrapper, or an EndOfData."""

    number: int
    data: Any


class EndOfData(NamedTuple):
    """The iterable data set of this worker is exhausted."""

    worker_id: int


class WorkerSetup(NamedTuple):
    """All that a worker needs to know."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], Any] | None
    id: int
    num_workers: int
    parent_pid: int


def _seed_generators(setup: WorkerSetup) -> int:
    """Seed Python, NumPy and tensors so that workers differ, and repeat when the loader's draw does."""
    import numpy

    seed = setup.base_seed + setup.id
    random.seed(seed)
    tocha.manual_seed(seed)
    # Legacy NumPy generators take 32-bit words, and near seeds would give related streams.
    entropy = [setup.id, setup.base_seed & 0xFFFFFFFF, setup.base_seed >> 32, 0]
    numpy.random.seed(numpy.random.SeedSequence(entropy).generate_state(4))
    return seed


def worker_main(setup: WorkerSetup, sock: Any, inherited: list[Channel]) -> None:
    """The process: answer requests until the loader closes the channel, or goes away.

    `inherited` are the loader's ends that a fork copied here. Left open they would hide the loader's death
    from the other workers.
    """
    for other in inherited:
        other.close(both_ways=False)
    channel = Channel(sock)
    try:
        _serve(setup, channel)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        # Ctrl-C reaches the whole group and the main process reports it; a closed channel means nobody
        # listens.
        pass
    finally:
        channel.close(both_ways=False)


def _serve(setup: WorkerSetup, channel: Channel) -> None:
    global _worker_info
    where = f"in DataLoader worker process {setup.id}"
    fetcher: Any = None
    failure: Any = None
    try:
        tocha.set_num_threads(1)
        seed = _seed_generators(setup)
        _worker_info = WorkerInfo(setup.id, setup.num_workers, seed, setup.dataset)
        if setup.init_fn is not None:
            setup.init_fn(setup.id)
        fetcher = _new_fetcher(setup)
    except Exception:
        failure = ExceptionWrapper(where)

    ended = False
    while (request := _next_request(channel, setup.parent_pid)) is not None:
        if isinstance(request, Resume):
            ended = False
            try:
                fetcher = _new_fetcher(setup)
            except Exception:
                fetcher, failure = None, ExceptionWrapper(where)
            channel.send(*shared.dumps(request))
        elif not ended:
            data = failure if fetcher is None else _fetch(fetcher, request.items, setup, where)
            ended = isinstance(data, EndOfData)
            _answer(channel, request.number, data, where)
        # Requests after the end were sent before the loader knew about it; it expects no answer.


def _fetch(fetcher: Any, items: Any, setup: WorkerSetup, where: str) -> Any:
    try:
        return fetcher.fetch(items)
    except Exception as error:
        if isinstance(error, StopIteration) and setup.kind == _DatasetKind.Iterable:
            return EndOfData(setup.id)
        return ExceptionWrapper(where)


def _new_fetcher(setup: WorkerSetup) -> Any:
    return _DatasetKind.create_fetcher(setup.kind, setup.dataset, setup.auto_collation, setup.collate_fn, setup.drop_last)


def _next_request(channel: Channel, parent_pid: int) -> Any:
    """The next request; None when the loader has closed the channel or is gone."""
    while not connection.wait([channel.sock], PARENT_CHECK_INTERVAL):
        if os.getppid() != parent_pid and sys.platform != "win32":
            return None
    payload = channel.receive()
    return None if payload is None else pickle.loads(payload)


def _answer(channel: Channel, number: int, data: Any, where: str) -> None:
    try:
        payload, descriptor = shared.dumps(Result(number, data))
    except Exception:
        # What can't be pickled is an error of this batch, to be told like any other.
        payload, descriptor = shared.dumps(Result(number, ExceptionWrapper(where)))
    try:
        channel.send(payload, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)
