"""Two writers of a redundant pair: one writes, the other drops what it sees committed, and takes over."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from core.batch import Event, EventBatch, Gap, GapBatch
from core.config.model import SpoolOptions, WriterOptions
from core.database import connect_writer
from core.errors import LeaseLost
from core.timestamps import now_us
from ingest.spool.file import MEMBER_STEP
from ingest.spool.reader import SpoolReader
from ingest.writer.pair.lease import Lease
from ingest.writer.pair.standby import Standby
from ingest.writer.writer import Writer
from simulator.relay import Relay
from tests.database import Database, rows
from tests.ports import free_port
from tests.samples import batch
from tests.spooling import drained, spooled
from tests.waiting import until
from tests.writer_pair import (
    CHANNELS,
    INSTALLATION,
    TAKE_OVER,
    add_plant,
    check,
    holder,
    holds,
    pair,
    seen_before,
    take_over,
)


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_plant(owner, "a", "b", channels=range(1, CHANNELS + 1))


async def test_standby_drops_what_the_holder_wrote(database: Database, tmp_path: Path) -> None:
    async with pair(database, tmp_path) as (plant, first, second):
        await until(lambda: len(plant.sent) > 20 * CHANNELS)
        await check(database, plant)

        await until(first.is_empty)
        await until(second.is_empty)
        assert await holder(database) == 1
    assert await rows(database, f"SELECT count(*) FROM plant.ingest_batch WHERE sequence > {MEMBER_STEP}") == [(0,)]


@pytest.mark.parametrize("lost", ["writer", "disk"])
async def test_standby_takes_over_from_a_killed_holder(database: Database, tmp_path: Path, lost: str) -> None:
    async with pair(database, tmp_path) as (plant, first, _):
        await until(lambda: len(plant.sent) > 40 * CHANNELS)
        began = time.monotonic()
        first.kill()
        if lost == "disk":  # power-off: nobody receives for it, and what it had is gone
            await plant.remove(first)
            shutil.rmtree(first.folder)
        await take_over(database, began)
        await check(database, plant)


async def test_frozen_holder_writes_nothing_behind_the_new_one(database: Database, tmp_path: Path) -> None:
    async with pair(database, tmp_path) as (plant, first, _):
        await until(lambda: len(plant.sent) > 40 * CHANNELS)
        began = time.monotonic()
        first.send(signal.SIGSTOP)
        await take_over(database, began)
        sent = len(plant.sent)
        await until(lambda: len(plant.sent) > sent + 40 * CHANNELS)
        [[before]] = await rows(database, f"SELECT count(*) FROM plant.ingest_batch WHERE sequence < {MEMBER_STEP}")
        first.send(signal.SIGCONT)

        await check(database, plant)

        await until(first.is_empty)  # as a standby
        assert await holder(database) == 2
        [[after]] = await rows(database, f"SELECT count(*) FROM plant.ingest_batch WHERE sequence < {MEMBER_STEP}")
        assert after == before


@pytest.mark.parametrize("cut", [(1,), (2,), (1, 2)])
async def test_network_cut_loses_nothing(database: Database, tmp_path: Path, cut: tuple[int, ...]) -> None:
    """Packets are dropped between members and the database, for 10 s."""
    login, _, place = database.ingest_dsn.rpartition("@")
    address, _, name = place.partition("/")
    relays = [Relay(), Relay()]
    ports = [free_port() for _ in relays]
    for relay, port in zip(relays, ports, strict=True):
        await relay.start(("127.0.0.1", port), ("127.0.0.1", int(address.rpartition(":")[2])))
    dsns = [f"{login}@127.0.0.1:{port}/{name}" for port in ports]
    try:
        async with pair(database, tmp_path, dsns) as (plant, first, second):
            await until(lambda: len(plant.sent) > 40 * CHANNELS)
            began = time.monotonic()
            for number in cut:
                relays[number - 1].silence(True)
            if cut == (1,):
                await take_over(database, began)
            await until(lambda: time.monotonic() > began + 10)  # longer than a lease
            for number in cut:
                relays[number - 1].silence(False)
            await check(database, plant)

            await until(first.is_empty)
            await until(second.is_empty)
    finally:
        await asyncio.gather(*(relay.stop() for relay in relays))


async def test_frozen_transaction_delays_no_take_over(database: Database, tmp_path: Path) -> None:
    first, second = (Lease(database.ingest_dsn, INSTALLATION, n) for n in (1, 2))
    fence = await first.acquire()
    sleeping = await connect_writer(database.ingest_dsn, 60.0, fence.session_name)
    transaction = sleeping.transaction()
    await transaction.start()
    await fence.check(sleeping)
    began = time.monotonic()
    new = await second.acquire()
    assert time.monotonic() - began <= TAKE_OVER
    assert new.token == fence.token + 1
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await transaction.commit()
    with pytest.raises(LeaseLost):
        await first.renew(0.0)
    first.disconnect()
    second.disconnect()


async def test_transaction_with_an_earlier_token_commits_nothing(database: Database, tmp_path: Path) -> None:
    first, second = (Lease(database.ingest_dsn, INSTALLATION, n) for n in (1, 2))
    fence = await first.acquire()
    await first.release()
    await second.acquire()
    await spooled(tmp_path, batch([(1, 0, 1.0, 0)]))
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(), fence=fence)
    with pytest.raises(ExceptionGroup) as raised:
        await drained(writer)
    assert raised.group_contains(LeaseLost)
    assert await rows(database, "SELECT count(*) FROM plant.samples_raw") == [(0,)]
    second.disconnect()
    first.disconnect()


async def test_samples_that_only_the_standby_has_are_written(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is cut off from a source: the standby asks for the lease."""
    async with pair(database, tmp_path) as (plant, first, _):
        await plant.remove(first)
        before = len(plant.sent)  # until the members had started
        await until(lambda: len(plant.sent) > before + 20 * CHANNELS)
        await owner.execute("UPDATE plant.writer_lease SET taken_at = taken_at - INTERVAL '1 hour'")
        await check(database, plant)
        assert await holder(database) == 2


async def test_what_the_database_lost_is_written_by_the_member_that_wrote_it(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """After a failover to a standby that lagged, the journal of the member that is now the standby has it."""
    async with pair(database, tmp_path) as (plant, first, second):
        await until(lambda: len(plant.sent) > 5 * CHANNELS)
        await check(database, plant)

        await until(second.is_empty)
        first.kill()
        await until(lambda: holds(database, 2))
        await owner.execute("TRUNCATE plant.samples_raw, plant.ingest_batch")
        first.start()
        await owner.execute("UPDATE plant.writer_lease SET taken_at = taken_at - INTERVAL '1 hour'")
        await check(database, plant)
        assert await holder(database) == 1
        assert await rows(database, "SELECT count(*) FROM plant.event WHERE type = 'database_restored'") == [(1,)]


async def test_what_a_lost_member_wrote_is_written_again_by_the_other(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """The disk of the member that wrote is lost, then the database is restored to an earlier moment."""
    async with pair(database, tmp_path) as (plant, first, second):
        now = now_us()
        gap = GapBatch(1, now, (Gap(now - 5_000_000, now, "disconnected"),))
        await second.spool.append(gap)
        await until(lambda: len(plant.sent) > 20 * CHANNELS)
        await check(database, plant)

        async def dropped() -> bool:
            return plant.ended and await second.rows() == 0 and seen_before(second)

        await until(dropped)
        second.kill()
        first.kill()
        shutil.rmtree(first.folder)
        await owner.execute("TRUNCATE plant.samples_raw, plant.event, plant.ingest_batch, plant.member_gap")
        await owner.execute("UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 hour'")
        second.start()
        await check(database, plant)

        async def texts_written() -> bool:
            texts = "SELECT count(DISTINCT text) FROM plant.event WHERE type = 'text'"
            return await rows(database, texts) == [(plant.texts,)]

        await until(texts_written)
        assert ("disconnected",) in await rows(database, "SELECT reason FROM plant.member_gap WHERE member = 2")
        assert await holder(database) == 2


async def test_standby_looks_up_what_may_be_lost_before_it_asks_for_the_lease(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """After a failover that lost nothing, the same member writes on."""
    async with pair(database, tmp_path) as (plant, _, second):
        await until(lambda: len(plant.sent) > 20 * CHANNELS)

        async def dropped() -> bool:
            return seen_before(second) and any(second.folder.glob("*/*"))

        await until(dropped)
        await owner.execute("UPDATE plant.writer_lease SET taken_at = taken_at - INTERVAL '1 hour'")
        await owner.execute("UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 hour' WHERE member = 2")
        await until(lambda: any(second.folder.glob("*.by-other.replay")))
        await until(lambda: not any(second.folder.glob("*.by-other.replay")))
        assert await holder(database) == 1
        await check(database, plant)


async def test_members_have_sequences_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "member").write_text("2")
    await spooled(tmp_path, batch([(1, 0, 1.0, 0)]))
    [one] = SpoolReader(tmp_path / "opcua.sqlite").read(1)
    assert one.sequence > MEMBER_STEP


async def test_gap_of_the_standby_is_recorded_and_is_none_of_the_pair(database: Database, tmp_path: Path) -> None:
    async with pair(database, tmp_path) as (plant, first, second):
        now = now_us()
        gap = GapBatch(1, now, (Gap(now - 5_000_000, now, "disconnected"),))

        async def recorded() -> list[int]:
            return [n for (n,) in await rows(database, "SELECT member FROM plant.member_gap ORDER BY member")]

        await second.spool.append(gap)
        await until(recorded)
        assert await rows(database, "SELECT count(*) FROM plant.gap") == [(0,)]
        await first.spool.append(gap)
        await until(lambda: _equal(recorded(), [1, 2]))
        assert await rows(database, "SELECT reason FROM plant.gap") == [("disconnected",)]
        await check(database, plant)


async def _equal(found: Awaitable[object], expected: object) -> bool:
    return await found == expected


async def test_alarms_of_both_members_are_recorded_once(database: Database, tmp_path: Path) -> None:
    """Also where only one member knows that an alarm was acknowledged: the holder's records count."""
    now = now_us()

    def alarm(at: int, state: str, action: str) -> EventBatch:
        record = {"limit": "hi", "action": action, "state": state, "active": action == "raised", "since": now + at}
        more = {"value": 9.5, "threshold": 8.0, "priority": "medium", "revision": now + at}
        return EventBatch(1, now_us(), (Event("alarm", now + at, 1, text=state, detail=record | more),))

    async with pair(database, tmp_path) as (plant, first, second):
        returned = {1: "normal", 2: "return_to_normal_unacknowledged"}
        for member in (first, second):
            await member.spool.append(alarm(0, "unacknowledged_active", "raised"))
            await member.spool.append(alarm(1, returned[member.number], "returned"))
            await member.spool.append(alarm(2, "unacknowledged_active", "raised"))
        plant.stopping = True

        await until(second.is_empty)
        first.kill()
        await until(lambda: holds(database, 2))
        alarms = "SELECT text FROM plant.event WHERE type = 'alarm' ORDER BY time"
        assert await rows(database, alarms) == [("unacknowledged_active",), ("normal",), ("unacknowledged_active",)]
        assert await rows(database, "SELECT count(*) FROM plant.alarm_notice WHERE kind = 'alarm'") == [(2,)]


async def test_standby_drops_what_it_received_while_its_clock_was_ahead(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(database.ingest_dsn, INSTALLATION, 2)
    await spooled(tmp_path / "1", batch([(1, 0, 1.0, 0)]))
    await drained(Writer(tmp_path / "1", database.ingest_dsn, WriterOptions()))
    with ThreadPoolExecutor(1) as thread:
        standby = Standby(tmp_path / "2", database.ingest_dsn, lease, WriterOptions(), SpoolOptions(), thread)
        ahead = time.time_ns() + 1_800_000_000_000
        with monkeypatch.context() as set_clock:
            set_clock.setattr(time, "time_ns", lambda: ahead)
            await spooled(tmp_path / "2", replace(batch([(1, 0, 1.0, 0)]), received_at=now_us()))
            trimming = asyncio.create_task(standby.run())
            await until(lambda: standby.sources)
        await until(lambda: standby.dropped == 1)
        trimming.cancel()
        await asyncio.wait((trimming,))
        await standby.close()
