"""Retention on a real database: by class, age and disk budget, never what is open or unsealed, on record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from ops.maintenance.job import Connection
from ops.maintenance.jobs import jobs
from ops.maintenance.packing import compress_before
from ops.maintenance.retention import Retention, Slice, plan
from tests.database import Database
from tests.maintenance import (
    DAY,
    SAMPLES,
    add_installation,
    add_plant,
    add_seals,
    closed_relation,
    day,
    job_context,
    pack_days,
    sample_counts,
    set_retention,
    set_setting,
)

RETAIN = next(job for job in jobs() if job.name == "retain")
_EVENTS = "SELECT e.text, e.detail FROM plant.event AS e WHERE e.type = 'retention' ORDER BY e.time, e.id"

_CHUNK_READS = "SELECT f.calls FROM pg_stat_user_functions AS f WHERE f.funcname = 'chunks_of'"


async def retain(connection: Connection, database: Database, state: Path) -> list[Slice]:
    """A run, as the process does it; what its dry run said before."""
    planned = list((await plan(connection)).slices)
    await Retention().work(job_context(database, state), connection)
    return planned


async def recorded(owner: Connection) -> list[dict[str, Any]]:
    return [json.loads(row["detail"]) for row in await owner.fetch(_EVENTS)]


def facts(one: Slice) -> tuple[Any, ...]:
    return one.relation, one.from_time.isoformat(), list(one.retention), one.channels, one.rows, one.bytes, one.action


def of_event(detail: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(detail[key] for key in ("relation", "from", "classes", "channels", "rows", "bytes", "action"))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "as the edition has it"])
async def test_retention_removes_one_class_and_keeps_the_others(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path, packed: bool
) -> None:
    if packed:
        await pack_days(owner)
    closed = await closed_relation(owner)
    await add_plant(owner, 9, 8, 7, 3, 2)
    await compress_before(owner, day(7))
    await set_retention(owner, "fast", raw=5)
    await retain(maintenance, database, tmp_path)
    kept = {(ago, channel): SAMPLES for ago in (9, 8, 7) for channel in (1, 3)}
    kept |= {(ago, channel): SAMPLES for ago in (3, 2) for channel in (1, 2, 3, 4)}
    assert await sample_counts(owner) == kept
    rows = await recorded(owner)
    assert [(row["relation"], row["action"]) for row in rows] == [
        (closed, "rows"),
        (closed, "rows"),
        ("plant.samples_raw", "rows"),
    ]
    for row in rows:
        assert (row["classes"], row["channels"], row["rows"], row["why"]) == (["fast"], 2, 2 * SAMPLES, "age")
        assert row["channel_ids"] == "{[2,3),[4,5)}"
        assert row["bytes"] > 0


async def test_chunk_is_dropped_whole_when_all_classes_expire(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    closed = await closed_relation(owner)
    await add_plant(owner, 9, 8, 2)
    await add_plant(owner, 6, channels=(2, 4))
    await compress_before(owner, day(8))
    await set_retention(owner, "fast", raw=5)
    await set_retention(owner, "default", raw=7)
    await retain(maintenance, database, tmp_path)
    assert await sample_counts(owner) == {(2, channel): SAMPLES for channel in (1, 2, 3, 4)}
    rows = await recorded(owner)
    assert [(row["relation"], row["action"], row["classes"]) for row in rows] == [
        (closed, "chunk", ["default", "fast"]),
        ("plant.samples_raw", "chunk", ["default", "fast"]),
        ("plant.samples_raw", "chunk", ["fast"]),
    ]
    units = await owner.fetch("SELECT u.from_time FROM plant.retention_units('raw') AS u")
    assert [unit["from_time"] for unit in units] == [day(2)]


async def test_dry_run_lists_the_deletions_and_changes_nothing(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 40, 9, 8, 6, 2)
    await compress_before(owner, day(8))
    await owner.execute(
        "INSERT INTO plant.event (time, id, type, channel_id)"
        " SELECT now() - make_interval(days => d), d, 'alarm', d % 4 + 1 FROM generate_series(1, 60) AS d"
    )
    await set_retention(owner, "fast", raw=5, event=20)
    await set_retention(owner, "default", raw=7, event=30)
    before = await sample_counts(owner)
    planned = list((await plan(maintenance)).slices)
    assert await sample_counts(owner) == before
    assert await recorded(owner) == []
    assert {slice_.what for slice_ in planned} == {"raw", "event"}
    await Retention().work(job_context(database, tmp_path), maintenance)
    went = sorted(map(of_event, await recorded(owner)))
    assert [row[:5] + row[6:] for row in went] == [row[:5] + row[6:] for row in sorted(map(facts, planned))]
    # Bytes are a share of the rows that the chunk still has: of two slices of one chunk the second takes a larger one.
    assert all(one[5] >= other[5] for one, other in zip(went, sorted(map(facts, planned)), strict=True))
    left = (await plan(maintenance)).slices
    assert left == ()


async def test_open_day_is_never_deleted(owner: Connection, maintenance: Connection) -> None:
    await add_plant(owner, 3, 0)
    await compress_before(owner, datetime.now(UTC))
    future = day(-5)
    dropped = await maintenance.fetch("SELECT * FROM plant.drop_before($1, 'raw', NULL, false)", future)
    assert {row["day"] for row in dropped} == {day(3)}
    assert set(await sample_counts(owner)) == {(0, channel) for channel in (1, 2, 3, 4)}
    query = "SELECT s.action FROM plant.drop_slice('raw', $1::text::regclass, $2, $3, NULL, 'test', false) AS s"
    for relation in ("plant.samples_raw", "plant.samples_packed"):
        for row in await maintenance.fetch(query, relation, day(0), day(-1)):
            assert row["action"] == "open"
    assert set(await sample_counts(owner)) == {(0, channel) for channel in (1, 2, 3, 4)}


async def test_day_is_kept_until_late_data_are_due(owner: Connection, maintenance: Connection) -> None:
    await add_plant(owner, 3)
    await set_setting(owner, "lateness", str(10 * 86400))
    query = "SELECT * FROM plant.drop_before($1, 'raw', NULL, false)"
    assert await maintenance.fetch(query, day(0)) == []
    assert len(await sample_counts(owner)) == 4


async def test_unsealed_days_are_kept_until_sealed(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8, 7, 2)
    await compress_before(owner, day(7))
    await add_seals(owner, 8)
    await set_retention(owner, "default", raw=5)
    await set_retention(owner, "fast", raw=5)
    planned = await retain(maintenance, database, tmp_path)
    assert [(slice_.from_time, slice_.action) for slice_ in planned] == [
        (day(9), "unsealed"),
        (day(8), "chunk"),
        (day(7), "unsealed"),
    ]
    assert {ago for ago, _ in await sample_counts(owner)} == {9, 7, 2}
    await add_seals(owner, 9, 8, 7)
    await retain(maintenance, database, tmp_path)
    assert {ago for ago, _ in await sample_counts(owner)} == {2}


async def test_a_day_waits_for_the_seal_of_each_installation_with_samples(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    """Unless it does not seal, or has not run for 30 days."""
    await add_plant(owner, 9, channels=(1, 2, 3, 4, 5))
    await add_plant(owner, 8)
    await add_seals(owner, 9, 8, installation=1)
    other = UUID(int=2)
    await add_installation(owner, other, 2)
    await owner.execute(
        "INSERT INTO plant.source (name, kind, address, installation_id) VALUES ('theirs', 'modbus', '', $1)", other
    )
    await owner.execute("INSERT INTO plant.channel (name, source_id, address, kind) VALUES ('c5', 2, '', 'analog')")
    for name in ("default", "fast"):
        await set_retention(owner, name, raw=5)
    planned = await retain(maintenance, database, tmp_path)
    assert [(slice_.from_time, slice_.action) for slice_ in planned] == [(day(9), "unsealed"), (day(8), "chunk")]
    waits = "SELECT plant.lacks_seal($1, $2)"
    assert await maintenance.fetchval(waits, day(9), day(8))
    presence = "INSERT INTO plant.presence (installation_id, place, folder) SELECT id, '', '' FROM plant.installation"
    for free, again in (
        ("UPDATE plant.installation SET sealing = number = 1", "UPDATE plant.installation SET sealing = true"),
        ("UPDATE plant.installation SET registered_at = now() - INTERVAL '31 days'", presence),
        (
            "UPDATE plant.presence SET seen_at = now() - INTERVAL '31 days'",
            "UPDATE plant.presence SET seen_at = now() - INTERVAL '29 days'",
        ),
    ):
        await owner.execute(free)
        assert not await maintenance.fetchval(waits, day(9), day(8)), free
        await owner.execute(again)
        assert await maintenance.fetchval(waits, day(9), day(8)), again
    await owner.execute("INSERT INTO plant.day_seal VALUES ($1, 2)", day(9).date())
    await retain(maintenance, database, tmp_path)
    assert await sample_counts(owner) == {(9, 5): SAMPLES}, "those of the other one, which has no retention"


async def test_days_waiting_for_a_seal_are_checked_again(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9)
    await add_seals(owner)
    await set_retention(owner, "default", raw=5)
    await set_retention(owner, "fast", raw=5)
    job, context = Retention(), job_context(database, tmp_path)
    done = await job.work(context, maintenance)
    assert (done.rows, done.detail) == (0, "1 kept: unsealed")
    await add_seals(owner, 9)
    done = await job.work(context, maintenance)
    assert (done.rows, done.detail) == (4 * SAMPLES, "1 dropped")
    assert (await job.work(context, maintenance)).detail == ""


async def test_raw_data_wait_for_the_rollups_that_are_made_from_them(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8)
    await owner.execute(
        "CREATE TABLE IF NOT EXISTS plant.rollup_dirty (from_time timestamptz, to_time timestamptz, hours boolean)"
    )
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, hours) VALUES ($1, $2, $3)"
    await owner.execute(dirty, day(9), day(9) + DAY / 24, False)
    await owner.execute(dirty, day(8), day(8) + DAY / 24, True)
    await set_retention(owner, "default", raw=5)
    await set_retention(owner, "fast", raw=5)
    planned = await retain(maintenance, database, tmp_path)
    assert [(slice_.from_time, slice_.action) for slice_ in planned] == [(day(9), "dirty"), (day(8), "chunk")]
    assert {ago for ago, _ in await sample_counts(owner)} == {9}
    await owner.execute("DELETE FROM plant.rollup_dirty")
    await retain(maintenance, database, tmp_path)
    assert await sample_counts(owner) == {}


async def test_record_of_a_deletion_outlives_the_data(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner)
    await owner.execute(
        "INSERT INTO plant.event (time, id, type, channel_id) VALUES"
        " ($1, 1, 'alarm', NULL), ($1, 2, 'retention', NULL), ($1, 3, 'deleted', 1), ($1, 4, 'seal', NULL),"
        " ($1, 5, 'text', 2)",
        day(60),
    )
    await set_retention(owner, "default", event=30)
    await retain(maintenance, database, tmp_path)
    left = await owner.fetch("SELECT e.id FROM plant.event AS e WHERE e.time = $1 ORDER BY e.id", day(60))
    assert [row["id"] for row in left] == [2, 3, 4, 5], "an alarm of no channel is of class default"


_ROLLUPS = """
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT c.relname, c.relkind FROM pg_class AS c
                 WHERE c.relnamespace = 'plant'::regnamespace AND c.relname = 'samples_1m' LOOP
        EXECUTE format('DROP %s plant.%I CASCADE', CASE found.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
                       found.relname);
    END LOOP;
END
$$;
CREATE TABLE plant.minutes_of_the_test (
    channel_id int, bucket timestamptz, n int, PRIMARY KEY (channel_id, bucket)
);
CREATE VIEW plant.samples_1m AS SELECT m.channel_id, m.bucket, m.n FROM plant.minutes_of_the_test AS m;
"""


@pytest.mark.parametrize("chunked", [False, True])
async def test_rollups_expire_by_their_own_age(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path, chunked: bool
) -> None:
    await add_plant(owner)
    await owner.execute(_ROLLUPS)
    if chunked:
        await owner.execute(
            "SELECT public.create_hypertable('plant.minutes_of_the_test', public.by_range('bucket', INTERVAL '7 days'))"
        )
    await owner.execute(
        "INSERT INTO plant.minutes_of_the_test SELECT c, $1::timestamptz + make_interval(hours => h), 60"
        " FROM generate_series(1, 4) AS c, generate_series(0, 24 * 30 - 1) AS h",
        day(30),
    )
    await set_retention(owner, "fast", minute=10)
    await retain(maintenance, database, tmp_path)
    closed = await owner.fetchval("SELECT plant.closed_until()")
    query = "SELECT min(m.bucket) FROM plant.samples_1m AS m WHERE m.channel_id = $1"
    assert await owner.fetchval(query, 1) == day(30)
    assert await owner.fetchval(query, 2) == closed - 10 * DAY


async def test_dropped_table_shows_until_when_raw_data_are_deleted(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8, 2)
    await set_retention(owner, "fast", raw=5)
    await retain(maintenance, database, tmp_path)
    rows = await owner.fetch("SELECT d.what, d.retention, d.until FROM plant.dropped AS d")
    assert [tuple(row) for row in rows] == [("raw", "fast", day(7))]


@pytest.mark.slow
async def test_late_data_of_dropped_days_leave_rollups_unchanged(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8, 2)
    await owner.execute("INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", day(9), day(0))
    await owner.execute("CALL plant.refresh_rollups()")
    rollups = "SELECT (SELECT sum(m.n) FROM plant.samples_1m AS m), (SELECT sum(h.n) FROM plant.samples_1h AS h)"
    before = await owner.fetchrow(rollups)
    assert before is not None and tuple(before) == (3 * 4 * SAMPLES, 3 * 4 * SAMPLES)
    await set_retention(owner, "fast", raw=5)
    await retain(maintenance, database, tmp_path)
    # Channels 2 and 4 had their data dropped, 1 and 3 did not, whatever class they have now.
    await owner.execute("UPDATE plant.channel SET retention = 'default' WHERE id = 4")
    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 3")
    late = (
        "INSERT INTO plant.samples_raw (time, value, channel_id, status) SELECT $1, 5, c, 0 FROM plant.channel AS p (c)"
    )
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, channels) VALUES ($1, $2, '{1, 2, 3, 4}')"
    at = day(9) + 0.25 * DAY
    await owner.execute(late, at + 0.1 * DAY / 1440)
    await owner.execute(dirty, at, at + DAY / 1440)
    await owner.execute("CALL plant.refresh_rollups()")
    after = await owner.fetchrow(rollups)
    assert after is not None and tuple(after) == (before[0] + 2, before[1] + 2), "of channels 1 and 3"
    # Hours outlive their minutes as minutes outlive samples.
    await set_retention(owner, "fast", minute=6)
    await retain(maintenance, database, tmp_path)
    hours = "INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours) VALUES ($1, $2, '{2}', true)"
    await owner.execute(hours, at, at + DAY / 24)
    await owner.execute("CALL plant.refresh_rollups()")
    rest = await owner.fetchrow(rollups)
    assert rest is not None and rest[0] < after[0] and rest[1] == after[1]


async def test_maintenance_login_has_only_its_privileges(
    owner: Connection, maintenance: Connection, reader: asyncpg.Connection
) -> None:
    await add_plant(owner, 3)
    for refused in (
        "DROP TABLE plant.samples_raw",
        "ALTER TABLE plant.channel ADD COLUMN x int",
        "CREATE TABLE plant.x (x int)",
        "CREATE ROLE x",
        "SET ROLE plantlog_owner",
        "UPDATE plant.installation SET sealing = false",
        "UPDATE plant.retention_class SET raw = INTERVAL '1 day'",
        "SELECT public.drop_chunks('plant.samples_raw', older_than => now())",
        "TRUNCATE plant.samples_raw",
        "DELETE FROM plant.samples_raw",
        "INSERT INTO plant.samples_raw VALUES (now(), 1, 1, 0)",
        "DELETE FROM plant.event",
        "SELECT pg_read_file('postgresql.conf')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await maintenance.execute(refused)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.fetch(
            "SELECT * FROM plant.drop_slice('raw', 'plant.samples_raw', $1, $2, NULL, '', true)", day(3), day(2)
        )
    assert len(await sample_counts(owner)) == 4


async def test_cost_of_a_slice_does_not_grow_with_the_number_of_chunks(owner: Connection) -> None:
    """A request may make a thousand days: sizes of all chunks are read once for the plan, not once a slice."""
    await add_plant(owner, 9)
    await set_retention(owner, "fast", raw=5)
    await set_retention(owner, "default", raw=5)
    await owner.execute("SET track_functions = 'all'")
    reads = []
    for days in ((8, 7), (20, 19, 18, 17, 16)):
        await add_plant(owner, *days)
        await owner.fetch("SELECT pg_stat_reset(), pg_stat_force_next_flush()")
        planned = await plan(owner)
        await owner.fetch("SELECT pg_stat_force_next_flush()")
        reads.append((len(planned.slices), await owner.fetchval(_CHUNK_READS)))
    assert [slices for slices, _ in reads] == [3, 8]
    assert reads[0][1] == reads[1][1] > 0
