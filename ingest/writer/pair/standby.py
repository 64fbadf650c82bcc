"""The standby of a redundant pair drops from its spools what the database has, and keeps everything else.

What is committed is recognised by its content, because the other member received it in other batches: samples by
channel, time, value and status, values that are no numbers by the event's id, increments by the digest of their body;
``polled.py`` says what becomes of samples that both members poll. What a member reports of itself (its sources' states,
its clock) is dropped once the holder has written all that it received by then; the newest of each kind is kept, and
becomes what the database shows after a take-over, unless it shows the same.

What is dropped goes to the journal: a database that is restored, or fails over, may lack it when the machine of the
member that wrote it is lost, too. Then it is looked up again (``lease.py``).

Content that the holder does not write, because it never received it or lost it, makes the standby ask for the lease: at
any time only one member writes. So does a database that lacks what this member once wrote: its journal has it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg

from core.batch import GapBatch, SampleBatch
from core.config.model import SpoolOptions, WriterOptions
from core.database import FAILURES, bounded, connect
from core.errors import SpoolError
from ingest.event_rows import event_columns
from ingest.journal.journal import Journal, JournalReport
from ingest.journal.reader import ReplayReader
from ingest.journal.replay import BY_OTHER
from ingest.spool.format import SpooledBatch
from ingest.spool.reader import SpoolReader
from ingest.writer.pair.lease import Lease
from ingest.writer.pair.lookup import Lookup, SelfReports, is_content, operator_commands, reports_standby
from ingest.writer.restored.commit_mark import CommitMark
from ingest.writer.restored.restore_check import RestoreCheck
from ingest.writer.transaction.day_limits import DayLimits
from ingest.writer.transaction.receipts import sign_gap_receipts
from ingest.writer.transaction.rows import write_alarms, write_gaps
from schema.queries import load

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_FIRST_CHECK_SECONDS = 1.5  # after it was read: the holder has usually written it by then
_POLLED_SECONDS = 10.0  # what was polled is looked up this often
_SETTLE_SECONDS = 1.0
_LATE_SECONDS = 30.0  # later than the holder's oldest batch: it does not have this one
_ASK_SECONDS = 60.0  # between two take-overs that members ask for
_CONNECTION_ERRORS = (*FAILURES, TimeoutError)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A batch that is not known to be in the database."""

    spooled: SpooledBatch
    read_at: float  # monotonic s, as the next: the clock of its arrival may be set
    check_at: float
    recorded: bool = False  # what an operator did


@dataclass(slots=True)
class _File:
    """One spool file, or a request to look up batches of the journal, with the batches read from it."""

    reader: SpoolReader | ReplayReader
    waiting: list[_Waiting] = field(default_factory=list)


class Standby:
    """Trims the spools in ``folder``. ``thread`` reads and trims the SQLite files."""

    def __init__(
        self, folder: Path, dsn: str, lease: Lease, options: WriterOptions, spool: SpoolOptions, thread: Executor
    ) -> None:
        self._folder = folder
        self._dsn = dsn
        self._lease = lease
        self._member = lease.member
        self._limits = DayLimits.of_options(options)
        self._lookup = Lookup(self._limits, 3 - lease.member, self._query)
        self._max_rows = options.max_rows
        self._time_out = options.time_out
        self._journal = Journal(folder, spool)
        self._thread = thread
        self._files: dict[Path, _File] = {}
        self._reports = SelfReports()
        self._connection: asyncpg.Connection[Any] | None = None
        self._check = RestoreCheck(folder, CommitMark(folder), thread, self._time_out)
        self._lacking = False  # the database, when it was connected to
        self.sources: set[int] = set()  # whose samples were received since the start, or that it stands by to poll
        self.dropped = 0  # rows that the other member wrote, and recorded gaps
        self.late = 0  # rows that it did not write in time

    async def backlog(self) -> tuple[int, int, JournalReport]:
        """Rows and bytes in the spools, and what the journal has."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._measure)

    def _measure(self) -> tuple[int, int, JournalReport]:
        readers = [file.reader for file in self._files.values()]
        depths = [reader.depth() for reader in readers if isinstance(reader, SpoolReader)]
        looked_up = sum(reader.rows for reader in readers if isinstance(reader, ReplayReader))
        report = replace(self._journal.report(), waiting_rows=looked_up)
        return sum(rows for _, rows, _ in depths), sum(size for *_, size in depths), report

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.trim()
                await self._ask()
                await self._in_thread(self._journal.trim)
            except _CONNECTION_ERRORS as error:
                log.info("standby: %s: %s", type(error).__name__, error)
                self._disconnect()
            except SpoolError as error:
                log.error("standby: %s", error)
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """Close files and connection."""
        self._disconnect()
        await self._in_thread(self._close)

    async def trim(self, polled: bool = False) -> int:
        """Look up what has waited long enough, and delete what the database has. Returns how many batches that were.

        ``polled``: after a take-over, what was polled, however long it has waited.
        """
        await self._in_thread(self._read)
        await self._connected()
        await self._record_gaps_and_commands()
        now = time.monotonic()
        waiting = [(file, entry) for file in self._files.values() for entry in file.waiting]
        due = [(f, entry) for f, entry in waiting if (entry.spooled.is_polled if polled else entry.check_at <= now)]
        if not due:
            return 0
        state = self._lease.state
        # Unknown, or nobody holds it: nothing is late or settled.
        settled = now - state.backlog_seconds if state is not None and not state.expired else -math.inf
        absent, owed = await self._absent(due, settled - _FIRST_CHECK_SECONDS)
        dropped: dict[int, list[SpooledBatch]] = {}
        self.late = 0
        for index, (file, entry) in enumerate(due):
            if index not in absent:
                dropped.setdefault(id(file), []).append(entry.spooled)
                continue
            wait = _POLLED_SECONDS if entry.spooled.is_polled else min(max((now - entry.read_at) / 2, 0.5), 5.0)
            entry.check_at = now + wait
            if index in owed and entry.read_at < settled - _LATE_SECONDS:
                self.late += len(entry.spooled.batch)
        await self._in_thread(self._delete, dropped)
        return sum(map(len, dropped.values()))

    async def settle(self) -> None:
        """Drop, after a take-over, polled samples that the other member has written. The rest is to be written."""
        with suppress(*_CONNECTION_ERRORS, SpoolError):  # what is left only makes more samples of the same time
            async with asyncio.timeout(_SETTLE_SECONDS):
                while await self.trim(polled=True):
                    pass

    async def _ask(self) -> None:
        state = self._lease.state
        if (self.late or self._lacking) and state is not None and state.seconds_since_taken > _ASK_SECONDS:
            why = f"{self.late} rows are not written" if self.late else "the database lacks what was written"
            log.info("standby: %s; asking for the lease", why)
            await self._lease.request()

    async def _record_gaps_and_commands(self) -> None:
        """Record this member's gaps at once, as those of the pair depend on them; and what an operator did here, as the
        other member's collectors have to know it."""
        waiting = [(file, entry) for file in self._files.values() for entry in file.waiting]
        with_gaps = [(file, entry) for file, entry in waiting if isinstance(entry.spooled.batch, GapBatch)]
        commanded = [entry for _, entry in waiting if not entry.recorded and operator_commands(entry.spooled)]
        if not with_gaps and not commanded:
            return
        connection = await self._connected()
        gaps = [entry.spooled.batch for _, entry in with_gaps if isinstance(entry.spooled.batch, GapBatch)]
        events = [
            (entry.spooled.batch.source_id, event) for entry in commanded for event in operator_commands(entry.spooled)
        ]

        async def record() -> None:
            async with connection.transaction():
                if events:
                    await connection.execute(load("write")["insert_events"], *event_columns(events))
                    await write_alarms(connection, events)
                await write_gaps(connection, gaps, (), self._member)
                await sign_gap_receipts(connection, self._folder.parent)

        await bounded(connection, self._time_out, record())
        for entry in commanded:
            entry.recorded = True
        recorded: dict[int, list[SpooledBatch]] = {}
        for file, entry in with_gaps:
            recorded.setdefault(id(file), []).append(entry.spooled)
        await self._in_thread(self._delete, recorded)

    def _read(self) -> None:
        for path in sorted(self._folder.glob("*.sqlite")):
            if path not in self._files:
                self._files[path] = _File(SpoolReader(path))
        for path in sorted(self._folder.glob(f"*{BY_OTHER}")):
            if path not in self._files:
                self._files[path] = _File(ReplayReader(path))
        now = time.monotonic()
        for file in self._files.values():
            room = self._max_rows - sum(len(entry.spooled.batch) for entry in file.waiting)
            while room > 0 and (batches := file.reader.read(room)):
                room -= sum(len(spooled.batch) for spooled in batches)
                for spooled in batches:
                    live = isinstance(file.reader, SpoolReader)
                    # Of what was committed once, the holder's own journal comes first.
                    check_at = now + (_FIRST_CHECK_SECONDS if live else _LATE_SECONDS)
                    if live and spooled.is_polled:  # channel by channel: many polls at once
                        check_at += _POLLED_SECONDS - check_at % _POLLED_SECONDS
                    file.waiting.append(_Waiting(spooled, now, check_at))
                    if live:
                        self._reports.add(spooled)
                        if isinstance(spooled.batch, SampleBatch) or reports_standby(spooled):
                            self.sources.add(spooled.batch.source_id)

    def _delete(self, dropped: dict[int, list[SpooledBatch]]) -> None:
        """Move dropped batches to the journal, except batches that come from it and self-reports of a member."""
        kept = [
            (
                path,
                [
                    spooled
                    for spooled in dropped[id(file)]
                    if is_content(spooled) or isinstance(spooled.batch, GapBatch)
                ],
            )
            for path, file in self._files.items()
            if id(file) in dropped and isinstance(file.reader, SpoolReader)
        ]
        self._journal.append([(path, batches) for path, batches in kept if batches], by_other=True)
        for file in self._files.values():
            if batches := dropped.get(id(file)):
                file.reader.delete([spooled.sequence for spooled in batches])
                dropped_ids = {id(spooled) for spooled in batches}
                file.waiting = [entry for entry in file.waiting if id(entry.spooled) not in dropped_ids]
                self.dropped += sum(len(spooled.batch) for spooled in batches)
        for path, file in list(self._files.items()):
            if isinstance(file.reader, ReplayReader) and file.reader.done:
                file.reader.close()
                del self._files[path]

    async def _absent(self, due: Sequence[tuple[_File, _Waiting]], settled: float) -> tuple[set[int], set[int]]:
        """Indices of batches that the database lacks, and of those that the holder of the lease should have written.

        ``settled``: it has written what was read before (monotonic s).
        """
        batches = [entry.spooled for _, entry in due]
        from_journal = [isinstance(file.reader, ReplayReader) for file, _ in due]
        absent, owed = await self._lookup.missing(batches, from_journal)
        newest = [(index, event) for index, spooled in enumerate(batches) for event in self._reports.newest(spooled)]
        changed = await self._lookup.changed(batches, newest)
        checked = {index for index, _ in newest} - changed
        for index, (_, entry) in enumerate(due):
            is_known = (is_content(entry.spooled) and not self._is_outside(entry.spooled)) or index in checked
            if index in changed or (not is_known and entry.read_at >= settled):
                absent.add(index)
        return absent, owed - changed

    def _is_outside(self, spooled: SpooledBatch) -> bool:
        """Return whether some samples have times that go to the quarantine: those cannot be looked up."""
        batch = spooled.batch
        return (
            isinstance(batch, SampleBatch)
            and not self._limits.inside(batch.received_at, batch.samples.time, batch.source_id).all()
        )

    async def _query(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        connection = await self._connected()
        return await bounded(connection, self._time_out, connection.fetch(query, *parameters))

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            settings = {"statement_timeout": f"{self._time_out * 1000:.0f}"}
            self._connection = await connect(self._dsn, "plantlog standby", settings)
            self._lacking = await self._check.has_lost_batches(self._connection)
        return self._connection

    def reconnect(self) -> None:
        """Look up nothing more at the server that it is connected to."""
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _in_thread(self, work: Any, *parameters: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, *parameters)

    def _close(self) -> None:
        for file in self._files.values():
            file.reader.close()
        self._journal.close()
