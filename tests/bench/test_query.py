"""The query benchmark: every cell is asked of data that are there, in both forms, while others come in."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np

from lab.bench.copy_speed import BenchDatabase
from lab.bench.plot import plot_queries
from lab.bench.query import KINDS, measure
from lab.bench.workload import Workload, live
from tests.database import Database
from tests.waiting import PATIENCE, until


async def test_query_benchmark_fills_every_cell(database: Database, tmp_path: Path) -> None:
    lines: list[str] = []
    where = BenchDatabase(database.owner_dsn, database.ingest_dsn, (), {}, tmp_path)
    cells, rate = await measure(where, channels=2, days=2, queries=3, progress=lines.append)
    closed = cells[-1].form
    assert closed in ("packed", "columnstore")
    assert {(c.form, c.kind, c.length) for c in cells} == {
        (form, kind, length) for form in ("rows", closed) for kind in KINDS for length in ("1 hour", "1 day")
    }
    rows = {(c.form, c.kind, c.length): c.rows for c in cells}
    for form in ("rows", closed):
        assert rows[form, "raw", "1 hour"] in range(3599, 3602)
        assert rows[form, "raw", "1 day"] == 86_400
        assert rows[form, "minute", "1 day"] in (1440, 1441)
        assert 100 < rows[form, "chart", "1 day"] <= 1001
    assert rate > 0
    assert all(0 < cell.p50 <= cell.p95 for cell in cells)
    plot_queries(cells, tmp_path / "query.svg")
    drawn = (tmp_path / "query.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("rows", closed, "1 day"))


async def test_late_live_data_end_with_sigterm(database: Database, tmp_path: Path) -> None:
    load = Workload(1, np.arange(1, 3, dtype=np.int32), 86_400)
    async with asyncio.timeout(PATIENCE):
        running = asyncio.create_task(live(database.ingest_dsn, tmp_path, load, 0, pace=0.0))
        await until((tmp_path / "live.sqlite").exists)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running > 0
