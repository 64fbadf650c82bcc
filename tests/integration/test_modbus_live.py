"""The tag list of a living Modbus source is edited: blocks are planned anew between two polls, over one connection."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from ingest.config.model import ModbusSource, ModbusTag
from ingest.modbus.collector import Collector
from ingest.modbus.transport import Lines
from ingest.status import SourceStatus
from tests.appender import Kept
from tests.modbus_wire import CLOSE, good, nasty
from tests.patience import running, until

IDS = {f"t{i}": 100 + i for i in range(40)}
TAGS = [ModbusTag(name=f"t{i}", address=f"holding:{3 * i}", type="uint16") for i in range(40)]


def configured(port: int, tags: Sequence[ModbusTag], **options: object) -> ModbusSource:
    given = {"name": "plc", "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", "poll_interval": 0.5}
    return ModbusSource.model_validate({**given, "time_out": 5.0, **options, "tags": list(tags)})


@asynccontextmanager
async def living(source: ModbusSource, kept: Kept) -> AsyncIterator[tuple[Collector, SourceStatus]]:
    status = SourceStatus(1, "plc", "modbus", source.address, len(source.tags))
    collector = Collector(source, IDS, status, kept, Lines())
    async with running(collector.run()):
        yield collector, status


def read(kept: Kept, channel: int) -> list[float]:
    return [value for _, value, status in kept.samples(channel) if status == 0]


async def more(kept: Kept, channel: int, count: int = 2) -> None:
    seen = len(kept.samples(channel))
    await kept.until(lambda: len(kept.samples(channel)) >= seen + count)


async def test_random_edits_cost_the_others_nothing() -> None:
    chance = random.Random(18)
    kept = Kept()
    async with nasty(lambda frame, number: [(0, good(frame, number))]) as port:
        async with living(configured(port, TAGS), kept) as (collector, status):
            await more(kept, 100)
            for _ in range(10):
                some = [TAGS[0], *chance.sample(TAGS[1:], chance.randrange(39))]
                chance.shuffle(some)
                collector.configure(configured(port, some), IDS)
                await more(kept, 100)
                assert status.channels == len(some)
            left = len(kept.batches)
            await more(kept, 100)
            late = {int(c) for batch in kept.batches[left + 1 :] for c in getattr(batch, "channel_id", ())}
            assert late <= {IDS[tag.name] for tag in some}, "what is gone is no longer read"
        assert (status.reconnects, kept.gaps()) == (0, [])


async def test_a_tag_is_read_as_it_is_configured_now() -> None:
    """Another scale, interval, and a tag that comes: each from the next poll on, under its own channel."""
    kept = Kept()
    async with nasty(lambda frame, _: [(0, good(frame, 7))]) as port:
        async with living(configured(port, TAGS[:2]), kept) as (collector, status):
            await more(kept, 100)
            halved = replace(TAGS[0], scale=0.5)
            quick = replace(TAGS[1], interval=0.1)
            before = {channel: set(read(kept, channel)) for channel in (100, 101)}
            collector.configure(configured(port, [TAGS[5], quick, halved]), IDS)
            await kept.until(lambda: len(kept.samples(105)) >= 3)
            await more(kept, 101, 5)
        (whole,) = before[100]
        assert set(read(kept, 100)) == {whole, whole / 2}
        assert read(kept, 100) == sorted(read(kept, 100), reverse=True), "never back again"
        assert set(read(kept, 101)) == before[101]
        assert (status.reconnects, kept.gaps()) == (0, [])


async def test_tags_that_are_bad_or_away() -> None:
    kept = Kept()
    refused = {15}

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        start, count = int.from_bytes(frame[8:10], "big"), int.from_bytes(frame[10:12], "big")
        if refused.intersection(range(start, start + count)):
            return [(0, frame[:4] + bytes([0, 3, frame[6], frame[7] | 0x80, 2]))]
        return [(0, CLOSE)] if refused == {-1} else [(0, good(frame, number))]

    async with nasty(answer) as port:
        async with living(configured(port, TAGS[:10]), kept) as (collector, status):
            await until(lambda: set(status.bad_channels) == {"t5"})
            collector.configure(configured(port, [TAGS[5], TAGS[3]]), IDS)
            await until(lambda: status.channels == 2 and set(status.bad_channels) == {"t5"})
            assert status.open_gaps == 1
            await more(kept, 103)
            collector.configure(configured(port, [TAGS[3]]), IDS)
            await until(lambda: status.open_gaps == 0)
            await until(lambda: status.state == "connected")
            assert status.bad_channels == {}
            refused.clear()
            refused.add(-1)
            await until(lambda: status.state == "disconnected")
            collector.configure(configured(port, [TAGS[7], TAGS[3]]), IDS)
            refused.clear()
            await kept.until(lambda: len(read(kept, 107)) >= 2)
        assert {gap.reason for gap in kept.gaps() if gap.channel_ids == (103,)} == set()
