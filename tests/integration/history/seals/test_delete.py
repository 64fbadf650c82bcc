"""Deletions of sealed samples are signed when they are made; nothing else is signed with them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import asyncpg
import pytest

from core.errors import OperationError
from core.timestamps import begin
from history.seals.delete import Deletion, DeletionResult, delete
from tests.database import rename_channels
from tests.integration.history.sealed_plant import DAY, SealedPlant
from tests.sample_tables import HOUR_US, bits

_FORGED = """
CREATE OR REPLACE FUNCTION plant.delete_samples(channels int[], "from" timestamptz, "to" timestamptz, why text)
RETURNS bigint LANGUAGE sql AS $$
UPDATE plant.samples_raw SET value = 9 WHERE channel_id = ANY (channels) AND time >= "from" RETURNING 1
$$
"""


async def deleted(
    plant: SealedPlant, since: datetime, until: datetime, dry_run: bool = False, channel: str = "unit/flow"
) -> DeletionResult:
    """Deletion of one channel's samples."""
    deletion = Deletion([channel], since, until, "test signal", "eva")
    return await delete(plant.database.owner_dsn, plant.state, deletion, dry_run)


@pytest.mark.parametrize("packed", [False, True])
async def test_deletion_amends_the_seals(plant: SealedPlant, packed: bool) -> None:
    await plant.seal()
    if packed:
        await plant.pack()
    span = begin(DAY, 6) + timedelta(seconds=60), begin(DAY, 30)  # a part of an hour, and one of the next day
    assert (await deleted(plant, *span, dry_run=True)).samples == 60 + 120
    assert all(day.strictly_ok for day in (await plant.verify()).days)
    result = await deleted(plant, *span)
    assert result.samples == 60 + 120
    assert [(seal.seal.day, seal.seal.revision, seal.seal.samples) for seal in result.seals] == [
        ("2026-03-09", 1, 420),
        ("2026-03-10", 1, 360),
    ]
    report = await plant.verify()
    assert report.ok
    assert [day.strictly_ok for day in report.days] == [False, False, True]
    assert [amendment.describe() for amendment in report.days[1].amended] == [
        "revision 1: unit/flow, hour 05: 120 samples missing, deleted by eva (test signal)"
    ]
    assert await plant.seal() == []
    await plant.late("unit/flow", [(30 * HOUR_US - 1, bits(1.0), 0)])
    assert [sealed_day.seal.revision for sealed_day in await plant.seal()] == [2]
    report = await plant.verify()
    assert [day.strictly_ok for day in report.days] == [False, False, True]
    event = await plant.owner.fetchrow("SELECT text, detail FROM plant.event WHERE type = 'deleted'")
    assert event is not None
    assert event["text"] == "test signal (by eva)"
    assert json.loads(event["detail"])["samples"] == 180


async def test_whatever_is_not_as_sealed_is_not_signed_with_a_deletion(plant: SealedPlant) -> None:
    await plant.seal()
    number = plant.ids["unit/flow"]
    await plant.owner.execute(
        "UPDATE plant.samples_raw SET value = 9 WHERE channel_id = $1 AND time = $2", number, begin(DAY, 5)
    )
    with pytest.raises(OperationError, match="hour 05 is not as sealed: nothing was deleted"):
        await deleted(plant, begin(DAY, 5) + timedelta(seconds=60), begin(DAY, 6))
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.samples_raw WHERE channel_id = $1", number) == 720
    assert not (await plant.verify(DAY)).ok


async def test_database_that_deletes_something_else_gets_no_seal(plant: SealedPlant) -> None:
    """An owner of the database can replace its functions."""
    await plant.seal()
    await plant.owner.execute(_FORGED)
    with pytest.raises(OperationError, match="the database deleted something else"):
        await deleted(plant, begin(DAY, 5), begin(DAY, 5) + timedelta(seconds=60))
    assert all(day.strictly_ok for day in (await plant.verify()).days)


async def test_samples_that_nobody_sealed_are_deleted_without_a_seal(plant: SealedPlant) -> None:
    """The way out where somebody added samples to a sealed day."""
    await plant.seal()
    await plant.samples("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0)])
    assert not (await plant.verify(DAY)).ok
    at = begin(DAY, 5) + timedelta(milliseconds=500)
    result = await deleted(plant, at, at + timedelta(milliseconds=1))
    assert (result.samples, result.seals) == (1, [])
    assert all(day.strictly_ok for day in (await plant.verify()).days)


async def test_sql_deletes_no_sealed_samples(plant: SealedPlant) -> None:
    await plant.seal()
    query = "SELECT plant.delete_samples(ARRAY[1], $1, $2, 'a test')"
    with pytest.raises(asyncpg.PostgresError, match="are sealed"):
        await plant.owner.execute(query, begin(DAY, 23), begin(DAY, 24))
    assert await plant.owner.fetchval(query, begin(DAY, 72), begin(DAY, 73)) == 0


async def test_names_are_those_at_the_time_of_the_samples(plant: SealedPlant) -> None:
    """A name that two channels had, as after `plantlog config rename --exchange`, deletes of each what was so named."""
    flow, pressure = plant.ids["unit/flow"], plant.ids["unit/pressure"]
    await rename_channels(plant.owner, begin(DAY, 6), {flow: "unit/pressure", pressure: "unit/flow"})
    await plant.seal()
    span = begin(DAY, 5) + timedelta(seconds=90), begin(DAY, 6) + timedelta(seconds=60)
    counts = {f"unit/flow (channel {flow}, now unit/pressure)": 30, f"unit/flow (channel {pressure})": 60}
    for dry_run in (True, False):
        result = await deleted(plant, *span, dry_run)
        assert {named.describe(): n for named, n in result.counts.items()} == counts
        assert result.samples == 90
    query = "SELECT channel_id, count(*)::int FROM plant.samples_raw WHERE time < $1 GROUP BY channel_id"
    rows = await plant.owner.fetch(query, begin(DAY, 24))
    assert {row["channel_id"]: row["count"] for row in rows} == {flow: 240 - 30, pressure: 240 - 60}
    assert (await plant.verify()).ok
    with pytest.raises(OperationError, match="--channel: no channel matches -"):
        await deleted(plant, *span, channel="-")
