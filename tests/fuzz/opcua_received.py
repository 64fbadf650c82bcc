"""OPC UA: what a receiver puts on the spool, compared with the message that it was given."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from core.batch import EventBatch, GapBatch, SampleBatch
from core.config.sources import OpcuaSource, OpcuaTag
from core.errors import DecodeError
from ingest.downtime import Downtime
from ingest.gaps import Gaps
from ingest.opcua.decode.data_change import data_change
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.decode.message import publish_response
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.sequence import SequenceTracker, following
from ingest.opcua.subscription.subscription_state import Item, Subscription
from ingest.opcua.subscription.tags import Tags
from ingest.spool.format import decode, encode
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions
from tests.memory_appender import MemoryAppender

ARRIVAL = 1_790_000_000_123_456
TAGS = 12
_TEXTS = (3, 4)  # those of them that are texts
_ELEMENTS = (0, 2)  # those that are elements of arrays
_IDS = np.arange(TAGS, dtype=np.int32)


class _Kept(NamedTuple):
    """A sample or text on the spool."""

    channel: int
    value: bytes | str | None  # bits, or the text; None: of a text channel that has no value
    status: int
    time: int  # µs


class _Due(NamedTuple):
    """A sample or text of a message."""

    channel: int
    value: bytes | str | None
    status: int
    time: int  # µs
    server: int  # µs; 0: none


def bits_of(value: float) -> bytes:
    """The bits of a value; all NaN are one."""
    return struct.pack("d", math.nan if math.isnan(value) else value)


def _source() -> OpcuaSource:
    tags = tuple(
        OpcuaTag(
            name=f"t{i}",
            address=f"ns=2;s=t{i}",
            kind="text" if i in _TEXTS else "analog",
            index="1" if i in _ELEMENTS else None,
        )
        for i in range(TAGS)
    )
    return OpcuaSource(name="s", kind="opcua", address="opc.tcp://h:4840", stale_after=60.0, tags=tags)


_OURS = Tags(_source(), {f"t{i}": channel for i, channel in enumerate(_IDS.tolist())})


async def received(body: bytes) -> None:
    """Raises AssertionError where what is stored is not what the message has.

    On the spool is every sample and text of a channel that there is, and nothing else, whatever the times and handles
    are; what can't be decoded is a gap. A repeat that is equal in time, value and status may be dropped. A different
    value that can't be told apart by its times is recorded as a conflict.
    """
    response = publish_response(body)
    status = SourceStatus(1, "s", "opcua", "opc.tcp://h:4840", TAGS)
    spool = MemoryAppender()
    receiver = Receiver(
        _OURS,
        status,
        spool,
        Gaps(status, spool),
        ChannelVersions(status.name, status.source_id, spool),
        Downtime(status.source_id, spool),
    )
    items = {channel: Item(i, f"ns=2;s=t{i}", (0.5, 10, True, 0.0), 10) for i, channel in enumerate(_IDS.tolist())}
    # As if others before it were on their way: texts that repeat the one before are stored, too.
    tracker = SequenceTracker(following(response.notification.sequence))
    subscription = Subscription(1, 0.5, 0.5, 5.0, items, tracker, key=0)
    await receiver.store(body, response.notification, subscription, lambda _: {})
    await receiver.check()
    due: list[_Due] = []
    for start, end in response.notification.data_changes:
        try:
            due += _due(_OURS.by_position(data_change(body, start, end, ARRIVAL, _OURS.rules)))
        except DecodeError:
            assert status.missed
            assert any(isinstance(batch, GapBatch) for batch in spool.batches)
    kept: list[_Kept] = []
    refused: set[int] = set()
    for batch in spool.batches:
        assert len(batch)
        assert encode(decode(record := encode(batch))) == record, "the spool does not give back what it was given"
        if isinstance(batch, SampleBatch):
            columns = (getattr(batch.samples, name).tolist() for name in ("channel", "value", "status", "time"))
            kept += [_Kept(channel, bits_of(value), *rest) for channel, value, *rest in zip(*columns, strict=True)]
        elif isinstance(batch, EventBatch):
            kept += [_Kept(e.channel_id or 0, e.text, e.status or 0, e.time) for e in batch.events if e.type == "text"]
            refused |= {e.channel_id or 0 for e in batch.events if e.type == "conflict"}
    assert not Counter(one[:3] for one in kept) - Counter(one[:3] for one in due), "stored, and not sent"
    # Of values that can't be told apart by their time the first one is kept; not each of the others is an event.
    lost = Counter(one[:3] for one in _distinct(due)) - Counter(one[:3] for one in set(kept))
    assert {channel for channel, *_ in lost} <= refused, "sent, and not stored"
    assert {one.channel for one in kept} == {one.channel for one in due}


def _due(change: DataChange) -> Iterator[_Due]:
    """The samples and texts of our channels, in order of arrival; without a timestamp each has a time of its own."""
    rows = Counter[int]()
    for handle, time, server, value, status in zip(*(column.tolist() for column in change.columns()), strict=True):
        if handle < TAGS:
            own = rows[handle] if time == ARRIVAL and not server else 0
            yield _Due(int(_IDS[handle]), None if handle in _TEXTS else bits_of(value), status, time + own, server)
            rows[handle] += 1
    for text in change.texts:
        if text.handle < TAGS:
            yield _Due(int(_IDS[text.handle]), text.text, text.status, text.time, text.server)


def _distinct(due: Sequence[_Due]) -> set[_Kept]:
    """Samples that have to be stored: each time, value and status of a channel once.

    A value that differs from the one before, with the same time, takes the server's if that is later.
    """
    before: dict[int, _Due] = {}
    distinct: dict[_Due, _Kept] = {}
    for one in due:
        last = before.get(one.channel)
        if last is None or last[:4] != one[:4]:
            is_change = last is not None and last.time == one.time
            distinct.setdefault(one, _Kept(*one[:3], max(one.time, one.server) if is_change else one.time))
        before[one.channel] = one
    return set(distinct.values())
