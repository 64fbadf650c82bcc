"""Spark SQL reads the archive by the documented views: the rows are those of ``plantlog sql``.

Spark is half a gigabyte: the gate never chooses this test (tests/gate.py).
"""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.paths import CHECKOUT
from history.sql.session import opened
from tests import peer_builds
from tests.integration.history.archive_maintenance import Maintained, plant
from tests.integration.history.sql.asking import LIMITS, archived_and_dropped

__all__ = ["plant"]  # a fixture
_VIEWS = CHECKOUT / "history" / "archive" / "spark.sql"
_QUERIES = {  # of Spark, and of plantlog sql, in which status is signed
    "SELECT channel_id, time, value, CAST(status AS BIGINT) AS status FROM samples": (
        "SELECT channel_id, time, value, status & 4294967295 AS status FROM samples"
    ),
    "SELECT name, unit, time, value FROM samples_named": "SELECT name, unit, time, value FROM samples_named",
    "SELECT time, type, text FROM event WHERE type = 'text'": "SELECT time, type, text FROM event WHERE type = 'text'",
    "SELECT from_time, to_time, reason FROM gap": "SELECT from_time, to_time, reason FROM gap",
    "SELECT DISTINCT channel_id, name, kind FROM channel": "SELECT id AS channel_id, name, kind FROM channel",
    "SELECT plant, count(*) AS n FROM samples GROUP BY plant": "SELECT 'north' AS plant, count(*) AS n FROM samples",
}


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    """Rows in any order; a NaN is a text, so that it equals another, and -0.0 is not 0.0."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value.hex()
    return value


@pytest.mark.slow
@pytest.mark.timeout(900)  # Spark is downloaded at first
async def test_spark_has_the_rows_of_sql(plant: Maintained, tmp_path: Path) -> None:
    await archived_and_dropped(plant)
    archive, views, folder = plant.site.folder, tmp_path / "views.sql", tmp_path / "rows"
    views.write_text(_VIEWS.read_text().replace("/srv/archive", str(archive)))
    named = next(archive.glob("samples/*/*/*.parquet"))
    manifest = next(archive.glob("manifests/*/*.json"))
    shutil.copy(named, named.with_name("00009-00001.parquet"))  # both left by a writer that was killed
    shutil.copy(manifest, manifest.with_name(f"{manifest.name}.partial"))
    python = await asyncio.to_thread(peer_builds.spark_python)
    script = CHECKOUT / "tests" / "peers" / "spark_rows.py"
    command = [python, str(script), str(views), str(folder), *_QUERIES]
    run = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]

    def of_sql() -> list[Any]:
        with opened(plant.site.plant.state, LIMITS) as session:
            return [session.table(query) for query in _QUERIES.values()]

    for number, expected in enumerate(await asyncio.to_thread(of_sql)):
        assert expected.num_rows
        assert rows_of(pq.read_table(folder / str(number))) == rows_of(expected)
