"""Retry rows in quarantine and dead-letter batches, as the writer would write them.

A row leaves the quarantine in the transaction that writes it; a dead-letter batch is deleted from the disk
when its transactions are committed. Nothing is written twice, even if the command is interrupted and run again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from core.batch import Batch, CountBatch, EventBatch, GapBatch, SampleBatch
from core.config.model import WriterOptions
from core.config.snapshot import in_force
from core.database import FAILURES, connect_writer
from core.errors import DatabaseError, OperationError, SpoolCorrupt
from core.paths import State
from core.time_limits import NO_LIMITS, TimeLimits
from core.timestamps import DAY_US
from ingest.spool import dead_letter
from ingest.spool.format import SpooledBatch, decode
from ingest.writer.bisect import MOST_DAYS, bisect, undivided
from ingest.writer.transaction.failures import classify
from ingest.writer.transaction.group import Group, assemble
from ingest.writer.transaction.quarantine import to_batch
from ingest.writer.transaction.write import RepeatingChannels, write
from schema.queries import load

_ROWS_PER_TRANSACTION = 1000  # of the quarantine, a transaction
_FIRST_ID = -1  # ids are positive
_NO_FILE = Path("quarantine")


@dataclass(slots=True)
class _Counts:
    written: int = 0
    refused: int = 0
    outside_limits: int = 0
    batches_written: int = 0
    batches_refused: int = 0


def retry(state: State, anyway: bool) -> dict[str, int]:
    """Retry everything. Raises OperationError, DatabaseError."""
    dsn = state.dsn("owner")
    snapshot = in_force(state.root, tags_of=())
    options = WriterOptions() if snapshot is None else snapshot.plant.writer
    limits = NO_LIMITS if anyway else TimeLimits(options.future_limit, options.oldest)
    counts = _Counts()
    try:
        asyncio.run(_retry(dsn, options.time_out, limits, state.spool / dead_letter.FOLDER, counts))
    except FAILURES as error:
        message = str(error) or type(error).__name__
        raise DatabaseError(
            f"database error: {message}; {counts.written:,} rows and {counts.batches_written:,} batches were written, "
            "the rest is unchanged"
        ) from error
    return {name: getattr(counts, name) for name in _Counts.__slots__}


async def _retry(dsn: str, time_out: float, limits: TimeLimits, folder: Path, counts: _Counts) -> None:
    connection = await connect_writer(dsn, time_out, "plantlog spool retry")
    try:
        # Rows first: rows of a batch that are rejected go to the quarantine and need no second try.
        after_id = _FIRST_ID
        while (last := await _rows(connection, after_id, limits, counts)) is not None:
            after_id = last
        for path in await asyncio.to_thread(lambda: sorted(folder.glob("*.json"))):
            written = await _batch(connection, path, limits)
            counts.batches_written += written
            counts.batches_refused += not written
    finally:
        connection.terminate()


async def _rows(connection: asyncpg.Connection[Any], after_id: int, limits: TimeLimits, counts: _Counts) -> int | None:
    """Try the next rows of the quarantine. Returns the last one's id; None: there are no more."""
    queries = load("quarantine")
    rows = await connection.fetch(queries["select_next"], after_id, _ROWS_PER_TRANSACTION)
    within_limits: list[tuple[int, SpooledBatch]] = []
    outside_limits: list[int] = []
    for row in rows:
        spooled = _as_spooled(to_batch(row))
        group = assemble([(_NO_FILE, [spooled])], limits)
        if group.quarantined or any(counted.quarantined for counted in group.counted):
            outside_limits.append(row["id"])
        else:
            within_limits.append((row["id"], spooled))
    refused = await _write_rows(connection, within_limits, counts)
    await connection.execute(queries["mark_retried"], refused + outside_limits)
    counts.refused += len(refused)
    counts.outside_limits += len(outside_limits)
    return rows[-1]["id"] if rows else None


async def _write_rows(
    connection: asyncpg.Connection[Any], rows: Sequence[tuple[int, SpooledBatch]], counts: _Counts
) -> list[int]:
    """Write rows and delete them from the quarantine, in one transaction. Returns the ids of rejected rows."""
    if not rows:
        return []
    if len({spooled.first_time // DAY_US for _, spooled in rows}) > MOST_DAYS:
        rows = sorted(rows, key=lambda row: row[1].first_time)
        return await _write_halves(connection, rows, counts)
    queries = load("quarantine")
    try:
        async with connection.transaction():
            locked = {row["id"] for row in await connection.fetch(queries["lock_rows"], [number for number, _ in rows])}
            to_write = [spooled for number, spooled in rows if number in locked]
            if to_write:
                await write(connection, assemble([(_NO_FILE, to_write)], NO_LIMITS), (), RepeatingChannels())
                await connection.execute(queries["delete_rows"], list(locked))
    except Exception as error:
        if classify(error) != "poison":
            raise
        if len(rows) == 1:
            return [rows[0][0]]
        return await _write_halves(connection, rows, counts)
    counts.written += len(locked)
    return []


async def _write_halves(
    connection: asyncpg.Connection[Any], rows: Sequence[tuple[int, SpooledBatch]], counts: _Counts
) -> list[int]:
    half = len(rows) // 2
    return await _write_rows(connection, rows[:half], counts) + await _write_rows(connection, rows[half:], counts)


def _as_spooled(batch: Batch) -> SpooledBatch:
    """A batch that is no longer in a spool: its metadata are in the table already."""
    match batch:
        case SampleBatch() | CountBatch():
            time = batch.samples.time if isinstance(batch, SampleBatch) else batch.time
            times = [int(time.min()), int(time.max())]
        case EventBatch():
            times = [event.time for event in batch.events]
        case GapBatch():
            times = [gap.from_time for gap in batch.gaps]
    return SpooledBatch(0, min(times), max(times), batch)


async def _batch(connection: asyncpg.Connection[Any], path: Path, limits: TimeLimits) -> bool:
    """Write a dead-letter batch, in pieces where the database rejects some of it. Whether it was written."""
    try:
        letter = await asyncio.to_thread(dead_letter.read, path)
        record = letter.record
        spooled = SpooledBatch(letter.sequence, record.first_time, record.last_time, decode(record, letter.sequence))
    except (OperationError, SpoolCorrupt):
        return False
    group: Group = assemble([(path, [spooled])], limits)
    pieces = deque([undivided(group)])
    while pieces:
        piece = pieces.popleft()
        complete = [spooled for _, of_file in piece.complete for spooled in of_file]
        try:
            await write(connection, piece.group, complete, RepeatingChannels(), isolate_bad_rows=piece.isolate_bad_rows)
        except Exception as error:
            if classify(error) != "poison":
                raise
            smaller = bisect(piece, limits, error, poison=True)
            if smaller == [piece]:
                return False
            pieces.extendleft(reversed(smaller))
    with suppress(FileNotFoundError):
        await asyncio.to_thread(path.unlink)
    return True
