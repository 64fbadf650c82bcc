"""The collectors' side of the spool: append a batch and wait until it is on disk.

Group commit: while one commit waits for the disk, batches queue up; the next commit stores all of them.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import is_not
from pathlib import Path
from typing import Any

from core import metrics
from core.batch import Batch, CountBatch, Event, EventBatch, SampleBatch
from core.errors import SpoolCorrupt, SpoolError, SpoolFull
from core.time_limits import NO_LIMITS, TimeLimits
from ingest.appender import Notes
from ingest.spool.ballast import BYTES, Ballast
from ingest.spool.connection import SpoolConnection
from ingest.spool.file import (
    checkpoint,
    free_bytes,
    insert,
    last_sequence,
    read_notes,
    transaction,
    used_bytes,
    write_notes,
)
from ingest.spool.format import COLUMNAR, Record, encode
from ingest.spool.metadata import Mark, MarkFile, Waker, read_sources, write_sources
from schema.queries import load

log = logging.getLogger(__name__)

_MAX_PENDING_BYTES = 64 * 1024**2  # limit of the queue in memory
_CHECK_SECONDS = 0.25  # between two checks of a full spool
_RESUME = 0.95  # fraction of the limit below which a full spool accepts samples again
MAX_TEXT = 64 * 1024  # bytes of UTF-8: each text is stored, sealed, sent to browsers and printed as a whole
_RESERVE = 1 / 64  # of the limit, for events and gaps: what is rejected must still be recorded


@dataclass(slots=True)
class _PendingAppend:
    records: Sequence[Record]  # none: notes only
    notes: Notes
    since: float  # time.monotonic()
    durable: asyncio.Future[None]

    @property
    def is_columnar(self) -> bool:
        return any(record.kind in COLUMNAR for record in self.records)


class Spool:
    """A collector process's end of a spool file, which may have others. Open it inside a running event loop.

    A damaged file is repaired, on opening as well as later; raises SpoolError if that fails.
    """

    def __init__(self, path: Path, max_bytes: int, limits: TimeLimits = NO_LIMITS, max_text: int = MAX_TEXT) -> None:
        """``max_text``: bytes of a text, beyond which it is cut."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.max_bytes = max_bytes
        self.limits = limits
        self._max_text = max_text
        self._queries = load("spool")
        self._ballast = Ballast(path)
        self._disk_full = not self._ballast.restore()  # remaining disk space is reserved for events and gaps
        self._file = SpoolConnection(path, "FULL", create=True)
        try:
            self._notes, self._used = self._file.run(lambda c: (read_notes(c), used_bytes(c)))
        except BaseException:
            self._file.close()
            raise
        self.owns_note: Callable[[str], bool] = lambda note: True  # whether only this process changes a note
        self._file.reopened = self._reopened
        self._sources = read_sources(path)
        self._last_mark = MarkFile(path, "last")
        self._pending: list[_PendingAppend] = []
        self._pending_bytes = 0
        self._depth = (0, 0)
        self._wake_up = asyncio.Event()
        self._committed = asyncio.Condition()
        self._thread = ThreadPoolExecutor(1, "spool")
        self._waker = Waker(path.parent)
        self._closing = False
        self._committing = asyncio.create_task(self._run(), name=f"spool {path.name}")

    @property
    def notes(self) -> Mapping[str, str]:
        """Notes on disk; those of other processes as of the last :meth:`reload_notes`."""
        return self._notes

    async def reload_notes(self) -> None:
        """Read the notes of other processes. Raises SpoolError."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._reload_notes)

    def _reload_notes(self) -> None:
        self._notes = self._file.run(read_notes)

    @property
    def full(self) -> bool:
        """Return whether samples and counts are rejected: all but the reserve is in use, or the disk is full."""
        return self._disk_full or self.bytes >= self.max_bytes * (1 - _RESERVE)

    @property
    def bytes(self) -> int:
        """Bytes in use: in the file and queued."""
        return self._used + self._pending_bytes

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        """Return once ``batch`` is on disk. Raises SpoolFull at the limit, SpoolError on disk errors."""
        if self._no_room(batch):
            await self._check_room()
            if self._no_room(batch):
                metrics.spool_full.inc()
                if self._disk_full:
                    raise SpoolFull(f"no disk space left for {self.path.name}")
                raise SpoolFull(
                    f"{self.path.name} is full: it has {self.bytes:,} bytes, max_bytes is {self.max_bytes:,}"
                )
        batches = [
            limited(content, self._max_text) if isinstance(content, EventBatch) else content
            for content in (*beside, batch)
        ]
        await self._enqueue([encode(content) for content in batches], notes or {})

    def _no_room(self, batch: Batch) -> bool:
        return (isinstance(batch, SampleBatch | CountBatch) and self.full) or self.bytes >= self.max_bytes

    async def note(self, notes: Notes) -> None:
        """Return once ``notes`` are on disk. Raises SpoolError on disk errors."""
        await self._enqueue((), notes)

    async def _enqueue(self, records: Sequence[Record], notes: Notes) -> None:
        if self._pending_bytes >= _MAX_PENDING_BYTES:
            async with self._committed:
                await self._committed.wait_for(lambda: self._pending_bytes < _MAX_PENDING_BYTES or self._closing)
        if self._closing:
            raise SpoolError(f"{self.path.name} is closed")
        pending = _PendingAppend(records, notes, time.monotonic(), asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        for record in records:
            self._pending_bytes += len(record.body)
            metrics.spool_waiting_rows.inc(record.rows)
        self._wake_up.set()
        await asyncio.shield(pending.durable)

    async def wait_for_room(self) -> None:
        """Return once the spool accepts batches again."""
        while (self._disk_full or self._used >= self.max_bytes * (1 - _RESERVE) * _RESUME) and not self._closing:
            await self._check_room()
            await asyncio.sleep(_CHECK_SECONDS)

    async def _check_room(self) -> None:
        loop = asyncio.get_running_loop()
        self._used, self._disk_full = await loop.run_in_executor(self._thread, self._measure)

    def _measure(self) -> tuple[int, bool]:
        try:
            used, free = self._file.run(lambda connection: (used_bytes(connection), free_bytes(connection)))
            # On a disk that stays full, space freed by the writer counts as well.
            room = self._ballast.restore() and self._ballast.disk_free() >= BYTES
            return used, not room and free < BYTES
        except SpoolError as error:
            log.warning("%s", error)
            return self._used, self._disk_full

    async def depth(self) -> tuple[int, int]:
        """Batches and rows not yet in the database; on disk errors, the last known numbers."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._count)

    def _count(self) -> tuple[int, int]:
        query = self._queries["count_batches"]
        try:
            self._depth = self._file.run(lambda connection: connection.execute(query).fetchone())
        except SpoolError as error:
            log.warning("%s", error)
        return self._depth

    async def close(self) -> None:
        """Store what is queued, then close."""
        self._closing = True
        self._wake_up.set()
        await self._committing
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()
        self._last_mark.close()
        self._waker.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending or not self._closing:
            await self._wake_up.wait()
            self._wake_up.clear()
            while self._pending:
                appends, self._pending = self._pending, []
                refused, error = await loop.run_in_executor(self._thread, self._store, appends)
                self._finish([w for w in appends if w not in refused], None)
                if refused:
                    self._finish(refused, error)
                if len(refused) < len(appends):
                    self._waker.wake()
                async with self._committed:
                    self._committed.notify_all()

    def _store(self, appends: Sequence[_PendingAppend]) -> tuple[Sequence[_PendingAppend], SpoolError | None]:
        """Store as much as the disk accepts. Returns what was rejected, and the error."""
        try:
            self._commit(appends)
        except SpoolFull as full:
            return self._store_on_full_disk(appends, full)
        except SpoolError as error:
            return appends, error
        return (), None

    def _store_on_full_disk(
        self, appends: Sequence[_PendingAppend], full: SpoolFull
    ) -> tuple[Sequence[_PendingAppend], SpoolError]:
        """Use the remaining space of a full disk, and the ballast, for events and gaps only."""
        self._disk_full = True
        others, columnar = [w for w in appends if not w.is_columnar], [w for w in appends if w.is_columnar]
        if others:
            try:
                self._ballast.free()
                self._file.run(checkpoint)
                self._commit(others)
            except SpoolError as error:
                return appends, error
        return columnar, full

    def _commit(self, appends: Sequence[_PendingAppend]) -> None:
        records = [record for pending in appends for record in pending.records]
        self._used = self._file.run(lambda connection: self._transaction(connection, records, appends), locked=True)

    def _transaction(
        self, connection: sqlite3.Connection, records: Sequence[Record], appends: Sequence[_PendingAppend]
    ) -> int:
        unknown = {r.source_id: r.received_at for r in records if r.source_id not in self._sources}
        if unknown:
            sources = {**unknown, **self._sources, **read_sources(self.path)}
            write_sources(self.path, sources)
            self._sources = sources
        with transaction(connection):
            sequence = last_sequence(connection)
            for record in records:
                sequence += 1
                if not insert(connection, sequence, record):
                    raise SpoolCorrupt(f"{self.path.name}: sequence {sequence} is already in use")
            noted = {name: value for pending in appends for name, value in pending.notes.items()}  # the last ones
            deleted = [(name,) for name, value in noted.items() if value is None and name in self._notes]
            connection.executemany(self._queries["delete_note"], deleted)
            write_notes(connection, {name: value for name, value in noted.items() if value is not None})
        if self._disk_full:
            # Grow the file now, into the freed ballast: later deletes then need space in the WAL only.
            with suppress(sqlite3.Error):
                checkpoint(connection)
        if records:
            self._last_mark.write(Mark(sequence, records[-1].received_at))
        self._notes = {name: value for name, value in {**self._notes, **noted}.items() if value is not None}
        return used_bytes(connection)

    def _reopened(self, connection: sqlite3.Connection) -> None:
        """A repair replaced the file: write this process's notes again, which are newer than the salvaged ones."""
        with transaction(connection):
            names = [(name,) for name in read_notes(connection) if self.owns_note(name)]
            connection.executemany(self._queries["delete_note"], names)
            write_notes(connection, {name: value for name, value in self._notes.items() if self.owns_note(name)})

    def _finish(self, appends: Sequence[_PendingAppend], error: SpoolError | None) -> None:
        now = time.monotonic()
        records = [record for pending in appends for record in pending.records]
        rows = sum(r.rows for r in records)
        self._pending_bytes -= sum(len(r.body) for r in records)
        metrics.spool_waiting_rows.dec(rows)
        if error is None:
            metrics.spool_append_rows.observe(rows)
        for pending in appends:
            metrics.spool_append_seconds.observe(now - pending.since)
            if pending.durable.cancelled():
                continue
            if error is None:
                pending.durable.set_result(None)
            else:
                pending.durable.set_exception(error)
                pending.durable.exception()  # mark as retrieved: a cancelled collector no longer awaits it


def limited(batch: EventBatch, most: int) -> EventBatch:
    """The batch with its texts cut to ``most`` bytes, which include the mark that says so."""
    events = [event if _is_short(event, most) else _limited(event, most) for event in batch.events]
    changed = any(map(is_not, events, batch.events))
    return replace(batch, events=events) if changed else batch


def _is_short(event: Event, most: int) -> bool:
    """Return whether it fits at first sight, as a value of a text channel usually does."""
    return not event.detail and (event.text is None or len(event.text) * 4 <= most)


def _limited(event: Event, most: int) -> Event:
    text = event.text if event.text is None else _cut(event.text, most)
    detail = _cut_within(event.detail, most)
    return event if text is event.text and detail is event.detail else replace(event, text=text, detail=detail)


def _cut_within(value: Any, most: int) -> Any:
    """A value of a detail: the same object if nothing in it is cut."""
    match value:
        case str():
            return _cut(value, most)
        case list() | tuple():
            items = [_cut_within(item, most) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        case Mapping():
            fields = {name: _cut_within(item, most) for name, item in value.items()}
            return fields if any(fields[name] is not old for name, old in value.items()) else value
    return value


def _cut(text: str, most: int) -> str:
    if len(text) * 4 <= most:
        return text
    content = text.encode(errors="replace")
    if len(content) <= most:
        return text
    mark = f"… (cut: {len(content):,} bytes)"
    return content[: most - len(mark.encode())].decode(errors="ignore") + mark
