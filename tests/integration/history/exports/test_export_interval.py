"""Any interval is exported, sealed or not, and what is said of it is true."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import OperationError
from core.timestamps import begin
from history.archive.parquet_writers import INTERVAL_METADATA
from history.exports.export_interval import ExportInterval, IntervalResult, export_interval
from history.standalone import UnverifiableError, schema_of, verify_file
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant


async def exported(plant: SealedPlant, path: Path, interval: ExportInterval) -> IntervalResult:
    """Export an interval as the reader."""
    return await export_interval(plant.database.reader_dsn, plant.state, interval, path)


@pytest.mark.parametrize("packed", [False, True])
async def test_interval_of_sealed_and_unsealed_days(plant: SealedPlant, tmp_path: Path, packed: bool) -> None:
    await plant.seal(BEFORE - timedelta(days=1))  # the third day is not sealed
    if packed:
        await plant.pack()
    path = tmp_path / "some.parquet"
    interval = ExportInterval(begin(DAY, 5) + timedelta(seconds=30), begin(DAY, 54) + timedelta(seconds=1), [])
    result = await exported(plant, path, interval)
    assert [rows for _, rows in result.files] == [2 * (90 + 120 + 240 + 121), 0, 1]
    assert [day.describe() for day in result.days] == [
        "2026-03-09: sealed (revision 0, serial 1); whole hours are as sealed",
        "2026-03-10: sealed (revision 0, serial 2); whole hours are as sealed",
        "2026-03-11: not sealed",
    ]
    table = pq.read_table(path)
    assert pq.ParquetFile(path).schema_arrow.remove_metadata().equals(schema_of("samples"))
    times = table["time"].cast(pa.int64()).to_pylist()
    assert (min(times), max(times)) == tuple(
        int(one.timestamp() * 1e6) for one in (interval.since, interval.until - timedelta(seconds=1))
    )
    assert set(table["channel"].to_pylist()) == {"unit/flow", "unit/pressure"}
    metadata = json.loads(pq.ParquetFile(path).metadata.metadata[INTERVAL_METADATA])
    assert [(day["day"], day["revision"]) for day in metadata["days"]] == [
        ("2026-03-09", 0), ("2026-03-10", 0), ("2026-03-11", None),
    ]  # fmt: skip
    with pytest.raises(UnverifiableError, match="contains no seal"):
        verify_file(str(path), None)


async def test_altered_hours_and_chosen_channels(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 9 WHERE time = $1", begin(DAY, 5))
    whole = ExportInterval(begin(DAY), begin(DAY, 24), ["unit/f*"])
    result = await exported(plant, tmp_path / "whole.parquet", whole)
    assert [rows for _, rows in result.files] == [240, 1, 1]
    assert [day.differs for day in result.days] == [1]
    assert "NOT as sealed: 1 hour of channels" in result.days[0].describe()
    other = "WITH other AS (INSERT INTO plant.source (name, kind, address) VALUES ('other', 'push', '') RETURNING id)"
    await plant.owner.execute(
        f"{other} INSERT INTO plant.gap (source_id, from_time, to_time, reason) SELECT id, $1, $2, 'killed' FROM other",
        begin(DAY, 7),
        begin(DAY, 8),
    )
    part = await exported(plant, tmp_path / "part.parquet", ExportInterval(begin(DAY, 6), begin(DAY, 24), ["unit/f*"]))
    assert [day.differs for day in part.days] == [0]
    assert pq.read_table(tmp_path / "part.gaps.parquet")["source_id"].to_pylist() == [plant.source]
    await plant.owner.execute("UPDATE plant.event SET text = 'valve closed'")
    await plant.owner.execute("UPDATE plant.gap SET reason = 'stopped'")
    both = await exported(plant, tmp_path / "both.parquet", ExportInterval(begin(DAY, 5), begin(DAY, 6), []))
    state = "NOT as sealed: 2 hours of channels, 1 hour of events, gaps of the day"
    assert [day.describe() for day in both.days] == [
        f"2026-03-09: sealed (revision 0, serial 1); whole hours are {state}"
    ]
    with pytest.raises(OperationError, match="already exists"):
        await exported(plant, tmp_path / "part.parquet", whole)
    with pytest.raises(OperationError, match="--channel: no channel matches none"):
        await exported(plant, tmp_path / "none.parquet", ExportInterval(begin(DAY), begin(DAY, 24), ["none"]))
    assert "none.parquet" not in os.listdir(tmp_path)  # noqa: PTH208
