"""Notifications that can't be decoded: one gap, however many they are, and in the status."""

from __future__ import annotations

import pytest
from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary

from core.batch import GapBatch
from core.timestamps import now_us, utc
from ingest.downtime import Downtime
from ingest.gaps import Gaps
from ingest.opcua.decode.message import Notification
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.opcua.subscription.subscription_state import Item, Subscription
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions
from tests.memory_appender import MemoryAppender
from tests.unit.ingest.test_opcua_clocks import TAGS

SECOND = 1_000_000
CHANNELS = (10, 11, 12)


class Source:
    """A source whose server publishes once a second."""

    def __init__(self, spool: MemoryAppender) -> None:
        self.spool = spool
        self.status = SourceStatus(1, "s", "opcua", "opc.tcp://h:4840", 3)
        self.gaps = Gaps(self.status, spool)
        self.now, self.sequence = now_us() - 3600 * SECOND, 0
        versions = ChannelVersions(self.status.name, 1, spool)
        self.receiver = Receiver(TAGS, self.status, spool, self.gaps, versions, Downtime(1, spool))
        items = {channel: Item(channel, f"ns=2;s=t{channel}", (1.0, 10, True, 0.0), 10) for channel in CHANNELS}
        self.subscription = Subscription(1, 1.0, 1.0, 5.0, items, SequenceTracker(complete_to=self.now), key=0)

    async def publish(self, *, decodable: bool) -> None:
        self.now += SECOND
        self.sequence += 1
        time = utc(self.now - 1000).replace(tzinfo=None)
        value = ua.DataValue(ua.Variant(1.5), ua.StatusCode(0), time, time)
        change = ua.DataChangeNotification(MonitoredItems=[ua.MonitoredItemNotification(11, value)])
        body = struct_to_binary(change) if decodable else b"\x07\0\0\0"
        whole = ((0, len(body)),)
        notification = Notification(self.sequence, self.now, False, whole if decodable else whole * 3, None)
        await self.receiver.store(body, notification, self.subscription, lambda _: {})
        self.subscription.tracker.arrived(self.sequence)
        self.subscription.tracker.done(self.sequence, self.now)


@pytest.mark.parametrize("restart", [False, True])
async def test_notifications_that_cannot_be_decoded_are_one_gap(restart: bool) -> None:
    source = Source(MemoryAppender())
    await source.publish(decodable=True)
    since = source.now
    for _ in range(100):
        await source.publish(decodable=False)
    assert "can't be decoded: an array of 7 elements" in source.status.remarks["undecodable"]
    assert source.status.missed == 100
    if restart:
        before, source = source, Source(MemoryAppender(source.spool.notes))
        source.spool.batches, source.now = before.spool.batches, before.now
        assert source.status.bad_channels == {}, "the type of their values is right"
    await source.publish(decodable=True)
    assert source.status.remarks == {} and source.gaps.channels() == []
    found = [gap for gap in source.spool.gaps() if gap.reason == "undecodable"]
    assert {gap.channel_ids for gap in found} == {CHANNELS}
    last = max(found, key=lambda gap: gap.from_time)
    assert len(found) == 2 and last.from_time <= since
    assert last.to_time is not None and source.now - 1000 <= last.to_time <= source.now
    assert sum(isinstance(batch, GapBatch) for batch in source.spool.batches) == 3
    assert source.spool.samples(11)[-1][0] == source.now - 1000
