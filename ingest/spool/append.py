"""The collectors' side of the spool: append, and know that it is on disk.

Batching is a bus: while one commit waits for the disk, batches gather; the next commit takes all of them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest import metrics
from ingest.appender import Notes
from ingest.batch import Batch, SampleBatch
from ingest.errors import SpoolError, SpoolFull
from ingest.spool.format import Record, encode
from ingest.spool.wake import Waker
from schema.queries import load

_BUSY_SECONDS = 10.0  # the writer's deletes hold the file for milliseconds
_WAITING_BYTES = 64 * 1024**2  # gathered in memory behind one commit, at most
_LOOK_SECONDS = 0.25  # how often a full spool is looked at for room
_RESUME = 0.95  # of the limit: room again
_RESERVE = 1 / 64  # of the limit, for events and gaps: what is not taken must still be put on record


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open (and make, where it is missing) a spool file."""
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA page_size = 16384")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.executescript("BEGIN IMMEDIATE;" + load("spool")["create"] + "COMMIT;")
    return connection


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages in use; pages that deletes have freed are room."""
    pages, free, size = (connection.execute(f"PRAGMA {p}").fetchone()[0] for p in _PAGE_PRAGMAS)
    return int((pages - free) * size)


_PAGE_PRAGMAS = ("page_count", "freelist_count", "page_size")


@dataclass(slots=True)
class _Waiting:
    record: Record | None  # None: notes only
    notes: Notes
    since: float  # time.monotonic()
    durable: asyncio.Future[None]


class Spool:
    """One collector process' spool file. Open it inside a running event loop."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.max_bytes = max_bytes
        self._connection = connect(path, "FULL")
        self._queries = load("spool")
        self._notes: dict[str, str] = dict(self._connection.execute(self._queries["notes"]).fetchall())
        self._used = used_bytes(self._connection)
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._something = asyncio.Event()
        self._committed = asyncio.Condition()
        self._thread = ThreadPoolExecutor(1, "spool")
        self._waker = Waker(path.parent)
        self._closing = False
        self._bus = asyncio.create_task(self._run(), name=f"spool {path.name}")

    @property
    def notes(self) -> Mapping[str, str]:
        """Notes that are on disk."""
        return self._notes

    @property
    def full(self) -> bool:
        """Whether samples are refused: all but the reserve is in use."""
        return self.bytes >= self.max_bytes * (1 - _RESERVE)

    @property
    def bytes(self) -> int:
        """Bytes in use, those in the file and those that wait for the disk."""
        return self._used + self._waiting_bytes

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """Return once ``batch`` is on disk. Raises SpoolFull at the limit, SpoolError where the disk refuses."""
        if (isinstance(batch, SampleBatch) and self.full) or self.bytes >= self.max_bytes:
            await self._look()
            if (isinstance(batch, SampleBatch) and self.full) or self.bytes >= self.max_bytes:
                metrics.spool_full.inc()
                raise SpoolFull(f"{self.path.name} holds {self.bytes} bytes, the limit is {self.max_bytes}")
        await self._durable(encode(batch), notes or {})

    async def note(self, notes: Notes) -> None:
        """Return once ``notes`` are on disk. Raises SpoolError where the disk refuses."""
        await self._durable(None, notes)

    async def _durable(self, record: Record | None, notes: Notes) -> None:
        if self._closing:
            raise SpoolError(f"{self.path.name} is closed")
        if self._waiting_bytes >= _WAITING_BYTES:
            async with self._committed:
                await self._committed.wait_for(lambda: self._waiting_bytes < _WAITING_BYTES or self._closing)
        waiting = _Waiting(record, notes, time.monotonic(), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if record is not None:
            self._waiting_bytes += len(record.body)
            metrics.spool_waiting_rows.inc(record.rows)
        self._something.set()
        await asyncio.shield(waiting.durable)

    async def wait_for_room(self) -> None:
        """Return when the spool can take batches again."""
        while self._used >= self.max_bytes * (1 - _RESERVE) * _RESUME and not self._closing:
            await self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._used = await loop.run_in_executor(self._thread, used_bytes, self._connection)

    async def depth(self) -> tuple[int, int]:
        """Batches and rows that are not yet in the database."""
        loop = asyncio.get_running_loop()
        query = load("spool")["depth"]
        return await loop.run_in_executor(self._thread, lambda: self._connection.execute(query).fetchone())

    async def close(self) -> None:
        """Make durable what waits, then close."""
        self._closing = True
        self._something.set()
        await self._bus
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()
        self._waker.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting or not self._closing:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                taken, self._waiting = self._waiting, []
                try:
                    self._used = await loop.run_in_executor(self._thread, self._commit, taken)
                except sqlite3.Error as error:
                    self._finish(taken, _refused(self.path, error))
                else:
                    self._finish(taken, None)
                    self._waker.wake()
                async with self._committed:
                    self._committed.notify_all()

    def _commit(self, taken: Sequence[_Waiting]) -> int:
        rows: list[tuple[Any, ...]] = [
            (r.source_id, r.kind, r.rows, r.received_at, r.first_time, r.last_time, r.crc32, r.body)
            for w in taken
            if (r := w.record) is not None
        ]
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(self._queries["append"], rows)
            for name, value in _together(taken).items():
                if value is None:
                    self._connection.execute(self._queries["unnote"], (name,))
                else:
                    self._connection.execute(self._queries["note"], (name, value))
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return used_bytes(self._connection)

    def _finish(self, taken: Sequence[_Waiting], error: SpoolError | None) -> None:
        now = time.monotonic()
        records = [w.record for w in taken if w.record is not None]
        rows = sum(r.rows for r in records)
        self._waiting_bytes -= sum(len(r.body) for r in records)
        metrics.spool_waiting_rows.dec(rows)
        metrics.spool_append_rows.observe(rows)
        if error is None:
            for name, value in _together(taken).items():
                if value is None:
                    self._notes.pop(name, None)
                else:
                    self._notes[name] = value
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


def _refused(path: Path, error: sqlite3.Error) -> SpoolError:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        return SpoolFull(f"no disk space left for {path.name}")
    return SpoolError(f"{path.name}: {error}")
