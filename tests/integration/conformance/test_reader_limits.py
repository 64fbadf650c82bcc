"""A reader that means harm: what a session can't lift, and what it can't hold against others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from ops.maintenance.jobs import jobs
from ops.maintenance.run import Site, run
from ops.paths import State
from schema.queries import load
from tests.database import Database
from tests.patience import PATIENCE

_LIFTED = (
    "SET default_transaction_read_only = off",
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
)
_REFUSED = (
    "CREATE TEMPORARY TABLE mine (a int)",
    "CREATE TABLE plant.mine (a int)",
    "CREATE TABLE public.mine (a int)",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'kept')",
    "SELECT pg_logical_emit_message(false, 'a', repeat('a', 1000))",
    "SELECT pg_advisory_lock(7361023400152)",
    "SELECT pg_try_advisory_lock(7361023400153)",
    "SELECT pg_advisory_xact_lock(7361023400154)",
    "SELECT pg_try_advisory_xact_lock_shared(7361023400154)",
    "SELECT pg_try_advisory_lock(73610234, hashtext('seal'))",
    "BEGIN; LOCK TABLE plant.samples_raw IN ROW SHARE MODE",
    "SELECT FROM plant.setting FOR SHARE",
    "SET temp_file_limit = -1",
    "SELECT plant.end_long_readers('0', '0')",
)


@pytest.fixture
async def reader(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """One that has lifted what it can."""
    connection: asyncpg.Connection = await asyncpg.connect(database.reader_dsn)
    for statement in _LIFTED:
        await connection.execute(statement)
    yield connection
    connection.terminate()


@pytest.mark.parametrize("statement", _REFUSED)
async def test_what_a_reader_can_neither_leave_behind_nor_hold(reader: asyncpg.Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.execute(statement)


async def test_who_needs_locks_has_them(database: Database) -> None:
    for dsn in (database.owner_dsn, database.ingest_dsn, database.maintenance_dsn):
        connection: asyncpg.Connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT pg_try_advisory_xact_lock(1)")
        await connection.close()


async def test_a_pool_of_readers_is_not_disturbed(database: Database) -> None:
    """It unlocks all with each connection that it is given back."""
    async with asyncpg.create_pool(database.reader_dsn, min_size=1, max_size=1) as pool:
        for _ in range(2):
            assert await pool.fetchval("SELECT count(*) FROM plant.samples") == 0


async def test_temporary_files_and_sessions_have_a_limit(database: Database, reader: asyncpg.Connection) -> None:
    assert await reader.fetchval("SHOW temp_file_limit") == "10GB"
    connected = [reader]
    with pytest.raises(asyncpg.TooManyConnectionsError):
        while len(connected) < 60:
            connected.append(await asyncpg.connect(database.reader_dsn))
    for connection in connected:
        connection.terminate()


@pytest.mark.parametrize("state", ["active", "idle in transaction"])
async def test_a_reader_without_an_end_is_ended(database: Database, reader: asyncpg.Connection, state: str) -> None:
    owner: asyncpg.Connection = await asyncpg.connect(database.owner_dsn)
    maintenance: asyncpg.Connection = await asyncpg.connect(database.maintenance_dsn)
    pid = reader.get_server_pid()
    endless: asyncio.Task[str] | None = None
    if state == "active":
        endless = asyncio.create_task(reader.execute("SELECT pg_sleep(86400)"))
    else:
        await reader.execute("BEGIN")
        await reader.execute("SELECT FROM plant.samples_raw")
    async with asyncio.timeout(PATIENCE):
        while await owner.fetchval("SELECT state FROM pg_stat_activity WHERE pid = $1", pid) != state:
            await asyncio.sleep(0.02)
        assert await maintenance.fetchval("SELECT plant.end_long_readers()") == 0, "it may, for a while"
        assert await maintenance.fetchval("SELECT plant.end_long_readers('0', '0')") == 1
        while await owner.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid):
            await asyncio.sleep(0.02)
    if endless is not None:
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await endless
    await owner.close()
    await maintenance.close()


async def test_the_job_that_ends_them_runs(database: Database, tmp_path_factory: pytest.TempPathFactory) -> None:
    (job,) = (job for job in jobs() if job.name == "readers")
    site = Site(database.maintenance_dsn, database.owner_dsn, State(tmp_path_factory.mktemp("state")))
    assert (await run(job, site)).outcome == "ok"


async def test_a_server_of_ours_lacks_nothing(reader: asyncpg.Connection) -> None:
    assert await reader.fetch(load("status")["missing"]) == []
