"""Gaps in the table: what a group says of them is written at once, and each minute that one begins in is dirty once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from core.batch import Gap, GapBatch
from core.config.model import WriterOptions
from core.timestamps import microseconds
from ingest.writer.writer import Writer
from tests.database import Database, add_channels, add_sources
from tests.spooling import drained, spooled

MINUTE = datetime(2026, 9, 22, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CHANNELS = 500

Dirty = set[tuple[datetime, int]]


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a", "b", "no channels", kind="modbus")
    for source in (1, 2):
        await add_channels(owner, range(3 - source, CHANNELS + 1, 2), source=source)
    await owner.execute("DELETE FROM plant.rollup_dirty")


async def dirty(owner: asyncpg.Connection) -> tuple[int, Dirty]:
    """Delete the rows. Returns their number, and (minute, channel) of each."""
    rows = await owner.fetch("DELETE FROM plant.rollup_dirty RETURNING from_time, to_time, channels, onward")
    assert all(row["onward"] and row["to_time"] - row["from_time"] == 60 * SECOND for row in rows)
    marked = [(row["from_time"], channel) for row in rows for channel in row["channels"]]
    assert len(marked) == len(set(marked))
    return len(rows), set(marked)


async def written(database: Database, folder: Path, *batches: GapBatch) -> None:
    await spooled(folder, *batches)
    await drained(Writer(folder, database.ingest_dsn, WriterOptions(connections=1)))


def gap(begin: datetime, end: datetime | None, channels: tuple[int, ...] | None, *, backfilled: bool = False) -> Gap:
    to_time = None if end is None else microseconds(end)
    return Gap(microseconds(begin), to_time, "poll_missed", channels, backfilled=backfilled)


async def test_the_gaps_of_a_group_make_each_minute_dirty_once(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    every = tuple(range(1, CHANNELS + 1))
    gaps = [gap(MINUTE + n * SECOND, MINUTE + (n + 1) * SECOND, every) for n in range(3)]
    later = [gap(MINUTE + (61 + n) * SECOND, None, (n + 1,)) for n in range(50)]
    await written(database, tmp_path, GapBatch(1, 1000, gaps), GapBatch(1, 2000, later))
    assert await owner.fetchval("SELECT count(*) FROM plant.gap") == 3 * CHANNELS + 50
    rows, marked = await dirty(owner)
    assert marked == {(MINUTE, c) for c in every} | {(MINUTE + 60 * SECOND, n + 1) for n in range(50)}
    assert rows == 2


async def test_last_statement_on_a_gap_wins(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    opened, ended = gap(MINUTE, None, (1, 2)), gap(MINUTE, MINUTE + SECOND, (1, 2))
    await written(database, tmp_path / "1", GapBatch(1, 1000, [opened, ended]))  # in one group
    await written(database, tmp_path / "2", GapBatch(2, 2000, [ended]), GapBatch(2, 1000, [opened]))  # in turned order
    await written(database, tmp_path / "3", GapBatch(1, 1500, [gap(MINUTE, MINUTE + 2 * SECOND, (1,))]))
    await written(database, tmp_path / "3", GapBatch(1, 500, [gap(MINUTE, None, (1,))]))  # late
    rows = await owner.fetch("SELECT source_id, channel_id, to_time FROM plant.gap ORDER BY 1, 2")
    assert [(row["source_id"], row["channel_id"], row["to_time"] - MINUTE) for row in rows] == [
        (1, 1, 2 * SECOND),
        (1, 2, SECOND),
        (2, 1, SECOND),
        (2, 2, SECOND),
    ]


async def test_source_gap_and_its_changes_mark_dirty_minutes(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    of_source = {(MINUTE, c) for c in range(1, CHANNELS + 1) if 1 + c % 2 == 2}
    opened = gap(MINUTE + SECOND, None, None)
    await written(database, tmp_path / "1", GapBatch(2, 1000, [opened]), GapBatch(3, 1000, [opened]))
    assert await dirty(owner) == (1, of_source)
    await written(database, tmp_path / "2", GapBatch(2, 2000, [gap(MINUTE + SECOND, MINUTE + 9 * SECOND, None)]))
    assert await dirty(owner) == (0, set())  # it begins where it began
    none = gap(MINUTE + SECOND, MINUTE + SECOND, None)
    await written(database, tmp_path / "3", GapBatch(2, 3000, [none]))
    assert await dirty(owner) == (1, of_source)
    read = gap(MINUTE + SECOND, MINUTE + 9 * SECOND, None, backfilled=True)
    await written(database, tmp_path / "4", GapBatch(2, 4000, [read]))
    assert await dirty(owner) == (0, set())
    await owner.execute("DELETE FROM plant.gap WHERE source_id = 2")
    assert await dirty(owner) == (0, set())
    await owner.execute("DELETE FROM plant.gap")
    assert await dirty(owner) == (0, set())  # of a source without channels
