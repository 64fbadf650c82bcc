"""The collectors' side of the spool: append, and know that it is on disk.

Batching is a bus: while one commit waits for the disk, batches gather; the next commit takes all of them.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingest import metrics
from ingest.appender import Notes
from ingest.batch import Batch, CountBatch, SampleBatch
from ingest.errors import SpoolCorrupt, SpoolError, SpoolFull
from ingest.spool.ballast import BYTES, Ballast
from ingest.spool.file import checkpoint, free_bytes, insert, last_sequence, note_crc32, read_notes, used_bytes
from ingest.spool.format import COLUMNAR, Record, encode
from ingest.spool.sidecar import Mark, MarkFile, read_sources, write_sources
from ingest.spool.wake import Waker
from ingest.spool.whole import WholeFile
from schema.queries import load

log = logging.getLogger(__name__)

_WAITING_BYTES = 64 * 1024**2  # gathered in memory behind one commit, at most
_LOOK_SECONDS = 0.25  # how often a full spool is looked at for room
_RESUME = 0.95  # of the limit: room again
_RESERVE = 1 / 64  # of the limit, for events and gaps: what is not taken must still be put on record


@dataclass(slots=True)
class _Waiting:
    record: Record | None  # None: notes only
    notes: Notes
    since: float  # time.monotonic()
    durable: asyncio.Future[None]

    @property
    def is_columnar(self) -> bool:
        return self.record is not None and self.record.kind in COLUMNAR


class Spool:
    """A collector process' end of a spool file, which others may have, too. Open it inside a running event loop.

    A damaged file is repaired, when it is opened as well as later; raises SpoolError where that can't be done.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.max_bytes = max_bytes
        self._queries = load("spool")
        self._file = WholeFile(path, "FULL", create=True)
        try:
            self._notes, self._used = self._file.run(lambda c: (read_notes(c), used_bytes(c)))
        except BaseException:
            self._file.close()
            raise
        self.ours: Callable[[str], bool] = lambda note: True  # whether this process changes a note, and no other
        self._file.reopened = self._reopened
        self._sources = read_sources(path)
        self._last = MarkFile(path, "last")
        self._ballast = Ballast(path)
        self._tight = not self._ballast.restore()  # what is left of the disk is for events and gaps
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._depth = (0, 0)
        self._something = asyncio.Event()
        self._committed = asyncio.Condition()
        self._thread = ThreadPoolExecutor(1, "spool")
        self._waker = Waker(path.parent)
        self._closing = False
        self._bus = asyncio.create_task(self._run(), name=f"spool {path.name}")

    @property
    def notes(self) -> Mapping[str, str]:
        """Notes that are on disk; of those that are not ours, as they were at the last :meth:`reread`."""
        return self._notes

    async def reread(self) -> None:
        """Know what others have noted. Raises SpoolError."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._reread)

    def _reread(self) -> None:
        self._notes = self._file.run(read_notes)

    @property
    def full(self) -> bool:
        """Whether samples and counts are refused: all but the reserve is in use, or the disk is full."""
        return self._tight or self.bytes >= self.max_bytes * (1 - _RESERVE)

    @property
    def bytes(self) -> int:
        """Bytes in use, those in the file and those that wait for the disk."""
        return self._used + self._waiting_bytes

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """Return once ``batch`` is on disk. Raises SpoolFull at the limit, SpoolError where the disk refuses."""
        if self._no_room(batch):
            await self._look()
            if self._no_room(batch):
                metrics.spool_full.inc()
                if self._tight:
                    raise SpoolFull(f"no disk space left for {self.path.name}")
                raise SpoolFull(f"{self.path.name} holds {self.bytes} bytes, the limit is {self.max_bytes}")
        await self._durable(encode(batch), notes or {})

    def _no_room(self, batch: Batch) -> bool:
        return (isinstance(batch, SampleBatch | CountBatch) and self.full) or self.bytes >= self.max_bytes

    async def note(self, notes: Notes) -> None:
        """Return once ``notes`` are on disk. Raises SpoolError where the disk refuses."""
        await self._durable(None, notes)

    async def _durable(self, record: Record | None, notes: Notes) -> None:
        if self._waiting_bytes >= _WAITING_BYTES:
            async with self._committed:
                await self._committed.wait_for(lambda: self._waiting_bytes < _WAITING_BYTES or self._closing)
        if self._closing:
            raise SpoolError(f"{self.path.name} is closed")
        waiting = _Waiting(record, notes, time.monotonic(), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if record is not None:
            self._waiting_bytes += len(record.body)
            metrics.spool_waiting_rows.inc(record.rows)
        self._something.set()
        await asyncio.shield(waiting.durable)

    async def wait_for_room(self) -> None:
        """Return when the spool can take batches again."""
        while (self._tight or self._used >= self.max_bytes * (1 - _RESERVE) * _RESUME) and not self._closing:
            await self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._used, self._tight = await loop.run_in_executor(self._thread, self._measure)

    def _measure(self) -> tuple[int, bool]:
        try:
            used, free = self._file.run(lambda connection: (used_bytes(connection), free_bytes(connection)))
            # On a disk that stays full what the writer deletes is room, too.
            return used, not self._ballast.restore() and free < BYTES
        except SpoolError as error:
            log.warning("%s", error)
            return self._used, self._tight

    async def depth(self) -> tuple[int, int]:
        """Batches and rows that are not yet in the database; as of the last time where the disk can't tell."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._count)

    def _count(self) -> tuple[int, int]:
        query = self._queries["depth"]
        try:
            self._depth = self._file.run(lambda connection: connection.execute(query).fetchone())
        except SpoolError as error:
            log.warning("%s", error)
        return self._depth

    async def close(self) -> None:
        """Make durable what waits, then close."""
        self._closing = True
        self._something.set()
        await self._bus
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()
        self._last.close()
        self._waker.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting or not self._closing:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                taken, self._waiting = self._waiting, []
                refused, error = await loop.run_in_executor(self._thread, self._store, taken)
                self._finish([w for w in taken if w not in refused], None)
                if refused:
                    self._finish(refused, error)
                if len(refused) < len(taken):
                    self._waker.wake()
                async with self._committed:
                    self._committed.notify_all()

    def _store(self, taken: Sequence[_Waiting]) -> tuple[Sequence[_Waiting], SpoolError | None]:
        """Make durable what the disk takes. Returns what it refuses, and why."""
        try:
            self._commit(taken)
        except SpoolFull as full:
            return self._store_tight(taken, full)
        except SpoolError as error:
            return taken, error
        return (), None

    def _store_tight(self, taken: Sequence[_Waiting], full: SpoolFull) -> tuple[Sequence[_Waiting], SpoolError]:
        """On a full disk: what is left, and the ballast, are for what is said of samples that have no place."""
        self._tight = True
        said, columnar = [w for w in taken if not w.is_columnar], [w for w in taken if w.is_columnar]
        if said:
            try:
                self._ballast.free()
                self._file.run(checkpoint)
                self._commit(said)
            except SpoolError as error:
                return taken, error
        return columnar, full

    def _commit(self, taken: Sequence[_Waiting]) -> None:
        records = [w.record for w in taken if w.record is not None]
        self._used = self._file.run(lambda connection: self._transaction(connection, records, taken), locked=True)

    def _transaction(self, connection: sqlite3.Connection, records: Sequence[Record], taken: Sequence[_Waiting]) -> int:
        unknown = {r.source_id: r.received_at for r in records if r.source_id not in self._sources}
        if unknown:
            sources = {**unknown, **self._sources, **read_sources(self.path)}
            write_sources(self.path, sources)
            self._sources = sources
        connection.execute("BEGIN IMMEDIATE")
        try:
            sequence = last_sequence(connection)
            for record in records:
                sequence += 1
                if not insert(connection, sequence, record):
                    raise SpoolCorrupt(f"{self.path.name}: sequence {sequence} was given before")
            noted = _together(taken)
            for name, value in noted.items():
                if value is None:
                    if name in self._notes:
                        connection.execute(self._queries["unnote"], (name,))
                else:
                    connection.execute(self._queries["note"], (name, value, note_crc32(name, value)))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if self._tight:
            # The file grows now, from what is left of the ballast: deletes then need no space but the log's own.
            with suppress(sqlite3.Error):
                checkpoint(connection)
        if records:
            self._last.write(Mark(sequence, records[-1].received_at))
        self._notes = {name: value for name, value in {**self._notes, **noted}.items() if value is not None}
        return used_bytes(connection)

    def _reopened(self, connection: sqlite3.Connection) -> None:
        """Another file stands there: a repair took what it could, and what we know better replaces it."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            gone = [(name,) for name in read_notes(connection) if self.ours(name)]
            connection.executemany(self._queries["unnote"], gone)
            ours = {name: value for name, value in self._notes.items() if self.ours(name)}
            kept = [(name, value, note_crc32(name, value)) for name, value in ours.items()]
            connection.executemany(self._queries["note"], kept)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _finish(self, taken: Sequence[_Waiting], error: SpoolError | None) -> None:
        now = time.monotonic()
        records = [w.record for w in taken if w.record is not None]
        rows = sum(r.rows for r in records)
        self._waiting_bytes -= sum(len(r.body) for r in records)
        metrics.spool_waiting_rows.dec(rows)
        if error is None:
            metrics.spool_append_rows.observe(rows)
        for waiting in taken:
            metrics.spool_append_seconds.observe(now - waiting.since)
            if waiting.durable.cancelled():
                continue
            if error is None:
                waiting.durable.set_result(None)
            else:
                waiting.durable.set_exception(error)
                waiting.durable.exception()  # mark as seen: a cancelled collector no longer asks


def _together(taken: Sequence[_Waiting]) -> dict[str, str | None]:
    """The notes of several appends, the later one's where two have one name."""
    return {name: value for waiting in taken for name, value in waiting.notes.items()}
