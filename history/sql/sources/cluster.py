"""Executor of a cluster of Dask: its workers read the archive themselves, and only results come back.

A task is a call as bytes. Locations of archives in it have no credentials: each worker uses its own. Scheduler and
workers have to have the code of this process, which each task is compared with.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import io
import logging
import pickle
import pkgutil
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from core.errors import OperationError
from core.formatting import count
from core.imports import require_analysis
from core.paths import CHECKOUT, plantlog_version
from history.archive.location import Location
from history.sql.sources.portion import forget_footers
from history.sql.sources.processes import answer_of

Result = TypeVar("Result")
_CONNECT_SECONDS = 20.0
_CLOSE_SECONDS = 2.0
_CODE = ("core", "history", "schema")  # rooms that tasks need
_KERNELS = "history.sql.kernels"
_OF_TASKS = "history.sql.sources.held"  # beside kernels; what both import is there, too


class Cluster(Executor):
    """Workers of a cluster. It connects when something is submitted."""

    def __init__(self, options: Mapping[str, str], seconds: float) -> None:
        """``options``: those of ``[questions]``; ``seconds``: that a question may take."""
        self.name = f"[questions] cluster {options['cluster']}"
        self._build = build()  # of what is imported now: files may be others when the first task is sent
        self._options = options
        self._seconds = min(seconds / 4, _CONNECT_SECONDS)
        self._lock = threading.Lock()
        self._client: Any = None
        self._threads = 0  # of all workers
        self._closed = False
        self._submitted = 0
        self._running = set[Future[Any]]()

    @property
    def note(self) -> str:
        """Line for people: whether the cluster computed something."""
        if self._submitted:
            return f"computed by {self.name}: {count(self._submitted, 'task')}"
        return f"computed on this machine, not by {self.name}: there are too few archived samples"

    def at_a_time(self) -> int:
        """Tasks that keep all workers busy. Raises OperationError."""
        self._connected()
        return 2 * self._threads

    def submit(self, call: Callable[..., Result], /, *arguments: Any, **options: Any) -> Future[Result]:
        """Call on a worker, with arguments that can be pickled. It and the result raise OperationError."""
        client = self._connected()
        work = self._result(client, _packed(partial(call, *arguments, **options)))
        future = asyncio.run_coroutine_threadsafe(work, client.loop.asyncio_loop)
        self._submitted += 1
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def interrupt(self) -> None:
        """Drop what was submitted: nobody waits for it."""
        for future in list(self._running):
            future.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect: the cluster drops what has not begun, and the results of what runs."""
        self._closed = True
        _connected.discard(self)
        self.interrupt()
        self._disconnect()

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # the scheduler is away
                client.close(_CLOSE_SECONDS)

    async def _result(self, client: Any, task: bytes) -> Any:
        try:
            remote = client.submit(run, task, self._build, client.id, pure=False)
            try:
                worker, done, result = await remote
            finally:
                remote.release()
        except Exception as error:
            raise self._problem(error) from error
        if done:
            return result
        result.args = (f"{result} (worker {worker} of {self.name})",)
        raise result

    def _problem(self, error: BaseException) -> OperationError:
        from distributed import KilledWorker  # noqa: PLC0415
        from distributed.client import ClosedClientError  # noqa: PLC0415

        if isinstance(error, CancelledError | ClosedClientError):
            return OperationError(f"{self.name}: the connection to the scheduler was lost: ask again")
        if isinstance(error, KilledWorker):
            ended = f"{count(error.allowed_failures + 1, 'worker')} ended while computing the same portion"
            remedy = "perhaps because memory was short: narrow the question, or give workers more memory"
            return OperationError(f"{self.name}: {ended}, {remedy}")
        if isinstance(error, ImportError | AttributeError) or "deserialization" in f"{error}":
            text = "scheduler and workers need plantlog as it is here"
            return OperationError(f"{self.name}: {text}, which is {self._build}: {_line(error)}")
        return OperationError(f"{self.name}: {_line(error)}: ask again")

    def _connected(self) -> Any:
        with self._lock:
            if self._client is not None and self._client.status != "running":  # the scheduler was away
                self._disconnect()
            if self._client is None and not self._closed:
                self._client = self._connect()
            client = self._client
            if self._closed:  # perhaps while it connected, for which shutdown did not wait
                self.shutdown()
                raise OperationError(f"{self.name}: the question has ended")
            return client

    def _connect(self) -> Any:
        require_analysis(self.name, "distributed")
        from distributed import Client  # noqa: PLC0415 (takes 0.5 s)
        from distributed.security import Security  # noqa: PLC0415

        address = self._options["cluster"]
        _quieten()
        _connected.add(self)
        try:
            security = Security(
                require_encryption=address.startswith("tls:"),
                tls_ca_file=self._options.get("ca_file"),
                tls_client_cert=self._options.get("certificate_file"),
                tls_client_key=self._options.get("key_file"),
            )
            client = Client(
                address,
                loop=_loop(),
                timeout=self._seconds,
                security=security,
                set_as_default=False,
                name="plantlog",
            )
        except Exception as error:
            raise OperationError(f"{self.name} can't be reached: {_line(error)}") from error
        try:
            client.wait_for_workers(1, self._seconds)
            self._threads = sum(client.nthreads().values())
        except Exception as error:
            client.close(_CLOSE_SECONDS)
            raise OperationError(f"{self.name} has no workers: start `dask worker {address}`") from error
        return client


_connected = WeakSet[Cluster]()  # or about to be


@cache
def _loop() -> Any:
    """Event loop of all clients, in a thread: one that a client makes for itself is left if it can't connect."""
    from distributed.utils import LoopRunner  # noqa: PLC0415

    runner = LoopRunner()
    runner.start()
    return runner.loop


@cache
def _quieten() -> None:
    """Leave out what Dask's client says while a cluster is connected: errors say it, and tasks compare the code."""
    from distributed.versions import VersionMismatchWarning  # noqa: PLC0415

    logging.getLogger("distributed.client").addFilter(lambda _: not _connected)
    warnings.filterwarnings("ignore", category=VersionMismatchWarning, module="distributed")


@cache
def build() -> str:
    """The versions of plantlog, its code (as of the first call), and the libraries that results depend on."""
    digest = hashlib.sha256()
    for path in sorted(path for room in _CODE for path in (CHECKOUT / room).rglob("*.py")):
        digest.update(f"{path.relative_to(CHECKOUT)}\n".encode() + path.read_bytes())
    code = digest.hexdigest()[:12]
    return f"plantlog {plantlog_version()}, code {code}, numpy {np.__version__}, pyarrow {pa.__version__}"


def dask_setup(_: Any) -> None:
    """Import what tasks need before the first one: files may be others by then. Dask calls this where it preloads."""
    build()
    kernels = importlib.import_module(_KERNELS)
    modules = pkgutil.iter_modules(kernels.__path__, f"{_KERNELS}.")
    for name in (_OF_TASKS, *(module.name for module in modules)):
        importlib.import_module(name)


_question = ""  # the last one that a task was of


def run(task: bytes, client_build: str, question: str) -> tuple[str, bool, Any]:
    """Run a task on a worker: its address, whether the task is done, and the result or the error."""
    from distributed import get_worker  # noqa: PLC0415

    global _question  # noqa: PLW0603
    address = str(get_worker().address)
    if build() != client_build:
        error = f"another version of plantlog: found {build()}; legal: that of this machine, {client_build}"
        return address, False, OperationError(error)
    if question != _question:  # files may be others since the last one
        _question = question
        forget_footers()
    return address, *answer_of(partial(_call, task))


def _call(task: bytes) -> Any:
    return pickle.loads(task)()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return value.elsewhere() if isinstance(value, Location) else NotImplemented


def _packed(call: Callable[[], Any]) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(call)
    return buffer.getvalue()


def _line(error: BaseException) -> str:
    return " ".join((f"{error}" or type(error).__name__).split()).rstrip(".:")
