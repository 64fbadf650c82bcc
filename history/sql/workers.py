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
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from core.errors import OperationError
from core.paths import CHECKOUT
from history.sql.prefetch import prefetched

if TYPE_CHECKING:
    from history.sql.task import Task  # all that reads takes half a second to import: these processes begin before

Result = TypeVar("Result")
# Memory is kept for the next arrays: to get it from the kernel takes a fifth of the CPU.
_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024**2),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # huge pages: what a channel's month takes is a sixth less
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # no thread is there when the first process forks the others
}


class Workers:
    """Pool of processes, which are started when they are needed, and end with this one."""

    def __init__(self, n: int) -> None:
        """``n``: less than 2: all is done by threads of this process."""
        self._n = n if n > 1 else 0
        self._process: subprocess.Popen[bytes] | None = None  # the first one, which starts the others
        self._free = SimpleQueue[Any]()  # connections
        self._lock = threading.Lock()
        self._closed = False
        self._footers: dict[str, Any] = {}  # of this process

    def run(self, tasks: Iterable[Task[Result]]) -> Iterator[list[Result]]:
        """Results of the tasks, in their order. A single one, and those that read no archive, are done here."""
        waiting = iter(tasks)
        some = list(islice(waiting, 2))
        every = chain(some, waiting)
        if len(some) < 2 or not self._n:
            return self.run_here(every)
        work = (partial(self._run if task.stored else self._run_here, task) for task in every)
        return prefetched(work, self._n)

    def run_here(self, tasks: Iterable[Task[Result]]) -> Iterator[list[Result]]:
        """The same by threads of this process: for what is too large to be sent."""
        return prefetched(partial(self._run_here, task) for task in tasks)

    def start(self) -> None:
        """Start them now, for what will surely be much."""
        with self._lock:
            if not self._n or self._process is not None or self._closed:
                return
            pairs = [socket.socketpair() for _ in range(self._n)]
            ends = [end.fileno() for _, end in pairs]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "history.sql.reading_process", *map(str, ends)],
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
                env={**os.environ, **_MEMORY, "PYTHONPATH": str(CHECKOUT)},
                process_group=0,
            )
            self._free = SimpleQueue()
            for own, end in pairs:
                end.close()
                self._free.put(Connection(own.detach()))

    def close(self) -> None:
        """End them."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
            self._process = None

    def _run_here(self, task: Task[Result]) -> list[Result]:
        return task.done(self._footers)

    def _run(self, task: Task[Result]) -> list[Result]:
        self.start()
        with self._lock:
            if self._closed:  # this thread is late: nobody waits for it
                raise OperationError("the processes that read the archive have ended")
            free, process = self._free, self._process
        connection = free.get()
        try:
            connection.send_bytes(pickle.dumps(task, pickle.HIGHEST_PROTOCOL))
            done, result = connection.recv()
        except (EOFError, OSError) as error:
            with self._lock:
                if self._process is process:
                    self._end()  # the next query has new ones
            raise OperationError(
                "a process that reads the archive was ended, perhaps because memory was short: ask again"
            ) from error
        finally:
            free.put(connection)
        if not done:
            raise result
        return result  # type: ignore[no-any-return]
