"""The tag list of a living Modbus source is edited: blocks are planned anew between two polls, over one connection."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from core.batch import Gap, SampleBatch
from core.config.sources import ModbusSource, ModbusTag
from core.samples import joined
from ingest.modbus.collector import Collector
from ingest.modbus.transport import Connections
from ingest.status import SourceStatus
from tests.memory_appender import MemoryAppender
from tests.modbus_wire import CLOSE, good_response, misbehaving_device
from tests.waiting import running, until

IDS = {f"t{i}": 100 + i for i in range(40)}
TAGS = [ModbusTag(name=f"t{i}", address=f"holding:{3 * i}", type="uint16") for i in range(40)]


def configured(port: int, tags: Sequence[ModbusTag], **options: object) -> ModbusSource:
    given = {"name": "plc", "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", "poll_interval": 0.5}
    return ModbusSource.model_validate({**given, "time_out": 5.0, **options, "tags": list(tags)})


@asynccontextmanager
async def living(source: ModbusSource, spool: MemoryAppender) -> AsyncIterator[tuple[Collector, SourceStatus]]:
    status = SourceStatus(1, "plc", "modbus", source.address, len(source.tags))
    collector = Collector(source, IDS, status, spool, Connections())
    async with running(collector.run()):
        yield collector, status


def read(spool: MemoryAppender, channel: int) -> list[float]:
    return [value for _, value, status in spool.samples(channel) if status == 0]


async def more(spool: MemoryAppender, channel: int, count: int = 2) -> None:
    seen = len(spool.samples(channel))
    await spool.until(lambda: len(spool.samples(channel)) >= seen + count)


def missing(spool: MemoryAppender) -> list[Gap]:
    """Gaps, but for those of a busy machine."""
    return [gap for gap in spool.gaps() if gap.reason != "poll_missed"]


async def test_random_edits_do_not_affect_other_tags() -> None:
    chance = random.Random(18)
    spool = MemoryAppender()
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port:
        async with living(configured(port, TAGS), spool) as (collector, status):
            await more(spool, 100)
            for _ in range(6):
                some = [TAGS[0], *chance.sample(TAGS[1:], chance.randrange(39))]
                chance.shuffle(some)
                collector.configure(configured(port, some), IDS)
                await more(spool, 100)
                assert status.channels == len(some)
            left = len(spool.batches)
            await more(spool, 100)
            late = joined(batch.samples for batch in spool.batches[left + 1 :] if isinstance(batch, SampleBatch))
            assert {*late.channel.tolist()} <= {IDS[tag.name] for tag in some}, "what is gone is no longer read"
        removed = missing(spool)
        assert status.reconnects == 0
        assert {gap.reason for gap in removed} == {"removed"}
        for channel in {c for gap in removed for c in gap.channel_ids or ()}:
            (first, *_) = [gap.from_time for gap in removed if channel in (gap.channel_ids or ())]
            assert spool.samples(channel)[0][0] < first, "it was read before"
        last = {c for gap in removed for c in gap.channel_ids or () if c not in {IDS[tag.name] for tag in some}}
        for channel in last:
            assert spool.samples(channel)[-1][0] <= max(
                g.from_time for g in removed if channel in (g.channel_ids or ())
            )


async def test_a_tag_is_read_as_it_is_configured_now() -> None:
    """Another scale, interval, and a tag that comes: each from the next poll on, under its own channel."""
    spool = MemoryAppender()
    async with misbehaving_device(lambda frame, _: [(0, good_response(frame, 7))]) as port:
        async with living(configured(port, TAGS[:2]), spool) as (collector, status):
            await more(spool, 100)
            halved = replace(TAGS[0], scale=0.5)
            quick = replace(TAGS[1], interval=0.1)
            before = {channel: set(read(spool, channel)) for channel in (100, 101)}
            collector.configure(configured(port, [TAGS[5], quick, halved]), IDS)
            await spool.until(lambda: len(spool.samples(105)) >= 3)
            await more(spool, 101, 5)
        (whole,) = before[100]
        assert set(read(spool, 100)) == {whole, whole / 2}
        assert read(spool, 100) == sorted(read(spool, 100), reverse=True), "never back again"
        assert set(read(spool, 101)) == before[101]
        assert (status.reconnects, missing(spool)) == (0, [])


async def test_edited_tags_that_are_bad_or_unreachable() -> None:
    spool = MemoryAppender()
    refused = {15}

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        start, count = int.from_bytes(frame[8:10], "big"), int.from_bytes(frame[10:12], "big")
        if refused.intersection(range(start, start + count)):
            return [(0, frame[:4] + bytes([0, 3, frame[6], frame[7] | 0x80, 2]))]
        return [(0, CLOSE)] if refused == {-1} else [(0, good_response(frame, number))]

    async with misbehaving_device(answer) as port:
        async with living(configured(port, TAGS[:10]), spool) as (collector, status):
            await until(lambda: set(status.bad_channels) == {"t5"})
            collector.configure(configured(port, [TAGS[5], TAGS[3]]), IDS)
            await until(lambda: status.channels == 2 and set(status.bad_channels) == {"t5"})
            await until(lambda: status.open_gaps == 1)
            await more(spool, 103)
            collector.configure(configured(port, [TAGS[3]]), IDS)
            await until(lambda: status.open_gaps == 0)
            await until(lambda: status.state == "connected")
            assert status.bad_channels == {}
            refused.clear()
            refused.add(-1)
            await until(lambda: status.state == "disconnected")
            collector.configure(configured(port, [TAGS[7], TAGS[3]]), IDS)
            refused.clear()
            await spool.until(lambda: len(read(spool, 107)) >= 2)
        assert [gap for gap in missing(spool) if gap.channel_ids == (103,)] == []
