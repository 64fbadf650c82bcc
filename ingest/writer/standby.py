"""The standby of a redundant pair drops from its spools what the database has, and keeps everything else.

What is committed is recognised by its content, because the other member received it in other batches: samples by
channel, time, value and status, values that are no numbers by the event's id, increments by the digest of their body.
What a member says about itself (its sources' states, its clock) is dropped once the holder has written all that it
received by then; the newest of each kind is kept, and becomes what the database shows after a take-over.

Content that the holder does not write, because it never received it or lost it, makes the standby ask for the lease: at
any time only one member writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from ingest.batch import CountBatch, Event, EventBatch, GapBatch, SampleBatch
from ingest.database import FAILURES, bounded, connect
from ingest.errors import SpoolError
from ingest.event_rows import event_id
from ingest.spool.format import SpooledBatch
from ingest.spool.reader import SpoolReader
from ingest.time_limits import TimeLimits
from ingest.timestamps import now_us, timestamp
from ingest.writer.gap_rows import write_gaps
from ingest.writer.lease import Lease
from schema.queries import load

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_FIRST_CHECK_US = 1_500_000  # after its arrival: the holder has usually written it by then
_LATE_US = 30_000_000  # later than the holder's oldest batch: it does not have this one
_ASK_SECONDS = 60.0  # between two take-overs that members ask for
_ERRORS = (*FAILURES, TimeoutError)
_CONTENT = ("text",)  # events that both members derive from the same data


@dataclass(slots=True, eq=False)
class _Waiting:
    """A batch that is not known to be in the database."""

    spooled: SpooledBatch
    check_at: int  # µs


@dataclass(slots=True)
class _File:
    """One spool file, and what was read of it."""

    reader: SpoolReader
    waiting: list[_Waiting] = field(default_factory=list)


class Standby:
    """Trims the spools in ``folder``. ``thread`` reads and trims the SQLite files."""

    def __init__(
        self, folder: Path, dsn: str, lease: Lease, limits: TimeLimits, max_rows: int, time_out: float, thread: Executor
    ) -> None:
        self._folder = folder
        self._dsn = dsn
        self._lease = lease
        self._member = lease.member
        self._limits = limits
        self._max_rows = max_rows
        self._time_out = time_out
        self._thread = thread
        self._files: dict[Path, _File] = {}
        self._newest: dict[tuple[object, ...], tuple[int, int]] = {}  # what a member said last: time, batch
        self._connection: asyncpg.Connection[Any] | None = None
        self.sources: set[int] = set()  # whose samples were received since the start
        self.dropped = 0  # rows that the other member wrote, and recorded gaps
        self.late = 0  # rows that it did not write in time

    async def backlog(self) -> tuple[int, int]:
        """Rows and bytes in the spools."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._measure)

    def _measure(self) -> tuple[int, int]:
        depths = [file.reader.depth() for file in self._files.values()]
        return sum(rows for _, rows, _ in depths), sum(size for *_, size in depths)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                try:
                    await self.trim()
                except _ERRORS as error:
                    log.info("standby: %s: %s", type(error).__name__, error)
                    self._disconnect()
                except SpoolError as error:
                    log.error("standby: %s", error)
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._disconnect()
            await self._in_thread(self._close)

    async def trim(self) -> None:
        """Look up what has waited long enough, and delete what the database has."""
        now = now_us()
        await self._in_thread(self._read)
        await self._record_gaps()
        due = [(file, one) for file in self._files.values() for one in file.waiting if one.check_at <= now]
        if not due:
            return
        state = self._lease.state
        # Unknown, or nobody holds it: nothing is late or settled.
        settled = now - round(state.backlog_seconds * 1e6) if state is not None and not state.expired else 0
        stored = await self._stored([one.spooled for _, one in due], settled - _FIRST_CHECK_US)
        dropped: dict[int, list[SpooledBatch]] = {}
        self.late = 0
        for (file, one), there in zip(due, stored, strict=True):
            if there:
                dropped.setdefault(id(file), []).append(one.spooled)
                continue
            age = now - one.spooled.batch.received_at
            one.check_at = now + min(max(age // 2, 500_000), 5_000_000)
            is_late = one.spooled.batch.received_at < settled - _LATE_US
            if is_late and _is_content(one.spooled) and not self._is_newest(one.spooled):
                self.late += len(one.spooled.batch)
        await self._in_thread(self._delete, dropped)
        if self.late and state is not None and state.held_seconds > _ASK_SECONDS:
            log.info("standby: the holder has not written %d rows; asking for the lease", self.late)
            await self._lease.want()

    async def _record_gaps(self) -> None:
        """This member's gaps are recorded at once: those of the pair depend on them."""
        found = [(file, one) for file in self._files.values() for one in file.waiting if _is_gaps(one)]
        if not found:
            return
        connection = await self._connected()
        gaps = [one.spooled.batch for _, one in found if isinstance(one.spooled.batch, GapBatch)]

        async def record() -> None:
            async with connection.transaction():
                await write_gaps(connection, gaps, (), self._member)

        await bounded(connection, self._time_out, record())
        recorded: dict[int, list[SpooledBatch]] = {}
        for file, one in found:
            recorded.setdefault(id(file), []).append(one.spooled)
        await self._in_thread(self._delete, recorded)

    def _read(self) -> None:
        for path in sorted(self._folder.glob("*.sqlite")):
            if path not in self._files:
                self._files[path] = _File(SpoolReader(path))
        now = now_us()
        for file in self._files.values():
            room = self._max_rows - sum(len(one.spooled.batch) for one in file.waiting)
            while room > 0 and (batches := file.reader.read(room)):
                room -= sum(len(spooled.batch) for spooled in batches)
                for spooled in batches:
                    # From its arrival on, unless the clock was set.
                    at = min(spooled.batch.received_at, now) + _FIRST_CHECK_US
                    file.waiting.append(_Waiting(spooled, at))
                    self._remember(spooled)
                    if isinstance(spooled.batch, SampleBatch):
                        self.sources.add(spooled.batch.source_id)

    def _remember(self, spooled: SpooledBatch) -> None:
        for kind, time in _said(spooled):
            if (known := self._newest.get(kind)) is None or known[0] <= time:
                self._newest[kind] = time, spooled.sequence

    def _delete(self, dropped: dict[int, list[SpooledBatch]]) -> None:
        for file in self._files.values():
            if batches := dropped.get(id(file)):
                file.reader.delete([spooled.sequence for spooled in batches])
                gone = {spooled.sequence for spooled in batches}
                file.waiting = [one for one in file.waiting if one.spooled.sequence not in gone]
                self.dropped += sum(len(spooled.batch) for spooled in batches)

    async def _stored(self, batches: Sequence[SpooledBatch], settled: int) -> list[bool]:
        """Whether the database has each batch; ``settled``: the holder has written what it received before."""
        missing = await self._missing_samples(batches)
        missing |= await self._missing_events(batches)
        missing |= await self._missing_counts(batches)
        for place, spooled in enumerate(batches):
            is_known = _is_content(spooled) and not self._is_outside(spooled)
            if self._is_newest(spooled) or (not is_known and spooled.batch.received_at >= settled):
                missing.add(place)
        return [place not in missing for place in range(len(batches))]

    def _is_newest(self, spooled: SpooledBatch) -> bool:
        """Whether a batch has the newest that this member said about something."""
        return any(self._newest.get(kind) == (time, spooled.sequence) for kind, time in _said(spooled))

    def _is_outside(self, spooled: SpooledBatch) -> bool:
        """Whether some samples have times that go to the quarantine: those cannot be looked up."""
        batch = spooled.batch
        return isinstance(batch, SampleBatch) and not self._limits.inside(batch.received_at, batch.time).all()

    async def _missing_samples(self, batches: Sequence[SpooledBatch]) -> set[int]:
        some = [(place, one.batch) for place, one in enumerate(batches) if isinstance(one.batch, SampleBatch)]
        if not some:
            return set()
        which = np.repeat([place for place, _ in some], [len(batch) for _, batch in some])
        inside = np.concatenate([self._limits.inside(batch.received_at, batch.time) for _, batch in some])
        channel, time, value, status = (
            np.concatenate([getattr(batch, name) for _, batch in some])[inside]
            for name in ("channel_id", "time", "value", "status")
        )
        if not len(time):
            return set()
        order = np.lexsort((time, channel))
        of, starts = np.unique(channel[order], return_index=True)
        ends = np.append(starts[1:], len(order)) - 1
        first, last = ([timestamp(at) for at in time[order][places].tolist()] for places in (starts, ends))
        samples = which[inside], channel, time, value, status.view(np.int32)
        spans = of.tolist(), first, last, min(first), max(last)
        rows = await self._fetch("select_missing_samples", *(column.tolist() for column in samples), *spans)
        return {row["batch"] for row in rows}

    async def _missing_events(self, batches: Sequence[SpooledBatch]) -> set[int]:
        """The batches with values that are no numbers, or alarms, that are not in the table."""
        some = [
            (place, one.batch.source_id, event)
            for place, one in enumerate(batches)
            if isinstance(one.batch, EventBatch)
            for event in one.batch.events
            if event.type in _CONTENT
        ]
        if not some:
            return set()
        times = [timestamp(event.time) for _, _, event in some]
        ids = [event_id(source, event) for _, source, event in some]
        found = {row["place"] for row in await self._fetch("select_events", times, ids, min(times), max(times))}
        return {place for i, (place, _, _) in enumerate(some) if i not in found}

    async def _missing_counts(self, batches: Sequence[SpooledBatch]) -> set[int]:
        keys = {one.key: place for place, one in enumerate(batches) if isinstance(one.batch, CountBatch)}
        if not keys:
            return set()
        query = load("write")["select_batches"]
        rows = await self._query(query, [source for source, _ in keys], [number for _, number in keys])
        found = {(row["source_id"], row["sequence"]) for row in rows}
        return {
            place for place, one in enumerate(batches) if isinstance(one.batch, CountBatch) and one.key not in found
        }

    async def _fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        return await self._query(load("lease")[query], *parameters)

    async def _query(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        connection = await self._connected()
        return await bounded(connection, self._time_out, connection.fetch(query, *parameters))

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            settings = {"statement_timeout": f"{self._time_out * 1000:.0f}"}
            self._connection = await connect(self._dsn, "plantlog standby", settings)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _in_thread(self, work: Any, *parameters: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, *parameters)

    def _close(self) -> None:
        for file in self._files.values():
            file.reader.close()


def _is_gaps(one: _Waiting) -> bool:
    return isinstance(one.spooled.batch, GapBatch)


def _is_content(spooled: SpooledBatch) -> bool:
    """Whether the other member has the same data, in batches of its own."""
    batch = spooled.batch
    if isinstance(batch, EventBatch):
        return any(event.type in _CONTENT for event in batch.events)
    return not isinstance(batch, GapBatch)


def _said(spooled: SpooledBatch) -> list[tuple[tuple[object, ...], int]]:
    """What a member says about itself in a batch of events: of what, and when (µs)."""
    batch = spooled.batch
    events: Sequence[Event] = batch.events if isinstance(batch, EventBatch) else ()
    return [
        ((batch.source_id, event.type, event.channel_id, event.detail.get("limit")), event.time)
        for event in events
        if event.type not in _CONTENT
    ]
