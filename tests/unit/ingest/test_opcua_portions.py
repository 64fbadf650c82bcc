"""A large notification is decoded in portions: other sources have their turn, and nothing overtakes it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary

from core.batch import Batch, EventBatch, SampleBatch
from core.config.sources import ChannelKind, OpcuaSource, OpcuaTag
from core.errors import DecodeError
from core.opcua.binary import UNIX_EPOCH_TICKS
from core.samples import joined
from core.timestamps import now_us
from ingest.appender import Notes
from ingest.downtime import Downtime
from ingest.gaps import Gaps
from ingest.opcua.decode.data_change import data_change, portions
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.decode.message import Notification
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.opcua.subscription.subscription_state import Item, Subscription
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions
from tests.batches import events_of
from tests.memory_appender import MemoryAppender
from tests.waiting import until

_TEXT = 40  # bytes
_TEXTS = 30_000  # 2 MB: four portions
_VALUES = [1.5, ua.Variant(7, ua.VariantType.Int64), "a", "b", "ä" * 30, None, [1.0, 2.0], "", True, "c", ["x", "y"]]


class Source:
    """One of a process, whose channels 0 to 9 are texts or numbers."""

    def __init__(self, number: int, kind: ChannelKind, spool: MemoryAppender) -> None:
        tags = [OpcuaTag(name=f"t{k}", address=f"ns=2;s=t{k}", kind=kind) for k in range(10)]
        source = OpcuaSource.model_validate({"name": "s", "kind": "opcua", "address": "opc.tcp://h:4840", "tags": tags})
        self.status = SourceStatus(number, "s", "opcua", source.address, len(tags))
        gaps = Gaps(self.status, spool)
        versions = ChannelVersions("s", number, spool)
        known = Tags(source, {tag.name: k for k, tag in enumerate(tags)})
        self.receiver = Receiver(known, self.status, spool, gaps, versions, Downtime(number, spool))
        self.subscription = Subscription(1, 1.0, 1.0, 5.0, key=0)
        self.subscription.items = {k: Item(k, f"ns=2;s=t{k}", (1.0, 10, True, 0.0), 10) for k in range(10)}
        self._sequence = 0

    async def publish(self, body: bytes) -> None:
        self._sequence += 1
        sequence, tracker = self._sequence, self.subscription.tracker

        def progress(portions: int | None) -> Notes:
            return {"progress": tracker.note_with(sequence, 1) if portions is None else tracker.note(portions)}

        notification = Notification(sequence, now_us(), False, ((0, len(body)),), None)
        await self.receiver.store(body, notification, self.subscription, progress)


def texts(count: int, since: int) -> bytes:
    """A DataChangeNotification of texts, 1 µs apart, which all differ."""
    ticks = UNIX_EPOCH_TICKS + since * 10
    items = [
        struct.pack("<IBBi40sq", k % 10, 0x05, 12, _TEXT, str(k).rjust(_TEXT).encode(), ticks + k * 10)
        for k in range(count)
    ]
    return b"".join((struct.pack("<i", count), *items, struct.pack("<i", 0)))


def number(value: float, time: int) -> bytes:
    return struct.pack("<iIBBdqi", 1, 0, 0x05, 11, value, UNIX_EPOCH_TICKS + time * 10, 0)


async def test_another_source_is_served_between_the_portions_of_a_large_notification() -> None:
    spool = MemoryAppender()
    large, quick = Source(1, "text", spool), Source(2, "analog", spool)
    start = now_us() - 1_000_000
    storing = asyncio.create_task(large.publish(texts(_TEXTS, start)))
    count = 0
    while not storing.done():
        count += 1
        await quick.publish(number(count, start + count))
    await storing
    order = [batch.source_id for batch in spool.batches]
    own = [k for k, source in enumerate(order) if source == 1]
    assert len(own) >= 4, "in portions"
    assert set(order[own[0] : own[-1]]) == {1, 2}, "the other source's samples are between them"
    assert [value for _, value, _ in spool.samples(0)] == [*range(1, count + 1)]


async def test_no_notification_of_a_source_overtakes_a_large_one() -> None:
    spool = MemoryAppender()
    source = Source(1, "text", spool)
    start = now_us() - 1_000_000
    bodies = [texts(_TEXTS, start), texts(1, start + _TEXTS), texts(_TEXTS, start + _TEXTS + 1)]
    await asyncio.gather(*map(source.publish, bodies))
    stored = [event.time for event in events_of(spool.batches)]
    assert stored == [*range(start, start + 2 * _TEXTS + 1)]


async def test_text_that_returns_in_a_later_portion_is_stored() -> None:
    """Only equal texts in a row are left out, whatever the portions are: not the first one again behind another."""
    spool = MemoryAppender()
    source = Source(1, "text", spool)
    start = now_us() - 1_000_000

    def body(*runs: tuple[str, int], since: int) -> bytes:
        values = [text for text, count in runs for _ in range(count)]
        items = [
            struct.pack("<IBBi", 0, 0x05, 12, len(text))
            + text.encode()
            + struct.pack("<q", UNIX_EPOCH_TICKS + time * 10)
            for time, text in enumerate(values, since)
        ]
        return b"".join((struct.pack("<i", len(items)), *items, struct.pack("<i", 0)))

    await source.publish(body(("a", 1), since=start))
    source.subscription.tracker.done(1, now_us())
    await source.publish(body(("b" * 100, 10_000), ("a", 1), ("b" * 100, 10_000), since=start + 1))
    assert [event.text[0] for event in spool.events("text") if event.text] == ["a", "b", "a", "b"]


def _message(values: list[Any]) -> bytes:
    time = datetime.now(UTC).replace(tzinfo=None)
    items = [
        ua.MonitoredItemNotification(
            k,
            ua.DataValue(
                v if isinstance(v, ua.Variant) else ua.Variant(v), None, time, time + timedelta(seconds=k % 2)
            ),
        )
        for k, v in enumerate(values)
    ]
    return bytes(struct_to_binary(ua.DataChangeNotification(MonitoredItems=items)))


def _rows(*changes: DataChange) -> list[str]:
    rows: list[tuple[Any, ...]] = []
    for change in changes:
        for columns in zip(change.handle, change.value, change.status, change.time, change.server, strict=True):
            rows += zip(*(column.tolist() for column in columns), strict=True)
        rows += [(t.handle, t.text, t.status, t.time, t.server, t.type) for t in change.texts]
        rows += [(u.handle, u.reason) for u in change.unsupported]
    return sorted(map(repr, rows))  # a NaN equals no NaN


@pytest.mark.parametrize("size", [1, 30, 200, 1000])
def test_portions_are_the_whole(size: int) -> None:
    body = _message(_VALUES * 20)
    whole = data_change(body, 0, len(body), 0)
    parts = list(portions(body, 0, len(body), 0, size=size))
    assert len(parts) > 1
    assert _rows(*parts) == _rows(whole)
    assert len(_rows(whole)) == len(_VALUES) * 20
    empty = struct.pack("<ii", 0, 0)
    assert len(list(portions(empty, 0, len(empty), 0))) == 1


def test_texts_that_end_early_are_an_error() -> None:
    body = texts(20, now_us())
    for end in range(4, len(body) - 4, 7):
        with pytest.raises(DecodeError):
            data_change(body, 0, end, 0)


def numbers(n: int, start: int) -> bytes:
    """A DataChangeNotification of ``n`` numbers, 1 µs apart."""
    items = np.zeros(
        n, np.dtype([("handle", "<u4"), ("mask", "u1"), ("kind", "u1"), ("value", "<f8"), ("time", "<i8")])
    )
    items["handle"], items["mask"], items["kind"] = np.arange(n) % 10, 0x05, 11
    items["value"], items["time"] = np.arange(n), UNIX_EPOCH_TICKS + (start + np.arange(n)) * 10
    return b"".join((struct.pack("<i", n), items.tobytes(), struct.pack("<i", 0)))


async def test_numbers_of_a_large_notification_are_all_stored() -> None:
    spool = MemoryAppender()
    source = Source(1, "analog", spool)
    n, start = 100_000, now_us() - 1_000_000
    await source.publish(numbers(n, start))
    batches = [batch for batch in spool.batches if isinstance(batch, SampleBatch)]
    assert len(batches) == 5
    samples = joined(batch.samples for batch in batches)
    assert samples.value.tolist() == [*range(n)]
    assert samples.time.tolist() == [*range(start, start + n)]


class _Frozen(MemoryAppender):
    """Takes two batches, then nothing more."""

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        if len(self.batches) == 2:
            await asyncio.Event().wait()
        await super().append(batch, notes, beside)


@pytest.mark.parametrize("kind", ["analog", "text"])
async def test_portions_that_are_on_disk_are_not_stored_again(kind: ChannelKind) -> None:
    """A collector is killed within a large notification, which the server then sends again."""
    start = now_us() - 1_000_000
    body = numbers(100_000, start) if kind == "analog" else texts(_TEXTS, start)
    spools = [_Frozen(), MemoryAppender()]
    before = Source(1, kind, spools[0])
    storing = asyncio.create_task(before.publish(body))
    await until(lambda: len(spools[0].batches) == 2)
    storing.cancel()
    await asyncio.wait([storing])
    source = Source(1, kind, spools[1])
    source.subscription.tracker = SequenceTracker.read(spools[0].notes["progress"])
    await source.publish(body)
    assert spools[1].notes["progress"] == "2 1"
    batches = [batch for spool in spools for batch in spool.batches]
    stored = [event.time for event in events_of(batches)]
    stored += joined(batch.samples for batch in batches if isinstance(batch, SampleBatch)).time.tolist()
    assert stored == [*range(start, start + len(stored))] and len(stored) >= _TEXTS
