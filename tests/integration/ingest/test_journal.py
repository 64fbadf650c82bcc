"""Replay after a loss of the database: every committed batch is there, once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from core.batch import Batch, Event, EventBatch, Gap, GapBatch
from core.config.model import SpoolOptions, WriterOptions
from core.paths import State
from core.timestamps import now_us, utc
from ingest.journal.journal import Journal
from ingest.journal.replay import has_requests, keys, replay
from ingest.spool.append import Spool
from ingest.spool.format import SpooledBatch
from ingest.spool.reader import SpoolReader
from ingest.spool.segments import segments
from ingest.writer.writer import Writer
from tests.command import plantlog
from tests.database import Database, add_channels, add_sources
from tests.integration.ingest.test_spool_disk import LIMIT, Disk, disk, run, samples
from tests.sample_tables import compress
from tests.samples import T0, batch, count_batch
from tests.spooling import drained, machine_disk, spooled
from tests.waiting import PATIENCE, until

__all__ = ["disk", "machine_disk"]

MIB = 1024**2
BAD = 0x80050000
DAY = 86_400_000_000  # µs
FUTURE = 400 * DAY  # beyond the writer's limit: quarantine
_CONTENT = {
    "samples": "SELECT channel_id, time, value, status FROM plant.samples ORDER BY 1, 2",
    "events": "SELECT time, id, type, source_id, text FROM plant.event WHERE type <> 'database_restored' ORDER BY 1, 2",
    "gaps": "SELECT source_id, channel_id, from_time, to_time, reason, revision FROM plant.gap ORDER BY 1, 2, 3",
    "counts": "SELECT bucket, type, channel_id, n FROM plant.event_count_1m ORDER BY 1, 2, 3",
    "quarantine": "SELECT id FROM plant.quarantine ORDER BY 1",
    "batches": "SELECT source_id, sequence, kind, rows, received_at FROM plant.ingest_batch ORDER BY 1, 2",
    "states": "SELECT id, state, state_since FROM plant.source ORDER BY 1",
}
_LOST = "TRUNCATE plant.samples_raw, plant.event, plant.gap, plant.event_count_1m, plant.quarantine, plant.ingest_batch"
BATCHES: tuple[Batch, ...] = (
    batch([(c, t * 1000, c + t / 10, BAD if t == 3 else 0) for c in range(20) for t in range(50)]),
    batch([(1, FUTURE, 1.0, 0), (2, 77, 2.5, 0)]),
    EventBatch(1, T0, (Event("text", T0, 3, 0, "auto"), Event("source_state", T0 + 1, text="connected"))),
    GapBatch(2, T0, (Gap(T0, T0 + 5, "stopped"), Gap(T0 + 9, None, "refused", (1, 2)))),
    GapBatch(2, T0 + 50, (Gap(T0 + 9, T0 + 20, "refused", (1, 2)),)),
    count_batch([(0, "pulses", 1, 3), (1, "pulses", 1, 4)], digest=-77),
    count_batch([(0, "starts", 2, 1)]),
    batch([(5, day * DAY, 1.0, 0) for day in range(-150, 0)]),  # more days than a transaction takes
)


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a", "b")
    await add_channels(owner, range(101))


async def content(owner: asyncpg.Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {name: [tuple(row) for row in await owner.fetch(query)] for name, query in _CONTENT.items()}


async def written(folder: Path, database: Database, **options: Any) -> Writer:
    options = {"max_bytes": MIB, **options}
    return await drained(Writer(folder, database.ingest_dsn, WriterOptions(), SpoolOptions(**options)))


async def test_what_the_database_lost_is_written_again_once(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await spooled(tmp_path, *BATCHES)
    await spooled(tmp_path, batch([(90, 1, 1.0, 0)], 2), name="modbus.backfill")
    await written(tmp_path, database)
    before = await content(owner)
    assert all(before.values())
    assert {(key.source_id, key.sequence) for key in keys(tmp_path)} == {row[:2] for row in before["batches"]}
    held = len(list(keys(tmp_path)))
    await owner.execute(_LOST)
    assert replay(tmp_path).batches == held
    await written(tmp_path, database)
    assert await content(owner) == before
    assert len(list(keys(tmp_path))) == held, "what is written again is not in the journal twice"
    replay(tmp_path)
    writer = await written(tmp_path, database)
    assert await content(owner) == before, "a second time nothing changes"
    assert (writer.written, writer.increments) == (0, 0)
    assert not has_requests(tmp_path)


async def test_only_what_is_missing_is_written_again(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await spooled(tmp_path, *BATCHES, *(batch([(c, 999, 1.0, 0)]) for c in range(50, 90)))
    await written(tmp_path, database)
    before = await content(owner)
    await owner.execute("DELETE FROM plant.samples_raw WHERE channel_id BETWEEN 60 AND 69")
    await owner.execute("DELETE FROM plant.ingest_batch WHERE sequence % 4 = 0")
    replay(tmp_path)
    await written(tmp_path, database)
    assert (await content(owner))["batches"] == before["batches"]
    stored = [row[0] for row in (await content(owner))["samples"] if 60 <= row[0] <= 69]
    assert 0 < len(stored) < 10, "those whose batch was missing; a batch that is there is not looked into"


async def test_a_replay_into_packed_hours_changes_nothing(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await spooled(tmp_path, BATCHES[0])
    await written(tmp_path, database)
    await compress(owner)
    before = await content(owner)
    await owner.execute("DELETE FROM plant.ingest_batch")
    replay(tmp_path)
    await written(tmp_path, database)
    await compress(owner)
    assert await content(owner) == before


@pytest.mark.slow
async def test_live_data_go_first(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    await spooled(tmp_path, *(batch([(c, t, 1.0, 0) for t in range(5000)]) for c in range(60)))
    await written(tmp_path, database)
    await owner.execute(_LOST)
    replay(tmp_path)
    spool = Spool(tmp_path / "opcua.sqlite", LIMIT)
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1), SpoolOptions(max_bytes=MIB))
    running = asyncio.create_task(writer.run())
    await until(lambda: writer.written > 0)
    await spool.append(batch([(100, 1, 1.0, 0)]))
    query = "SELECT (SELECT count(*) FROM plant.samples_raw WHERE channel_id = 100), count(*) FROM plant.samples_raw"

    async def found() -> Any:
        row = await owner.fetchrow(query)
        return row if row is not None and row[0] else None

    _, rows = await until(found)
    assert rows < 300_001, "not behind all of the replay"
    await until(lambda: writer.written == 300_001)

    async def nothing_waits() -> bool:  # the loss was also noticed, and what was asked for twice is written once
        return (await writer.backlog())[2].waiting_rows == 0

    await until(nothing_waits)
    writer.drain()
    await asyncio.wait_for(running, PATIENCE)
    await spool.close()


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from core.config.model import SpoolOptions, WriterOptions
from ingest.journal import journal
from ingest.writer.writer import Writer

journal._LEFT_FREE = 0.0  # of the machine's disk
Journal = journal.Journal
append = Journal.append
def killed(self, batches):
    if {after}:
        append(self, batches)
    if batches:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.append = killed
writer = Writer(Path(sys.argv[1]), sys.argv[2], WriterOptions(), SpoolOptions(max_bytes=1048576))
asyncio.run(writer.run())
"""


@pytest.mark.parametrize("after", [False, True], ids=["before the journal", "before the delete"])
async def test_a_writer_killed_after_the_commit(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, after: bool
) -> None:
    await spooled(tmp_path, *BATCHES)
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _KILLED.format(after=after), str(tmp_path), database.ingest_dsn
    )
    assert await asyncio.wait_for(killed.wait(), PATIENCE) == -signal.SIGKILL
    committed = {row[:2] for row in (await content(owner))["batches"]}
    assert committed, "the database has it"
    with closing(SpoolReader(tmp_path / "opcua.sqlite")) as spool:
        assert spool.depth()[0] == len(BATCHES), "and the spool still"
    await written(tmp_path, database)
    before = await content(owner)
    assert {(key.source_id, key.sequence) for key in keys(tmp_path)} == {row[:2] for row in before["batches"]}
    await owner.execute(_LOST)
    replay(tmp_path)
    await written(tmp_path, database)
    assert await content(owner) == before


async def test_the_command(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    state = State(tmp_path / "state")

    async def command(*arguments: str, code: int = 0, name: Sequence[str] = ("admin", "spool", "replay")) -> str:
        result = await asyncio.wait_for(plantlog(state.root, *name, *arguments), PATIENCE)
        assert result.code == code, result.err
        return result.err if code else result.out

    assert "does not exist: run `plantlog up`" in await command("--from", "10m", code=1)
    state.claim()
    assert "it is empty" in await command("--from", "10m", code=1)
    await spooled(state.spool, *BATCHES)
    began = now_us()
    await written(state.spool, database)
    before = await content(owner)
    await owner.execute(_LOST)
    assert "the journal has nothing" in await command(
        "--from", utc(began - DAY).isoformat(), "--to", utc(began - 1).isoformat(), code=1
    )
    assert "--from: found 'x'; legal: a time such as" in await command("--from", "x", code=1)
    assert "is not before --to" in await command("--from", "1m", "--to", "2m", code=1)
    report = json.loads(await command("--from", utc(began).isoformat(), "--json"))
    assert (report["batches"], report["rows"]) == (len(BATCHES), sum(map(len, BATCHES)))
    shown = await command(name=("admin", "spool", "show"))
    assert re.search(r"^journal: 0\.0 MiB, reaches back (\d min ?)?([\d.]+ s)?$", shown, re.MULTILINE), shown
    assert len(re.findall(r"^to be replayed: .*/spool/2\S+\.replay$", shown, re.MULTILINE)) == 1
    result = await command("--from", "1h")
    assert result.startswith(f"{len(BATCHES)} batches with {sum(map(len, BATCHES)):,} rows, committed from 2")
    await written(state.spool, database)
    assert await content(owner) == before


# on a disk of its own


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
class TestFullDisk:
    @pytest.mark.slow
    async def test_the_journal_goes_before_a_batch_is_refused(
        self, disk: Disk, database: Database, owner: asyncpg.Connection
    ) -> None:
        await journaled(disk, database, 200)
        disk.fill(leave=0)
        assert segments(disk.folder)
        spool = Spool(disk.folder / "opcua.sqlite", LIMIT)
        for number in range(200, 210):
            await spool.append(samples(number))
        assert not spool.full
        assert (await spool.depth())[0] == 10
        await spool.close()

    def test_a_disk_without_room_for_a_segment(self, tmp_path: Path) -> None:
        """It has no inode left: the oldest segment goes, and without one nothing is kept."""
        run("mount", "-t", "tmpfs", "-o", f"size={64 * MIB},nr_inodes=8", "plantlog-test", tmp_path)
        try:
            for number in range(20):  # a segment each
                journal = Journal(tmp_path, SpoolOptions(max_bytes=MIB))
                journal.append([(tmp_path / "opcua.sqlite", [SpooledBatch(number, T0, T0, batch([(1, 0, 1.0, 0)]))])])
                assert journal.report().problem is None
                journal.close()
            held = [key.sequence for key in keys(tmp_path)]
            assert held == list(range(19, 19 - len(held), -1))
            assert 3 < len(held) < 8
            for _, path in segments(tmp_path):
                path.rename(path.with_suffix(".others"))
            journal.append([(tmp_path / "opcua.sqlite", [SpooledBatch(20, T0, T0, batch([(1, 0, 1.0, 0)]))])])
            assert journal.report().problem == "No space left on device"
            journal.close()
        finally:
            run("umount", "--lazy", tmp_path)

    async def test_the_writer_leaves_the_disk_to_the_spool(
        self, disk: Disk, database: Database, owner: asyncpg.Connection
    ) -> None:
        await journaled(disk, database, 100)
        options = SpoolOptions(max_bytes=16 * MIB)
        writer = Writer(disk.folder, database.ingest_dsn, WriterOptions(connections=1), options)
        running = asyncio.create_task(writer.run())
        disk.fill(leave=12 * MIB)
        await until(lambda: not segments(disk.folder))
        spool = Spool(disk.folder / "opcua.sqlite", LIMIT)
        await spool.append(samples(50))

        async def problem() -> Any:
            return (await writer.backlog())[2].problem

        assert await until(problem) == "the disk has too little free space"
        assert (await spool.depth())[0] == 0, "the batch is committed all the same"
        disk.clear()
        await spool.append(samples(51))

        async def kept() -> Any:
            return list(keys(disk.folder))

        assert len(await until(kept)) == 1
        writer.drain()
        await asyncio.wait_for(running, PATIENCE)
        await spool.close()


async def journaled(disk: Disk, database: Database, number: int) -> None:
    """Write n batches of samples to the database, and to the journal alone."""
    random = np.random.default_rng(1)
    batches = map(samples, range(number))
    noise = (replace(one, samples=replace(one.samples, value=random.normal(size=4000))) for one in batches)
    await spooled(disk.folder, *noise)
    writer = Writer(disk.folder, database.ingest_dsn, WriterOptions(connections=1), SpoolOptions(max_bytes=MIB))
    await drained(writer)
    assert len(list(keys(disk.folder))) == number
