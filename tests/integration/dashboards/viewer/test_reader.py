"""Reads of the viewer: within limits, beside maintenance, and without internals of the database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.errors import DatabaseError, QueryError
from dashboards.viewer.frames import MAX_BYTES, frame, wide
from dashboards.viewer.reader import ReaderPool
from tests.database import Database
from tests.integration.dashboards.viewer.serving import reading
from tests.waiting import until


async def test_result_has_a_limit_in_bytes(reader: ReaderPool) -> None:
    """Rows are fetched in portions, so that what is beyond it never comes."""
    sql = "SELECT n, repeat('x', 65536) AS text FROM generate_series(1, 20000) AS n"
    answer = await reader.query(sql, [])
    rows = len(answer.columns[0])
    assert MAX_BYTES <= rows * 65536 < 4 * MAX_BYTES
    assert answer.notice == f"Only {rows:,} rows: their texts have more than 16,777,216 bytes"
    for stored, notice in ((49_999, ""), (50_001, "Only the first 50,000 rows")):
        answer = await reader.query(f"SELECT n FROM generate_series(1, {stored}) AS n", [])
        assert (len(answer.columns[0]), answer.notice) == (min(stored, 50_000), notice)
    curves = (
        "SELECT now() + n * INTERVAL '1 s' AS time, 'c' || n AS name, 1.0 AS value FROM generate_series(1, 2000) AS n"
    )
    with pytest.raises(QueryError, match="2,000 curves of 2,000 points: choose fewer channels"):
        wide(await reader.query(curves, []))


def test_list_is_shown_as_its_values() -> None:
    answer = frame(["channels", "shares"], ["text", "text"], [(["a", "b"], [2 / 3, 1.0]), ([], None)])
    assert answer.columns == [["a, b", ""], ["0.666667, 1", None]]


async def test_query_that_meets_the_removal_of_a_chunk_is_repeated(
    owner: asyncpg.Connection[Any], database: Database, tmp_path: Path
) -> None:
    """The server ends one of two that wait for each other."""
    name = database.owner_dsn.rpartition("/")[2]
    await owner.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '3s'")
    await owner.execute("SET deadlock_timeout = '1h'")
    sql = (
        "SELECT plant.channels_between('plant.quarantine', 'received_at', '-infinity', 'infinity'), "
        "plant.channels_between('plant.event', 'time', now(), now())"
    )
    async with reading(database.reader_dsn, tmp_path) as reader:
        async with owner.transaction():
            await owner.execute("LOCK TABLE plant.event IN ACCESS EXCLUSIVE MODE")
            querying = asyncio.create_task(reader.query(sql, []))

            async def waits() -> bool:
                return bool(await owner.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

            await until(waits)
            await owner.execute("LOCK TABLE plant.quarantine IN ACCESS EXCLUSIVE MODE")  # until the query was ended
            assert not querying.done()
        assert (await querying).columns == [[""], [""]]


async def test_failures_of_the_database_tell_nothing_of_it(reader: ReaderPool) -> None:
    for sql, told in (
        ("SELECT * FROM plant.no_such_table", "the query failed: see the log of the viewer"),
        ("SELECT pg_read_file('/etc/passwd')", "the query failed: see the log of the viewer"),
    ):
        with pytest.raises(DatabaseError) as failed:
            await reader.query(sql, [])
        assert str(failed.value) == told
