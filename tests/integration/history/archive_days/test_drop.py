"""Retention drops what is archived, and nothing else, and holds up no writer meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.timestamps import begin
from tests.database import connected
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.archive_site import problems_of
from tests.integration.history.sealed_plant import DAY, SealedPlant, minute
from tests.maintenance import set_setting
from tests.sample_tables import HOUR_US, bits
from tests.waiting import until

_NEXT = DAY + timedelta(days=1)
_WAITS = "SELECT EXISTS (SELECT FROM pg_locks AS l WHERE NOT l.granted AND l.mode = 'ShareRowExclusiveLock')"
_COUNTS = """
SELECT EXISTS (SELECT FROM pg_locks AS l WHERE NOT l.granted AND l.relation = 'plant.samples_packed'::regclass)
"""
_CHUNK = "SELECT c.chunk::text FROM plant.chunks_of('plant.samples_raw') AS c WHERE c.from_time = $1"
_RELEASE = """
SELECT plant.release_archived('plant.samples_raw', $1::text::regclass, $2, $3::timestamptz, $3 + INTERVAL '1 day', true)
"""
_DROPPED = """
INSERT INTO plant.archived_day (day, installation, revision, root, location, samples, bytes, dropped_at)
VALUES ($1, 1, 0, '', '', 0, 0, clock_timestamp())
"""
_LATE = "INSERT INTO plant.samples_raw (time, channel_id, value, status) VALUES ($1, $2, 1, 0)"


async def test_samples_without_evidence_are_never_dropped(plant: Maintained) -> None:
    """Neither those that came before the day was dropped nor those that came after."""
    await plant.job()
    await plant.site.plant.samples("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])
    for _ in range(2):
        assert await plant.drop() == ["unarchived"]
    assert "1 added" in (await plant.job()).done.detail
    assert await plant.drop() == ["unarchived"]
    assert await plant.site.plant.delete("unit/pressure", begin(DAY, 9), begin(DAY, 10)) == 1
    assert (await plant.job()).outcome == "ok"
    await plant.owner.execute("DELETE FROM plant.rollup_dirty")
    assert await plant.drop() == ["chunk"]
    await plant.site.plant.samples("unit/odd", [(9 * HOUR_US, bits(1.0), 0)])
    await plant.late()
    for _ in range(2):
        done = await plant.job()
        assert done.done.detail.endswith("late samples of 1 day are not in it: they stay in the database")
        assert await plant.drop() == ["unarchived"]
    odd = plant.site.plant.ids["unit/odd"]
    assert {channel for channel, _ in await plant.stored()} == {odd, plant.site.plant.ids["unit/pressure"]}


@pytest.mark.parametrize("packed", [False, True])
async def test_classes_are_dropped_one_after_the_other(plant: Maintained, packed: bool) -> None:
    samples = await plant.stored()
    if packed:
        await plant.site.plant.pack()
    await plant.job()
    owner = plant.owner
    await owner.execute("INSERT INTO plant.retention_class (name) VALUES ('short')")
    await owner.execute("UPDATE plant.channel SET retention = 'short' WHERE name = 'unit/pressure'")
    assert "rows" in await plant.drop(classes=["short"])
    assert len(await plant.stored()) == 440
    await plant.late()
    await plant.late("other/flow", [(9 * HOUR_US, bits(2.0), 0)])
    for _ in range(2):
        assert (await plant.job()).outcome == "ok"
    every = {**samples, **await plant.stored()}
    assert (len(every), plant.in_archive()) == (682, every)
    assert problems_of(plant.site.opened) == []
    while actions := await plant.drop():  # rows of both forms, one after the other
        assert "unarchived" not in actions
    assert await plant.stored() == {}
    assert await owner.fetchval("SELECT count(*) FROM plant.archived_channel WHERE day = $1", DAY) == 0


async def test_drop_waits_for_a_writer_that_has_not_committed(plant: Maintained) -> None:
    await plant.job()
    async with connected(plant.site.plant.database.owner_dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            "INSERT INTO plant.samples_raw (time, channel_id, value, status) VALUES ($1, $2, 1, 0)",
            *(begin(DAY, 9), plant.site.plant.ids["unit/pressure"]),
        )
        dropping = asyncio.create_task(plant.drop())
        async with connected(plant.site.plant.database.owner_dsn) as watch:
            await until(lambda: _done_or(dropping, watch, _WAITS))
            await transaction.commit()
            try:
                assert await dropping == ["unarchived"]
            except asyncpg.LockNotAvailableError:  # a slow machine: it waits for two seconds
                assert await plant.drop() == ["unarchived"]
    assert len(await plant.stored()) == 681


async def _done_or(dropping: asyncio.Task[Any], watch: Any, query: str) -> bool:
    return dropping.done() or bool(await watch.fetchval(query))


async def test_without_archiving_retention_does_what_it_did(plant: Maintained) -> None:
    """Days that were archived before are dropped, too, with what came since."""
    await plant.job()
    await plant.site.plant.samples("unit/odd", [(9 * HOUR_US, bits(1.0), 0)])
    assert await plant.drop() == ["unarchived"]
    await plant.owner.execute("UPDATE plant.installation SET archive_from = NULL")
    assert await plant.drop() == ["chunk"]
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.archived_channel WHERE day = $1", DAY) == 0


async def test_events_are_kept_until_their_day_is_archived(plant: Maintained) -> None:
    query = (
        "SELECT s.action FROM plant.retention_units('event') AS u "
        "CROSS JOIN LATERAL plant.drop_slice('event', u.relation, u.from_time, u.to_time, NULL, 'age', false) AS s "
        "WHERE u.from_time <= $1 AND u.to_time > $1"
    )
    assert await plant.owner.fetchval(query, begin(DAY)) == "unarchived"
    await plant.job()
    assert await plant.owner.fetchval(query, begin(DAY)) in ("rows", "chunk")
    await plant.late()
    await plant.job()
    assert problems_of(plant.site.opened) == []


async def test_late_samples_are_written_while_others_are_counted(plant: Maintained) -> None:
    """Another session holds the counting up."""
    await plant.job()
    database, ids = plant.site.plant.database, plant.site.plant.ids
    chunk = await plant.owner.fetchval(_CHUNK, begin(DAY))
    async with connected(database.owner_dsn) as other, connected(database.ingest_dsn) as writer:
        held = other.transaction()
        await held.start()
        await other.execute("LOCK TABLE plant.samples_packed IN ACCESS EXCLUSIVE MODE")
        released = asyncio.create_task(plant.owner.fetchval(_RELEASE, chunk, list(ids.values()), begin(DAY)))
        async with connected(database.owner_dsn) as watch:
            await until(lambda: _done_or(released, watch, _COUNTS))
        await writer.execute("SET lock_timeout = '20s'")
        await writer.execute(_LATE, begin(DAY, 9), ids["unit/pressure"])
        assert not released.done()
        await held.rollback()
        with pytest.raises(asyncpg.LockNotAvailableError, match=r"samples of .* came while they were counted"):
            await released
    assert await plant.drop() == ["unarchived"]


async def test_disk_budget_passes_over_a_day_that_is_not_archived(plant: Maintained) -> None:
    """The day is found to be unarchived only when it is to be dropped."""
    await plant.job()
    await plant.site.plant.samples("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])
    budget = await plant.owner.fetchval("SELECT pg_database_size(current_database()) - 1")
    await set_setting(plant.owner, "disk_budget", str(budget))
    done = await plant.job("retain")
    assert (done.outcome, done.done.detail) == ("ok", "1 dropped")
    assert [len(await plant.stored(day)) for day in (DAY, _NEXT)] == [681, 0]


async def test_another_installation_still_amends_a_day_that_one_has_dropped(plant: Maintained, tmp_path: Path) -> None:
    fourth = DAY + timedelta(days=3)
    async with SealedPlant(plant.site.plant.database, tmp_path / "south", "south") as south:
        await south.late("south/level", minute(3, [1.0]))
        await south.seal(begin(fourth, 24))
        await plant.owner.execute(_DROPPED, fourth)
        await south.late("south/level", minute(3, [2.0], 7))
        amended = await south.seal(begin(fourth, 24))
    assert [(sealed_day.seal.day, sealed_day.seal.revision, sealed_day.seal.samples) for sealed_day in amended] == [
        (f"{fourth}", 1, 2)
    ]
