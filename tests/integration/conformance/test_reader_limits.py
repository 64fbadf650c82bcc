"""A reader that means harm: what a session can't lift, and what it can't hold against others."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import asyncpg
import psutil
import pytest

from core.paths import State
from ops.maintenance.job import JobContext, run
from ops.maintenance.jobs import jobs
from ops.maintenance.reader_sessions import largest_backends
from ops.registration.installation import installation_id, login_mark
from schema.queries import load
from tests.database import Database, connected
from tests.waiting import until

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
    "SELECT FROM plant.reader_sessions()",
    "SELECT public.add_job('pg_sleep', '1 s')",
    "ALTER ROLE plantlog_reader SET temp_file_limit = -1",
    "ALTER ROLE plantlog_reader CONNECTION LIMIT 90",
    "ALTER ROLE plantlog_ingest PASSWORD 'stolen'",
)


@pytest.fixture
async def reader(reader: asyncpg.Connection) -> asyncpg.Connection:
    """One that has lifted what it can."""
    for statement in _LIFTED:
        await reader.execute(statement)
    return reader


@pytest.mark.parametrize("statement", _REFUSED)
async def test_reader_cannot_create_objects_or_hold_locks(reader: asyncpg.Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.execute(statement)


async def test_other_roles_can_take_locks(database: Database) -> None:
    for dsn in (database.owner_dsn, database.ingest_dsn, database.maintenance_dsn):
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT pg_try_advisory_xact_lock(1)")


async def test_reader_pool_is_not_disturbed(database: Database) -> None:
    """It unlocks all with each connection that it is given back."""
    async with asyncpg.create_pool(database.reader_dsn, min_size=1, max_size=1) as pool:
        for _ in range(2):
            assert await pool.fetchval("SELECT count(*) FROM plant.samples") == 0


async def test_temporary_files_and_sessions_are_limited(database: Database, reader: asyncpg.Connection) -> None:
    assert await reader.fetchval("SHOW temp_file_limit") == "2GB"
    connected = [reader]
    with pytest.raises(asyncpg.TooManyConnectionsError):
        while len(connected) < 60:
            connected.append(await asyncpg.connect(database.reader_dsn))
    for connection in connected:
        connection.terminate()


@pytest.mark.parametrize("state", ["active", "idle in transaction"])
async def test_long_running_reader_is_terminated(
    maintenance: asyncpg.Connection, owner: asyncpg.Connection, reader: asyncpg.Connection, state: str
) -> None:
    pid = reader.get_server_pid()
    endless: asyncio.Task[str] | None = None
    if state == "active":
        endless = asyncio.create_task(reader.execute("SELECT pg_sleep(86400)"))
    else:
        await reader.execute("BEGIN")
        await reader.execute("SELECT FROM plant.samples_raw")
    await until(partial(owner.fetchval, "SELECT state = $2 FROM pg_stat_activity WHERE pid = $1", pid, state))
    assert await maintenance.fetchval("SELECT plant.end_long_readers()") == 0, "it may, for a while"
    limit = "statement" if state == "active" else "idle"
    assert await maintenance.fetchval(f"SELECT plant.end_long_readers({limit} => '0')") == 1
    await until(partial(owner.fetchval, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1", pid))
    if endless is not None:
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await endless


async def test_session_using_too_much_memory_is_terminated(
    maintenance: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    pid = reader.get_server_pid()
    if not psutil.pid_exists(pid) or psutil.Process(pid).name() != "postgres":
        pytest.skip("the server is not on this machine")
    await reader.execute("SET work_mem = '16GB'")
    sort = asyncio.create_task(
        reader.execute("SELECT FROM generate_series(1, 100000000) AS g ORDER BY -g OFFSET 99999999")
    )
    readers = load("maintenance")["select_reader_sessions"]

    async def too_large() -> list[int]:
        assert not sort.done()
        return largest_backends([row["pid"] for row in await maintenance.fetch(readers)], 100 * 1024**2)

    heavy = await until(too_large, every=0.1)
    assert heavy == [pid]
    assert await maintenance.fetchval(load("maintenance")["end_long_readers"], heavy) == 1
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await sort


async def test_changes_of_the_reader_login_are_undone(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    state = State(tmp_path)
    (tmp_path / "secrets").mkdir()
    state.dsn_file("reader").write_text(database.reader_dsn)
    site = JobContext(database.maintenance_dsn, database.owner_dsn, state)
    await owner.execute(f"COMMENT ON ROLE plantlog_reader IS '{login_mark(installation_id(state))}'")
    reader: asyncpg.Connection = await asyncpg.connect(database.reader_dsn)
    given = await reader.fetchval("SELECT rolconfig FROM pg_roles WHERE rolname = current_user")
    name = await reader.fetchval("SELECT current_database()")
    await reader.execute("SET default_transaction_read_only = off")
    await reader.execute("ALTER ROLE plantlog_reader SET statement_timeout = 0")
    await reader.execute("ALTER ROLE plantlog_reader SET work_mem = '16GB'")
    await reader.execute(f"ALTER ROLE plantlog_reader IN DATABASE {name} SET statement_timeout = 0")
    await reader.execute("ALTER ROLE plantlog_reader PASSWORD 'mine'")
    await reader.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(database.reader_dsn)
    for job in jobs():
        if job.name in ("readers", "logins"):
            ran = await run(job, site)
            assert ran.outcome == "ok", ran.done.detail
    async with connected(database.reader_dsn) as reader:
        assert await reader.fetchval("SELECT rolconfig FROM pg_roles WHERE rolname = current_user") == given
        assert await reader.fetchval("SHOW statement_timeout") == "5min"
        assert await reader.fetchval("SHOW work_mem") != "16GB"
    await owner.execute("COMMENT ON ROLE plantlog_reader IS NULL")


async def test_private_server_lacks_no_setting(reader: asyncpg.Connection) -> None:
    assert await reader.fetch(load("status")["select_problems"]) == []
