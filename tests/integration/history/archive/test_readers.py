"""Engines that are not plantlog read the archive as docs/archive.md says, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from core.timestamps import begin
from tests.docs import blocks
from tests.integration.history.archive_site import Site
from tests.integration.history.sealed_plant import DAY, public_key

_PLACE = "/srv/archive"


def documented(language: str, site: Site) -> list[str]:
    """The blocks of a language, of this archive."""
    return [block.text.replace(_PLACE, str(site.folder)) for block in blocks(language) if _PLACE in block.text]


def rows_of(table: Any) -> list[tuple[int, int, int, int]]:
    """Channel, time, bits and status of samples."""
    table = table.sort_by([("channel_id", "ascending"), ("time", "ascending")])
    time = table["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    bits = table["value"].combine_chunks().to_numpy().view(np.uint64).tolist()
    return list(zip(table["channel_id"].to_pylist(), time, bits, table["status"].to_pylist(), strict=True))


async def expected(site: Site) -> list[tuple[int, int, int, int]]:
    """By our own reader, which other tests compare with what was stored."""
    await site.archive()
    found = rows_of(site.opened.samples(["*"], begin(DAY), begin(DAY, 24)))
    assert len(found) == 680
    return found


async def test_duckdb_reads_what_was_stored(site: Site) -> None:
    stored = await expected(site)
    views, named_files = documented("sql duckdb", site)
    queries = [block.text for block in blocks("sql duckdb") if _PLACE not in block.text]
    with duckdb.connect() as connection:
        connection.execute(views)
        samples = connection.sql("SELECT channel_id, time, value, status FROM samples").to_arrow_table()
        assert rows_of(samples) == stored
        named = connection.sql("SELECT name, unit, count(*) FROM samples_named GROUP BY ALL ORDER BY ALL").fetchall()
        assert named == [("other/flow", "bar", 240), ("unit/odd", "bar", 200), ("unit/pressure", "bar", 240)]
        *_, counted = connection.extract_statements(named_files)
        for statement in connection.extract_statements(named_files)[:-1]:
            connection.execute(statement)
        unnamed = site.file("samples").with_name("00009-00001.parquet")
        unnamed.touch()
        assert connection.execute(counted).fetchall() == [(680,)]
        assert connection.sql("SELECT text FROM event").fetchall() == [("valve opened",)]
        assert connection.sql("SELECT reason, to_time - from_time FROM gap").fetchall()[0][0] == "disconnected"
        unnamed.unlink()
        [minutes] = [connection.sql(query).fetchall() for query in queries]
        first = next(row for row in minutes if row[0] == site.plant.ids["unit/pressure"])
        assert first[1:] == (begin(DAY, 5), 40.0, 40.59, pytest.approx(40.295))


async def test_polars_reads_what_was_stored(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = await expected(site)
    public_key(site.plant, tmp_path / "plant.pem")
    monkeypatch.chdir(tmp_path)
    own, script = documented("python", site)
    names: dict[str, Any] = {}
    exec(script, names)
    samples: pl.DataFrame = names["samples"].collect()
    assert rows_of(samples.to_arrow()) == stored
    exec(own, names)
    assert (names["table"].num_rows, names["frame"].height) == (120, 240)
    assert names["stuck"].column_names[:2] == ["channel", "stuck_from"]


async def test_clickhouse_reads_what_was_stored(site: Site) -> None:
    import chdb  # half a gigabyte

    stored = await expected(site)
    [query] = documented("sql clickhouse", site)
    samples = chdb.query(query, "ArrowTable")
    assert rows_of(samples) == stored
    assert set(samples["day"].to_pylist()) == {DAY}
