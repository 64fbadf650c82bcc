"""Retention beside readers: whatever order they lock in, neither ends the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ops.maintenance.job import Connection, run
from ops.maintenance.jobs import jobs
from ops.maintenance.packing import compress_before
from tests.database import Database, connected
from tests.maintenance import add_plant, closed_relation, day, job_context, run_ok, sample_counts, set_retention
from tests.waiting import until

RETAIN = next(job for job in jobs() if job.name == "retain")
_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass AND mode = $2"
_TOAST = "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = $1::regclass"


@pytest.fixture
async def chunk(owner: Connection) -> str:
    """The chunk of packed hours that is to be dropped whole."""
    closed = await closed_relation(owner)
    await add_plant(owner, 9, 2)
    await compress_before(owner, day(8))
    for name in ("fast", "default"):
        await set_retention(owner, name, raw=5)
    query = "SELECT c::text FROM show_chunks($1::text::regclass, older_than => $2::timestamptz) AS c"
    [found] = await owner.fetch(query, closed, day(8))
    return str(found[0])


async def _meet(owner: Connection, database: Database, chunk: str, dropping: Any) -> tuple[Any, list[asyncpg.Record]]:
    """Let ``dropping`` wait for the chunk, and a reader, which has the chunk's TOAST table already, wait behind it.

    Returns what dropping came to, and what the reader read. Each now holds what the other one wants next.
    """
    toast = await owner.fetchval(_TOAST, chunk)
    async with connected(database.owner_dsn) as gate, connected(database.owner_dsn) as reader:
        await reader.execute("SET deadlock_timeout = '1h'")  # it does not look: the other one does
        async with reader.transaction():
            await reader.execute(f"SELECT count(*) FROM {toast}")
            async with gate.transaction():
                await gate.execute(f"LOCK TABLE {chunk} IN ACCESS SHARE MODE")
                dropped = asyncio.ensure_future(dropping)

                async def waits(mode: str) -> bool:
                    return bool(await owner.fetchval(_WAITING, chunk, mode))

                await until(lambda: waits("AccessExclusiveLock"))
                reading = asyncio.create_task(reader.fetch(f"SELECT channel_id FROM {chunk}"))
                await until(lambda: waits("AccessShareLock"))
            rows = await reading
            return (await asyncio.gather(dropped, return_exceptions=True))[0], rows


async def test_order_of_locks_that_ends_in_a_deadlock(owner: Connection, database: Database, chunk: str) -> None:
    """Waiting for a second table without a limit, which `drop_slice` avoids, is a deadlock."""
    async with connected(database.owner_dsn) as dropper:

        async def dropping() -> None:
            await dropper.execute("SET deadlock_timeout = '10ms'")
            async with dropper.transaction():
                await dropper.execute(f"LOCK TABLE {chunk} IN ACCESS EXCLUSIVE MODE")
                await dropper.execute(f"DROP TABLE {chunk}")

        came, rows = await _meet(owner, database, chunk, dropping())
    assert isinstance(came, asyncpg.DeadlockDetectedError)
    assert rows


async def test_reader_and_retention_get_through(
    owner: Connection, database: Database, chunk: str, tmp_path: Path
) -> None:
    context = job_context(database, tmp_path)
    came, rows = await _meet(owner, database, chunk, run(RETAIN, context))
    assert rows, "the reader is not ended"
    assert came.outcome == "failed"
    assert "lock timeout" in came.done.detail
    await run_ok(RETAIN, context)
    assert {ago for ago, _ in await sample_counts(owner)} == {2}
    assert await owner.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
