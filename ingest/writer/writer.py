"""The writer: takes what waits in the spools, writes it in one transaction, deletes it there, repeats.

Batching is a bus, as in the spool: while one COPY is under way, batches gather; the next takes all of them. Each
connection is a worker of its own; a group belongs to one worker until it is committed, whatever fails.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg

from ingest import metrics
from ingest.batch import SampleBatch, now_us
from ingest.config.model import WriterOptions
from ingest.spool.format import SpooledBatch
from ingest.spool.take import SpoolFile
from ingest.spool.wake import Sleeper
from ingest.writer.group import Group, assemble
from ingest.writer.transaction import Written, write
from schema.queries import load

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_TRANSACTION_SECONDS = 120.0
_BACKOFF = (0.2, 5.0)  # s, first and longest wait after a failure
# InternalClientError: asyncpg itself, when the server ended an idle session in the moment it was used
_FAILURES = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_LOOK_SECONDS = 1.0  # a wake-up that was lost (the collector could not reach our socket) costs at most this


class Writer:
    """Moves batches from the spool files in ``folder`` into the database at ``dsn``."""

    def __init__(self, folder: Path, dsn: str, options: WriterOptions) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._dsn = dsn
        self._options = options
        self._files: dict[Path, SpoolFile] = {}
        self._thread = ThreadPoolExecutor(1, "spool")  # SQLite's files are read and trimmed by one thread
        self._something = asyncio.Event()
        self._taking = asyncio.Lock()
        self._stopping = False
        self._committed: list[Group] = []  # in the database, not yet deleted from the spools
        self.written = 0  # samples committed since start
        self.database = "not yet connected"
        self.lag_seconds: float | None = None  # newest source time of the last group to its commit

    async def run(self) -> None:
        """Write until :meth:`drain` says stop and nothing waits."""
        sleeper = Sleeper(self._folder, self._something)
        look = asyncio.create_task(self._look())
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._options.connections):
                    workers.create_task(self._work(), name=f"writer connection {number + 1}")
        finally:
            look.cancel()
            sleeper.close()
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close_files)
            self._thread.shutdown()

    def drain(self) -> None:
        """Stop when the spools are empty."""
        self._stopping = True
        self._something.set()

    async def backlog(self) -> tuple[int, int]:
        """Rows and bytes in the spools."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._measure)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._something.set()

    async def _work(self) -> None:
        connection = await self._connect()
        try:
            while (group := await self._next()) is not None:
                connection = await self._commit(connection, group)
        finally:
            connection.terminate()

    async def _connect(self) -> asyncpg.Connection[Any]:
        """A connection, however long the database is away."""
        backoff = _Backoff()
        while True:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    connection = await asyncpg.connect(
                        self._dsn, server_settings={"application_name": "plantlog writer"}
                    )
                    await connection.execute(load("write")["staging"])
            except _FAILURES as error:
                await self._failed(error, backoff)
            else:
                self.database = "connected"
                metrics.database_up.set(1)
                return connection

    async def _failed(self, error: BaseException, backoff: _Backoff) -> None:
        reason = f"{type(error).__name__}: {error}"
        wait = backoff.next()
        log.warning("database: %s; tried again in %.1f s", reason, wait)
        metrics.write_failures.labels(reason=type(error).__name__).inc()
        metrics.database_up.set(0)
        self.database = f"unreachable: {reason}"
        await asyncio.sleep(wait)

    async def _next(self) -> Group | None:
        """The next group, as soon as there is one; None: stopping, and nothing waits."""
        loop = asyncio.get_running_loop()
        while True:
            async with self._taking:
                self._something.clear()
                group = await loop.run_in_executor(self._thread, self._take)
                # What was committed leaves the spool while the next group is written, not before it.
                loop.run_in_executor(self._thread, self._delete_committed).add_done_callback(_report)
                if group is not None:
                    self._something.set()  # there may be more: let the next worker look
                    return group
                if self._stopping:
                    self._something.set()
                    return None
            await self._something.wait()

    def _take(self) -> Group | None:
        for path in sorted(self._folder.glob("*.sqlite")):
            if path not in self._files:
                self._files[path] = SpoolFile(path)
        taken: list[tuple[Path, list[SpooledBatch]]] = []
        room = self._options.max_rows
        for path, file in self._files.items():
            if room > 0 and (batches := file.take(room)):
                taken.append((path, batches))
                room -= sum(len(b.batch) for b in batches)
        return assemble(taken) if taken else None

    async def _commit(self, connection: asyncpg.Connection[Any], group: Group) -> asyncpg.Connection[Any]:
        """Write ``group``, again until the database has it, after which it may leave the spools."""
        now = now_us()
        for spooled in group.batches():
            metrics.spool_wait_seconds.observe(max(0, now - spooled.batch.received_at) / 1e6)
        backoff = _Backoff()
        while True:
            started = time.monotonic()
            try:
                async with asyncio.timeout(_TRANSACTION_SECONDS):
                    written = await write(connection, group)
            except _FAILURES as error:
                connection.terminate()
                await self._failed(error, backoff)
                connection = await self._connect()
            else:
                self._count(group, written, time.monotonic() - started)
                self._committed.append(group)
                return connection

    def _delete_committed(self) -> None:
        committed, self._committed = self._committed, []
        for group in committed:
            for path, batches in group.taken:
                self._files[path].delete(b.sequence for b in batches)

    def _count(self, group: Group, written: Written, seconds: float) -> None:
        self.written += written.samples
        metrics.write_seconds.observe(seconds)
        metrics.written_events.inc(written.events)
        metrics.duplicates.inc(written.duplicates)
        metrics.conflicts.inc(written.conflicts)
        if group.columns is None:
            return
        metrics.written_rows.labels(lane=written.lane).inc(written.samples)
        metrics.write_rows.observe(len(group.columns))
        now = now_us()
        lags = [(now - b.last_time) / 1e6 for b in group.batches() if isinstance(b.batch, SampleBatch)]
        for lag in lags:
            metrics.lag_seconds.observe(max(0.0, lag))
        self.lag_seconds = max(lags)

    def _measure(self) -> tuple[int, int]:
        rows = used = 0
        for path, file in self._files.items():
            _, file_rows, file_bytes = file.depth()
            metrics.spool_rows.labels(spool=path.stem).set(file_rows)
            metrics.spool_bytes.labels(spool=path.stem).set(file_bytes)
            rows += file_rows
            used += file_bytes
        return rows, used

    def _close_files(self) -> None:
        self._delete_committed()
        for file in self._files.values():
            file.close()


def _report(deleted: asyncio.Future[None]) -> None:
    """A batch that stays in the spool though the database has it is replayed as a no-op: say it and go on."""
    if not deleted.cancelled() and (error := deleted.exception()) is not None:
        log.error("spool: committed batches could not be deleted: %s", error)


class _Backoff:
    """Waits that double up to a limit, with jitter, so that workers don't come back in step."""

    def __init__(self) -> None:
        self._wait = _BACKOFF[0]

    def next(self) -> float:
        """Seconds to wait now."""
        wait, self._wait = self._wait, min(2 * self._wait, _BACKOFF[1])
        return wait * random.uniform(0.5, 1.0)
