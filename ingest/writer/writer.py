"""The writer: takes what waits in the spools (``taking``), writes it in one transaction, deletes it there, repeats.

Batching is a bus, as in the spool: batches gather, and the next group takes all of them; ``pace`` says when. Each
connection is a worker of its own; a group belongs to one worker until it is committed, whatever fails. Of a group that
reaches over many days all but the first piece waits aside: one worker writes them, one after each group that is live.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg

from ingest import metrics
from ingest.batch import SampleBatch, now_us
from ingest.config.model import WriterOptions
from ingest.spool.wake import Sleeper
from ingest.writer.closing import Closer
from ingest.writer.connection import bounded, connect
from ingest.writer.failures import Backoff, Failure, classify, timed_out, too_much
from ingest.writer.group import TimeLimits, assemble
from ingest.writer.open_minutes import OpenMinutes
from ingest.writer.pace import Pace
from ingest.writer.pieces import Piece, by_days, divide
from ingest.writer.repeating import Repeating
from ingest.writer.taking import Spools, is_low
from ingest.writer.transaction import Written, write

log = logging.getLogger(__name__)

_MOST_ASIDE = 200  # pieces; as long as there are more, nothing is taken from the spools
_LOOK_SECONDS = 1.0  # a wake-up that was lost (the collector could not reach our socket) costs at most this


class Writer:
    """Moves batches from the spool files in ``folder`` into the database at ``dsn``."""

    def __init__(self, folder: Path, dsn: str, options: WriterOptions) -> None:
        self._folder = folder
        self._dsn = dsn
        self._options = options
        self._limits = TimeLimits(options.future_limit, options.oldest)
        self._spools = Spools(folder, options.max_rows)
        self._thread = ThreadPoolExecutor(1, "spool")  # SQLite's files are read and trimmed by one thread
        self._something = asyncio.Event()
        self._taking = asyncio.Lock()
        self._pace = Pace(options.max_delay)
        self._aside: deque[Piece] = deque()  # of many days
        self._aside_at_work = False  # a worker writes one of them
        self._repeating = Repeating()
        self._minutes = OpenMinutes()
        self._stopping = False
        self.written = 0  # samples committed since start
        self.increments = 0  # of batches of counts, committed since start
        self.quarantined = 0  # samples, events, gaps and increments kept out since start
        self.database = "not yet connected"
        self.lag_seconds: float | None = None  # newest source time of the last group to its commit

    async def run(self) -> None:
        """Write until :meth:`drain` says stop and nothing waits."""
        sleeper = Sleeper(self._folder, self._something)
        look = asyncio.create_task(self._look())
        self._something.set()  # what is there from before
        closer = asyncio.create_task(Closer(self._dsn, self._options.time_out, self._minutes).run())
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._options.connections):
                    workers.create_task(self._work(), name=f"writer connection {number + 1}")
        finally:
            look.cancel()
            closer.cancel()
            await asyncio.wait((closer,))
            sleeper.close()
            await asyncio.get_running_loop().run_in_executor(self._thread, self._spools.close)
            self._thread.shutdown()

    def drain(self) -> None:
        """Stop when the spools are empty."""
        self._stopping = True
        self._something.set()

    async def backlog(self) -> tuple[int, int]:
        """Rows and bytes in the spools."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._spools.measure)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._something.set()

    async def _work(self) -> None:
        connection = await self._connect()
        try:
            while (pieces := await self._next()) is not None:
                for piece in pieces[:1]:
                    connection = await self._commit(connection, piece)
                self._aside.extend(pieces[1:])
                if self._spools.done(path for piece in pieces for path, _ in piece.group.taken):
                    self._something.set()
                connection = await self._write_aside(connection)
        finally:
            connection.terminate()

    async def _write_aside(self, connection: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
        """One of the pieces that wait aside, unless another worker has one."""
        if self._aside and not self._aside_at_work:
            self._aside_at_work = True
            try:
                connection = await self._commit(connection, self._aside.popleft())
            finally:
                self._aside_at_work = False
                self._something.set()
        return connection

    async def _connect(self) -> asyncpg.Connection[Any]:
        """A connection, however long the database is away."""
        backoff = Backoff()
        while True:
            try:
                connection = await connect(self._dsn, self._options.time_out)
            except Exception as error:
                await self._failed(error, backoff)
            else:
                self.database = "connected"
                metrics.database_up.set(1)
                return connection

    async def _failed(self, error: Exception, backoff: Backoff) -> None:
        """Say what failed, and wait. Only rows can be poison: where there are none it is the configuration."""
        failure: Failure = "transient" if classify(error) == "transient" else "configuration"
        reason = f"{type(error).__name__}: {error}"
        wait = backoff.next(failure)
        if failure == "transient":
            log.warning("database: %s; tried again in %.1f s", reason, wait)
            self.database = f"unreachable: {reason}"
        else:
            log.error("database: %s; NOTHING IS WRITTEN until that is put right; tried again in %.1f s", reason, wait)
            self.database = f"not usable: {reason}"
        metrics.write_failures.labels(reason=type(error).__name__).inc()
        metrics.database_up.set(0)
        await asyncio.sleep(wait)

    async def _next(self) -> list[Piece] | None:
        """The next group in pieces, as soon as there is one, or none where something waits aside for a worker; None:
        stopping, and nothing waits."""
        while True:
            await self._something.wait()
            async with self._taking:
                if not self._something.is_set():
                    continue  # another worker has looked meanwhile
                if not self._stopping and (wait := self._pace.wait()):
                    await asyncio.sleep(wait)
                self._something.clear()
                pieces: list[Piece] = []
                if len(self._aside) <= _MOST_ASIDE:
                    pieces, more = await asyncio.get_running_loop().run_in_executor(self._thread, self._take)
                    if more or self._stopping:
                        self._something.set()  # let the next worker look
                if pieces or (self._aside and not self._aside_at_work):
                    return pieces
                if self._stopping and len(self._aside) <= _MOST_ASIDE:
                    return None

    def _take(self) -> tuple[list[Piece], bool]:
        """What waits, and whether there may be more."""
        taken, more = self._spools.take()
        if not taken:
            return [], more
        batches = [spooled.batch for _, of_file in taken for spooled in of_file]
        self._pace.took(sum(map(len, batches)), more=more)
        now = now_us()
        for batch in batches:
            metrics.spool_wait_seconds.observe(max(0, now - batch.received_at) / 1e6)
        return by_days(assemble(taken, self._limits), self._limits), more

    def _delete(self) -> None:
        """A batch that stays in the spool though the database has it is replayed as a no-op: say it and go on."""
        try:
            self._spools.delete_committed()
        except Exception:
            log.exception("spool: committed batches could not be deleted")

    async def _commit(self, connection: asyncpg.Connection[Any], piece: Piece) -> asyncpg.Connection[Any]:
        """Write ``piece``, again until the database has it, after which what is complete may leave the spools."""
        low = any(is_low(path) for path, _ in piece.group.taken)
        taken, whole = self._minutes.take(piece.group, now_us(), low), piece
        of_all: Written | None = None
        pieces = deque([piece])
        backoff = Backoff()
        while pieces:
            started = time.monotonic()
            piece = pieces[0]
            try:
                written = await self._write(connection, piece, taken.minutes if piece is whole else ())
            except Exception as error:
                connection = await self._recover(connection, pieces, error, backoff)
            else:
                pieces.popleft()
                backoff.reset()
                self._count(piece, written, time.monotonic() - started)
                self._spools.committed(piece.complete)
                self._thread.submit(self._delete)  # while the next group gathers
                if piece is whole:
                    of_all = written
        self._minutes.written(taken, now_us(), of_all)
        return connection

    async def _write(self, connection: asyncpg.Connection[Any], piece: Piece, minutes: Collection[int]) -> Written:
        complete = [spooled for _, of_file in piece.complete for spooled in of_file]
        work = write(connection, piece.group, complete, self._repeating, careful=piece.careful, minutes=minutes)
        return await bounded(connection, self._options.time_out, work)

    async def _recover(
        self, connection: asyncpg.Connection[Any], pieces: deque[Piece], error: Exception, backoff: Backoff
    ) -> asyncpg.Connection[Any]:
        """Make the next attempt another than the one that failed: smaller, later, or on another connection."""
        poison = classify(error) == "poison"
        divided = [pieces[0]]
        if poison or timed_out(error) or too_much(error):
            divided = divide(pieces[0], self._limits, error, poison)
        failed = pieces.popleft()
        if poison and divided == [failed]:
            await self._set_aside(failed, error)
            return connection if not connection.is_closed() else await self._connect()
        pieces.extendleft(reversed(divided))
        if poison or (too_much(error) and len(divided) > 1):
            log.info("database refuses %s: %s; divided", type(error).__name__, error)
            metrics.write_failures.labels(reason=type(error).__name__).inc()
            if not connection.is_closed():
                return connection
        connection.terminate()
        await self._failed(error, backoff)
        return await self._connect()

    async def _set_aside(self, piece: Piece, error: Exception) -> None:
        """Not even the facts of a batch, or its rows for quarantine, can be written: keep it on our disk."""
        why = f"{type(error).__name__}: {error}"
        run = asyncio.get_running_loop().run_in_executor
        for path, batches in piece.complete:
            for spooled in batches:
                await run(self._thread, self._spools.set_aside, path, spooled.sequence, why)

    def _count(self, piece: Piece, written: Written, seconds: float) -> None:
        group = piece.group
        self.written += written.samples
        self.quarantined += written.quarantined
        metrics.write_seconds.observe(seconds)
        self.increments += written.increased.counts
        for of, number in asdict(written.increased).items():
            metrics.increments.labels(of=of).inc(number)
        metrics.written_events.inc(written.events)
        metrics.duplicates.inc(written.duplicates)
        metrics.conflicts.inc(written.conflicts)
        for kept_out in group.quarantined:
            metrics.quarantined.labels(reason=kept_out.reason).inc()
        if group.columns is None:
            return
        metrics.written_rows.labels(lane=written.lane).inc(written.samples)
        metrics.write_rows.observe(len(group.columns))
        now = now_us()
        live = [b for path, of_file in group.taken if not is_low(path) for b in of_file]
        live = [b for b in live if isinstance(b.batch, SampleBatch)]
        if not live:
            return
        self._pace.wrote(seconds, max(b.batch.received_at - b.first_time for b in live) / 1e6)
        # Nothing arrives before its time: one tag from the future is not the lag of all.
        lags = [(now - min(b.last_time, b.batch.received_at)) / 1e6 for b in live]
        for lag in lags:
            metrics.lag_seconds.observe(max(0.0, lag))
        self.lag_seconds = max(lags)
