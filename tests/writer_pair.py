"""Writers of a redundant pair as processes. The test is their collectors."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import UUID

import asyncpg
import numpy as np

from core.batch import Event, EventBatch, SampleBatch
from core.samples import Samples
from core.timestamps import now_us
from ingest.spool.append import Spool
from ingest.spool.file import MEMBER_STEP
from tests.database import Database, add_channels, add_sources, rows
from tests.waiting import until

CHANNELS = 50
INSTALLATION = UUID(int=7)
TAKE_OVER = 45.0  # s; 8 on a machine that does nothing else, and more than 60 by the time-outs of a dead session


async def add_plant(owner: asyncpg.Connection, *sources: str, channels: Sequence[int], kind: str = "push") -> None:
    """An installation with sources, and channels of the first one."""
    await add_sources(owner, *sources, kind=kind)
    await add_channels(owner, channels)
    await owner.execute(
        "INSERT INTO plant.installation (id, plant, class_prefix, number) VALUES ($1, 'p', '', 1)", INSTALLATION
    )
    await owner.execute("UPDATE plant.source SET installation_id = $1", INSTALLATION)


@dataclass
class Member:
    """A member: its spool, and the process of its writer. The test is its collector."""

    number: int
    folder: Path
    dsn: str
    protocol: str = "opcua"
    spool: Spool = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "member").write_text(str(self.number))
        self.spool = Spool(self.folder / f"{self.protocol}.sqlite", 512 * 1024**2)

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.pair_member", self.folder, self.dsn, str(INSTALLATION), self.number]
        with (self.folder.parent / f"{self.number}.log").open("ab") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    async def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()
        await self.spool.close()

    async def rows(self) -> int:
        return (await self.spool.depth())[1]

    async def is_empty(self) -> bool:
        return await self.rows() == 0


class Plant:
    """Samples that both members receive, each in batches of its own."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.sent: set[tuple[int, int]] = set()  # channel, µs
        self.texts = 0
        self.stopping = False
        self._handing = asyncio.Lock()  # to all members what is new
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self._run())

    @property
    def ended(self) -> bool:
        """Return whether all of it is in the spools. Raises what kept it from that."""
        return self._running is not None and self._running.done() and self._running.result() is None

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def remove(self, member: Member) -> None:
        """Give a member nothing any more, from its last whole batch on."""
        async with self._handing:
            self.members.remove(member)

    async def _run(self) -> None:
        unsent: dict[int, list[tuple[int, int, float]]] = {member.number: [] for member in self.members}
        step = 0
        while not self.stopping or any(unsent[member.number] for member in self.members):
            step += 1
            now = now_us()
            fresh = [] if self.stopping else [(c, now, step + c / 10) for c in range(1, CHANNELS + 1)]
            text = EventBatch(1, now, (Event("text", now, 1, 0, f"step {step}"),))
            async with self._handing:
                for member in self.members:
                    rows = unsent[member.number] = [*fresh, *unsent[member.number]]
                    if step % member.number == 0 and rows:  # the second one gets two in one
                        channel, time, value = (np.array(column) for column in zip(*rows, strict=True))
                        status = np.zeros(len(rows), np.uint32)
                        samples = Samples(channel.astype(np.int32), time, value, status)
                        await member.spool.append(SampleBatch(1, now, samples))
                        unsent[member.number] = []
                    await member.spool.append(text)
            self.sent |= {row[:2] for row in fresh}
            self.texts += 1
            await asyncio.sleep(0.05)


def _two(database: Database, folder: Path, dsns: Sequence[str] = (), protocol: str = "opcua") -> tuple[Member, Member]:
    first, second = dsns or (database.ingest_dsn, database.ingest_dsn)
    return Member(1, folder / "1" / "spool", first, protocol), Member(2, folder / "2" / "spool", second, protocol)


@asynccontextmanager
async def _running(database: Database, first: Member, second: Member) -> AsyncIterator[None]:
    """Member 1 writes."""
    try:
        first.start()
        await until(lambda: holder(database))
        second.start()
        yield
    finally:
        for member in (first, second):
            await member.end()


@asynccontextmanager
async def polling_pair(database: Database, folder: Path) -> AsyncIterator[tuple[Member, Member]]:
    """A running pair of Modbus, of which member 1 writes."""
    first, second = _two(database, folder, protocol="modbus")
    async with _running(database, first, second):
        yield first, second


@asynccontextmanager
async def pair(
    database: Database, folder: Path, dsns: Sequence[str] = ()
) -> AsyncIterator[tuple[Plant, Member, Member]]:
    """A running pair, of which member 1 writes, and a plant that both receive, also before they run.

    ``dsns``: by which each of them reaches the database.
    """
    first, second = _two(database, folder, dsns)
    plant = Plant(first, second)
    plant.start()
    async with _running(database, first, second):
        try:
            yield plant, first, second
            plant.stopping = True
            await until(lambda: plant.ended)
        finally:
            plant.cancel()


def seen_before(member: Member) -> bool:
    """Return whether the member knows when the database has seen it."""
    seen = member.folder / "seen"
    return seen.exists() and seen.read_text().split()[1] != "0"


async def holder(database: Database) -> int | None:
    [row] = await rows(database, "SELECT max(member) FROM plant.writer_lease WHERE expires_at > now()")
    return cast(int | None, row[0])


async def holds(database: Database, member: int) -> bool:
    """Return whether a member holds the lease."""
    return await holder(database) == member


async def all_written(database: Database, plant: Plant) -> bool:
    return await rows(database, "SELECT count(*) FROM plant.samples_raw") == [(len(plant.sent),)]


async def check(database: Database, plant: Plant) -> None:
    """Assert that every sample is stored once."""
    plant.stopping = True
    await until(lambda: plant.ended)
    await until(lambda: all_written(database, plant))
    stored = await rows(
        database, "SELECT channel_id, (extract(epoch FROM time) * 1000000)::int8 FROM plant.samples_raw"
    )
    assert set(stored) == plant.sent
    [doubled] = await rows(
        database, "SELECT count(*) - count(DISTINCT text) FROM plant.event WHERE type IN ('text', 'conflict')"
    )
    assert doubled == (0,)
    assert await rows(database, "SELECT count(*) FROM plant.event WHERE type = 'conflict'") == [(0,)]
    assert await rows(database, "SELECT count(*) FROM plant.quarantine") == [(0,)]


async def take_over(database: Database, began: float) -> None:
    """Wait until member 2 has written, which it has in time."""
    written = f"SELECT count(*) FROM plant.ingest_batch WHERE sequence > {MEMBER_STEP}"
    [before] = await rows(database, written)

    async def writes() -> bool:
        return await rows(database, written) > [before]

    await until(writes, every=0.01)
    took = time.monotonic() - began
    print(f"take-over after {took:.2f} s")
    assert took <= TAKE_OVER
