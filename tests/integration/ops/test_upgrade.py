"""A database of each release is brought to this version with its data, and is then like one made from nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from core.paths import CHECKOUT
from history.seals.keys import stored_keys
from history.seals.seal_store import chain_problems, sealed_day, seals
from history.standalone import root_of, seal_problems
from ops.maintenance.packing import pack_days
from ops.migration.migrate import migrate, migrations
from tests.database import Database, connected, drop
from tests.releases import releases, restore, upgraded

_CATALOG = (CHECKOUT / "tests" / "catalog.sql").read_text()
_TABLES = """
SELECT c.oid::regclass::text FROM pg_class AS c
WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'r'
  AND c.relname NOT IN ('migration', 'setting')
ORDER BY 1
"""
_READ = (
    "SELECT * FROM plant.samples_named",
    "SELECT * FROM plant.samples_1m WHERE n > 0",
    "SELECT * FROM plant.samples_1h WHERE n > 0",
    "SELECT * FROM plant.states_1m WHERE n > 0",
    "SELECT day::date, name, got, got_good, backfilled_seconds FROM plant.coverage WHERE got > 0",
    "SELECT * FROM plant.alarm_active",
    "SELECT * FROM plant.event_count_named",
    "SELECT key, value, installation_id FROM plant.setting WHERE key !~ '^((routine|edition|forensics)/|sealing$)'",
)


@pytest.fixture(params=releases(), ids=lambda release: release.name.removesuffix(".tar.xz"))
async def earlier(empty_database: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The owner's DSN of a database as a release left it; not the one of the fixture ``database``."""
    dsn = f"{empty_database}_earlier"
    try:
        await restore(dsn, request.param)
        yield dsn
    finally:
        await drop(dsn, dsn.rpartition("/")[2])


@pytest.fixture
async def owner(earlier: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A session in that database."""
    async with connected(earlier) as connection:
        yield connection


async def _lines(dsn: str) -> set[str]:
    async with connected(dsn) as connection:
        return {row["line"] for row in await connection.fetch(_CATALOG)}


async def _queries(owner: asyncpg.Connection[Any]) -> list[str]:
    """Read every table, and the views, in the columns that they have now; as text, to the bit."""
    queries = []
    for read in (*(f"TABLE {row[0]}" for row in await owner.fetch(_TABLES)), *_READ):
        columns = ", ".join(f'q."{column.name}"' for column in (await owner.prepare(read)).get_attributes())
        queries.append(f"SELECT ROW({columns})::text FROM ({read}) AS q ORDER BY 1")
    return queries


async def _data(owner: asyncpg.Connection[Any], queries: list[str]) -> dict[str, list[str]]:
    """The rows of each query."""
    return {query: [row[0] for row in await owner.fetch(query)] for query in queries}


async def test_an_upgraded_database_equals_a_new_one(
    earlier: str, owner: asyncpg.Connection[Any], database: Database
) -> None:
    await migrate(earlier)
    assert await migrate(earlier) == []
    upgraded, new = await _lines(earlier), await _lines(database.owner_dsn)
    assert sorted(upgraded ^ new) == []
    versions = await owner.fetch("SELECT version FROM plant.migration ORDER BY version")
    assert [row[0] for row in versions] == [m.version for m in migrations()]


async def test_an_upgraded_database_keeps_its_data(earlier: str, owner: asyncpg.Connection[Any]) -> None:
    queries = await _queries(owner)
    before = await _data(owner, queries)
    assert [query for query, lines in before.items() if not lines] == []
    await migrate(earlier)
    after = await _data(owner, queries)
    for query in queries:
        if "rollup_dirty) AS q" in query:  # a migration may have more to be recomputed
            assert set(before.pop(query)) <= set(after.pop(query))
    assert after == before


async def test_next_release_has_rows_to_record(empty_database: str) -> None:
    """In each table: a change that adds one adds rows to tests/integration/releases/next.sql."""
    dsn = f"{empty_database}_next"
    try:
        await upgraded(dsn)
        async with connected(dsn) as owner:
            rows = await _data(owner, await _queries(owner))
    finally:
        await drop(dsn, dsn.rpartition("/")[2])
    assert [query for query, lines in rows.items() if not lines] == []


async def test_seals_of_an_earlier_release_hold(earlier: str, owner: asyncpg.Connection[Any]) -> None:
    """They are those of the first installation, whichever registered last, and cover all."""
    await migrate(earlier)
    chain = await seals(owner, 1)
    assert chain_problems(chain, None) == []
    assert list(seal_problems(chain, await stored_keys(owner, 1), None)) == []
    days = {seal.day: [link for link in chain if link.day == seal.day] for seal in chain}
    assert days
    for of in days.values():
        sealed = await sealed_day(owner, date.fromisoformat(of[0].day), of)
        assert [root_of(seal, parts, sealed.rows).hex() for seal, parts in zip(of, sealed.parts, strict=True)] == [
            seal.root for seal in of
        ]
    registered = "SELECT number, sealing FROM plant.installation"
    assert [tuple(row) for row in await owner.fetch(registered)] == [(1, True)]


async def test_upgraded_database_continues(earlier: str, owner: asyncpg.Connection[Any]) -> None:
    await migrate(earlier)
    channel = await owner.fetchval("SELECT min(c.id) FROM plant.channel AS c WHERE c.kind = 'analog'")
    minute = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=-1)
    await owner.execute("INSERT INTO plant.samples_raw VALUES ($1, 42.5, $2, 0)", minute, channel)
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, channels) VALUES ($1, $2, ARRAY[$3::int])"
    await owner.execute(dirty, minute, minute + timedelta(minutes=1), channel)
    await owner.execute("CALL plant.refresh_rollups()")
    made = "SELECT last FROM plant.samples_1m WHERE channel_id = $1 AND bucket = $2"
    assert await owner.fetchval(made, channel, minute) == 42.5
    increases = (
        "SELECT * FROM plant.rollup_increases_1m ORDER BY 1, 2",
        "SELECT * FROM plant.increase_minutes_of("
        "ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'counter'), '-infinity', 'infinity') ORDER BY 1, 2",
    )
    stored, computed = [{tuple(row) for row in await owner.fetch(query)} for query in increases]
    assert stored <= computed
    assert await owner.fetchval("SELECT sum(increase) FROM plant.increases_1h") > 0
    before = await owner.fetchval("SELECT count(*) FROM plant.samples")
    await pack_days(owner, datetime.now(UTC))
    assert await owner.fetchval("SELECT count(*) FROM plant.samples") == before
    await owner.execute("UPDATE plant.channel SET unit = 'other' WHERE id = $1", channel)
    versions = await owner.fetchval("SELECT count(*) FROM plant.channel_version WHERE channel_id = $1", channel)
    assert versions >= 2
