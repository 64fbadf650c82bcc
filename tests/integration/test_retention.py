"""Retention on a real database: by class, age and disk budget, never what is open or unsealed, on record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ops.maintenance.jobs import jobs
from ops.maintenance.retain import Retention, Slice, plan
from ops.maintenance.run import Connection
from tests.database import Database
from tests.maintained import (
    DAY,
    SAMPLES,
    closed_relation,
    day,
    keep,
    pack_days,
    plant_in,
    ran,
    seals,
    setting,
    settled,
    site_of,
    stored,
)

RETAIN = next(job for job in jobs() if job.name == "retain")
AHEAD = next(job for job in jobs() if job.name == "ahead")
_EVENTS = "SELECT e.text, e.detail FROM plant.event AS e WHERE e.type = 'retention' ORDER BY e.time, e.id"


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def maintenance(database: Database) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database.maintenance_dsn)
    yield connection
    await connection.close()


async def retain(connection: Connection, database: Database, state: Path) -> list[Slice]:
    """A run, as the process does it; what its dry run said before."""
    planned = list((await plan(connection)).slices)
    await Retention().work(site_of(database, state), connection)
    return planned


async def recorded(owner: Connection) -> list[dict[str, Any]]:
    return [json.loads(row["detail"]) for row in await owner.fetch(_EVENTS)]


def facts(one: Slice) -> tuple[Any, ...]:
    return one.relation, one.from_time.isoformat(), list(one.retention), one.channels, one.rows, one.bytes, one.action


def of_event(said: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(said[key] for key in ("relation", "from", "classes", "channels", "rows", "bytes", "action"))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "as the edition has it"])
async def test_a_class_goes_from_rows_and_from_closed_days_the_others_stay(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path, packed: bool
) -> None:
    if packed:
        await pack_days(owner)
    closed = await closed_relation(owner)
    await plant_in(owner, 9, 8, 7, 3, 2)
    await owner.execute("CALL plant.compress_before($1)", day(7))
    await keep(owner, "fast", raw=5)
    await retain(maintenance, database, tmp_path)
    kept = {(ago, channel): SAMPLES for ago in (9, 8, 7) for channel in (1, 3)}
    kept |= {(ago, channel): SAMPLES for ago in (3, 2) for channel in (1, 2, 3, 4)}
    assert await stored(owner) == kept
    said = await recorded(owner)
    assert [(one["relation"], one["action"]) for one in said] == [
        (closed, "rows"),
        (closed, "rows"),
        ("plant.samples_raw", "rows"),
    ]
    for one in said:
        assert (one["classes"], one["channels"], one["rows"], one["why"]) == (["fast"], 2, 2 * SAMPLES, "age")
        assert one["channel_ids"] == "{[2,3),[4,5)}"
        assert one["bytes"] > 0


async def test_chunks_go_whole_where_all_classes_do(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    closed = await closed_relation(owner)
    await plant_in(owner, 9, 8, 2)
    await plant_in(owner, 6, channels=(2, 4))
    await owner.execute("CALL plant.compress_before($1)", day(8))
    await keep(owner, "fast", raw=5)
    await keep(owner, "default", raw=7)
    await retain(maintenance, database, tmp_path)
    assert await stored(owner) == {(2, channel): SAMPLES for channel in (1, 2, 3, 4)}
    said = await recorded(owner)
    assert [(one["relation"], one["action"], one["classes"]) for one in said] == [
        (closed, "chunk", ["default", "fast"]),
        ("plant.samples_raw", "chunk", ["default", "fast"]),
        ("plant.samples_raw", "chunk", ["fast"]),
    ]
    units = await owner.fetch("SELECT u.from_time FROM plant.retention_units('raw') AS u")
    assert [unit["from_time"] for unit in units] == [day(2)]


async def test_the_dry_run_is_what_goes_and_changes_nothing(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 40, 9, 8, 6, 2)
    await owner.execute("CALL plant.compress_before($1)", day(8))
    await owner.execute(
        "INSERT INTO plant.event (time, id, type, channel_id)"
        " SELECT now() - make_interval(days => d), d, 'alarm', d % 4 + 1 FROM generate_series(1, 60) AS d"
    )
    await keep(owner, "fast", raw=5, event=20)
    await keep(owner, "default", raw=7, event=30)
    before = await stored(owner)
    planned = list((await plan(maintenance)).slices)
    assert await stored(owner) == before
    assert await recorded(owner) == []
    assert {one.what for one in planned} == {"raw", "event"}
    await Retention().work(site_of(database, tmp_path), maintenance)
    assert sorted(map(of_event, await recorded(owner))) == sorted(map(facts, planned))
    left = (await plan(maintenance)).slices
    assert left == ()


async def test_the_open_day_stays_whatever_is_asked(owner: Connection, maintenance: Connection) -> None:
    await plant_in(owner, 3, 0)
    await owner.execute("CALL plant.compress_before(now())")
    future = day(-5)
    dropped = await maintenance.fetch("SELECT * FROM plant.drop_before($1, 'raw', NULL, false)", future)
    assert {row["day"] for row in dropped} == {day(3)}
    assert set(await stored(owner)) == {(0, channel) for channel in (1, 2, 3, 4)}
    query = "SELECT s.action FROM plant.drop_slice('raw', $1::text::regclass, $2, $3, NULL, 'test', false) AS s"
    for relation in ("plant.samples_raw", "plant.samples_packed"):
        for said in await maintenance.fetch(query, relation, day(0), day(-1)):
            assert said["action"] == "open"
    assert set(await stored(owner)) == {(0, channel) for channel in (1, 2, 3, 4)}


async def test_a_day_waits_for_its_late_data(owner: Connection, maintenance: Connection) -> None:
    await plant_in(owner, 3)
    await setting(owner, "lateness", str(10 * 86400))
    query = "SELECT * FROM plant.drop_before($1, 'raw', NULL, false)"
    assert await maintenance.fetch(query, day(0)) == []
    assert len(await stored(owner)) == 4


async def test_days_without_a_seal_stay_until_they_have_one(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 9, 8, 7, 2)
    await owner.execute("CALL plant.compress_before($1)", day(7))
    await seals(owner, 8)
    await keep(owner, "default", raw=5)
    await keep(owner, "fast", raw=5)
    planned = await retain(maintenance, database, tmp_path)
    assert [(one.from_time, one.action) for one in planned] == [
        (day(9), "unsealed"),
        (day(8), "chunk"),
        (day(7), "unsealed"),
    ]
    assert {ago for ago, _ in await stored(owner)} == {9, 7, 2}
    await seals(owner, 9, 8, 7)
    await retain(maintenance, database, tmp_path)
    assert {ago for ago, _ in await stored(owner)} == {2}


async def test_what_waits_for_its_seal_is_looked_at_again(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 9)
    await seals(owner)
    await keep(owner, "default", raw=5)
    await keep(owner, "fast", raw=5)
    job, site = Retention(), site_of(database, tmp_path)
    done = await job.work(site, maintenance)
    assert (done.rows, done.detail) == (0, "1 kept: unsealed")
    await seals(owner, 9)
    done = await job.work(site, maintenance)
    assert (done.rows, done.detail) == (4 * SAMPLES, "1 dropped")
    assert (await job.work(site, maintenance)).detail == ""


async def test_raw_data_wait_for_the_rollups_that_are_made_from_them(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 9, 8)
    await owner.execute(
        "CREATE TABLE IF NOT EXISTS plant.rollup_dirty (from_time timestamptz, to_time timestamptz, hours boolean)"
    )
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, hours) VALUES ($1, $2, $3)"
    await owner.execute(dirty, day(9), day(9) + DAY / 24, False)
    await owner.execute(dirty, day(8), day(8) + DAY / 24, True)
    await keep(owner, "default", raw=5)
    await keep(owner, "fast", raw=5)
    planned = await retain(maintenance, database, tmp_path)
    assert [(one.from_time, one.action) for one in planned] == [(day(9), "dirty"), (day(8), "chunk")]
    assert {ago for ago, _ in await stored(owner)} == {9}
    await owner.execute("DELETE FROM plant.rollup_dirty")
    await retain(maintenance, database, tmp_path)
    assert await stored(owner) == {}


async def test_a_budget_takes_the_oldest_days_that_may_go(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 9, 8, 7, 2, 0)
    await owner.execute("CALL plant.compress_before($1)", day(7))
    await seals(owner, 9, 7, 2)
    await ran(AHEAD, site_of(database, tmp_path))  # the chunk of the events that are about to come
    await setting(owner, "disk_budget", str(await settled(owner) - 10_000))
    planned = await retain(maintenance, database, tmp_path)
    assert [(one.from_time, one.why, one.action) for one in planned][:1] == [(day(9), "budget", "chunk")]
    assert {ago for ago, _ in await stored(owner)} == {8, 7, 2, 0}, "one packed day is enough"
    assert [one["why"] for one in await recorded(owner)] == ["budget"]
    await setting(owner, "disk_budget", str(await settled(owner) - 500_000))
    await retain(maintenance, database, tmp_path)
    assert {ago for ago, _ in await stored(owner)} == {8, 2, 0}, "8 has no seal, and one day of rows is enough"
    assert (await plan(maintenance)).lacking == 0


async def test_a_budget_that_cannot_be_reached_takes_nothing_and_says_so_once(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 3, 2, 0)
    await setting(owner, "disk_budget", str(1024**2))
    before = await stored(owner)
    for _ in range(2):
        assert await retain(maintenance, database, tmp_path) == []
    assert await stored(owner) == before
    (said,) = await recorded(owner)
    assert (said["why"], said["budget"]) == ("budget", 1024**2)
    assert 0 < said["lacking"] < said["bytes"] - said["budget"]
    done = await ran(RETAIN, site_of(database, tmp_path))
    assert "over the disk budget" in done.done.detail


async def test_what_says_that_something_was_dropped_outlives_it(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner)
    await owner.execute(
        "INSERT INTO plant.event (time, id, type, channel_id) VALUES"
        " ($1, 1, 'alarm', NULL), ($1, 2, 'retention', NULL), ($1, 3, 'deleted', 1), ($1, 4, 'seal', NULL),"
        " ($1, 5, 'text', 2)",
        day(60),
    )
    await keep(owner, "default", event=30)
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
async def test_rollups_go_by_their_own_age_from_the_table_behind_the_view(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path, chunked: bool
) -> None:
    await plant_in(owner)
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
    await keep(owner, "fast", minute=10)
    await retain(maintenance, database, tmp_path)
    closed = await owner.fetchval("SELECT plant.closed_until()")
    query = "SELECT min(m.bucket) FROM plant.samples_1m AS m WHERE m.channel_id = $1"
    assert await owner.fetchval(query, 1) == day(30)
    assert await owner.fetchval(query, 2) == closed - 10 * DAY


async def test_who_makes_rollups_anew_sees_until_where_raw_data_are_gone(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 9, 8, 2)
    await keep(owner, "fast", raw=5)
    await retain(maintenance, database, tmp_path)
    rows = await owner.fetch("SELECT d.what, d.retention, d.until FROM plant.dropped AS d")
    assert [tuple(row) for row in rows] == [("raw", "fast", day(7))]


async def test_late_data_of_dropped_days_leave_their_rollups_as_they_are(
    owner: Connection, maintenance: Connection, database: Database, tmp_path: Path
) -> None:
    await plant_in(owner, 9, 8, 2)
    await owner.execute("INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", day(9), day(0))
    await owner.execute("CALL plant.refresh_rollups()")
    rollups = "SELECT (SELECT sum(m.n) FROM plant.samples_1m AS m), (SELECT sum(h.n) FROM plant.samples_1h AS h)"
    before = await owner.fetchrow(rollups)
    assert before is not None and tuple(before) == (3 * 4 * SAMPLES, 3 * 4 * SAMPLES)
    await keep(owner, "fast", raw=5)
    await retain(maintenance, database, tmp_path)
    late = "INSERT INTO plant.samples_raw (time, value, channel_id, status) VALUES ($1, 5, 2, 0), ($1, 5, 1, 0)"
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, channels) VALUES ($1, $2, '{1, 2}')"
    at = day(9) + 0.25 * DAY
    await owner.execute(late, at + 0.1 * DAY / 1440)
    await owner.execute(dirty, at, at + DAY / 1440)
    await owner.execute("CALL plant.refresh_rollups()")
    after = await owner.fetchrow(rollups)
    assert after is not None and tuple(after) == (before[0] + 1, before[1] + 1), "of channel 1, which has its raw data"
    # Hours outlive their minutes as minutes outlive samples.
    await keep(owner, "fast", minute=6)
    await retain(maintenance, database, tmp_path)
    hours = "INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours) VALUES ($1, $2, '{2}', true)"
    await owner.execute(hours, at, at + DAY / 24)
    await owner.execute("CALL plant.refresh_rollups()")
    rest = await owner.fetchrow(rollups)
    assert rest is not None and rest[0] < after[0] and rest[1] == after[1]


async def test_the_login_may_do_its_work_and_nothing_else(
    owner: Connection, maintenance: Connection, database: Database
) -> None:
    await plant_in(owner, 3)
    for refused in (
        "DROP TABLE plant.samples_raw",
        "ALTER TABLE plant.channel ADD COLUMN x int",
        "CREATE TABLE plant.x (x int)",
        "CREATE ROLE x",
        "SET ROLE plantlog_owner",
        "UPDATE plant.setting SET value = 'off' WHERE key = 'sealing'",
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
    reader = await asyncpg.connect(database.reader_dsn)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.fetch(
            "SELECT * FROM plant.drop_slice('raw', 'plant.samples_raw', $1, $2, NULL, '', true)", day(3), day(2)
        )
    await reader.close()
    assert len(await stored(owner)) == 4
