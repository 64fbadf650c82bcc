"""The benchmark of the journal: the writer that has one keeps what the other does not, and both write everything."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from ingest.journal.replay import keys
from lab.bench.copy_speed import BenchDatabase
from lab.bench.journal import measure
from tests.database import Database


async def test_only_a_journal_costs_bytes(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    bench = BenchDatabase(database.owner_dsn, database.ingest_dsn, (), {}, tmp_path)
    lines: list[str] = []
    without, journal = await measure(bench, 400, 3.0, 1, lines.append)
    assert (without.journal, without.journal_bytes) == (False, 0.0)
    assert journal.journal
    assert 1 < journal.journal_bytes < 24, "less than a sample has"
    assert min(without.cpu_us, journal.cpu_us, without.rss_mib, journal.rss_mib) > 0
    written = await owner.fetchval("SELECT count(*) FROM plant.ingest_batch")
    assert 0 < len(list(keys(tmp_path))) < written
    assert len(lines) == 2
