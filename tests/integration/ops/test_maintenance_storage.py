"""Jobs of maintenance that pack, create, analyze and drop what is stored."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from core import metrics
from ops.maintenance import storage as storage_job
from ops.maintenance.job import Connection, Job, run
from ops.maintenance.process import Maintenance
from tests.database import Database, connected
from tests.integration.ops.test_maintenance import JOBS, runs
from tests.maintenance import (
    SAMPLES,
    add_plant,
    day,
    job_context,
    pack_days,
    run_ok,
    sample_counts,
    set_retention,
    set_setting,
    vacuumed_size,
)
from tests.waiting import PATIENCE, until


async def test_minutes_of_closed_days_are_packed(owner: Connection, database: Database, tmp_path: Path) -> None:
    """By the job that makes them; late data puts the day of its channel back among the rows until they are packed."""
    await add_plant(owner, 2)
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, channels) VALUES ($1, $2, $3::int[])"
    packed = "SELECT array_agg(p.channel_id ORDER BY p.channel_id) FROM plant.rollup_1m_packed AS p WHERE p.rows = $1"
    rows, context = "SELECT count(*) FROM plant.rollup_1m", job_context(database, tmp_path)
    await owner.execute(dirty, day(2), day(1), [1, 2, 3, 4])
    await run_ok(JOBS["rollups"], context)
    assert await owner.fetchval(packed, SAMPLES) == [1, 2, 3, 4]
    assert await owner.fetchval(rows) == 0
    await owner.execute("INSERT INTO plant.samples_raw VALUES ($1, 7, 2, 0)", day(2) + timedelta(seconds=90))
    await owner.execute(dirty, day(2) + timedelta(minutes=1), day(2) + timedelta(minutes=2), [2])
    async with owner.transaction(isolation="repeatable_read"):
        assert await owner.fetchval("SELECT plant.refresh_portion(now())") is True
    assert await owner.fetchval(rows) == SAMPLES
    await run_ok(JOBS["rollups"], context)
    assert await owner.fetchval(packed, SAMPLES) == [1, 2, 3, 4]
    assert await owner.fetchval(rows) == 0
    late = "SELECT m.n FROM plant.samples_1m AS m WHERE m.channel_id = 2 AND m.bucket = $1"
    assert await owner.fetchval(late, day(2) + timedelta(minutes=1)) == 2


async def test_packing_continues_after_its_time_slice(owner: Connection, database: Database, tmp_path: Path) -> None:
    await pack_days(owner)
    await add_plant(owner, *range(2, 6))
    whole, context = await sample_counts(owner), job_context(database, tmp_path)
    short = dataclasses.replace(JOBS["compress"], slice_seconds=0.3)
    first = await run_ok(short, context)
    assert (first.done.more, first.done.detail) == (True, "time slice used up; continues")
    assert await sample_counts(owner) == whole
    assert not (await run_ok(JOBS["compress"], context)).done.more
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_packed") == 4 * 4 * 24
    assert await sample_counts(owner) == whole


async def test_chunks_are_created_ahead_without_visible_rows(
    owner: Connection, database: Database, ingest: asyncpg.Connection, tmp_path: Path
) -> None:
    context = job_context(database, tmp_path)
    done = await run_ok(JOBS["ahead"], context)
    assert (done.done.rows or 0) >= 5
    ahead = (
        "SELECT count(*) FROM timescaledb_information.chunks AS k WHERE k.hypertable_schema = 'plant'"
        " AND k.range_start <= $1 AND k.range_end > $1"
    )
    tables = await owner.fetchval(
        "SELECT count(*) FROM timescaledb_information.hypertables AS h WHERE h.hypertable_schema = 'plant'"
    )
    for moment in (datetime.now(UTC) + timedelta(days=days) for days in range(3)):
        assert await owner.fetchval(ahead, moment) == tables
    for table in ("samples_raw", "samples_packed", "event"):
        assert await owner.fetchval(f"SELECT count(*) FROM plant.{table}") == 0
    # A writer needs no chunk to be made: it gets on while nobody can make one.
    async with owner.transaction():
        await owner.execute("LOCK TABLE _timescaledb_catalog.chunk IN SHARE ROW EXCLUSIVE MODE")
        insert = "INSERT INTO plant.samples_raw VALUES ($1, 1, 1, 0)"
        await ingest.execute(insert, datetime.now(UTC) + timedelta(days=2), timeout=PATIENCE)
        await ingest.execute("SET lock_timeout = '100ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await ingest.execute(insert, datetime.now(UTC) + timedelta(days=3))
    assert (await run_ok(JOBS["ahead"], context)).done.rows == 0


async def test_closed_chunks_have_statistics_again_after_packing(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    await pack_days(owner)
    await add_plant(owner, 3, 2)
    context = job_context(database, tmp_path)
    estimates = (
        "SELECT sum(c.reltuples)::int FROM timescaledb_information.chunks AS k"
        " JOIN pg_class AS c ON c.relname = k.chunk_name"
        " WHERE k.hypertable_name = $1 AND k.range_end <= now()"
    )
    assert (await run_ok(JOBS["analyze"], context)).done.rows == 2
    assert await owner.fetchval(estimates, "samples_raw") == 2 * 4 * SAMPLES
    await run_ok(JOBS["compress"], context)
    assert (await run_ok(JOBS["analyze"], context)).done.rows == 2
    assert await owner.fetchval(estimates, "samples_packed") == 2 * 4 * 24
    assert (await run_ok(JOBS["analyze"], context)).done.rows == 0


async def test_chunk_dropped_while_it_is_analyzed_is_no_failure(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8)
    waiting = """
    SELECT EXISTS (SELECT FROM pg_stat_activity AS a
                   WHERE a.application_name = 'plantlog maintenance: analyze' AND a.wait_event_type = 'Lock')"""
    async with connected(database.owner_dsn) as other:
        async with other.transaction():
            await other.execute("SELECT drop_chunks('plant.samples_raw', now())")
            analyzing = asyncio.create_task(run(JOBS["analyze"], job_context(database, tmp_path)))
            await until(lambda: owner.fetchval(waiting))
        assert (await analyzing).outcome == "ok"


async def test_batch_facts_outlive_their_raw_data(owner: Connection, database: Database, tmp_path: Path) -> None:
    await add_plant(owner)
    await owner.execute(
        "INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time,"
        " received_at, written_at)"
        " SELECT 1, d, 'samples', 1, now(), now(), now(), now() - make_interval(days => d)"
        " FROM generate_series(1, 500) AS d"
    )
    await owner.execute(
        "INSERT INTO plant.quarantine (id, quarantined_at, reason, source_id, received_at)"
        " SELECT d, now() - make_interval(days => d), 'future', 1, now() FROM generate_series(1, 500) AS d"
    )
    await owner.execute(
        "INSERT INTO plant.job_run (job, started_at, ended_at, outcome)"
        " SELECT 'x', now() - make_interval(days => d), now(), CASE d % 2 WHEN 0 THEN 'ok' ELSE 'failed' END"
        " FROM generate_series(3, 100) AS d"
    )
    context = job_context(database, tmp_path)
    counts = "SELECT (SELECT count(*) FROM plant.ingest_batch), (SELECT count(*) FROM plant.quarantine)"
    await set_retention(owner, "fast", raw=100)
    await run_ok(JOBS["trim"], context)
    assert tuple(await owner.fetchrow(counts) or ()) == (500, 500), "class default keeps raw data forever"
    await set_retention(owner, "default", raw=200)
    await run_ok(JOBS["trim"], context)
    assert tuple(await owner.fetchrow(counts) or ()) == (199, 364)
    left = await owner.fetch("SELECT r.outcome, count(*) AS n FROM plant.job_run AS r WHERE r.job = 'x' GROUP BY 1")
    assert {row["outcome"]: row["n"] for row in left} == {"ok": 2, "failed": 44}


async def test_a_database_over_its_budget_wakes_retention_at_once(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    """Retention is due in an hour; the measure that finds too much wakes it."""
    await add_plant(owner, 9, 8, 2)
    retain, storage = JOBS["retain"], JOBS["storage"]
    quick = Job("storage", storage.work, storage.about, every=0.2, slice_seconds=60)
    maintenance = Maintenance(job_context(database, tmp_path), [retain, quick])
    working = asyncio.create_task(maintenance.run())

    async def idle() -> bool:
        return bool((await runs(owner, "retain")) and all(report["outcome"] for report in maintenance.reports()))

    async def freed() -> bool:
        return {ago for ago, _ in await sample_counts(owner)} == {8, 2}

    await until(idle)
    size = await vacuumed_size(owner)
    await set_setting(owner, "disk_budget", str(size - 100_000))
    await until(freed)
    working.cancel()
    await asyncio.wait((working,))
    assert metrics.storage_budget_bytes._value.get() == size - 100_000


async def test_a_disk_that_will_be_full_is_said_once_a_day(
    owner: Connection,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(storage_job, "days_left", lambda *_: 1.5)
    storage, context = JOBS["storage"], job_context(database, tmp_path)
    for _ in range(3):
        await storage.work(context, owner)
    assert [record.getMessage() for record in caplog.records if record.name == storage_job.__name__] == [
        "disk will be full in 1.5 days at the current growth"
    ]
    assert await owner.fetchval("SELECT count(*) FROM plant.event WHERE type = 'retention'") == 1
