"""Locates missing values after a monitored item's queue was full (OPC 10000-4, 5.13.1.5 and 7.21).

The specification says that the Overflow bit is set on the value after the gap, and elsewhere that it is set on
the new value. Servers do either, or flag every value queued while the queue was full. So a
flag only means what all of these have in common: the queue of this value was full and lost values.
The position of the gap follows from the queue. It held ``queue_size`` values, and the oldest were discarded at its
head, or the newest at its end.

A queue of one value has no flag (by specification), and some servers never set it: such losses cannot be detected.

node-opcua (2.186) never flags values that are not Good: setting the bit fails there, after the loss. So if
the value that should have the flag is not Good (the head of a queue, or its end if the newest are discarded), a queue
that arrives full counts as flagged. It may have been just full: a false gap is better than a hidden loss. This is
detected if the queue came in one message, and for discarded new values that were not Good if the last one kept is
not Good either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from core.batch import Int64s, UInt32s
from ingest.gaps import Gaps
from ingest.opcua.subscription.subscription_state import Subscription
from ingest.opcua.subscription.tags import SampleTimes, Tags
from ingest.status import SourceStatus

_OVERFLOW = np.uint32(0x0480)  # InfoType DataValue and Overflow (OPC 10000-4, 7.39.1)
_SEVERITY = np.uint32(0xC000_0000)  # 0: Good
_RECENT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class NotificationSamples:
    """The samples of one notification, in order of arrival."""

    position: UInt32s  # (n,) of the tag
    time: Int64s  # (n,) µs
    status: UInt32s  # (n,)
    arrival: int  # µs
    more: bool  # the server's queues may not be empty: a run of messages starts or continues


@dataclass(frozen=True, slots=True)
class Queue:
    """The server's queue of a monitored item."""

    size: int  # revised; 0: unknown
    discard_oldest: bool


def overflows(
    message: NotificationSamples, last: Int64s, run: Int64s | None, since: int, queue: Callable[[int], Queue]
) -> Iterator[tuple[int, int, int]]:
    """(position, from µs, to µs): one gap at most of each item, between two samples.

    ``last`` is a column by position, the time (µs) of the last sample before the message, 0: not known; ``run`` the
    same before the run that the message continues. ``since`` (µs) replaces unknown times: everything published until
    then was received. ``queue``: queue of the item at a position.
    """
    flagged = message.status & _OVERFLOW == _OVERFLOW
    not_good = message.status & _SEVERITY != 0
    if not (flagged.any() or not_good.any()):
        return
    began, before = run is not None, last if run is None else run
    order = np.argsort(message.position, kind="stable")
    positions = message.position[order]
    for position in np.unique(message.position[not_good & ~flagged]).tolist():
        start, end = np.searchsorted(positions, [position, position + 1])
        item_queue = queue(position)
        if 1 < item_queue.size <= end - start:
            should = order[end - item_queue.size if item_queue.discard_oldest else end - 1]
            flagged[should] |= not_good[should]
    latest = max(message.arrival, int(message.time.max()))  # the source's clock may be ahead of ours
    for position in np.unique(message.position[flagged]).tolist():
        start, end = np.searchsorted(positions, [position, position + 1])
        time, marked = message.time[order[start:end]], np.flatnonzero(flagged[order[start:end]])
        item_queue = queue(position)
        k = 0
        if item_queue.discard_oldest:
            behind = _value_after_gap(item_queue.size, len(time), int(marked[-1]), message.more, began)
            to = int(time[: behind + 1].max())
        else:
            k = 0 if began or not before[position] else int(marked[0])
            to = latest
        last_time = int(time[k - 1] if k else before[position])
        if not 0 < last_time < time[k]:
            old = max(0, message.arrival - int(time.max()))  # the newest value may seem old because its clock is slow
            last_time = min(since - old, int(time[k]) - 1)
        yield position, last_time, to


def _value_after_gap(size: int, count: int, marked: int, more: bool, began: bool) -> int:
    """The last of an item's ``count`` values that a gap can be before, where the last flagged one is ``marked``.

    The gap is at the head of a full queue that contains the flag: at the flagged value or before.
    If all queues were emptied, the values of a full queue are all in this message, or in earlier ones of the run.
    """
    if more or not size:
        return marked
    if count < size:  # the head of the queue came earlier in the run, or its size is not the revised one
        return 0 if began else marked
    return min(marked, count - size)


class Overflows:
    """The gaps of full queues, and for ``status`` the channels that had one in the last ten minutes."""

    def __init__(self, status: SourceStatus, gaps: Gaps) -> None:
        self._status = status
        self._gaps = gaps
        self._seen: dict[int, float] = {}  # channel → monotonic s

    async def record(self, message: NotificationSamples, tags: Tags, last: Int64s, subscription: Subscription) -> None:
        """Record what the server discarded, before any later data is recorded. ``last``: µs, by position, before it."""
        run = subscription.times_before_run
        if not message.more:
            subscription.times_before_run = None
        elif run is None:
            subscription.times_before_run = SampleTimes(tags, last.copy())

        def queue(position: int) -> Queue:
            item = subscription.items.get(int(tags.ids[position]))
            return Queue(0, tags.source.discard_oldest) if item is None else Queue(item.queue_size, item.parameters[2])

        before = None if run is None else run.of_tags(tags)
        losses = overflows(message, last, before, subscription.sampled_to, queue)
        gaps = [([int(tags.ids[position])], start, end) for position, start, end in losses]
        if gaps:
            self._seen |= {channel: time.monotonic() for (channel,), _, _ in gaps}
            self.refresh_remark()
            await self._gaps.record_each(gaps, "overflow", "the server's queue was full")
            await self._gaps.flush_or_raise()

    def refresh_remark(self) -> None:
        """Set the remark, or remove it: to be called every second or so."""
        since = time.monotonic() - _RECENT_SECONDS
        self._seen = {channel: at for channel, at in self._seen.items() if at >= since}
        n = len(self._seen)
        text = (
            f"values of {n:,} channel{'s' if n > 1 else ''} were lost in the last 10 minutes, because the server's "
            "queue was full: set a longer queue_size or a shorter publishing_interval"
        )
        self._status.remark("overflow", text if n else "")
