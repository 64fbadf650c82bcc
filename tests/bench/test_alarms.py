"""The benchmark of alarms: all is ingested, and as many alarms change as the series makes change."""

from __future__ import annotations

from pathlib import Path

from lab.bench.alarm_overhead import measure
from lab.bench.copy_speed import BenchDatabase, prepare
from tests.database import Database


async def test_alarm_benchmark_measures_every_arrival(database: Database, tmp_path: Path) -> None:
    bench = BenchDatabase(database.owner_dsn, database.ingest_dsn, (), {}, tmp_path)
    load = await prepare(bench, 500, 20)
    lines: list[str] = []
    shares = await measure(bench, load, [100, 500], 1, lines.append)
    assert [share.batch for share in shares] == [100, 500]
    for share in shares:
        assert share.changes["quiet"] == 0
        assert share.changes["1 in 1,000"] > 2
    assert len(lines) == 2
