"""Start functions in processes and see their failures (torch docs: torch.multiprocessing.spawn)."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["ProcessContext", "ProcessExitedException", "ProcessRaisedException", "spawn", "start_processes"]


class ProcessException(Exception):
    """A process failed; `error_index` says which, `error_pid` its id."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The process's function raised; the message has its traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """The process was killed by a signal or exited with a code other than 0."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(function: Callable[..., Any], index: int, args: tuple[Any, ...], error_file: str) -> None:
    try:
        function(index, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too, and says so
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """Processes started together."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Ids of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for the first to end. True once all ended well; the first failure ends the others and is raised."""
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join(grace_period)
            if process.is_alive():
                process.kill()
                process.join()
        self._raise(failed)
        return False

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        pid, code = int(process.pid), int(process.exitcode)
        if os.path.getsize(self.error_files[index]):
            with open(self.error_files[index], "rb") as file:
                text = pickle.load(file)  # written by _run
            raise ProcessRaisedException(f"\n\n-- Process {index} terminated with the following error:\n{text}", index, pid)
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index, pid, code, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)

    def __del__(self) -> None:
        for name in self.error_files:
            if os.path.exists(name):
                os.unlink(name)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run `fn(i, *args)` in process i of `nprocs`. With `join`, wait for all and raise the first failure; else return the
    context."""
    context = multiprocessing.get_context(start_method)
    processes, files = [], []
    for index in range(nprocs):
        handle, name = tempfile.mkstemp(prefix="tocha-multiprocessing-errorfile-")
        os.close(handle)
        process = context.Process(target=_run, args=(fn, index, tuple(args), name), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        processes.append(process)
        files.append(name)
    started = ProcessContext(processes, files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """`start_processes` with fresh interpreters, which pickle `fn` and `args`."""
    if start_method != "spawn":
        raise ValueError(f"spawn: this method only supports start_method=spawn (got: {start_method}); use start_processes")
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
