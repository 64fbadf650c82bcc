"""What was kept out goes through the tables once more, as the writer would write it.

A row leaves the quarantine in the transaction in which it lands; a batch that was set aside is removed from the disk
when its transactions are committed. Interrupted and run again, nothing is there twice.
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

from ingest.batch import Batch, CountBatch, EventBatch, GapBatch, SampleBatch
from ingest.config.model import WriterOptions
from ingest.config.snapshot import in_force
from ingest.errors import DatabaseError, OperationError, SpoolCorrupt
from ingest.spool import aside
from ingest.spool.format import SpooledBatch, decode
from ingest.writer.connection import connect
from ingest.writer.failures import classify
from ingest.writer.group import Group, TimeLimits, assemble
from ingest.writer.pieces import divide, whole
from ingest.writer.quarantine import came
from ingest.writer.repeating import Repeating
from ingest.writer.transaction import write
from ops.paths import State
from ops.spool.kept_out import dsn
from schema.queries import load

_ROWS = 1000  # of the quarantine, a transaction
_FIRST_ID = -1  # ids are positive
_EVER = TimeLimits(1e12, 1e12)
_NOWHERE = Path("quarantine")


@dataclass(slots=True)
class _Counts:
    landed: int = 0
    refused: int = 0
    outside: int = 0
    aside_landed: int = 0
    aside_refused: int = 0


def retry(state: State, anyway: bool) -> dict[str, int]:
    """Write everything again that was kept out. Raises OperationError, DatabaseError."""
    where = dsn(state, "owner")
    snapshot = in_force(state.root, tags_of=())
    options = WriterOptions() if snapshot is None else snapshot.plant.writer
    limits = _EVER if anyway else TimeLimits(options.future_limit, options.oldest)
    counts = _Counts()
    try:
        asyncio.run(_retry(where, options.time_out, limits, state.spool / aside.FOLDER, counts))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        words = str(error) or type(error).__name__
        raise DatabaseError(
            f"the database: {words}; {counts.landed:,} rows and {counts.aside_landed:,} batches have landed, "
            "the others are where they were"
        ) from error
    return {name: getattr(counts, name) for name in _Counts.__slots__}


async def _retry(where: str, time_out: float, limits: TimeLimits, folder: Path, counts: _Counts) -> None:
    connection = await connect(where, time_out)
    try:
        # Rows first: what is refused of a batch goes to the quarantine, and need not be tried a second time.
        behind = _FIRST_ID
        while (last := await _rows(connection, behind, limits, counts)) is not None:
            behind = last
        for path in await asyncio.to_thread(lambda: sorted(folder.glob("*.json"))):
            landed = await _batch(connection, path, limits)
            counts.aside_landed += landed
            counts.aside_refused += not landed
    finally:
        connection.terminate()


async def _rows(connection: asyncpg.Connection[Any], behind: int, limits: TimeLimits, counts: _Counts) -> int | None:
    """Try the next rows of the quarantine. Returns the last one's id; None: there are no more."""
    queries = load("quarantine")
    rows = await connection.fetch(queries["next"], behind, _ROWS)
    inside: list[tuple[int, SpooledBatch]] = []
    outside: list[int] = []
    for row in rows:
        spooled = _spooled(came(row))
        group = assemble([(_NOWHERE, [spooled])], limits)
        if group.quarantined or any(counted.quarantined for counted in group.counted):
            outside.append(row["id"])
        else:
            inside.append((row["id"], spooled))
    refused = await _land(connection, inside, counts)
    await connection.execute(queries["stays"], refused + outside)
    counts.refused += len(refused)
    counts.outside += len(outside)
    return rows[-1]["id"] if rows else None


async def _land(
    connection: asyncpg.Connection[Any], rows: Sequence[tuple[int, SpooledBatch]], counts: _Counts
) -> list[int]:
    """Write rows and take them out of the quarantine, in one transaction. The ids of those that are refused."""
    if not rows:
        return []
    queries = load("quarantine")
    try:
        async with connection.transaction():
            locked = {row["id"] for row in await connection.fetch(queries["lock"], [number for number, _ in rows])}
            ours = [spooled for number, spooled in rows if number in locked]
            if ours:
                await write(connection, assemble([(_NOWHERE, ours)], _EVER), (), Repeating())
                await connection.execute(queries["landed"], list(locked))
    except Exception as error:
        if classify(error) != "poison":
            raise
        if len(rows) == 1:
            return [rows[0][0]]
        half = len(rows) // 2
        return await _land(connection, rows[:half], counts) + await _land(connection, rows[half:], counts)
    counts.landed += len(locked)
    return []


def _spooled(batch: Batch) -> SpooledBatch:
    """A batch that is in no spool any more: its facts are in the table since it came."""
    match batch:
        case SampleBatch() | CountBatch():
            times = [int(batch.time.min()), int(batch.time.max())]
        case EventBatch():
            times = [event.time for event in batch.events]
        case GapBatch():
            times = [gap.from_time for gap in batch.gaps]
    return SpooledBatch(0, min(times), max(times), batch)


async def _batch(connection: asyncpg.Connection[Any], path: Path, limits: TimeLimits) -> bool:
    """Write a batch that was set aside, in pieces where the database refuses some of it. Whether it landed."""
    try:
        kept = await asyncio.to_thread(aside.read, path)
        record = kept.record
        spooled = SpooledBatch(kept.sequence, record.first_time, record.last_time, decode(record, kept.sequence))
    except (OperationError, SpoolCorrupt):
        return False
    group: Group = assemble([(path, [spooled])], limits)
    pieces = deque([whole(group)])
    while pieces:
        piece = pieces.popleft()
        complete = [one for _, of_file in piece.complete for one in of_file]
        try:
            await write(connection, piece.group, complete, Repeating(), careful=piece.careful)
        except Exception as error:
            if classify(error) != "poison":
                raise
            smaller = divide(piece, limits, error, poison=True)
            if smaller == [piece]:
                return False
            pieces.extendleft(reversed(smaller))
    with suppress(FileNotFoundError):
        await asyncio.to_thread(path.unlink)
    return True
