"""The writer through failures of a real database: nothing lost, nothing twice, and what is refused is on record."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from prometheus_client import REGISTRY

from core.batch import Batch, Event, EventBatch, Gap, GapBatch
from core.config.model import WriterOptions
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from ops.postgres.bootstrap import bootstrap
from ops.postgres.server import Server
from tests.database import Database, add_channels, add_sources, connected, logins_of
from tests.samples import T0, batch
from tests.spooling import Spooled, spooled
from tests.waiting import PATIENCE, until

MIB = 1024**2
QUICK = WriterOptions(connections=1, time_out=1.0)


@pytest.fixture
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_plant(owner)


async def add_plant(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a")
    await add_channels(owner, range(101))


@asynccontextmanager
async def writing(folder: Path, dsn: str, options: WriterOptions = QUICK) -> AsyncIterator[Writer]:
    """A writer that runs inside the block, after which everything must have left the spool."""
    writer = Writer(folder, dsn, options)
    running = asyncio.create_task(writer.run())
    try:
        yield writer
        writer.drain()
        await asyncio.wait_for(running, PATIENCE)
    finally:
        running.cancel()
        await asyncio.wait((running,))
    assert Spooled(folder / "opcua.sqlite").depth() == (0, 0)


async def until_rows(owner: asyncpg.Connection, rows: int) -> None:
    await until(partial(owner.fetchval, "SELECT count(*) >= $1 FROM plant.samples_raw", rows))


async def until_failed(reason: str, since: float) -> None:
    """Until the writer has counted a failure of that kind."""
    await until(lambda: failures(reason) > since)


def failures(reason: str) -> float:
    return REGISTRY.get_sample_value("plantlog_write_failures_total", {"reason": reason}) or 0.0


async def counted(owner: asyncpg.Connection, table: str) -> int:
    return int(await owner.fetchval(f"SELECT count(*) FROM plant.{table}"))


async def until_waiting(owner: asyncpg.Connection) -> None:
    """Until the writer waits for a lock."""
    waiting = """
    SELECT count(*) FROM pg_stat_activity AS a
    WHERE a.application_name = 'plantlog writer' AND a.wait_event_type = 'Lock' AND a.datname = current_database()"""
    await until(partial(owner.fetchval, waiting))


async def set_for_writer(owner: asyncpg.Connection, setting: str) -> None:
    """For the role that writes, in this database alone."""
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER ROLE plantlog_ingest IN DATABASE {name} SET {setting}")


ROWS = batch([(c, t, float(t), 0) for c in range(10) for t in range(100)])

# A server that goes away


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that this module may stop, kill and fill."""
    with Server(tmp_path_factory.mktemp("own-server")) as server:
        yield server


@pytest.fixture
async def own_database(own_server: Server) -> Database:
    await bootstrap(own_server.owner_dsn, {"ingest": "ingest-of-tests", "reader": "reader-of-tests"})
    return logins_of(own_server.owner_dsn)


@pytest.mark.slow
async def test_restart_and_crash_of_the_server(own_server: Server, own_database: Database, tmp_path: Path) -> None:
    owner = await asyncpg.connect(own_database.owner_dsn)
    await add_plant(owner)
    await owner.close()
    spool = Spool(tmp_path / "opcua.sqlite", 512 * MIB)
    async with writing(tmp_path, own_database.ingest_dsn, WriterOptions(connections=2, max_rows=1000, time_out=5.0)):
        for place, how in enumerate((signal.SIGINT, signal.SIGKILL, signal.SIGINT)):
            feeding = [asyncio.create_task(spool.append(_tenth(place, i))) for i in range(50)]
            await asyncio.to_thread(own_server.stop, how)
            await asyncio.gather(*feeding)
            await asyncio.to_thread(own_server.start)
        owner = await asyncpg.connect(own_database.owner_dsn)
        await until_rows(owner, 3 * 50 * 100)
    await spool.close()
    assert await counted(owner, "samples_raw") == 3 * 50 * 100
    assert await owner.fetchval("SELECT sum(rows) FROM plant.ingest_batch") == 3 * 50 * 100
    assert await counted(owner, "quarantine") == await counted(owner, "event") == 0
    await owner.execute("DROP SCHEMA plant CASCADE")
    await owner.close()


def _tenth(place: int, i: int) -> Batch:
    return batch([(c, place * 1000 + i, float(i), 0) for c in range(100)])


@pytest.mark.slow
async def test_full_disk_of_the_server(own_server: Server, own_database: Database, tmp_path: Path) -> None:
    """The chunks stand on a file system of 8 MiB, which grows later."""
    owner = await asyncpg.connect(own_database.owner_dsn)
    await add_plant(owner)
    with small_tablespace(own_server) as grow:
        cluster = own_server._cluster
        await owner.execute(f"CREATE TABLESPACE small LOCATION '{cluster.path_of_server(cluster.folder / 'small')}'")
        await owner.execute("SELECT attach_tablespace('small', 'plant.samples_raw')")
        before = failures("DiskFullError")
        for second in range(60):  # 180,000 rows of about 100 bytes
            await spooled(tmp_path, batch([(c, second * 30 + t, float(t), 0) for c in range(100) for t in range(30)]))
        async with writing(tmp_path, own_database.ingest_dsn, WriterOptions(connections=1, time_out=30.0)):
            await until_failed("DiskFullError", before)
            grow()
            await until_rows(owner, 180_000)
        assert await counted(owner, "samples_raw") == 180_000
        assert await counted(owner, "quarantine") == 0
        await owner.execute("DROP SCHEMA plant CASCADE")
        await owner.execute("DROP TABLESPACE small")
    await owner.close()


@contextmanager
def small_tablespace(server: Server) -> Iterator[Callable[[], None]]:
    """Mount 8 MiB as ``small`` in the cluster's folder; gives what makes it larger."""
    folder = server._cluster.folder
    small = folder / "small"

    def run(*command: str) -> None:
        subprocess.run([*command, str(small)], check=True)

    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size=8m,uid={folder.stat().st_uid},mode=700", "tmpfs")
    try:
        yield lambda: run("mount", "-o", "remount,size=256m")
    finally:
        run("umount", "--lazy")


# Locks


@pytest.mark.usefixtures("registered_channels")
async def test_deadlock(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    other: asyncpg.Connection = await asyncpg.connect(database.owner_dsn)
    await other.execute("SET deadlock_timeout = '60s'")  # the writer is the one that finds it, and gives way
    before = failures("DeadlockDetectedError")
    insert = "INSERT INTO plant.samples_raw VALUES (to_timestamp($1), 0, $2, 0)"
    await owner.execute(insert, T0 / 1e6 + 1e6, 100)  # the chunk is there: no lock on the table
    await owner.execute("INSERT INTO plant.samples_raw VALUES (to_timestamp($1), 0, 100, 0)", T0 / 1e6 + 3600)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(insert, T0 / 1e6, 2)
    await spooled(tmp_path, batch([(1, 0, 1.0, 0), (2, 0, 2.0, 0)]))
    async with writing(tmp_path, database.ingest_dsn, WriterOptions(connections=1, time_out=20.0)):
        await until_waiting(owner)  # for channel 2, and has channel 1
        await other.execute(insert, T0 / 1e6, 1)
        await until_failed("DeadlockDetectedError", before)
        await transaction.rollback()
        await until_rows(owner, 4)
    assert await owner.fetchval("SELECT sum(value) FROM plant.samples_raw") == 3.0
    assert await counted(owner, "quarantine") == await counted(owner, "event") == 0
    await other.close()


@pytest.mark.usefixtures("registered_channels")
async def test_serialization_failure(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    await set_for_writer(owner, "default_transaction_isolation = 'repeatable read'")
    before = failures("SerializationError")
    state = EventBatch(1, T0, (Event("source_state", T0, text="connected"),))
    await spooled(tmp_path, state, ROWS)
    transaction = owner.transaction()
    await transaction.start()
    await owner.execute("UPDATE plant.source SET reason = 'the other was first'")
    options = WriterOptions(connections=1, time_out=20.0)
    async with connected(database.owner_dsn) as looking, writing(tmp_path, database.ingest_dsn, options):
        await until_waiting(looking)
        await transaction.commit()
        await until_failed("SerializationError", before)
        await until_rows(owner, 1000)
    assert await owner.fetchval("SELECT state FROM plant.source") == "connected"
    assert await counted(owner, "event") == 1


@pytest.mark.usefixtures("registered_channels")
async def test_lock_time_out(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    await spooled(tmp_path, ROWS)
    before = failures("LockNotAvailableError") + failures("QueryCanceledError")
    transaction = owner.transaction()
    await transaction.start()
    await owner.execute("LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE")
    async with writing(tmp_path, database.ingest_dsn):
        await until(lambda: failures("LockNotAvailableError") + failures("QueryCanceledError") >= before + 2)
        await transaction.rollback()
        await until_rows(owner, 1000)
    assert await counted(owner, "quarantine") == 0


@pytest.mark.usefixtures("registered_channels")
async def test_group_that_times_out_is_split(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    """Ten rows a second, and a second of time: all at once it would be for ever."""
    await owner.execute(
        "CREATE FUNCTION plant.slow() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$"
    )
    await owner.execute(
        "CREATE TRIGGER slow BEFORE INSERT ON plant.samples_raw FOR EACH ROW EXECUTE FUNCTION plant.slow()"
    )
    await spooled(tmp_path, batch([(1, t, float(t), 0) for t in range(20)]), batch([(2, t, 0.0, 0) for t in range(10)]))
    before = failures("QueryCanceledError")
    async with writing(tmp_path, database.ingest_dsn):
        await until_rows(owner, 30)
    assert failures("QueryCanceledError") > before
    facts = await owner.fetch("SELECT rows FROM plant.ingest_batch ORDER BY sequence")
    assert [f["rows"] for f in facts] == [20, 10]


# What is wrong with the database stays in the spool until somebody puts it right


@pytest.mark.usefixtures("registered_channels")
async def test_missing_permission_is_reported_and_retried(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await owner.execute("REVOKE INSERT ON plant.samples_raw FROM plant_ingest")
    await spooled(tmp_path, ROWS)
    before = failures("InsufficientPrivilegeError")
    async with writing(tmp_path, database.ingest_dsn) as writer:
        await until_failed("InsufficientPrivilegeError", before)
        assert writer.database.startswith("unusable: InsufficientPrivilegeError: permission denied")
        assert "nothing is written until this is fixed" in caplog.text
        await owner.execute("GRANT INSERT ON plant.samples_raw TO plant_ingest")
        await until_rows(owner, 1000)
    assert await counted(owner, "quarantine") == 0


# Rows that the database refuses


@pytest.mark.usefixtures("registered_channels")
async def test_refused_rows_go_to_quarantine_and_the_rest_is_written(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await owner.execute("ALTER TABLE plant.samples_raw ADD CONSTRAINT beast CHECK (value <> 666)")
    bad = {(1, 17), (1, 18), (3, 99)}
    rows = [[(c, t, 666.0 if (c, t) in bad else float(t), 0) for t in range(100)] for c in range(1, 5)]
    await spooled(tmp_path / "1", *(batch(some) for some in rows))
    async with writing(tmp_path / "1", database.ingest_dsn, WriterOptions(connections=2)) as writer:
        await until_rows(owner, 397)
    assert await counted(owner, "samples_raw") == 397
    kept_out = await owner.fetch(
        "SELECT channel_id, time_us, value, reason, source_id, detail::jsonb ->> 'sqlstate' AS state,"
        " detail::jsonb ->> 'error' AS error, retried_at FROM plant.quarantine ORDER BY 1, 2"
    )
    assert [(r["channel_id"], r["time_us"] - T0) for r in kept_out] == sorted(bad)
    assert {(r["value"], r["reason"], r["source_id"], r["state"]) for r in kept_out} == {(666.0, "refused", 1, "23514")}
    assert all("beast" in r["error"] and r["retried_at"] is None for r in kept_out)
    facts = await owner.fetch("SELECT sequence, rows, kind FROM plant.ingest_batch")
    assert [(f["rows"], f["kind"]) for f in facts] == [(100, "samples")] * 4
    assert (writer.written, writer.quarantined) == (397, 3)
    # All of it comes again: nothing is added.
    await spooled(tmp_path / "2", *(batch(some) for some in rows))
    async with writing(tmp_path / "2", database.ingest_dsn) as again:
        pass
    assert again.written == 0
    assert await counted(owner, "samples_raw") == 397
    assert await counted(owner, "quarantine") == 3
    assert await counted(owner, "event") == 0


@pytest.mark.usefixtures("registered_channels")
async def test_refused_events_and_gaps_go_to_quarantine(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    events = [Event("text", T0 + i, 1, 0, str(i)) for i in range(5)]
    events[2] = Event("text", T0 + 2, 2**40, 0, "no channel has such a number")
    events[4] = Event("te\0xt", T0 + 4, 1, 0, "no text has such a character")
    gaps = (Gap(T0, T0 + 5, "stale", (1, 2, 7777, 3)), Gap(T0 + 9, None, "killed"))
    await spooled(tmp_path, EventBatch(1, T0, events), ROWS, GapBatch(1, T0, gaps))
    async with writing(tmp_path, database.ingest_dsn):
        pass
    assert await counted(owner, "samples_raw") == 1000
    stored = await owner.fetch("SELECT text FROM plant.event ORDER BY time")
    assert [r["text"] for r in stored] == ["0", "1", "3"]
    found = await owner.fetch("SELECT channel_id, reason FROM plant.gap ORDER BY from_time, channel_id")
    assert [tuple(r) for r in found] == [(1, "stale"), (2, "stale"), (3, "stale"), (None, "killed")]
    kept_out = await owner.fetch("SELECT time_us, detail FROM plant.quarantine ORDER BY time_us")
    assert [r["time_us"] - T0 for r in kept_out] == [0, 2, 4]
    assert "7777" in kept_out[0]["detail"]
    assert await owner.fetchval("SELECT sum(rows) FROM plant.ingest_batch") == 1007


@pytest.mark.usefixtures("registered_channels")
async def test_batch_with_refused_facts_is_kept_as_a_dead_letter(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await owner.execute("ALTER TABLE plant.ingest_batch ADD CONSTRAINT unlucky CHECK (rows <> 13)")
    await spooled(tmp_path, ROWS, batch([(1, 200 + t, 0.0, 0) for t in range(13)]), batch([(1, 300, 0.0, 0)]))
    async with writing(tmp_path, database.ingest_dsn):
        await until_rows(owner, 1014)
    assert await owner.fetchval("SELECT sum(rows) FROM plant.ingest_batch") == 1001
    (kept,) = (tmp_path / "damaged").iterdir()
    assert "unlucky" in kept.read_text()


@pytest.mark.usefixtures("registered_channels")
async def test_times_beyond_the_limits_create_no_chunk(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    day = 86_400_000_000
    rows = batch([(1, 0, 1.0, 0), (2, 2 * day, 2.0, 0x80050000), (3, -4000 * day, 3.0, 0)])
    events = EventBatch(1, T0, (Event("text", T0 + 2 * day, 4, 0, "from tomorrow"), Event("text", T0, 4, 0, "now")))
    await spooled(tmp_path, rows, events)
    async with writing(tmp_path, database.ingest_dsn):
        pass
    assert await counted(owner, "samples_raw") == await counted(owner, "event") == 1
    assert await owner.fetchval("SELECT count(*) FROM show_chunks('plant.samples_raw')") == 1
    kept_out = await owner.fetch("SELECT reason, channel_id, value, status FROM plant.quarantine ORDER BY reason, 2")
    assert [tuple(r) for r in kept_out] == [
        ("ancient", 3, 3.0, 0),
        ("future", 2, 2.0, 0x80050000 - 2**32),
        ("future", None, None, None),
    ]
