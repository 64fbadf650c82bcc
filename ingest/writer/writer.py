"""The writer: reads the backlog of the spools, commits it in one transaction, moves it to the journal.

Group commit: batches queue up, and the next group takes all of them; ``GroupPace`` decides when. Each
connection is a worker; a group belongs to one worker until it is committed, whatever fails. If a group
spans many days, all but its first piece are deferred: one worker writes one of them after each live group.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg

from core import metrics
from core.batch import SampleBatch
from core.config.model import SpoolOptions, WriterOptions
from core.database import bounded, connect_writer
from core.errors import LeaseLost, OldTimeline
from core.time_limits import TimeLimits
from core.timestamps import now_us
from ingest.journal.journal import JournalReport
from ingest.journal.replay import is_request
from ingest.spool.metadata import WakeUpListener
from ingest.writer.backlog import Backlog, BatchesByFile, is_low_priority
from ingest.writer.bisect import Piece, bisect, split_by_days, split_committed
from ingest.writer.minutes.closer import MinuteCloser
from ingest.writer.minutes.open_minutes import OpenMinutes
from ingest.writer.restored.restore_check import RestoreCheck
from ingest.writer.transaction.day_limits import DayLimits
from ingest.writer.transaction.failures import Backoffs, Failure, backoffs, classify, exceeds_limit, timed_out
from ingest.writer.transaction.group import assemble
from ingest.writer.transaction.write import Fence, RepeatingChannels, WriteResult, write

log = logging.getLogger(__name__)

_MAX_DEFERRED = 200  # pieces; while there are more, nothing is read from the spools
_WAKE_SECONDS = 1.0  # maximum delay if a wake-up is lost (the collector could not reach the socket)


class Writer:
    """Moves batches from the spool files in ``folder`` into the database at ``dsn``."""

    def __init__(
        self,
        folder: Path,
        dsn: str,
        options: WriterOptions,
        spool: SpoolOptions | None = None,
        fence: Fence | None = None,
    ) -> None:
        """``fence``: of a redundant pair; :meth:`run` raises LeaseLost once the other member writes."""
        self._folder = folder
        self._fence = fence
        self._dsn = dsn
        self._options = options
        self._limits = DayLimits.of_options(options)
        self._backlog = Backlog(folder, options.max_rows, spool or SpoolOptions())
        self._thread = ThreadPoolExecutor(1, "spool")  # one thread reads and trims the SQLite files
        self._wake_up = asyncio.Event()
        self._taking_lock = asyncio.Lock()
        self._pace = GroupPace(options.max_delay)
        self._deferred: deque[Piece] = deque()  # of groups spanning many days
        self._deferred_busy = False  # a worker is writing one of them
        self._repeating = RepeatingChannels()
        self._minutes = OpenMinutes()
        self._check = RestoreCheck(
            folder,
            self._backlog.mark,
            self._thread,
            self._options.time_out,
            self._minutes.restored,
            None if fence is None else fence.member,
        )
        self._stopping = False
        self.sources: set[int] = set()  # whose samples were committed since the start
        self.written = 0  # samples committed since the start
        self.increments = 0  # of batches of counts, committed since the start
        self.quarantined = 0  # samples, events, gaps and increments rejected since the start
        self.database = "not yet connected"
        self.lag_seconds: float | None = None  # from the newest source time of the last group to its commit

    async def run(self) -> None:
        """Write until :meth:`drain` was called and the spools are empty."""
        listener = WakeUpListener(self._folder, self._wake_up)
        waking = asyncio.create_task(self._wake_periodically())
        self._wake_up.set()  # the existing backlog
        closer = asyncio.create_task(
            MinuteCloser(self._dsn, self._options.time_out, self._minutes, self._check, self._fence).run()
        )
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._options.connections):
                    workers.create_task(self._work(), name=f"writer connection {number + 1}")
        finally:
            waking.cancel()
            closer.cancel()
            await asyncio.wait((closer,))
            listener.close()
            await asyncio.get_running_loop().run_in_executor(self._thread, self._backlog.close)
            self._thread.shutdown()

    def drain(self) -> None:
        """Stop once the spools are empty."""
        self._stopping = True
        self._wake_up.set()

    async def backlog(self) -> tuple[int, int, JournalReport]:
        """Rows and bytes in the spools, and what the journal has."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._backlog.measure)

    async def oldest(self) -> int | None:
        """Time at which the oldest batch in the spools was received (µs)."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._backlog.oldest)

    async def _wake_periodically(self) -> None:
        while True:
            await asyncio.sleep(_WAKE_SECONDS)
            self._wake_up.set()
            self._thread.submit(self._backlog.journal.trim)
            self._thread.submit(self._backlog.mark.save)

    async def _work(self) -> None:
        connection = await self._connect()
        try:
            while (pieces := await self._next()) is not None:
                paths = [path for piece in pieces for path, _ in piece.group.batches_by_file]
                if any(map(is_request, paths)):
                    pieces = await self._without_committed(connection, pieces)
                for piece in pieces[:1]:
                    connection = await self._commit(connection, piece)
                self._deferred.extend(pieces[1:])
                if self._backlog.release(paths):
                    self._wake_up.set()
                connection = await self._write_deferred(connection)
        finally:
            connection.terminate()

    async def _write_deferred(self, connection: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
        """Write one deferred piece, unless another worker is doing so."""
        if self._deferred and not self._deferred_busy:
            self._deferred_busy = True
            try:
                connection = await self._commit(connection, self._deferred.popleft())
            finally:
                self._deferred_busy = False
                self._wake_up.set()
        return connection

    async def _without_committed(self, connection: asyncpg.Connection[Any], pieces: list[Piece]) -> list[Piece]:
        """The pieces of a replay without batches that the database has."""
        stored, others = await split_committed(connection, pieces, self._options.time_out)
        if not stored:
            return pieces
        self._backlog.committed(stored)
        self._thread.submit(self._delete)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._divide, others) if others else []

    async def _connect(self) -> asyncpg.Connection[Any]:
        """Connect, however long the database is unavailable."""
        waits = backoffs()
        while True:
            try:
                name = "plantlog writer" if self._fence is None else self._fence.session_name
                connection = await connect_writer(self._dsn, self._options.time_out, name, self._check.check)
            except Exception as error:
                await self._failed(error, waits)
            else:
                self.database = "connected"
                metrics.database_up.set(1)
                return connection

    async def _failed(self, error: Exception, waits: Backoffs) -> None:
        """Log the failure and wait. Only rows can be poison: without rows, it is the configuration."""
        failure: Failure = "transient" if classify(error) == "transient" else "configuration"
        reason = f"{type(error).__name__}: {error}"
        wait = waits[failure].next()
        if isinstance(error, OldTimeline):
            log.error("database: nothing is written to %s; retrying in %.1f s", error, wait)
            self.database = f"refused: {error}"
        elif failure == "transient":
            log.warning("database: %s; retrying in %.1f s", reason, wait)
            self.database = f"unreachable: {reason}"
        else:
            log.error("database: %s; nothing is written until this is fixed; retrying in %.1f s", reason, wait)
            self.database = f"unusable: {reason}"
        metrics.write_failures.labels(reason=type(error).__name__).inc()
        metrics.database_up.set(0)
        await asyncio.sleep(wait)

    async def _next(self) -> list[Piece] | None:
        """Wait for the next group and return its pieces; none if there is a deferred piece to write. None:
        stopping, and nothing left to write."""
        while True:
            await self._wake_up.wait()
            async with self._taking_lock:
                if not self._wake_up.is_set():
                    continue  # another worker was faster
                if not self._stopping and (wait := self._pace.wait()):
                    await asyncio.sleep(wait)
                self._wake_up.clear()
                pieces: list[Piece] = []
                if len(self._deferred) <= _MAX_DEFERRED:
                    pieces, more = await asyncio.get_running_loop().run_in_executor(self._thread, self._take)
                    if more or self._stopping:
                        self._wake_up.set()  # wake the next worker
                if pieces or (self._deferred and not self._deferred_busy):
                    return pieces
                if self._stopping and len(self._deferred) <= _MAX_DEFERRED:
                    return None

    def _take(self) -> tuple[list[Piece], bool]:
        """Read the backlog; and whether there may be more."""
        batches_by_file, more = self._backlog.take()
        if not batches_by_file:
            return [], more
        batches = [spooled.batch for _, of_file in batches_by_file for spooled in of_file]
        self._pace.group_taken(sum(map(len, batches)), more=more)
        now = now_us()
        for batch in batches:
            metrics.spool_wait_seconds.observe(max(0, now - batch.received_at) / 1e6)
        return self._divide(batches_by_file), more

    def _divide(self, batches_by_file: BatchesByFile) -> list[Piece]:
        limits = self._limits_of(path for path, _ in batches_by_file)
        return split_by_days(assemble(batches_by_file, limits), limits)

    def _limits_of(self, files: Iterable[Path]) -> TimeLimits:
        """A replay writes what was written once, on however many days."""
        return TimeLimits(self._limits.future, self._limits.oldest) if any(map(is_request, files)) else self._limits

    def _delete(self) -> None:
        """Move committed batches to the journal. If that fails, log it and continue: replaying them is a no-op."""
        try:
            self._backlog.delete_committed()
        except Exception:
            log.exception("cannot delete committed batches from the spool")

    async def _commit(self, connection: asyncpg.Connection[Any], piece: Piece) -> asyncpg.Connection[Any]:
        """Write ``piece``, retrying until it is committed; then move complete batches to the journal."""
        low_priority = any(is_low_priority(path) for path, _ in piece.group.batches_by_file)
        pending, undivided = self._minutes.add(piece.group, now_us(), low_priority), piece
        whole_result: WriteResult | None = None
        pieces = deque([piece])
        waits = backoffs()
        while pieces:
            started = time.monotonic()
            piece = pieces[0]
            try:
                result = await self._write(connection, piece, pending.minutes if piece is undivided else ())
            except LeaseLost:
                raise
            except Exception as error:
                connection = await self._recover(connection, pieces, error, waits)
            else:
                pieces.popleft()
                waits = backoffs()
                self._count(piece, result, time.monotonic() - started)
                self._backlog.committed(piece.complete)
                self._thread.submit(self._delete)  # meanwhile the next group gathers
                if piece is undivided:
                    whole_result = result
        self._minutes.written(pending, now_us(), whole_result)
        return connection

    async def _write(self, connection: asyncpg.Connection[Any], piece: Piece, minutes: Collection[int]) -> WriteResult:
        complete = [spooled for _, of_file in piece.complete for spooled in of_file]
        work = write(
            connection,
            piece.group,
            complete,
            self._repeating,
            isolate_bad_rows=piece.isolate_bad_rows,
            minutes=minutes,
            fence=self._fence,
            state=self._folder.parent,
        )
        return await bounded(connection, self._options.time_out, work)

    async def _recover(
        self, connection: asyncpg.Connection[Any], pieces: deque[Piece], error: Exception, waits: Backoffs
    ) -> asyncpg.Connection[Any]:
        """Prepare the next attempt after a failure: smaller, later, or on another connection."""
        poison = classify(error) == "poison"
        smaller = [pieces[0]]
        if poison or timed_out(error) or exceeds_limit(error):
            limits = self._limits_of(path for path, _ in pieces[0].group.batches_by_file)
            smaller = bisect(pieces[0], limits, error, poison)
        failed = pieces.popleft()
        if poison and smaller == [failed]:
            await self._dead_letter(failed, error)
            return connection if not connection.is_closed() else await self._connect()
        pieces.extendleft(reversed(smaller))
        if poison or (exceeds_limit(error) and len(smaller) > 1):
            log.info(
                "the database rejects a group of rows: %s: %s; splitting it to isolate them",
                type(error).__name__,
                error,
            )
            metrics.write_failures.labels(reason=type(error).__name__).inc()
            if not connection.is_closed():
                return connection
        connection.terminate()
        await self._failed(error, waits)
        return await self._connect()

    async def _dead_letter(self, piece: Piece, error: Exception) -> None:
        """Move a batch to a dead letter because not even its row or its quarantine can be written."""
        why = f"{type(error).__name__}: {error}"
        run = asyncio.get_running_loop().run_in_executor
        for path, batches in piece.complete:
            for spooled in batches:
                await run(self._thread, self._backlog.dead_letter, path, spooled.sequence, why)

    def _count(self, piece: Piece, result: WriteResult, seconds: float) -> None:
        group = piece.group
        self.written += result.samples
        self.sources.update(
            s.batch.source_id for _, of_file in piece.complete for s in of_file if isinstance(s.batch, SampleBatch)
        )
        self.quarantined += result.quarantined
        metrics.write_seconds.observe(seconds)
        self.increments += result.added.counts
        for kind, number in asdict(result.added).items():
            metrics.increments.labels(of=kind).inc(number)
        metrics.written_events.inc(result.events)
        metrics.duplicates.inc(result.duplicates)
        metrics.conflicts.inc(result.conflicts)
        for row in group.quarantined:
            metrics.quarantined.labels(reason=row.reason).inc()
        if not len(group.samples):
            return
        metrics.written_rows.labels(method=result.method).inc(result.samples)
        metrics.write_rows.observe(len(group.samples))
        now = now_us()
        live = [b for path, of_file in group.batches_by_file if not is_low_priority(path) for b in of_file]
        live = [b for b in live if isinstance(b.batch, SampleBatch)]
        if not live:
            return
        self._pace.group_written(seconds, max(b.batch.received_at - b.first_time for b in live) / 1e6)
        # Samples cannot arrive before their time: ignore a tag from the future.
        lags = [(now - min(b.last_time, b.batch.received_at)) / 1e6 for b in live]
        for lag in lags:
            metrics.lag_seconds.observe(max(0.0, lag))
        self.lag_seconds = max(lags)


_GATHER = 1e-3  # s per (sample/s)
_SETTLE = 3.0  # s, time constant of the measured rate
_DECAY = 0.95  # decay, per group, of the slowest write and the oldest arrival
_WRITE_RESERVE = 2.0  # reserve, as a multiple of the slowest write
_DELAY_RESERVE = 0.2  # reserve, as a fraction of max_delay


class GroupPace:
    """Schedules the groups of all connections of one writer: fewer, larger ones cost less per sample, but add latency.

    The more samples per second, the longer a group gathers: 1 ms for each, so that a quiet plant's samples are written
    immediately. The time is limited to what is left of ``max_delay`` after the age of arriving samples and the duration
    of writes.
    """

    def __init__(self, max_delay: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_delay = max_delay
        self._clock = clock
        self._taken = -math.inf
        self._rate = 0.0  # samples a second
        self._write = 0.0  # s
        self._age = max_delay / 2  # s; initially the maximum
        self._more = False

    def wait(self) -> float:
        """Seconds until the next group; 0 after a pause."""
        if self._more:
            return 0.0
        return max(0.0, self._taken + self.interval() - self._clock())

    def interval(self) -> float:
        """Seconds from the start of one group to the next."""
        left = self._max_delay * (1 - _DELAY_RESERVE) - self._age - _WRITE_RESERVE * self._write
        return max(0.0, min(self._rate * _GATHER, left))

    def group_taken(self, rows: int, *, more: bool) -> None:
        """A group was read. ``more``: batches were left, so the next one need not wait."""
        now = self._clock()
        passed = now - self._taken
        self._rate += (rows / max(passed, 1e-3) - self._rate) * -math.expm1(-passed / _SETTLE)
        self._taken, self._more = now, more

    def group_written(self, seconds: float, age: float) -> None:
        """A group was committed; ``age``: of its oldest sample on arrival; at most half of max_delay counts."""
        self._write = max(seconds, self._write * _DECAY)
        self._age = max(min(max(0.0, age), self._max_delay / 2), self._age * _DECAY)
