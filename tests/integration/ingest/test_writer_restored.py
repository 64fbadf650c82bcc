"""A database that lost what the writer committed: noticed without being told, written again, and recorded once."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.batch import SampleBatch
from core.config.model import SpoolOptions, WriterOptions
from core.registry import Registry
from core.timestamps import now_us
from ingest.journal.replay import has_requests, keys, replay
from ingest.spool.append import Spool
from ingest.spool.segments import segments
from ingest.writer.restored import commit_mark
from ingest.writer.writer import Writer
from ops.postgres.bootstrap import maintenance_dsn
from tests.database import Database, add_channels, add_sources, backup_of, connected, drop, rows
from tests.integration.ingest.test_journal import BATCHES, content
from tests.integration.ingest.test_spool_disk import LIMIT
from tests.samples import T0, batch
from tests.spooling import drained, machine_disk, spooled
from tests.waiting import PATIENCE, until

__all__ = ["machine_disk"]

MINUTE = 60_000_000  # µs
_EVENTS = "SELECT time, detail FROM plant.event WHERE type = 'database_restored' ORDER BY time"
_GAPS = (
    "SELECT g.source_id, g.channel_id, (extract(epoch FROM g.from_time) * 1e6)::int8,"
    " (extract(epoch FROM g.to_time) * 1e6)::int8 FROM plant.gap AS g WHERE g.reason = 'database_restored'"
    " ORDER BY 1, 3"
)


@pytest.fixture
async def database(database: Database) -> Database:
    """Database with sources and channels, and nobody connected: it is copied."""
    async with connected(database.owner_dsn) as owner:
        await add_sources(owner, "a", "b")
        await add_channels(owner, range(101))
    return database


def writer_in(folder: Path, database: Database, **options: Any) -> Writer:
    return Writer(folder, database.ingest_dsn, WriterOptions(), SpoolOptions(max_bytes=1024**2, **options))


async def written(folder: Path, database: Database, **options: Any) -> Writer:
    return await drained(writer_in(folder, database, **options))


async def restore(database: Database, backup: Database) -> None:
    """Put the backup in the place of the database, as a restored data directory is: the same server and timeline."""
    name, copy = (cluster_database.owner_dsn.rpartition("/")[2] for cluster_database in (database, backup))
    await drop(database.owner_dsn, name)
    async with connected(maintenance_dsn(database.owner_dsn)) as server:
        await server.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", copy)
        await server.execute(f"ALTER DATABASE {copy} RENAME TO {name}")


async def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """But the records of the loss."""
    async with connected(database.owner_dsn) as owner:
        found = await content(owner)
    found["events"] = [row for row in found["events"] if row[2] != "database_restored"]
    found["gaps"] = [row for row in found["gaps"] if row[4] != "database_restored"]
    return found


async def events(database: Database) -> list[dict[str, Any]]:
    return [json.loads(row[1]) for row in await rows(database, _EVENTS)]


async def registered(database: Database) -> str:
    """The id of a new installation."""
    async with connected(database.owner_dsn) as owner:
        query = """
        INSERT INTO plant.installation (id, plant, class_prefix, number)
        SELECT u, 'p', u, (SELECT count(*) + 1 FROM plant.installation) FROM gen_random_uuid() AS u
        RETURNING id
        """
        return str(await owner.fetchval(query))


def sample(place: int, source: int = 1) -> SampleBatch:
    """One of the source's channel, so many minutes after T0."""
    return replace(batch([(source, place * MINUTE, 1.0 + place, 0)], source), received_at=T0 + place * MINUTE)


@pytest.mark.parametrize("managed", [False, True])
async def test_what_was_lost_while_the_writer_was_down_is_written_again(
    database: Database, tmp_path: Path, managed: bool
) -> None:
    """``managed``: which server it is is a secret, as it may be where others run the database."""
    if managed:
        async with connected(database.owner_dsn) as owner:
            await owner.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    await spooled(tmp_path, sample(0), sample(0, 2))
    await written(tmp_path, database)
    async with backup_of(database) as backup:
        await spooled(tmp_path, *BATCHES, sample(1))
        await written(tmp_path, database)
        before = await everything(database)
        assert await events(database) == []
        await restore(database, backup)
        await written(tmp_path, database)
        assert await everything(database) == before
        assert [(e["batches"], e["gaps"]) for e in await events(database)] == [(len(BATCHES) + 1, 0)]
        assert not has_requests(tmp_path)
        await spooled(tmp_path, sample(2))
        await written(tmp_path, database)
        assert len(await events(database)) == 1, "it is noticed once"


async def test_a_loss_is_noticed_although_another_installation_joined(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (tmp_path / "installation").write_text(await registered(database))
    await spooled(folder, sample(0))
    await written(folder, database)
    async with connected(database.owner_dsn) as owner:
        await owner.execute("TRUNCATE plant.ingest_batch")
    await registered(database)
    await written(folder, database)
    assert [event["batches"] for event in await events(database)] == [1]


async def test_what_was_lost_while_the_writer_runs_is_written_again(database: Database, tmp_path: Path) -> None:
    await spooled(tmp_path, sample(0))
    await written(tmp_path, database)
    async with backup_of(database) as backup:
        writer = writer_in(tmp_path, database)
        running = asyncio.create_task(writer.run())
        spool = Spool(tmp_path / "opcua.sqlite", LIMIT)
        for place in range(1, 50):
            await spool.append(sample(place))
        await until(lambda: writer.written == 49)
        await restore(database, backup)
        await spool.append(sample(50))

        async def all_there() -> bool:
            try:
                return await rows(database, "SELECT count(*) FROM plant.samples") == [(51,)]
            except (OSError, asyncpg.PostgresError):
                return False

        await until(all_there)
        writer.drain()
        await asyncio.wait_for(running, PATIENCE)
        await spool.close()
        assert [(e["batches"], e["gaps"]) for e in await events(database)] == [(49, 0)]
        assert await rows(database, _GAPS) == []


async def test_what_the_journal_lacks_is_a_gap(database: Database, tmp_path: Path) -> None:
    """By source, from the newest sample in the database to the oldest in the journal."""
    await spooled(tmp_path, sample(0), sample(0, 2))
    await written(tmp_path, database)
    async with backup_of(database) as backup:
        await spooled(tmp_path, sample(1))
        await written(tmp_path, database)
        for _, path in segments(tmp_path):
            path.unlink()
        await spooled(tmp_path, sample(5), sample(6))
        await written(tmp_path, database)
        await restore(database, backup)
        await written(tmp_path, database)
    assert [(e["batches"], e["gaps"]) for e in await events(database)] == [(2, 1)]
    assert await rows(database, _GAPS) == [(1, None, T0, T0 + 5 * MINUTE)]
    assert await rows(database, "SELECT count(*) FROM plant.samples WHERE channel_id = 1") == [(3,)]
    assert await rows(database, "SELECT count(*) FROM plant.rollup_dirty WHERE onward") != [(0,)]


async def test_without_a_journal_everything_lost_is_a_gap(database: Database, tmp_path: Path) -> None:
    await spooled(tmp_path, sample(0), sample(0, 2))
    await written(tmp_path, database, keep=0)
    async with backup_of(database) as backup:
        await spooled(tmp_path, sample(1), sample(7))
        await written(tmp_path, database, keep=0)
        await restore(database, backup)
        await spooled(tmp_path, sample(8))
        await written(tmp_path, database, keep=0)
        await written(tmp_path, database, keep=0)
    assert [(e["batches"], e["gaps"]) for e in await events(database)] == [(0, 1)]
    assert await rows(database, _GAPS) == [(1, None, T0, T0 + 7 * MINUTE)]


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from core.config.model import SpoolOptions, WriterOptions
from ingest.writer import writer
from ingest.writer.restored import restore_check
from ingest.writer.restored.commit_mark import CommitMark
from ingest.journal import journal
from ingest.journal.reader import ReplayReader

journal._LEFT_FREE = 0.0  # of the machine's disk

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def died(*_):
    die()

{at}
options = WriterOptions(max_rows=1000)
asyncio.run(writer.Writer(Path(sys.argv[1]), sys.argv[2], options, SpoolOptions(max_bytes=1048576)).run())
"""
_AT = {
    "before the record": "restore_check.RestoreCheck._record = died",
    "before the mark": "CommitMark.begin_restored = die",
    "in the replay": "ReplayReader.delete = die",
}


@pytest.mark.parametrize("at", _AT)
async def test_a_writer_killed_while_it_restores(database: Database, tmp_path: Path, at: str) -> None:
    await spooled(tmp_path, sample(0))
    await written(tmp_path, database)
    async with backup_of(database) as backup:
        await spooled(tmp_path, sample(1))
        await written(tmp_path, database)
        for _, path in segments(tmp_path):
            path.unlink()  # a gap up to what follows
        await spooled(tmp_path, *BATCHES, *(sample(place) for place in range(5, 40)))
        await written(tmp_path, database)
        before = await everything(database)
        await restore(database, backup)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _KILLED.format(at=_AT[at]), str(tmp_path), database.ingest_dsn
        )
        assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL
        await written(tmp_path, database)
    after = await everything(database)
    lost = [row for row in before["batches"] if row not in after["batches"]]
    assert len(lost) == 1, "what the journal lacks"
    assert {name: after[name] for name in ("events", "gaps", "counts", "quarantine")} == {
        name: before[name] for name in ("events", "gaps", "counts", "quarantine")
    }
    assert len(before["samples"]) - len(after["samples"]) == 1
    assert len(await events(database)) == 1
    assert await rows(database, "SELECT count(*) FROM plant.gap WHERE reason = 'database_restored'") == [(1,)]


async def test_a_database_without_the_channels_is_not_written_to(database: Database, tmp_path: Path) -> None:
    """Their ids are put back by ``up``; until then the spool keeps everything."""
    spool = tmp_path / "spool"
    await spooled(spool, sample(0))
    await written(spool, database)
    async with backup_of(database) as backup:
        async with connected(database.owner_dsn) as owner:
            await add_channels(owner, [500], "later")
        Registry({"a": 1, "b": 2}, {"a": {"later": 500}}).save(tmp_path / "registry.json")
        await spooled(spool, batch([(500, 1, 1.0, 0)]))
        await written(spool, database)
        await restore(database, backup)
        await spooled(spool, sample(1))
        writer = writer_in(spool, database)
        running = asyncio.create_task(writer.run())
        await until(lambda: "lacks sources or channels: run `plantlog up`" in writer.database)
        assert (writer.written, await events(database)) == (0, [])
        async with connected(database.owner_dsn) as owner:
            # Another installation got the id meanwhile.
            await owner.execute(
                "INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE"
                " VALUES (3, 'theirs', 'push', '')"
            )
            await add_channels(owner, [500], "theirs", source=3)
            writer.database = ""
            await until(lambda: "lacks sources or channels: run `plantlog up`" in writer.database)
            await owner.execute(
                "DELETE FROM plant.channel WHERE id = 500; DELETE FROM plant.channel_version WHERE channel_id = 500"
            )
            await add_channels(owner, [500], "later")
        await until(lambda: writer.written == 2)
        writer.drain()
        await asyncio.wait_for(running, PATIENCE)
        assert len(await events(database)) == 1


class TestNoFalseAlarm:
    async def test_retention_deletes_old_batches(
        self, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The plant was off for longer than they are kept."""
        long_ago = now_us() - 40 * 86_400_000_000
        monkeypatch.setattr(commit_mark, "now_us", lambda: long_ago)
        monkeypatch.setattr("ingest.journal.journal.now_us", lambda: long_ago)
        await spooled(tmp_path, sample(0))
        await written(tmp_path, database)
        monkeypatch.undo()
        assert list(keys(tmp_path))
        async with connected(database.owner_dsn) as owner:
            await owner.execute("TRUNCATE plant.ingest_batch")
        forget_server(tmp_path)
        await written(tmp_path, database)
        assert await events(database) == []

    async def test_another_server_has_everything(self, database: Database, tmp_path: Path) -> None:
        await spooled(tmp_path, *BATCHES)
        await written(tmp_path, database)
        forget_server(tmp_path)
        await spooled(tmp_path, sample(1))
        await written(tmp_path, database)
        assert await events(database) == []
        assert json.loads((tmp_path / commit_mark.FILE).read_text())["server"] != "another"

    async def test_the_mark_is_older(self, database: Database, tmp_path: Path) -> None:
        await spooled(tmp_path, sample(0))
        await written(tmp_path, database)
        before = (tmp_path / commit_mark.FILE).read_text()
        await spooled(tmp_path, *BATCHES)
        await written(tmp_path, database)
        (tmp_path / commit_mark.FILE).write_text(before)
        await spooled(tmp_path, sample(1))
        await written(tmp_path, database)
        assert await events(database) == []

    @pytest.mark.parametrize("mark", [None, "damaged", "{}"])
    async def test_there_is_no_mark(self, database: Database, tmp_path: Path, mark: str | None) -> None:
        await spooled(tmp_path, sample(0))
        await written(tmp_path, database)
        (tmp_path / commit_mark.FILE).unlink()
        if mark is not None:
            (tmp_path / commit_mark.FILE).write_text(mark)
        await written(tmp_path, database)
        assert await events(database) == []

    async def test_another_database_is_registered(self, database: Database, tmp_path: Path) -> None:
        """It was created again, or taken over: what is in the journal was never committed to it."""
        folder = tmp_path / "spool"
        folder.mkdir()
        await spooled(folder, *BATCHES)
        await written(folder, database)
        (tmp_path / "installation").write_text(await registered(database))
        async with connected(database.owner_dsn) as owner:
            await owner.execute("TRUNCATE plant.ingest_batch")
        for place in range(3):
            await spooled(folder, sample(place))
            await written(folder, database)
            forget_server(folder)
        assert await events(database) == []
        assert await rows(database, "SELECT count(*) FROM plant.ingest_batch") == [(3,)]

    async def test_a_replay_is_not_done(self, database: Database, tmp_path: Path) -> None:
        """Batches that a replay brings are expected to be missing."""
        await spooled(tmp_path, *BATCHES)
        await written(tmp_path, database)
        async with connected(database.owner_dsn) as owner:
            await owner.execute("TRUNCATE plant.ingest_batch")
        (tmp_path / commit_mark.FILE).unlink()
        replay(tmp_path)
        await written(tmp_path, database)
        assert await events(database) == []


async def test_another_timeline_is_compared_with_the_whole_journal(database: Database, tmp_path: Path) -> None:
    """A standby was promoted that lacks what was committed in the last second: the mark does not have it yet."""
    await spooled(tmp_path, sample(0))
    await written(tmp_path, database)
    async with backup_of(database) as backup:
        before = (tmp_path / commit_mark.FILE).read_text()
        await spooled(tmp_path, sample(1), sample(2))
        await written(tmp_path, database)
        (tmp_path / commit_mark.FILE).write_text(before)
        forget_server(tmp_path)
        await restore(database, backup)
        await written(tmp_path, database)
    [event] = await events(database)
    assert (event["batches"], event["gaps"], event["servers"][0]) == (2, 0, "another")
    assert await rows(database, "SELECT count(*) FROM plant.samples") == [(3,)]


def forget_server(folder: Path) -> None:
    """Change the mark to that of another server or timeline."""
    path = folder / commit_mark.FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "server": "another"}))
