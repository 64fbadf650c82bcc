"""Gaps of what an OPC UA server did not send: in an outage, of a lost subscription, of a lost notification.

Each is recorded before newer data are saved, and then read from the server's history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from core.timestamps import iso, now_us
from ingest.downtime import DETAILS
from ingest.gaps import Gaps
from ingest.opcua.events.server_events import ServerEvents
from ingest.opcua.recovery.backfill import Backfill
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.subscription_state import Subscription
from ingest.opcua.subscription.subscriptions import Subscriptions
from ingest.status import SourceStatus

Intervals: TypeAlias = tuple[list[tuple[int, int]], list[int] | None]  # (from, to) µs each, and the channels; None: all


class Losses:
    """The losses of one source, across its sessions."""

    def __init__(
        self,
        status: SourceStatus,
        subscriptions: Subscriptions,
        receiver: Receiver,
        events: ServerEvents,
        gaps: Gaps,
        backfill: Backfill,
    ) -> None:
        self._status = status
        self._subscriptions = subscriptions
        self._receiver = receiver
        self._events = events
        self._gaps = gaps
        self._backfill = backfill
        self._since = now_us()
        self._missing: dict[int, tuple[int, int]] = {}  # by subscription: the last gap (µs) of a lost notification
        self._lost: dict[tuple[int, int], Intervals] = {}  # by subscription and sequence number of lost notifications

    def begin_session(self) -> None:
        """Forget notifications lost in the session before: they do not come any more."""
        self._lost.clear()

    async def open_outage(self, reason: str, detail: str) -> None:
        """The source sends nothing: a gap since its last publication that is on disk. No sample is later.

        Where the server can't be reached after a downtime of plantlog, its gap goes on, and says so: whether anything
        is missing is known of both together, from the subscriptions that the server still has.
        """
        await self._gaps.open(self._published_to(), reason, detail)
        if self._gaps.reason() != reason and self._gaps.detail() in DETAILS.values():
            await self._gaps.add_detail(f"since {iso(now_us())} {reason}: {detail}")

    def _published_to(self) -> int:
        times = [self._receiver.published_to(s) for s in self._subscriptions if not s.event_items]
        return max([self._receiver.times.newest, *times]) or self._since

    async def record_lost(self, lost: Sequence[Subscription]) -> None:
        """Record that these subscriptions are lost, before new ones are created, which may get the same ids."""
        self._subscriptions.forget(lost)
        for subscription in lost:
            if subscription.event_items:
                await self._events.record_lost(subscription.sampled_to)
        of_channels = [s for s in lost if not s.event_items]
        if self._subscriptions.saved_ids:  # others continue, so the gap of the whole source ends without loss
            for subscription in of_channels:
                channels, since = sorted(subscription.items), self._receiver.published_to(subscription)
                await self._gaps.open(since, "subscription_lost", "", channels)
                await self._record_unsent(subscription.sampled_to, since, "subscription_lost", channels)
        elif of_channels:
            since, reason = self._gaps.open_since() or self._published_to(), self._gaps.reason() or "subscription_lost"
            await self._record_unsent(min(s.sampled_to for s in of_channels), since, reason, None)
        await self._gaps.flush_or_raise()
        await self._subscriptions.note()

    async def _record_unsent(self, start: int, end: int, reason: str, channels: list[int] | None) -> None:
        """Record that samples from before the last publication (``end``) may not have been in it.

        A gap of its own: in that time there are samples, and the last of them must not hold through the outage.
        """
        if start < end:
            await self._record_gap(start, end, reason, "sampled before the outage, and perhaps not sent", channels)

    async def close_outage(self, server_now: int) -> None:
        """All subscriptions exist: end the gaps, durably, before the new subscriptions are saved."""
        since, reason = self._gaps.open_since(), self._gaps.reason()
        ends = not self._subscriptions.saved_ids
        now = self._receiver.times.end_outage(server_now, since if ends else None, reason)
        if ends:
            await self._gaps.close(now)
            if since is not None:
                await self._backfill.request(since, now, reason, None)
                for begin, _ in self._gaps.ended(now):
                    self._receiver.expect_unchanged(begin, now, [c for s in self._subscriptions for c in s.items])
        else:
            channels_by_begin: dict[int, list[int]] = {}
            for channel in self._gaps.channels_open_for("subscription_lost"):
                channels_by_begin.setdefault(self._gaps.open_since(channel) or now, []).append(channel)
            for start, channels in channels_by_begin.items():
                await self._gaps.close(now, channels)
                await self._backfill.request(start, now, "subscription_lost", sorted(channels))
                for begin, ids in self._gaps.ended(now, channels):
                    self._receiver.expect_unchanged(begin, now, ids.tolist())
        await self._gaps.flush_or_raise()

    async def record_missing(self, subscription: Subscription, sequence: int, since: int, detail: str) -> None:
        """Record that a notification is lost; ``since``: µs, up to where samples were stored when it was missed."""
        if subscription.event_items:
            await self._events.record_unavailable(subscription, detail)
            return
        self._status.count_missed()
        only = sum(not s.event_items for s in self._subscriptions) == 1
        channels = None if only else list(subscription.items)
        intervals = self._receiver.missing_intervals(subscription, self._receiver.times.end_of_gap(0), since)
        self._missing[subscription.id] = intervals[0]
        self._lost[subscription.id, sequence] = intervals, channels
        for start, end in intervals:
            await self._record_gap(start, end, "not_available", detail, channels)

    async def record_late(self, subscription: Subscription, sequence: int) -> None:
        """A lost notification came after all: withdraw its gaps, but not the gaps of others that are still lost."""
        late = self._lost.pop((subscription.id, sequence), None)
        if late is None:
            return
        intervals, channels = late
        for (number, other), (lost, _) in self._lost.items():
            if number == subscription.id and lost[0][0] <= intervals[0][1] and intervals[0][0] <= lost[0][1]:
                # They were recorded together: all are withdrawn with the last one.
                both = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(lost, intervals, strict=True)]
                self._lost[number, other] = both, channels
                return
        for start, end in intervals:
            if start < end:
                await self._gaps.withdraw_recorded(start, end, "not_available", channels)
                await self._backfill.withdraw(start, end, channels)

    async def _record_gap(self, start: int, end: int, reason: str, detail: str, channels: list[int] | None) -> None:
        """Record a gap that has ended, and have it read from the history, with the one that it prolongs."""
        await self._gaps.record(start, end, reason, detail, channels)
        for begin, ids in self._gaps.ended(end, channels):
            await self._backfill.request(begin, end, reason, None if channels is None else ids.tolist())

    def expect_resent(self, subscription: Subscription) -> None:
        """Expect the current values of a subscription, which the server sends again after a lost notification."""
        if gap := self._missing.pop(subscription.id, None):
            self._receiver.expect_unchanged(*gap, subscription.items, subscription.tracker.awaited)
