"""Processes that read an archive and compute for a query.

Of the threads of one process, only one at a time runs Python. For two threads of a question that is half of their work,
and waiting for each other takes a tenth of their CPU.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from core.errors import OperationError
from core.imports import quick_imports

Result = TypeVar("Result")
_IMPORTED = ("pyarrow.compute", "history.sql.sources.portion")  # before the fork: together they take 0.6 s of CPU
_END_SECONDS = 2.0
_ROOT = Path(__file__).parents[__name__.count(".")]  # of imports: the checkout, or where the package of archives is
# Memory is kept for the next arrays: to get it from the kernel takes a fifth of the CPU.
_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024**2),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # huge pages: what a channel's month takes is a sixth less
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # no thread is there when the first process forks the others
}


class Processes(Executor):
    """Processes that are started when something is submitted, and end with this one, even if it is killed.

    Those of ``ProcessPoolExecutor`` would outlive it, run the caller's script once more, and import each for itself.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._threads = ThreadPoolExecutor(n)  # each waits for a process
        self._first: subprocess.Popen[bytes] | None = None  # process that starts the others
        self._ends = list[socket.socket]()  # of the connections to all of them
        self._free = SimpleQueue[Connection]()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Callable[..., Result], /, *arguments: Any, **options: Any) -> Future[Result]:
        """Call in one of the processes, with arguments that can be pickled.

        The result raises OperationError and MemoryError as the call does, OperationError if its process was ended, and
        RuntimeError if the call fails otherwise.
        """
        return self._threads.submit(self._run, partial(call, *arguments, **options))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes. ``wait``: let them finish what was submitted; else what runs is ended, too."""
        if wait:
            self._threads.shutdown(cancel_futures=cancel_futures)
        with self._lock:
            self._closed = True
            self._end()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def interrupt(self) -> None:
        """End what runs: nobody waits for it. What is submitted later has new processes."""
        with self._lock:
            self._end()

    def _run(self, call: Callable[[], Result]) -> Result:
        with self._lock:
            if self._closed:  # this thread is late: nobody waits for it
                raise OperationError("the processes that read the archive have ended")
            self._start()
            free, process = self._free, self._first
        connection = free.get()
        try:
            connection.send_bytes(pickle.dumps(call, pickle.HIGHEST_PROTOCOL))
            done, result = connection.recv()
        except (EOFError, OSError) as error:
            with self._lock:
                if self._first is process:
                    self._end()  # the next query has new ones
            raise OperationError(
                "a process that reads the archive was ended, perhaps because memory was short: ask again"
            ) from error
        finally:
            free.put(connection)
        if not done:
            raise result
        return result  # type: ignore[no-any-return]

    def _start(self) -> None:
        if self._first is not None:
            return
        pairs = [socket.socketpair() for _ in range(self._n)]
        ends = [end.fileno() for _, end in pairs]
        folders = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        self._first = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *map(str, ends)],
            stdin=subprocess.DEVNULL,
            pass_fds=ends,
            env={**os.environ, **_MEMORY, "PYTHONPATH": folders},
            process_group=0,
        )
        self._ends = [ours for ours, _ in pairs]
        self._free = SimpleQueue()
        for ours, end in pairs:
            end.close()
            self._free.put(Connection(os.dup(ours.fileno())))

    def _end(self) -> None:
        """End the processes. One that waits for storage that does not answer is left: no signal ends it before."""
        if self._first is None:
            return
        for end in self._ends:
            end.shutdown(socket.SHUT_RDWR)  # ends those who wait for a process, also for one that is left
            end.close()
        for how in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(self._first.pid, how)
            with suppress(subprocess.TimeoutExpired):
                self._first.wait(_END_SECONDS)
                break
        self._first = None


def _serve(ends: Sequence[int]) -> None:
    """Run calls in this process and in forks of it, a process for each end of a connection, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    with quick_imports():
        for name in _IMPORTED:
            importlib.import_module(name)
    connection = _forked(ends)
    while True:
        try:
            call = connection.recv()
            connection.send(answer_of(call))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _forked(ends: Sequence[int]) -> Connection:
    """The connection of each process. The others are forks of the first, so that modules are imported once."""
    connection_end, *others = ends
    forks = list[int]()
    for end in others:
        forks.append(os.fork())
        if not forks[-1]:
            connection_end = end
            break
    else:
        signal.signal(signal.SIGTERM, partial(_wait, forks))
    for end in ends:
        if end != connection_end:
            os.close(end)  # so that each sees when the other end of its own is closed
    return Connection(connection_end)


def _wait(forks: Sequence[int], *_: Any) -> None:
    """End after all of them, which had the same signal."""
    for process in forks:
        os.waitpid(process, 0)
    os._exit(0)


def answer_of(call: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether a call returns, and its result; else its error, which can be pickled."""
    try:
        return True, call()
    except OperationError as error:
        return False, error
    except MemoryError as error:
        return False, MemoryError(f"{error}")  # numpy's own have other arguments
    except Exception:
        return False, RuntimeError(traceback.format_exc())


if __name__ == "__main__":
    _serve([int(end) for end in sys.argv[1:]])
