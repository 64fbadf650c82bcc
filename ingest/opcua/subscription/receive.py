"""Receiver of notifications: decode into columns, check, store in the spool."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from core import metrics
from core.batch import Batch, Event, EventBatch, SampleBatch
from core.errors import DecodeError
from core.timestamps import now_us
from ingest.appender import Appender, Notes, until_durable
from ingest.channel_map import from_ranges, to_ranges
from ingest.downtime import Downtime
from ingest.gaps import Gaps
from ingest.notes import Note
from ingest.opcua.decode.data_change import portions
from ingest.opcua.decode.decoded import PLAIN, DataChange
from ingest.opcua.decode.message import Notification
from ingest.opcua.subscription.clocks import ClockSkew
from ingest.opcua.subscription.items import MARKER_HANDLE, PROBE_HANDLE
from ingest.opcua.subscription.overflow import NotificationSamples, Overflows
from ingest.opcua.subscription.source_times import SourceTimes
from ingest.opcua.subscription.subscription_state import Subscription
from ingest.opcua.subscription.tags import Tags
from ingest.opcua.subscription.texts import RepeatedTexts, merge_texts, split_texts
from ingest.opcua.subscription.tracking import ChannelTracking, Moves
from ingest.opcua.subscription.unreadable import NotificationValues, UndecodableNotifications, Unreadable
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions

log = logging.getLogger(__name__)

_REPEATED_REASON = "time_stands_still"


@dataclass(slots=True)
class _Arrived:
    """A notification on its way to the disk."""

    notification: Notification
    subscription: Subscription
    arrival: int  # µs
    in_order: bool  # all before it is on disk
    texts: dict[int, Event] = field(default_factory=dict)  # of its parts so far, the last one of each channel
    floors: dict[int, int] = field(default_factory=dict)  # that it reaches (channel id → µs)
    has_marker: bool = False
    on_disk: list[Callable[[], None]] = field(default_factory=list)  # to be called once it is


class Receiver:
    """Receives the notifications of one source."""

    def __init__(
        self,
        tags: Tags,
        status: SourceStatus,
        spool: Appender,
        gaps: Gaps,
        versions: ChannelVersions,
        downtime: Downtime,
        stands_by: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stands_by = stands_by
        self._in_turn = asyncio.Lock()  # held by the notification that is being decoded
        self._status = status
        self._spool = spool
        self._gaps = gaps
        self._versions = versions
        self._tracking = ChannelTracking(tags)
        self._texts = RepeatedTexts(gaps)
        self._set_floors()
        self._unreadable = Unreadable(tags, status, gaps)
        self.session_rules = PLAIN  # how this session's server sends values
        self._overflows = Overflows(status, gaps)
        self._clocks_note = Note.CLOCKS.of(status.source_id)
        self.clocks = ClockSkew(tags.source.skew_limit, note=spool.notes.get(self._clocks_note, "{}"))
        self._removed: dict[int, int] = {}  # channels without a tag → µs, up to where their values were stored
        self._downtime = downtime
        before = downtime.interruption()
        newest = 0 if before is None else before[0]
        self.times = SourceTimes(self.clocks, spool, gaps, newest, tags.source.skew_limit)
        # Subscription → set once everything queued before its marker came
        self._marker_events: dict[int, asyncio.Event] = {}
        self._marker_came: set[int] = set()  # subscriptions whose marker came, with more messages to follow
        self._undecodable = UndecodableNotifications(status, gaps)
        self._noted_repeats = 0  # number of channels in the note
        self._repeats_note = Note.REPEATS.of(status.source_id)
        repeats = from_ranges(json.loads(spool.notes.get(self._repeats_note, "[]"))).tolist()
        self._tracking.repeated.restore(repeats, gaps.channels_open_for(_REPEATED_REASON), newest)
        self.moves = Moves(gaps)

    def configure(self, tags: Tags) -> None:
        """Use these tags from now on; a notification being processed keeps the previous ones."""
        self._tracking = ChannelTracking(tags, self._tracking)
        self.times.configure(tags.source.skew_limit)
        self._texts = RepeatedTexts(self._gaps)
        self._set_floors()

    def _set_floors(self) -> None:
        tracking = self._tracking
        tracking.floor[:-1] = [self._versions.pending_floor(channel) for channel in tracking.tags.ids.tolist()]

    @property
    def times_depend_on_order(self) -> bool:
        """Return whether a message that comes again, or behind others, can give its values other times.

        Source timestamps of a channel repeat: what came before a sample then tells which time it gets. Or it is when
        the sample came.
        """
        tracking = self._tracking
        return tracking.dates_by_arrival or self._texts.repeat or bool(tracking.repeated.repeats.any())

    async def store(
        self,
        body: bytes,
        notification: Notification,
        subscription: Subscription,
        progress: Callable[[int | None], Notes],
    ) -> None:
        """Decode one notification; return once it is on disk, together with ``progress``.

        A large one is processed in portions, between which other sources have their turn. No other notification of this
        source overtakes it. Those that are on disk already, of one that comes again, are not stored again.
        """
        arrival = now_us()
        self.clocks.observe_wall_clock()
        if notification.publish_time:
            self.clocks.observe_message(notification.publish_time, arrival)
        async with asyncio.TaskGroup() as appends:
            async with self._in_turn:
                tracker = subscription.tracker
                in_order = tracker.first == notification.sequence
                on_disk = tracker.portions if in_order else 0
                message = _Arrived(notification, subscription, arrival, in_order)
                changes, undecodable = await self._decoded(body, message)
                is_noted = False
                for part, change in enumerate(changes, 1):
                    is_last = part == len(changes)
                    if part > 1:
                        await asyncio.sleep(0)
                    more = notification.more or not is_last
                    batch, events = await self._batches(message, change, more, is_stored=part <= on_disk)
                    if batch is None:
                        continue
                    is_whole = is_last and undecodable is None and self._gaps.are_written
                    notes = {**progress(None if is_whole else part), **self._reached(batch, notification.publish_time)}
                    append = self.append(batch, notes, events)
                    if is_last:
                        is_noted = True
                        appends.create_task(append)
                        continue
                    await append  # before the next one, which may be smaller: it must not be on disk without this one
                    if in_order:
                        tracker.portions = max(tracker.portions, part)
                if undecodable is not None:
                    await self._record_undecodable(message, undecodable)
                elif self._undecodable.channels and notification.data_changes:
                    await self._undecodable.close(
                        self.times.begin_of_gap(notification.publish_time), subscription.items
                    )
            if not is_noted:
                await self._spool.note(progress(len(changes)))
        await self._stored(message)

    async def _decoded(self, body: bytes, message: _Arrived) -> tuple[list[DataChange], DecodeError | None]:
        """The data changes of a notification, large ones in portions, but for those that can't be decoded."""
        rules = replace(
            self._tracking.tags.rules,
            whole_arrays=self.session_rules.whole_arrays,
            structures=self.session_rules.structures,
            key=message.subscription.key,
        )
        changes: list[DataChange] = []
        undecodable: DecodeError | None = None
        for start, end in message.notification.data_changes:
            of_one: list[DataChange] = []
            try:
                for change in portions(body, start, end, message.arrival, rules):
                    if of_one:
                        await asyncio.sleep(0)
                    of_one.append(change)
            except DecodeError as error:
                undecodable = error
                continue
            changes += of_one
        return changes, undecodable

    async def _batches(
        self, message: _Arrived, change: DataChange, more: bool, *, is_stored: bool
    ) -> tuple[Batch | None, Sequence[EventBatch]]:
        """Samples of a part of a notification, or its events; and those beside samples, changed texts among them.

        ``more`` of it, or of others, follows. ``is_stored``: its samples and texts are on disk. What the values say of
        losses is recorded before they are returned.
        """
        tracking, tags, arrival = self._tracking, self._tracking.tags, message.arrival
        # Whose values they are
        if not message.subscription.is_ours and (handles := change.handles() - {MARKER_HANDLE, PROBE_HANDLE}):
            message.subscription.prove(not handles.isdisjoint(message.subscription.items))
        message.has_marker |= bool(self._marker_events) and any((h == MARKER_HANDLE).any() for h in change.handle)
        self._status.count_undecodable(len(change.unsupported))
        tags.by_position(change)
        # Their times
        tags.date(change, arrival)
        message.floors |= tracking.clamp_times(change)
        self._texts.date(change.texts)
        position, time, server, value, status = change.columns()
        ours = position < np.uint32(len(tags))  # servers may send unknown handles
        if not ours.all():
            position, time, value, status, server = position[ours], time[ours], value[ours], status[ours], server[ours]
        value, status = tags.without_no_data(position, value, status)
        dated = tracking.repeated.date(position, time, server, value, status, arrival)
        time = dated.time
        # Losses
        with_texts = merge_texts(position, time, status, change.texts, len(tags))
        values = NotificationValues(tags, change, position, time, status)
        events = await self._unreadable.check(values, tracking.time, arrival)
        publish_time = message.notification.publish_time
        await self._inspect(
            tracking, NotificationSamples(*with_texts, arrival, more), message.subscription, publish_time
        )
        again, at = tracking.unchanged.find(position, time, message.notification.sequence)
        stated = position[again], at, value[again], status[again]
        if dated.gaps:
            begins = [([channel], since) for channel, since in dated.gaps]
            await self._gaps.open_each(begins, _REPEATED_REASON, "different values have the same timestamps")
        events += dated.conflicts
        # What is stored
        keep = np.zeros(len(position), bool) if is_stored else dated.keep
        if keep is not None:
            position, time, value, status = position[keep], time[keep], value[keep], status[keep]
        message.on_disk.append(partial(tracking.repeated.stored, position, time, value, status))
        if len(again):
            tracking.record_samples(*stated[:2])
            message.on_disk.append(partial(tracking.unchanged.stored, stated[0]))
            position, time = np.append(position, stated[0]), np.append(time, stated[1])
            value, status = np.append(value, stated[2]), np.append(status, stated[3])
        columns = position, time, value, status
        samples, texts = split_texts(self._status.source_id, tags, *columns, () if is_stored else change.texts, arrival)
        if texts:
            changed = self._texts.changed(texts, message.in_order, message.texts)
            message.on_disk.append(partial(self._texts.stored, changed))
            events += changed
        events += tracking.origins(change, with_texts[0])
        events += tracking.rounded(change)
        batch = EventBatch(self._status.source_id, arrival, events) if events else None
        if samples is None:
            return batch, ()
        return samples, () if batch is None else (batch,)

    async def _inspect(
        self, tracking: ChannelTracking, message: NotificationSamples, subscription: Subscription, publish_time: int
    ) -> None:
        await self._overflows.record(message, tracking.tags, tracking.time, subscription)
        last = tracking.time[message.position]
        continues = last > 0  # a first value may be of any age
        times = message.time[continues]
        if len(times):
            # By the best fitting time: single tags with another clock are detected separately.
            nearest = int(np.argmin(np.abs(times - message.arrival)))
            self.clocks.observe_samples(int(times[nearest]), publish_time, message.arrival)
            arguments = message.position[continues], times, last[continues], publish_time, message.arrival
            if prolonged := await self.times.prove_end(*arguments):
                self.expect_unchanged(*prolonged, self._tracking.tags.ids.tolist())
                await self._gaps.flush_or_raise()
            if subscription.published:
                self.clocks.observe_late(times[times > last[continues]], subscription.published)
        tracking.observe_clocks(message.position, message.time, message.arrival)
        if self.moves.awaited:
            inside = self._spool.limits.inside(message.arrival, message.time)
            await self.moves.close(tracking.tags.ids[message.position[inside]], message.time[inside])
        heard_again = tracking.record_samples(message.position, message.time)
        if again := [channel for channel in heard_again if self._gaps.reason(channel) == "stale"]:
            await self._gaps.close(self.times.end_of_gap(publish_time), again)

    def _reached(self, batch: Batch, publish_time: int) -> Notes:
        """The note of the last sample: the next process can't know it from the subscriptions."""
        if not isinstance(batch, SampleBatch):
            return {}
        newest = max(self.times.newest, int(batch.samples.time.max()))
        self.times.newest = min(newest, self.times.end_of_gap(publish_time))
        notes = self._downtime.notes(self.times.newest)
        repeats = self._tracking.repeated.repeats
        if (n := int(np.count_nonzero(repeats))) != self._noted_repeats:
            self._noted_repeats = n
            notes = {**notes, self._repeats_note: json.dumps(to_ranges(self._tracking.tags.ids[repeats].tolist()))}
        clocks = self.clocks.note()
        return notes if clocks is None else {**notes, self._clocks_note: clocks}

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        """Return once ``batch`` is on disk, with the events ``beside`` it, however long the disk is full or fails."""
        await until_durable(self._spool, self._status.name, lambda: self._spool.append(batch, notes, beside))
        for appended in (batch, *beside):
            if isinstance(appended, SampleBatch):
                self._status.count_samples(len(appended))
                self._status.record_samples(appended.samples.time)
            elif isinstance(appended, EventBatch):
                for event in appended.events:
                    metrics.events.labels(source=self._status.name, type=event.type).inc()

    async def _stored(self, message: _Arrived) -> None:
        """A notification is on disk: the state by which the next ones are judged follows."""
        for done in message.on_disk:
            done()
        subscription, more = message.subscription, message.notification.more
        if message.in_order and not more:
            subscription.published = message.notification.publish_time
        if message.floors:
            await until_durable(self._spool, self._status.name, lambda: self._versions.floor_reached(message.floors))
        if message.has_marker:
            self._marker_came.add(subscription.id)
        if subscription.id in self._marker_came and not more:
            self._marker_came.remove(subscription.id)
            self._marker_events.pop(subscription.id, asyncio.Event()).set()

    async def _record_undecodable(self, message: _Arrived, error: DecodeError) -> None:
        notification, subscription = message.notification, message.subscription
        log.warning("source %s: notification %d: %s", self._status.name, notification.sequence, error)
        self._status.count_missed()
        intervals = self.missing_intervals(subscription, self.times.end_of_gap(notification.publish_time))
        await self._undecodable.open(error, subscription.items, intervals)

    async def check(self, late: float = 0.0) -> None:
        """Periodic check for stale channels and clock differences.

        ``late``: delay of this call in seconds.
        """
        self._tracking.exclude(late)
        if self._tracking.looks_for_stale:
            silent = [([channel], since) for channel, since in self._tracking.newly_stale()]
            await self._gaps.open_each(silent, "stale", "silent for longer than stale_after")
        await self._gaps.close_each(self._tracking.repeated.ended())
        self._status.remark_repeated(self._tracking.repeated.gaps)
        self._overflows.refresh_remark()
        events = self.clocks.events(self._tracking.clocks)
        if events:
            await self.append(EventBatch(self._status.source_id, now_us(), events))

    def published_to(self, subscription: Subscription) -> int:
        """The time (µs) of the last publication of a subscription, or of its last sample if that is later."""
        last = max(map(self._tracking.last, subscription.items), default=0)
        return max(subscription.tracker.complete_to, min(last, self.times.newest))

    def missing_intervals(
        self, subscription: Subscription, end: int, since: int | None = None
    ) -> list[tuple[int, int]]:
        """(from, to) µs, of what is missing up to ``end`` if a publication is: since the last one, and before.

        What was sampled before a publication may be in the next one. That is a gap of its own, because in that time
        there are samples, and the last of them must not hold until ``end``.
        """
        since = self.published_to(subscription) if since is None else since
        return [(since, max(since, end)), (subscription.sampled_to, since)]

    def expect_unchanged(self, since: int, until: int, channels: Iterable[int], first_message: int = 1) -> None:
        """The next values of these channels are the current ones, after a gap (µs), from that message on.

        Only the member of a pair that writes states values again: the other one's gaps have other times.
        """
        if until <= since or self._stands_by():
            return
        tags = self._tracking.tags
        positions = np.array(tags.positions(channels), np.intp)
        self._tracking.unchanged.expect(positions[~tags.is_text[positions]], since, until, first_message)

    async def start_versions(self, versions: Mapping[int, int], *, another_node: bool) -> None:
        """Begin versions of channels. Returns once that is on disk.

        ``another_node``: their definitions have changed, they have no monitored items, and all data of
        former items is on disk. By source timestamps, everything on disk is before the change, and samples of the
        next items are after it.
        """
        if not (new := self._versions.not_yet_read(versions)):
            return
        now = self.clocks.sample_clock_now()[0]
        for channel, version in new.items():
            since = max(now, self._tracking.last(channel) + 1)
            self._versions.start(channel, version, since, new_address=another_node)
        await until_durable(self._spool, self._status.name, self._versions.flush)
        self._set_floors()

    async def open_move_gaps(self, subscription: Subscription, channels: Iterable[int]) -> None:
        """The items of these channels are replaced by items of other nodes: open gaps until then."""
        await self.moves.open({c: max(self._tracking.last(c), subscription.sampled_to) for c in channels})

    def drop_removed(self, tags: Tags, subscriptions: Iterable[Subscription]) -> None:
        """Values of channels that have no tag any more are dropped from now on: what was not published yet is lost."""
        for subscription in subscriptions:
            since = self.published_to(subscription)
            for channel in [c for c in subscription.items if tags.position(c) is None]:
                self._removed.setdefault(channel, since)

    async def record_removed(self, channels: Iterable[int]) -> None:
        """The items of these channels are deleted, because they have no tags any more."""
        by_begin: dict[int | None, list[int]] = {}
        for channel in channels:
            by_begin.setdefault(self._removed.pop(channel, None), []).append(channel)
        for since, ids in by_begin.items():
            await self._gaps.remove(self.times.end_of_gap(0), ids, since)
        await self._gaps.flush_or_raise()

    def marker_event(self, subscription: Subscription) -> asyncio.Event:
        """An event, set once the value of the item :data:`MARKER_HANDLE` and everything before it is on disk."""
        return self._marker_events.setdefault(subscription.id, asyncio.Event())
