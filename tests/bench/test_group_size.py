"""The benchmark of groups: what was asked for is written, and its figures are those of the ingest connection."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from lab.bench.copy_speed import BenchDatabase
from lab.bench.group_size import compare
from tests.database import Database


async def test_larger_groups_write_less_wal_per_row(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    bench = BenchDatabase(database.owner_dsn, database.ingest_dsn, (), {}, tmp_path)
    lines: list[str] = []
    costs = await compare([("", bench)], [4000, 500], 2000, 5, 2, lines.append)
    assert [(cost.group, cost.after_checkpoint) for cost in costs] == [(500, False), (4000, False), (4000, True)]
    small, large, after = costs
    assert all(cost.cpu_us > 0.2 for cost in costs)
    assert small.wal_bytes > large.wal_bytes > 24, "a row and its entry of the key, and what a group has of its own"
    assert after.full_pages > large.full_pages
    seconds = 5 + 2 + 2 * 3 * 2  # filled, not counted, two rounds of three cells
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 2000 * seconds
    assert len(lines) == 4
