"""From a notification to the spool: decoded into columns, looked at, and on disk before anybody is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import numpy as np

from ingest import metrics
from ingest.appender import Appender, Notes
from ingest.batch import Batch, Event, EventBatch, Float64s, Int64s, SampleBatch, UInt32s, now_us
from ingest.errors import DecodeError, SpoolError, SpoolFull
from ingest.gaps import Gaps
from ingest.opcua.data_change import DataChange, Text, data_change
from ingest.opcua.items import MARK, Subscription
from ingest.opcua.message import Notification
from ingest.opcua.overflow import Message, Queue, overflows
from ingest.opcua.tags import Tags, Times
from ingest.opcua.tracking import Skew, Tracking
from ingest.opcua.unreadable import Unreadable
from ingest.status import SourceStatus
from ingest.versions import Versions

log = logging.getLogger(__name__)

_MOVED = "stopped"  # reason of a gap between the items of two nodes
_REFUSED_SECONDS = 1.0  # between two tries where the disk refuses


class Receiver:
    """Takes the notifications of one source."""

    def __init__(self, tags: Tags, status: SourceStatus, spool: Appender, gaps: Gaps, versions: Versions) -> None:
        self._status = status
        self._spool = spool
        self._gaps = gaps
        self._versions = versions
        self._tracking = Tracking(tags)
        self._set_floors()
        self._unreadable = Unreadable(tags, status, gaps)
        self._skew = Skew(tags.source.skew_limit)
        self._marks: dict[int, asyncio.Event] = {}  # subscription → set when all that was queued before its mark came
        self._marked: set[int] = set()  # subscriptions of which the mark came, and there is more
        self._awaited = set(gaps.open_for(_MOVED))  # channels of other nodes, of which nothing came yet

    def configure(self, tags: Tags) -> None:
        """What comes from now on is of these tags; a notification that is being taken goes on with those before."""
        self._tracking = Tracking(tags, self._tracking)
        self._set_floors()

    def _set_floors(self) -> None:
        tracking = self._tracking
        tracking.floor[:-1] = [self._versions.lift(channel) for channel in tracking.tags.ids.tolist()]

    def clock_of_server(self, time: int) -> None:
        """The server's clock says ``time`` (µs) now; 0: it says nothing."""
        if time:
            self._skew.seen("server", time, now_us())

    async def read_by(self, versions: Mapping[int, int], *, another_node: bool) -> None:
        """Channels are read by these versions of them from now on. Returns when that is on disk.

        ``another_node``: of another meaning than what was read, and none of them has a monitored item; all that there
        was of former ones is on disk. By source timestamps all that is on disk comes before the change, and what the
        next items sample behind it.
        """
        if not (unsaid := self._versions.unsaid(versions)):
            return
        now = now_us() + round(self._skew.ahead() * 1e6)
        for channel, version in unsaid.items():
            since = max(now, self._tracking.last(channel) + 1)
            self._versions.begin(channel, version, since, another_place=another_node)
        await self._until_taken(self._versions.say)
        self._set_floors()

    async def leave(self, subscription: Subscription, channels: Iterable[int]) -> None:
        """The items of these channels go, for items of other nodes: what is sampled meanwhile is missing."""
        until = subscription.sampled_to + round(self._skew.ahead() * 1e6)
        begins = [([channel], max(self._tracking.last(channel), until)) for channel in channels]
        await self._gaps.open_each(begins, _MOVED, "read from another node")
        await self._gaps.must_say()

    def await_first(self, channels: Iterable[int]) -> None:
        """What comes of these channels from now on is of the other nodes, and ends the gaps."""
        self._awaited.update(channels)

    def marked(self, subscription: Subscription) -> asyncio.Event:
        """Is set when the first value of the subscription's item :data:`MARK` is on disk, and all before it."""
        return self._marks.setdefault(subscription.id, asyncio.Event())

    async def durable(self, body: bytes, notification: Notification, subscription: Subscription, notes: Notes) -> None:
        """Decode one notification and return when all of it is on disk, ``notes`` with it."""
        arrival = now_us()
        if notification.publish_time:
            self._skew.seen("server", notification.publish_time, arrival)
        appends: list[Awaitable[None]] = []
        stored: list[Callable[[], None]] = []
        mark = False
        reached: dict[int, int] = {}
        for place, (start, end) in enumerate(notification.data_changes, 1):
            try:
                change = data_change(body, start, end, arrival, self._tracking.tags.exact)
                mark |= bool(self._marks) and any((handles == MARK).any() for handles in change.handle)
                change = self._tracking.tags.by_place(change)
                reached |= self._tracking.lift(change)
            except DecodeError as error:
                await self._undecodable(notification, subscription, error)
                continue
            more = notification.more or place < len(notification.data_changes)
            batches = await self._batches(change, arrival, more, subscription, stored)
            appends += [self.append(batch, notes) for batch in batches]
        await asyncio.gather(*appends)
        if not appends:
            await self._spool.note(notes)
        for done in stored:
            done()
        if reached:
            await self._until_taken(lambda: self._versions.reached(reached))
        if mark:
            self._marked.add(subscription.id)
        if subscription.id in self._marked and not notification.more:
            self._marked.remove(subscription.id)
            self._marks.pop(subscription.id, asyncio.Event()).set()

    async def look(self, late: float = 0.0) -> None:
        """Once in a while: which channels became silent, and whether the clocks agree.

        ``late``: s, this is so much later than it should be.
        """
        self._tracking.slept(late)
        if self._tracking.looks_for_stale:
            silent = [([channel], since) for channel, since in self._tracking.silent()]
            await self._gaps.open_each(silent, "stale", "silent for longer than stale_after")
        events = self._skew.events(self._tracking)
        if events:
            await self.append(EventBatch(self._status.source_id, now_us(), events))

    def missed(self) -> None:
        """A notification could not be had."""
        self._status.missed += 1
        metrics.missed.labels(source=self._status.name).inc()

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """Return when ``batch`` is on disk, however long the spool is full or the disk refuses."""
        await self._until_taken(lambda: self._spool.append(batch, notes))
        if isinstance(batch, SampleBatch):
            self._status.samples += len(batch)
            self._status.had(batch.time)
            metrics.samples.labels(source=self._status.name).inc(len(batch))
        elif isinstance(batch, EventBatch):
            for event in batch.events:
                metrics.events.labels(source=self._status.name, type=event.type).inc()

    async def _until_taken(self, append: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await append()
            except SpoolFull:
                await self._spool.wait_for_room()
            except SpoolError as error:
                log.error("source %s: %s", self._status.name, error)
                await asyncio.sleep(_REFUSED_SECONDS)

    async def _undecodable(self, notification: Notification, subscription: Subscription, error: DecodeError) -> None:
        self._status.decode_errors += 1
        metrics.decode_errors.labels(source=self._status.name).inc()
        log.warning("source %s: notification %d: %s", self._status.name, notification.sequence, error)
        self.missed()
        start = subscription.sampled_to
        channels = list(subscription.items)
        await self._gaps.record(start, now_us(), "undecodable", str(error), channels)

    async def _batches(
        self,
        change: DataChange,
        arrival: int,
        more: bool,
        subscription: Subscription,
        stored: list[Callable[[], None]],
    ) -> list[Batch]:
        """Samples and texts of one notification; what else it tells goes on record. ``stored``: to be called when they
        are on disk."""
        tracking, tags = self._tracking, self._tracking.tags
        self._status.decode_errors += len(change.unsupported)
        metrics.decode_errors.labels(source=self._status.name).inc(len(change.unsupported))
        events = [
            Event("text", t.time, int(tags.ids[t.handle]), t.status, t.text)
            for t in change.texts
            if t.handle < len(tags.ids)
        ]
        batches: list[Batch] = []
        place, time, value, status = _columns(change)
        ours = place < np.uint32(len(tags))  # a server may make up handles
        if not ours.all():
            place, time, value, status = place[ours], time[ours], value[ours], status[ours]
        with_texts = _with_texts(place, time, status, change.texts, len(tags))
        events += await self._unreadable.look(tags, change, place, time, status, tracking.time, arrival)
        await self._look_at(tracking, Message(*with_texts, arrival, more), subscription)
        keep, said = tracking.standing.apart(place, time, value, status, arrival)
        if keep is not None:
            place, time, value, status = place[keep], time[keep], value[keep], status[keep]
            events += said
        stored.append(partial(tracking.standing.stored, place, time, value, status))
        samples, bad_texts = self._apart(tags, place, time, value, status, arrival)
        events += bad_texts
        if samples is not None:
            batches.append(samples)
        events += tracking.origins(change, with_texts[0])
        events += tracking.rounded(change)
        if events:
            batches.append(EventBatch(self._status.source_id, arrival, events))
        return batches

    async def _look_at(self, tracking: Tracking, message: Message, subscription: Subscription) -> None:
        await self._overflows(tracking, message, subscription)
        known = message.time[tracking.time[message.place] > 0]  # a first value may be as old as it likes
        if len(known):
            # By the time that fits best: a single tag of another clock is found by itself.
            nearest = int(np.argmin(np.abs(known - message.arrival)))
            self._skew.seen("source", int(known[nearest]), message.arrival)
        tracking.timed(message.place, message.time, message.arrival)
        if self._awaited:
            await self._came(tracking.tags, message)
        heard_again = tracking.sampled(message.place, message.time)
        if again := [channel for channel in heard_again if self._gaps.reason(channel) == "stale"]:
            await self._gaps.close(message.arrival, again)

    async def _came(self, tags: Tags, message: Message) -> None:
        """Where channels are among these that are read from other nodes now, their gaps end."""
        channels = tags.ids[message.place]
        awaited = np.flatnonzero(np.isin(channels, list(self._awaited)))
        first = dict(zip(channels[awaited[::-1]].tolist(), message.time[awaited[::-1]].tolist(), strict=True))
        self._awaited -= first.keys()
        await self._gaps.close_each([([channel], at) for channel, at in first.items()])

    async def _overflows(self, tracking: Tracking, message: Message, subscription: Subscription) -> None:
        """Put on record what the server threw away, before anything is that came behind it."""
        tags, run = tracking.tags, subscription.before
        if not message.more:
            subscription.before = None
        elif run is None:
            subscription.before = Times(tags, tracking.time.copy())
        since = subscription.sampled_to

        def queue(place: int) -> Queue:
            item = subscription.items.get(int(tags.ids[place]))
            return Queue(0, tags.source.discard_oldest) if item is None else Queue(item.queue_size, item.parameters[2])

        before = None if run is None else run.of(tags)
        found = overflows(message, tracking.time, before, since, queue)
        holes = [([int(tags.ids[place])], start, end) for place, start, end in found]
        if holes:
            await self._gaps.record_each(holes, "overflow", "the server's queue was full")
            await self._gaps.must_say()

    def _apart(
        self, tags: Tags, handle: UInt32s, time: Int64s, value: Float64s, status: UInt32s, arrival: int
    ) -> tuple[SampleBatch | None, list[Event]]:
        """Numbers are samples; a text channel without its value (it is Bad) is an event like its texts."""
        is_text = tags.is_text[handle]
        events: list[Event] = []
        if is_text.any():
            events = [
                Event("text", int(time[k]), int(tags.ids[handle[k]]), int(status[k])) for k in np.flatnonzero(is_text)
            ]
            handle, time, value, status = handle[~is_text], time[~is_text], value[~is_text], status[~is_text]
        if not len(handle):
            return None, events
        return SampleBatch(self._status.source_id, arrival, tags.ids[handle], time, value, status), events


def _columns(change: DataChange) -> tuple[UInt32s, Int64s, Float64s, UInt32s]:
    """Places, times, values and status codes of all that is not a text."""
    if not change.handle:
        return np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.uint32)
    return tuple(np.concatenate(c) for c in (change.handle, change.time, change.value, change.status))  # type: ignore[return-value]


def _with_texts(
    place: UInt32s, time: Int64s, status: UInt32s, texts: list[Text], n: int
) -> tuple[UInt32s, Int64s, UInt32s]:
    """Numbers and texts (of ``n`` channels) in order of time: a text channel has either, where some are Bad."""
    ours = [t for t in texts if t.handle < n]
    if not ours:
        return place, time, status
    time = np.concatenate([time, np.array([t.time for t in ours], np.int64)])
    order = np.argsort(time, kind="stable")
    place = np.concatenate([place, np.array([t.handle for t in ours], np.uint32)])
    status = np.concatenate([status, np.array([t.status for t in ours], np.uint32)])
    return place[order], time[order], status[order]
