"""Days that the disk budget drops."""

from __future__ import annotations

from pathlib import Path

from ops.maintenance.job import Connection
from ops.maintenance.jobs import jobs
from ops.maintenance.packing import compress_before
from ops.maintenance.retention import plan
from tests.database import Database
from tests.integration.ops.test_retention import RETAIN, recorded, retain
from tests.maintenance import (
    add_plant,
    add_seals,
    day,
    job_context,
    run_ok,
    sample_counts,
    set_setting,
    vacuumed_size,
)

AHEAD = next(job for job in jobs() if job.name == "ahead")


async def test_disk_budget_drops_the_oldest_permitted_days(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8, 7, 2, 0)
    await compress_before(owner, day(7))
    await add_seals(owner, 9, 7, 2)
    await run_ok(AHEAD, job_context(database, tmp_path))  # the chunk of the events that are about to come
    await set_setting(owner, "disk_budget", str(await vacuumed_size(owner) - 10_000))
    planned = await retain(maintenance, database, tmp_path)
    assert [(slice_.from_time, slice_.why, slice_.action) for slice_ in planned][:1] == [(day(9), "budget", "chunk")]
    assert {ago for ago, _ in await sample_counts(owner)} == {8, 7, 2, 0}, "one packed day is enough"
    assert [event["why"] for event in await recorded(owner)] == ["budget"]
    await set_setting(owner, "disk_budget", str(await vacuumed_size(owner) - 500_000))
    await retain(maintenance, database, tmp_path)
    assert {ago for ago, _ in await sample_counts(owner)} == {8, 2, 0}, "8 has no seal, and one day of rows is enough"
    assert (await plan(maintenance)).lacking == 0


async def test_unreachable_disk_budget_drops_nothing_and_is_reported_once(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 3, 2, 0)
    await set_setting(owner, "disk_budget", str(1024**2))
    before = await sample_counts(owner)
    for _ in range(2):
        assert await retain(maintenance, database, tmp_path) == []
    assert await sample_counts(owner) == before
    (detail,) = await recorded(owner)
    assert (detail["why"], detail["budget"]) == ("budget", 1024**2)
    assert 0 < detail["lacking"] < detail["bytes"] - detail["budget"]
    done = await run_ok(RETAIN, job_context(database, tmp_path))
    assert "over the disk budget" in done.done.detail
