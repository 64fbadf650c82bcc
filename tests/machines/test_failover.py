"""A primary that fails, and its asynchronous standby: the writer follows, and the journal gives back what it lacked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from core.config.model import SpoolOptions, WriterOptions
from ingest.writer.restored.restore_check import ACCEPT
from ingest.writer.writer import Writer
from lab.chaos.machines.node import Node
from ops.postgres.bootstrap import bootstrap
from simulator.relay import Relay
from tests.database import PASSWORDS, add_channels, add_sources, connected
from tests.folders import enterable_tmp_path  # noqa: F401  (a fixture)
from tests.ports import free_port
from tests.spooling import drained
from tests.truth import CHANNELS, ROUNDS, Plant, content, expect_truth, restored, running_plant, writing
from tests.waiting import until


class Pair:
    """A primary, its standby, and what lies between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spool"
        self.folder.mkdir()
        self.first, self.second = Node(folder / "first"), Node(folder / "second")
        self.replication, self.network = Relay(), Relay()  # to the first, to the second
        self.dsn = ""

    async def start(self) -> None:
        await asyncio.to_thread(self.first.start)
        await bootstrap(self.first.dsn, PASSWORDS)
        async with connected(self.first.dsn) as owner:
            await add_sources(owner, "a")
            await add_channels(owner, range(CHANNELS))
        port = await relayed(self.replication, self.first)
        await asyncio.to_thread(self.second.clone, self.first, port)
        await asyncio.to_thread(self.second.start)
        port = await relayed(self.network, self.second)
        credentials = f"plantlog_ingest:{PASSWORDS['ingest']}"
        self.dsn = f"postgresql://{credentials}@{self.first.address},127.0.0.1:{port}/plantlog"
        await until(lambda: streaming(self.first))

    async def stop(self) -> None:
        for relay in (self.replication, self.network):
            await relay.stop()
        for node in (self.first, self.second):
            await asyncio.to_thread(node.stop)

    def writer(self, **options: Any) -> Writer:
        options = {"connections": 2, "time_out": 5.0, **options}
        return Writer(self.folder, self.dsn, WriterOptions(**options), SpoolOptions(max_bytes=512 * 1024**2))


async def relayed(relay: Relay, node: Node) -> int:
    """The port of a relay in front of a node."""
    host, _, port = node.address.rpartition(":")
    between = free_port()
    await relay.start(("127.0.0.1", between), (host, int(port)))
    return between


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    found = Pair(tmp_path)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


@pytest.fixture
async def plant(pair: Pair) -> AsyncIterator[Plant]:
    async with running_plant(pair.folder) as found:
        yield found


async def streaming(primary: Node) -> bool:
    """Return whether a standby has all that the primary has."""
    query = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
    async with connected(primary.dsn) as owner:
        return bool(await owner.fetchval(query))


async def test_a_primary_is_killed_and_its_standby_lacks_commits(pair: Pair, plant: Plant) -> None:
    """The journal gives back what the standby lacked; then the former primary is refused, rewound, and follows."""
    writer = pair.writer()
    async with writing(writer), plant.feeding(20_000):
        await until(lambda: writer.written > 20_000)
        pair.replication.refuse()
        behind = writer.written
        await until(lambda: writer.written > behind + 40_000)
        await asyncio.to_thread(pair.first.kill)
        await asyncio.to_thread(pair.second.promote)
        after = writer.written
        await until(lambda: writer.written > after + 20_000)
    await expect_truth(pair.second.dsn, plant)
    [event] = await restored(pair.second.dsn)
    assert event["batches"] >= 40_000 / CHANNELS / ROUNDS
    assert event["gaps"] == 0
    # It comes back, alone as it thinks.
    await asyncio.to_thread(pair.first.start)
    before = await content(pair.first.dsn)
    await plant.append()
    await drained(pair.writer())
    await expect_truth(pair.second.dsn, plant)
    assert await content(pair.first.dsn) == before
    # Nothing is written to it even if there is no other.
    await asyncio.to_thread(pair.second.stop)
    await plant.append()
    refused = pair.writer()
    async with writing(refused):
        await until(lambda: "refused" in refused.database)
        assert f"{pair.first.address} is a former primary, on timeline 1: data were committed on 2" in refused.database
        assert await content(pair.first.dsn) == before
        await asyncio.to_thread(pair.second.start)
    await asyncio.to_thread(pair.first.kill)  # pg_rewind recovers it first
    await asyncio.to_thread(pair.first.rewind, pair.second)
    await asyncio.to_thread(pair.first.start)
    await until(lambda: streaming(pair.second))
    await expect_truth(pair.second.dsn, plant)
    await expect_truth(pair.first.dsn, plant)


async def test_what_was_written_to_a_former_primary_is_not_lost(pair: Pair, plant: Plant) -> None:
    """Two primaries, and the writer reaches only the old one; then the new one, by one of its connections.

    Then the new one is lost for good, and the operator lets the writer use the old one.
    """
    writer = pair.writer()
    pair.network.refuse()
    async with writing(writer), plant.feeding(5_000):
        await until(lambda: writer.written > 5_000)
        pair.replication.refuse()
        await asyncio.to_thread(pair.second.promote)
        behind = writer.written
        await until(lambda: writer.written > behind + 10_000)
        await pair.network.accept()
        async with connected(pair.first.dsn) as owner:
            sessions = "FROM pg_stat_activity WHERE usename = 'plantlog_ingest'"
            await owner.execute(
                f"SELECT pg_terminate_backend(pid) {sessions} AND application_name = 'plantlog writer' LIMIT 1"
            )
            await until(lambda: no_sessions(owner, sessions))
        after = writer.written
        await until(lambda: writer.written > after + 10_000)
    await expect_truth(pair.second.dsn, plant)
    events = await restored(pair.second.dsn)
    assert events[0]["batches"] >= 10_000 / CHANNELS / ROUNDS
    assert {event["gaps"] for event in events} == {0}
    await asyncio.to_thread(pair.second.kill)
    writer = pair.writer()
    await plant.append()
    async with writing(writer):
        await until(lambda: "refused" in writer.database)
        (pair.folder / ACCEPT).touch()
    await expect_truth(pair.first.dsn, plant)
    assert not (pair.folder / ACCEPT).exists()


async def no_sessions(owner: asyncpg.Connection[Any], sessions: str) -> bool:
    return bool(await owner.fetchval(f"SELECT count(*) = 0 {sessions}"))


async def test_a_standby_is_backed_up_as_soon_as_it_is_promoted(tmp_path: Path) -> None:
    """As machines that fail one after the other need it."""
    first, second = Node(tmp_path / "first"), Node(tmp_path / "second")
    (tmp_path / "passphrase").touch(mode=0o600)
    (tmp_path / "passphrase").write_text("a long passphrase of tests")
    (tmp_path / "repository").mkdir()
    await asyncio.to_thread(first.archive_to, tmp_path / "repository", tmp_path / "passphrase", uuid4())
    try:
        await asyncio.to_thread(first.start)
        await bootstrap(first.dsn, PASSWORDS)
        await asyncio.to_thread(second.clone, first)
        await asyncio.to_thread(second.start)
        await asyncio.to_thread(first.back_up)
        async with connected(first.dsn) as owner:
            await owner.execute("CREATE TABLE many AS SELECT i, repeat('x', 4000) FROM generate_series(1, 8000) AS i")
        await until(lambda: streaming(first))
        await asyncio.to_thread(first.kill)
        await asyncio.to_thread(second.promote)
        assert await asyncio.to_thread(second.back_up)
    finally:
        for node in (first, second):
            await asyncio.to_thread(node.kill)
