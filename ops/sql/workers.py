"""Processes that read the archive and compute: of the threads of one process, only one at a time runs Python.

For two threads of a question, that is half of their work, and waiting for each other takes a tenth of their CPU.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

from ingest.errors import OperationError
from ops.paths import CHECKOUT
from ops.sql.ahead import ahead
from ops.sql.task import Task

Result = TypeVar("Result")
# Memory is kept for the next arrays: to get it from the kernel takes a fifth of the CPU.
_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024**2),
    "OPENBLAS_NUM_THREADS": "1",
}


class Workers:
    """So many processes, which are started when the first one is needed, and end with this one."""

    def __init__(self, n: int) -> None:
        """``n``: less than 2: all is done by threads of this process."""
        self._workers = [_Worker() for _ in range(n if n > 1 else 0)]
        self._free = SimpleQueue[_Worker]()
        for worker in self._workers:
            self._free.put(worker)
        self._footers: dict[str, Any] = {}  # of this process

    def run(self, tasks: Iterable[Task[Result]]) -> Iterator[list[Result]]:
        """What the tasks make, in their order. A single one, and those that read no archive, are done here."""
        waiting = iter(tasks)
        some = list(islice(waiting, 2))
        every = chain(some, waiting)
        if len(some) < 2 or not self._workers:
            return self.run_here(every)
        work = (partial(self._run if task.stored else self._run_here, task) for task in every)
        return ahead(work, len(self._workers))

    def run_here(self, tasks: Iterable[Task[Result]]) -> Iterator[list[Result]]:
        """The same by threads of this process: for what is too large to be sent."""
        return ahead(partial(self._run_here, task) for task in tasks)

    def start(self) -> None:
        """Start them now, for what will surely be much: they are ready when it is known where the samples are."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """End them."""
        for worker in self._workers:
            worker.close()

    def _run_here(self, task: Task[Result]) -> list[Result]:
        return task.done(self._footers)

    def _run(self, task: Task[Result]) -> list[Result]:
        worker = self._free.get()
        try:
            return worker.run(task)
        finally:
            self._free.put(worker)


class _Worker:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._closed = False

    def run(self, task: Task[Result]) -> list[Result]:
        if self._process is None and not self._closed:  # a thread that nobody waits for may come later
            self.start()
        try:
            self._connection.send_bytes(pickle.dumps(task, pickle.HIGHEST_PROTOCOL))
            done, result = self._connection.recv()
        except (EOFError, OSError) as error:
            status, self._process = self._process.wait() if self._process else 0, None
            raise OperationError(f"a process that reads the archive ended (exit status {status}): ask again") from error
        if not done:
            raise result
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def start(self) -> None:
        own, its = socket.socketpair()
        with its:
            command = [sys.executable, "-P", "-m", "ops.sql.workers", str(its.fileno())]
            environment = {**os.environ, **_MEMORY, "PYTHONPATH": str(CHECKOUT)}
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()], env=environment
            )
        self._connection = Connection(own.detach())


def _serve(connection: Any) -> None:
    """Do tasks until the other end is closed."""
    footers = dict[str, Any]()
    while True:
        try:
            task = connection.recv()
            connection.send(_answer(task, footers))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _answer(task: Task[Any], footers: dict[str, Any]) -> tuple[bool, Any]:
    try:
        return True, task.done(footers)
    except OperationError as error:
        return False, error
    except Exception:
        return False, RuntimeError(traceback.format_exc())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    _serve(Connection(int(sys.argv[1])))
