"""A private server as a child of this process: for tests and benchmarks."""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import asyncpg

from core.errors import DatabaseError
from core.paths import State
from ops.postgres.bootstrap import maintenance_dsn, wait_until_ready
from ops.postgres.cluster import Cluster, provision

_STOP_SECONDS = 30.0
_SHUTDOWN_SECONDS = 600.0  # with the last checkpoint, of much memory to a slow disk
_PORTS_TRIED = 3


class Server:
    """A context manager: a server of its own in ``state``, answering inside the block.

    ``cluster``: another one than :func:`provision` makes.
    ``log``: the server's; ``postgres.log`` in ``state``.
    """

    def __init__(
        self, state: Path, options: Sequence[str] = (), cluster: Cluster | None = None, log: Path | None = None
    ) -> None:
        self._state = State(state)
        self._options = tuple(options)  # of postgres' command line
        self._cluster = cluster or provision(state, _ignore)
        self._cluster.make(_ignore)
        self._log = log or state / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def owner_dsn(self) -> str:
        """Superuser and owner; database ``plantlog``, which :func:`ops.postgres.bootstrap.create_database` makes."""
        return self._state.dsn("owner")

    def role(self, role: str) -> str:
        """The DSN of another role: ``ingest`` or ``reader``."""
        return self._state.dsn(role)

    def __enter__(self) -> Server:
        for _ in range(_PORTS_TRIED - 1):
            try:
                self.start()
            except (DatabaseError, asyncpg.PostgresError):  # the one who has our port refuses our password
                if not self._failed_to_start():
                    self.stop(signal.SIGKILL)
                    raise
                self._cluster.move()
            else:
                return self
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and wait until it answers, however long it recovers or others leave it no time."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._cluster.command(), *self._options], stdout=log, stderr=log, cwd="/"
            )
        process = self._process
        answers = wait_until_ready(maintenance_dsn(self.owner_dsn), math.inf, lambda: process.poll() is None)
        try:
            asyncio.run(answers)
        except KeyboardInterrupt:
            self.stop()
            raise
        if process.poll() is not None:
            raise DatabaseError(f"the server exited, and another program listens on its port: see {self._log}")

    def _failed_to_start(self) -> bool:
        """Return whether the server did not stay: its port was taken."""
        if self._process is None:
            return True
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        return True

    def stop(self, signal_number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends sessions and stops cleanly (PostgreSQL's fast shutdown); SIGKILL is a crash."""
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(_SHUTDOWN_SECONDS)
            self._process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """A server that is away inside the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def _ignore(line: str) -> None:
    """Ignore progress messages."""
