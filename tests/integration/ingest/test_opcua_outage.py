"""An outage of an OPC UA server, from collector to database: no value is known while it lasts, all are after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.batch import Batch, Gap, GapBatch, SampleBatch
from core.config.model import WriterOptions
from core.config.sources import OpcuaTag
from core.timestamps import timestamp
from history.notebook import ask
from ingest.writer.writer import Writer
from simulator.relay import Relay
from tests.database import Database, add_channels, add_sources
from tests.integration.history.questions.recording import reading
from tests.integration.ingest.test_opcua_collector import collecting
from tests.integration.ingest.test_opcua_recovery import OPTIONS, OURS, Server, connected, more, serving, values
from tests.memory_appender import MemoryAppender
from tests.peers import opcua_tags, peer
from tests.ports import free_port
from tests.spooling import drained, spooled
from tests.waiting import running, until

_MINUTE = 60_000_000
_EARLIER = 60 * _MINUTE  # minutes are rolled up once they are over


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored minutes and samples of a channel."""

    seconds: float  # of all minutes
    times: list[int]  # µs, of its samples
    end: int  # µs, of its last minute


async def outage(
    server: Server, tags: Sequence[OpcuaTag], folder: Path, spool: MemoryAppender, seconds: float
) -> list[Gap]:
    """Gaps of a server that is away, then without subscriptions and history. Values change all the time."""
    async with (
        running(server.write(1_000_000)),
        collecting(server.address, list(tags), folder / "pki", spool=spool, **OPTIONS) as (_, status),
    ):
        await until(lambda: status.state == "connected")
        await more(spool)
        await server.cut_off(status)
        await asyncio.sleep(seconds)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await more(spool)
    return sorted((gap for gap in spool.gaps() if gap.reason == "disconnected"), key=attrgetter("from_time"))


def earlier(batches: Sequence[Batch]) -> list[Batch]:
    """Samples and gaps, an hour before."""
    moved: list[Batch] = []
    for batch in batches:
        if isinstance(batch, SampleBatch):
            earlier = replace(batch.samples, time=batch.samples.time - _EARLIER)
            moved.append(replace(batch, samples=earlier))
        elif isinstance(batch, GapBatch):
            gaps = [
                replace(gap, from_time=gap.from_time - _EARLIER, to_time=gap.to_time and gap.to_time - _EARLIER)
                for gap in batch.gaps
            ]
            moved.append(replace(batch, gaps=gaps))
    return moved


async def stored(owner: asyncpg.Connection, channel: int) -> Stored:
    minutes = await owner.fetch("SELECT bucket, seconds FROM plant.samples_1m WHERE n > 0 AND channel_id = $1", channel)
    rows = await owner.fetch(
        "SELECT (extract(epoch FROM time) * 1000000)::int8 FROM plant.samples WHERE channel_id = $1 ORDER BY 1", channel
    )
    end = max(row["bucket"] for row in minutes).timestamp() * 1e6 + _MINUTE
    return Stored(sum(row["seconds"] for row in minutes), [row[0] for row in rows], round(end))


@pytest.mark.parametrize("interval", [0.1, 2.0])
async def test_no_value_is_known_during_an_outage(
    interval: float, database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """With channels of one publishing interval, or of several."""
    tags = [OURS[0], replace(OURS[1], interval=interval)]
    await add_sources(owner, "ua", kind="opcua")
    await add_channels(owner, range(2))
    spool = MemoryAppender()
    async with serving(tmp_path, history=0) as server:
        before, gap = await outage(server, tags, tmp_path, spool, 2.0)
    assert before.to_time == gap.from_time
    assert gap.to_time
    begin, end = gap.from_time - _EARLIER, gap.to_time - _EARLIER
    assert end - begin >= 2_000_000
    await spooled(tmp_path, *earlier(spool.batches))
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1)))
    await owner.execute("UPDATE plant.rollup_dirty SET open_since = NULL")  # no writer is there to close minutes

    async def rolled_up() -> bool:
        await owner.execute("CALL plant.refresh_rollups()")
        return not await owner.fetchval("SELECT count(*) FROM plant.rollup_dirty WHERE NOT hours")

    await until(rolled_up, every=0.5)
    changing = await stored(owner, 0)
    again = min(time for time in changing.times if time > begin + 1_000_000)
    known = (changing.end - changing.times[0]) - (again - begin)
    before_us = gap.from_time - before.from_time
    assert known - before_us <= round(changing.seconds * 1e6) <= known, "less at most by the gap before"
    middle = begin + (again - begin) // 2
    options: dict[str, Any] = {
        "channels": ["c0"],
        "stepped": True,
        "simple_bounds": True,
        "state": reading(database, tmp_path / "asked"),
    }
    since, until_middle = timestamp(begin + 1000), timestamp(middle)
    average = await asyncio.to_thread(ask, "aggregates", since=since, until=until_middle, **options)
    at_middle = await asyncio.to_thread(ask, "interpolated", times=[until_middle], **options)
    assert [row["quality"] for row in average.to_pylist()] == ["bad"]
    assert at_middle["value"].to_pylist() == [None]

    constant = await stored(owner, 1)
    again = end + 1
    assert constant.times[1:] == [again], "the server says then that it has not changed"
    unknown = again - (begin if constant.times[0] > begin - before_us else begin - before_us)
    assert round(constant.seconds * 1e6) == (constant.end - constant.times[0]) - unknown
    newest = "SELECT max(time) FROM plant.samples WHERE channel_id = 1 AND time < $1"
    assert await owner.fetchval(newest, timestamp(end + 1_000_000)) == timestamp(again)


async def test_while_a_clock_is_set_back_after_an_outage_few_values_are_stated_again(tmp_path: Path) -> None:
    """Of each channel, the first value and the next one: all values are dated before the end of the outage."""
    async with connected(tmp_path, OURS[:2], history=0) as (server, spool, status):
        await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
        await server.write(1)
        await spool.until(lambda: values(spool) == server.written)
        await server.cut_off(status)
        await server.server.forget()
        await until(lambda: status.state == "connected" and status.open_gaps == 0)
        ended = max(gap.to_time or 0 for gap in spool.gaps())
        await spool.until(lambda: all(spool.samples(channel)[-1][0] == ended + 1 for channel in range(2)))
        earlier = ended - 600_000_000
        for number in range(10):
            for channel, value in enumerate((number + 2.0, number % 2 == 0)):
                await server.server.write(channel, value, earlier + number, 0)
            await spool.until(lambda number=number: any(time == earlier + number for time, *_ in spool.samples(1)))  # type: ignore[misc]
    for channel, first in ((0, server.written[-1]), (1, 0.0)):
        later = [(time - ended, value) for time, value, _ in spool.samples(channel) if time >= ended]
        assert later == [(1, first), (2, first + 1.0)]


async def test_value_that_is_sent_again_after_a_lost_message_is_stated_again(tmp_path: Path) -> None:
    """The server has ResendData."""
    async with connected(tmp_path, OURS[:2], history=0) as (server, spool, status):
        await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
        before = spool.samples(1)
        await server.lose("gone")
        await server.write(10)
        await spool.until(lambda: status.missed > 0 and len(spool.samples(1)) > len(before))
    ends = [gap.to_time for gap in spool.gaps() if gap.reason == "not_available" and gap.to_time]
    assert {time for time, *_ in spool.samples(1)[len(before) :]} <= {end + 1 for end in ends}
    assert {row[1:] for row in spool.samples(1)} == {before[0][1:]}


async def test_only_the_writing_member_of_a_pair_states_values_again(tmp_path: Path) -> None:
    """The other one would ask for the lease, because what it states is not in the database."""
    pki, tags = tmp_path / "pki", OURS[:2]
    async with (
        serving(tmp_path, history=0) as server,
        collecting(server.address, tags, pki, **OPTIONS) as (writing, _),
        collecting(server.address, tags, pki, stands_by=lambda: True, **OPTIONS) as (standing_by, _),
    ):
        members = writing, standing_by
        await until(lambda: all(spool.samples(0) and spool.samples(1) for spool in members))
        await server.server.refuse(True)
        await server.server.forget()
        await server.write(1)
        await until(lambda: all(values(spool) == server.written for spool in members))
        await writing.until(lambda: len({time for time, *_ in writing.samples(1)}) == 2)
    assert max(gap.to_time or 0 for gap in writing.gaps()) + 1 in [time for time, *_ in writing.samples(1)]
    assert len({time for time, *_ in standing_by.samples(1)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node-opcua", "milo"])
async def test_values_of_a_foreign_server_that_did_not_change_are_known_after_an_outage(
    name: str, tmp_path: Path
) -> None:
    """They transfer no subscriptions of unsecured channels: the items are new, and begin with old values."""
    tags = [tag for tag in opcua_tags(name, 20) if tag.kind != "text"]
    relay, port = Relay(), free_port()
    async with peer(name, tmp_path / "peer", 20, "50") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))
        async with collecting(f"opc.tcp://127.0.0.1:{port}", tags, tmp_path / "pki", **OPTIONS) as (spool, status):
            everyone = range(len(tags))
            await spool.until(lambda: all(len(spool.samples(i)) > 2 for i in everyone))
            await server.tell("rate 0")

            def all_stored() -> bool:
                newest = dict(sorted(server.published()))  # by name
                return all(spool.samples(i)[-1][0] == newest[tags[i].name] for i in everyone)

            await until(all_stored, every=0.5)
            before = [spool.samples(i)[-1] for i in everyone]
            relay.refuse()
            await until(lambda: status.state == "disconnected")
            await relay.accept()
            await until(lambda: status.state == "connected" and status.open_gaps == 0)

            def again() -> int:
                return 1 + max(gap.to_time or 0 for gap in spool.gaps() if gap.reason == "disconnected")

            await spool.until(lambda: all(spool.samples(i)[-1][0] == again() for i in everyone))
            assert all(spool.samples(i)[-1][1:] == before[i][1:] for i in everyone), "value and status"
            await server.tell("rate 50")
            await spool.until(lambda: all(spool.samples(i)[-1][0] > again() for i in everyone))
        await relay.stop()
