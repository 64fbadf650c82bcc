"""A redundant pair whose members both poll a device, each at times of its own: the samples of one of them count."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path

import asyncpg
import numpy as np
import pytest

from core.batch import Event, EventBatch, Gap, GapBatch, SampleBatch
from core.samples import Samples
from core.timestamps import now_us, timestamp
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.writer.pair.polled import WRITE
from tests.alarms import SECOND, source, tag
from tests.database import Database, rows
from tests.samples import batch
from tests.waiting import until
from tests.writer_pair import Member, add_plant, holds, polling_pair, seen_before

CHANNELS = 20
INTERVAL = 100_000  # µs
STORED = "SELECT (extract(epoch FROM time) * 1000000)::int8 FROM plant.samples_raw WHERE channel_id = 1 ORDER BY time"


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_plant(owner, "a", channels=range(1, CHANNELS + 1), kind="modbus")
    await owner.execute("UPDATE plant.channel SET attributes = '{\"expected_interval\": 0.1}'")


class Device:
    """Is polled by each member; ``ago`` (µs): how old the samples are."""

    def __init__(self, *members: Member, ago: int = 0) -> None:
        self.polls: dict[int, list[int]] = {member.number: [] for member in members}  # times by member
        self._ago = ago
        self._ended: set[int] = set()
        self._tasks = {member.number: asyncio.create_task(self._poll(member)) for member in members}

    async def _poll(self, member: Member) -> None:
        await asyncio.sleep(0.06 * (member.number - 1))
        while member.number not in self._ended:
            now = now_us() - self._ago
            channels, n = np.arange(1, CHANNELS + 1, dtype=np.int32), CHANNELS
            time = np.full(n, now)
            await member.spool.append(
                SampleBatch(1, now, Samples(channels, time, np.full(n, float(member.number)), np.zeros(n, np.uint32)))
            )
            self.polls[member.number].append(now)
            await asyncio.sleep(INTERVAL / 1e6)

    async def end(self, *members: int) -> None:
        """Each poll of these members, all by default, is in its spool."""
        self._ended |= set(members or self._tasks)
        await asyncio.gather(*(self._tasks[number] for number in self._ended))


async def stored(database: Database) -> list[int]:
    return [time for (time,) in await rows(database, STORED)]


async def until_stored(database: Database, time: int) -> None:
    async def is_stored() -> bool:
        return time in await stored(database)

    await until(is_stored)


async def test_samples_of_the_holder_count(database: Database, tmp_path: Path) -> None:
    async with polling_pair(database, tmp_path) as (first, second):
        device = Device(first, second)
        await until(lambda: len(device.polls[2]) > 20)
        await device.end(2)

        await until(second.is_empty)
        await device.end(1)
        await until_stored(database, device.polls[1][-1])
        assert await stored(database) == device.polls[1]


@pytest.mark.parametrize("lost", ["writer", "disk"])
async def test_a_take_over_leaves_no_hole(database: Database, tmp_path: Path, lost: str) -> None:
    """On a busy machine, a holder may be starved until it loses the lease: then there are more of them."""
    async with polling_pair(database, tmp_path) as (first, second):
        device = Device(first, second)
        await until(lambda: len(device.polls[2]) > 30)
        await until(lambda: stored(database))
        first.kill()
        if lost == "disk":
            await device.end(1)
            shutil.rmtree(first.folder)
        await until(lambda: len(device.polls[2]) > 80)
        await until(lambda: holds(database, 2))  # else the former holder gets the lease again
        if lost == "writer":  # the former holder is the standby, and drops what it has read meanwhile
            first.start()
            await device.end(1)

            await until(first.is_empty)
        await device.end(2)
        await until_stored(database, device.polls[2][-1])
        times = await stored(database)
        [(taken,)] = await rows(database, "SELECT token FROM plant.writer_lease")  # how often
        reader = {time: number for number, polls in device.polls.items() for time in polls}
        switches = 0
        for time, following in pairwise(times):
            switches += reader[time] != reader[following]
            missed = [poll for poll in device.polls[reader[following]] if time < poll < following]
            assert not missed, "what follows is the next poll of the one who made it"
        assert taken > 1
        assert switches <= 5 * taken, "a poll or two of each are beside the other's, and no more"


async def test_gap_of_the_holder_is_filled_by_the_standby(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    async with polling_pair(database, tmp_path) as (first, second):
        device = Device(first, second, ago=60_000_000)
        await until(lambda: len(device.polls[1]) > 20)
        await device.end(1)
        last = device.polls[1][-1]
        await first.spool.append(GapBatch(1, now_us(), (Gap(last, None, "disconnected"),)))
        text = EventBatch(1, last + INTERVAL, (Event("text", last + INTERVAL, 2, 0, "seen by one"),))
        await second.spool.append(text)
        await second.spool.append(EventBatch(1, last + INTERVAL, (Event("text", last + 2 * INTERVAL, 2, 0, "newest"),)))
        await until(lambda: len(device.polls[2]) > 50)
        await owner.execute("UPDATE plant.writer_lease SET taken_at = taken_at - INTERVAL '1 hour'")
        await until(lambda: holds(database, 2))
        await device.end()
        await until_stored(database, device.polls[2][-1])
        times = await stored(database)
        assert {time for time in device.polls[2] if time > last} <= set(times)
        assert len(set(times) & {time for time in device.polls[2] if time < last}) <= 1
        texts = await rows(database, "SELECT text FROM plant.event WHERE type = 'text' ORDER BY time")
        assert texts == [("seen by one",), ("newest",)]
        assert await rows(database, "SELECT count(*) FROM plant.gap WHERE to_time IS DISTINCT FROM from_time") == [(0,)]


async def test_texts_of_the_holder_count(database: Database, tmp_path: Path) -> None:
    """A text is stored when it changes, and each member sees that at another time."""
    async with polling_pair(database, tmp_path) as (first, second):
        now = now_us()
        for number, member in enumerate((first, second)):
            for step, text in enumerate(("one", "two", "three")):
                event = Event("text", now + step * INTERVAL + number, 1, 0, text)
                await member.spool.append(EventBatch(1, now_us(), (event,)))

        await until(second.is_empty)
        texts = await rows(database, "SELECT text FROM plant.event WHERE type = 'text' ORDER BY time")
        assert texts == [("one",), ("two",), ("three",)]


async def test_reset_of_a_counter_is_one_event_also_after_a_take_over(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """The members read at times of their own. Of a source that one of them polls, the other has an old reading."""
    meters = source(tag("energy", kind="counter"), tag("pulses", kind="counter"))

    async def is_written(member: Member) -> bool:
        return await member.is_empty() and await holds(database, member.number)

    async with polling_pair(database, tmp_path) as (first, second):
        one, two = (AlarmEvaluator(meters, {"energy": 1, "pulses": 2}, 1, member.spool) for member in (first, second))
        await two.append(batch([(2, 0, 900, 0)]))
        for at, reading in enumerate((1000.0, 5.0, 40.0)):
            await one.append(batch([(channel, at * SECOND, reading, 0) for channel in (1, 2)]))
            await two.append(batch([(1, at * SECOND + 300_000, reading + 1, 0)]))
        await until(first.is_empty)

        first.kill()
        await until(lambda: holds(database, 2))
        await two.append(batch([(channel, 200 * SECOND, 60, 0) for channel in (1, 2)]))
        await two.append(batch([(channel, 300 * SECOND, 8, 0) for channel in (1, 2)]))
        await until(lambda: is_written(second))
        resets = "SELECT channel_id, text FROM plant.event WHERE type = 'counter_reset' ORDER BY time, channel_id"
        assert await rows(database, resets) == [(1, "1000 → 5"), (2, "1000 → 5"), (1, "60 → 8"), (2, "60 → 8")]


async def test_what_a_lost_member_polled_is_written_by_the_other(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """The disk of the member that wrote is lost, then the database is restored to an earlier moment."""
    async with polling_pair(database, tmp_path) as (first, second):
        device = Device(first, second)
        await until(lambda: len(device.polls[2]) > 40)
        await device.end()

        async def dropped() -> bool:
            return await second.is_empty() and seen_before(second)

        await until(dropped)
        second.kill()
        first.kill()
        shutil.rmtree(first.folder)
        kept = device.polls[1][10]
        await owner.execute("DELETE FROM plant.samples_raw WHERE time > $1", timestamp(kept))
        await owner.execute("TRUNCATE plant.ingest_batch")
        await owner.execute("UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 hour'")
        second.start()
        await until_stored(database, device.polls[2][-1])
        times = await stored(database)
        assert {time for time in device.polls[2] if time > kept + INTERVAL} <= set(times)
        # Where the other member's samples are there, this one's are not written beside them.
        own = np.array([time for time in times if time in device.polls[2] and time < kept])
        others = np.array([time for time in device.polls[1] if time <= kept])
        assert (np.abs(own[:, None] - others).min(axis=1, initial=INTERVAL) >= WRITE * INTERVAL).all()
