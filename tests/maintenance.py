"""Test data for maintenance and retention: a plant with days of samples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core.paths import State
from ops.maintenance.job import Connection, Job, JobContext, JobResult, JobRun, run
from tests.database import Database
from tests.waiting import until

DAY = timedelta(days=1)
_LATENESS = timedelta(hours=1)  # while late data are waited for; plant.setting's default
CHANNELS = 4  # of class default: 1, 3; of class fast: 2, 4
SAMPLES = 1440  # of a channel and day

_PLANT = """
INSERT INTO plant.source (name, kind, address) VALUES ('plc', 'modbus', '');
INSERT INTO plant.channel (name, source_id, address, kind, retention)
SELECT 'c' || i, 1, 'c' || i, 'analog', CASE WHEN i % 2 = 0 THEN 'fast' ELSE 'default' END
FROM generate_series(1, 4) AS i;
INSERT INTO plant.retention_class (name) VALUES ('fast');
"""
_DAY = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT $1::timestamptz + make_interval(mins => m), m, c, 0
FROM generate_series(0, 1439) AS m, unnest($2::int[]) AS c
"""
_SEALS = """
DROP TABLE IF EXISTS plant.day_seal CASCADE;
CREATE TABLE plant.day_seal (
    day date, installation int, revision int DEFAULT 0,
    chain int GENERATED ALWAYS AS (greatest(installation, 1)) STORED,
    PRIMARY KEY (day, installation)
);
GRANT SELECT ON plant.day_seal TO plant_maintenance;
"""
_INSTALLATION = """
INSERT INTO plant.installation (id, plant, class_prefix, number, sealing) VALUES ($1, $2, $3, $4, true)
ON CONFLICT (id) DO UPDATE SET sealing = true
"""


def day(ago: int) -> datetime:
    """A midnight (UTC) so many days before that of the open day, which is open for an hour more than it lasts."""
    now = datetime.now(UTC) - _LATENESS
    return datetime(now.year, now.month, now.day, tzinfo=UTC) - ago * DAY


async def add_plant(owner: asyncpg.Connection[Any], *ago: int, channels: tuple[int, ...] = (1, 2, 3, 4)) -> None:
    """The plant, and a sample a minute of its channels on each of those days."""
    if not await owner.fetchval("SELECT EXISTS (SELECT FROM plant.channel)"):
        await owner.execute(_PLANT)
    for number in ago:
        await owner.execute(_DAY, day(number), list(channels))


async def vacuumed_size(owner: asyncpg.Connection[Any]) -> int:
    """Bytes of the database when autovacuum has nothing left to add to them."""
    await owner.execute("VACUUM (ANALYZE)")
    return int(await owner.fetchval("SELECT pg_database_size(current_database())"))


async def set_retention(owner: asyncpg.Connection[Any], name: str, **days: int | None) -> None:
    """Set the ages of a class of retention, in days."""
    for column, age in days.items():
        await owner.execute(
            f"UPDATE plant.retention_class SET {column} = make_interval(days => $2) WHERE name = $1", name, age
        )


async def set_setting(owner: asyncpg.Connection[Any], key: str, value: str) -> None:
    """A row of plant.setting."""
    query = "INSERT INTO plant.setting VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    await owner.execute(query, key, value)


async def pack_days(owner: asyncpg.Connection[Any]) -> None:
    """Closed days are packed on both editions."""
    await set_setting(owner, "compression", "packed")


async def closed_relation(owner: asyncpg.Connection[Any]) -> str:
    """Table of closed days: packed, or columnstored where they came."""
    packed = await owner.fetchval("SELECT plant.compression()") == "packed"
    return "plant.samples_packed" if packed else "plant.samples_raw"


async def add_installation(owner: asyncpg.Connection[Any], id_: UUID, number: int = 1) -> None:
    """An installation that seals."""
    await owner.execute(_INSTALLATION, id_, f"plant{number}", "" if number == 1 else f"{number}:", number)


async def add_seals(owner: asyncpg.Connection[Any], *ago: int, installation: int = 0) -> None:
    """Sealing is on, and these days have a seal of an installation (0: all): as retention looks at them."""
    await owner.execute(_SEALS)
    await add_installation(owner, UUID(int=1))
    for number in ago:
        await owner.execute("INSERT INTO plant.day_seal VALUES ($1, $2)", day(number).date(), installation)


async def sample_counts(owner: asyncpg.Connection[Any]) -> dict[tuple[int, int], int]:
    """(days ago, channel) → samples, in whatever form."""
    rows = await owner.fetch(
        "SELECT date_trunc('day', s.time, 'UTC') AS day, s.channel_id, count(*) AS n"
        " FROM plant.samples AS s GROUP BY 1, 2"
    )
    return {(round((day(0) - row["day"]) / DAY), row["channel_id"]): row["n"] for row in rows}


def job_context(database: Database, state: Path) -> JobContext:
    """Database and folder of the jobs of a test."""
    return JobContext(database.maintenance_dsn, database.owner_dsn, State(state))


async def run_ok(job: Job, context: JobContext) -> JobRun:
    """A run that succeeds."""
    done = await run(job, context)
    assert done.outcome == "ok", done
    return done


async def _sleep(context: JobContext, connection: Connection) -> JobResult:
    await connection.execute("SELECT pg_sleep(600)")
    return JobResult()


SLEEPING = Job("sleeping", _sleep, "", every=10, slice_seconds=600)


async def asleep(owner: Connection) -> bool:
    """Return whether a server process works on the statement of :data:`SLEEPING`."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
    return bool(await owner.fetchval(query))


async def until_awake(owner: Connection) -> None:
    """Wait until none does."""

    async def awake() -> bool:
        return not await asleep(owner)

    await until(awake)
