"""A channel that changes its unit: seals and exports say what it was on each day, and from when on it was another."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.timestamps import begin, microseconds
from history.exports.export import export
from history.standalone import verify_file
from tests.integration.history.exports.test_export import rewritten
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant

SECOND = DAY + timedelta(days=1)
CHANGE = begin(SECOND, 6)


async def changed(plant: SealedPlant, at: datetime) -> None:
    """unit/flow changes from bar to K at a time."""
    await plant.owner.execute(
        "UPDATE plant.channel SET unit = 'K', attributes = '{\"divisor\": 10}' WHERE name = 'unit/flow'"
    )
    versions = "UPDATE plant.channel_version SET {} = $1 WHERE channel_id = $2 AND {} = '{}'"
    await plant.owner.execute(versions.format("valid_from", "valid_to", "infinity"), at, plant.ids["unit/flow"])
    await plant.owner.execute(versions.format("valid_to", "valid_from", "-infinity"), at, plant.ids["unit/flow"])


async def meanings(plant: SealedPlant) -> list[list[dict[str, Any]]]:
    """By seal: what unit/flow is said to be."""
    documents = await plant.owner.fetch(
        "SELECT d.content FROM plant.day_seal AS s JOIN plant.seal_document AS d ON d.digest = s.document"
        " ORDER BY s.serial"
    )
    keys = ("unit", "attributes", "valid_from")
    return [
        [
            {k: channel[k] for k in keys if k in channel}
            for channel in json.loads(content)["channels"]
            if channel["name"] == "unit/flow"
        ]
        for (content,) in documents
    ]


async def test_seals_contain_the_units_and_names_of_their_day(plant: SealedPlant) -> None:
    await plant.seal(begin(DAY, 24))
    await changed(plant, CHANGE)
    await plant.seal()
    before = {"unit": "bar", "attributes": {}}
    after = {"unit": "K", "attributes": {"divisor": 10}}
    change = {**after, "valid_from": microseconds(CHANGE)}
    assert await meanings(plant) == [[before], [before, change], [after]]
    report = await plant.verify()
    assert report.ok
    assert [day.notes for day in report.days] == [[], [], []]
    assert (await plant.verify(DAY, ["unit/flow"])).ok


async def test_late_data_keep_the_sealed_units_and_names(plant: SealedPlant) -> None:
    await plant.seal()
    await changed(plant, BEFORE)
    await plant.late("unit/flow", [(9 * 3_600_000_000, 0, 0)])
    await plant.seal()
    assert await meanings(plant) == [[{"unit": "bar", "attributes": {}}]] * 4
    assert (await plant.verify()).ok


async def test_an_exported_day_has_each_sample_in_the_unit_of_its_time(plant: SealedPlant, tmp_path: Path) -> None:
    await changed(plant, CHANGE + timedelta(seconds=30))
    await plant.seal()
    path = tmp_path / "day.parquet"
    await export(plant.database.reader_dsn, plant.state, SECOND, path, ["unit/flow"], with_verifier=False)
    table = pq.read_table(path)
    units = list(zip(table["time"].to_pylist(), table["unit"].to_pylist(), strict=True))
    assert len(units) == 240
    assert all(unit == ("bar" if time < CHANGE + timedelta(seconds=30) else "K") for time, unit in units)
    assert {unit for _, unit in units} == {"bar", "K"}
    assert verify_file(str(path), None).ok
    rewritten(
        path, lambda table: table.set_column(3, table.schema.field("unit"), pa.array(["K"] * 240).dictionary_encode())
    )
    [problem] = verify_file(str(path), None).problems
    assert problem.endswith("is called unit/flow in K in rows of the file, and unit/flow in bar in the seal")


async def test_late_data_of_a_channel_that_moved_to_another_source_are_explained(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.late("unit/flow", [(9 * 3_600_000_000, 0, 0)])
    other = await plant.owner.fetchval(
        "INSERT INTO plant.source (name, kind, address) VALUES ('other', 'modbus', '') RETURNING id"
    )
    await plant.owner.execute("UPDATE plant.channel SET source_id = $1 WHERE name = 'unit/flow'", other)
    assert (await plant.verify(DAY)).ok
    assert [done.seal.revision for done in await plant.seal()] == [1]
