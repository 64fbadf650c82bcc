"""The storage benchmark: each cell is filled, and is as small as documented."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from lab.bench.plot import plot_storage
from lab.bench.storage import SERIES, forms, measure
from tests.database import Database

_MOST = {"noisy": 8.6, "transmitter": 1.8, "jittered": 3.0, "slow": 0.2}  # bytes a sample


async def test_storage_benchmark_fills_every_cell(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    lines: list[str] = []
    cells = await measure(database.owner_dsn, 2, 2, lines.append)
    expected = await forms(owner)
    edition = await owner.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
    assert expected == {"apache": ("packed", "rows"), "community": ("packed", "columnstore", "rows")}[edition]
    assert [(cell.form, cell.series) for cell in cells] == [(form, s) for form in expected for s in SERIES]
    assert len(lines) == len(cells)
    assert all((cell.hour_of_rows, cell.day_of_rows) == (1, 1) for cell in cells if cell.form == "rows")
    assert all(min(cell.hour_of_rows, cell.day_of_rows) > 0 for cell in cells)
    # Two channels do not fill the pages that a relation has at least: 0.5 bytes a sample more.
    packed = {cell.series: cell.bytes_per_sample for cell in cells if cell.form == "packed"}
    assert {series: b for series, b in packed.items() if b > _MOST[series] + 0.5} == {}
    assert all(cell.bytes_per_sample > 60 for cell in cells if cell.form == "rows")
    assert all(cell.bytes_per_sample < 12 for cell in cells if cell.form == "columnstore")
    plot_storage(cells, tmp_path / "storage.svg")
    drawn = (tmp_path / "storage.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in (*SERIES, *expected))
