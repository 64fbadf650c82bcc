"""Collects from one OPC UA server: stores notifications in the spool, then acknowledges them.

After a lost connection, a killed process or a server that stopped answering, the next session takes over the
subscriptions and requests what is missing. What the server no longer has becomes a gap, to be filled from history.

A changed tag list is applied to the existing subscriptions: items are created and deleted, all others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from asyncua import Client, ua

from core import metrics
from core.backoff import Backoff
from core.batch import Event, EventBatch
from core.config.sources import OpcuaSource
from core.errors import SourceError, SpoolError, first_cause
from core.source_states import SourceState
from core.timestamps import now_us
from ingest.appender import Appender, Notes
from ingest.downtime import Downtime
from ingest.gaps import Gaps
from ingest.opcua.decode.message import Notification
from ingest.opcua.events.server_events import ServerEvents
from ingest.opcua.recovery.backfill import Backfill
from ingest.opcua.recovery.history import server_start, server_time
from ingest.opcua.session.backoff import ConnectionBackoff, connection_refused
from ingest.opcua.session.cancellation import run_to_end
from ingest.opcua.session.servers import Servers
from ingest.opcua.session.session import close, connect
from ingest.opcua.subscription.difference import difference
from ingest.opcua.subscription.publish import Publisher
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.subscription_state import Server, Subscription
from ingest.opcua.subscription.subscriptions import Subscriptions
from ingest.opcua.subscription.tags import Tags
from ingest.opcua.subscription.transfer import delete, prove_ours, transfer
from ingest.recorded_state import RecordedState
from ingest.status import SourceStatus
from ingest.timeouts import sleep_overrun, within
from ingest.versions import NO_VERSIONS, ChannelVersions

log = logging.getLogger(__name__)

_RETRY_REFUSED = (10.0, 600.0)  # s, first and longest wait before rejected tags are retried
_CHECK_SECONDS = 1.0  # s
_CUT = (ConnectionError, ua.uaerrors.BadConnectionClosed)
Intervals: TypeAlias = tuple[list[tuple[int, int]], list[int] | None]  # (from, to) µs each, and the channels; None: all

_LOST = (SourceError, SpoolError, ua.UaError, OSError, TimeoutError)


class Collector:
    """Owns the connection of one source.

    Bad tags, lost connections and a full spool never end it. ``backfill`` fills gaps from the server's history.
    """

    def __init__(
        self,
        source: OpcuaSource,
        channel_ids: Mapping[str, int],
        status: SourceStatus,
        spool: Appender,
        pki: Path,
        backfill: Appender,
        versions: Mapping[int, int] = NO_VERSIONS,
        stands_by: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._tags = Tags(source, channel_ids, versions)
        self._status = status
        self._spool = spool
        self._pki = pki
        self._gaps = Gaps(status, spool)
        self._downtime = Downtime(status.source_id, spool)
        self._versions = ChannelVersions(source.name, status.source_id, spool)
        self._receiver = Receiver(self._tags, status, spool, self._gaps, self._versions, self._downtime, stands_by)
        self._events = ServerEvents(self._tags, status, spool, self._receiver)
        self.conditions = self._events.conditions
        self._backfill = Backfill(self._tags, status, spool, backfill, self._gaps, self._versions)
        self._subscriptions = Subscriptions(status.source_id, source.servers, self._receiver, spool)
        self._receiver.drop_removed(self._tags, self._subscriptions)
        self._servers = Servers(source, pki, status, self._subscriptions.server.address)
        self._reason = ""  # of the last loss of a session
        self._recorded_state = RecordedState()
        self._since = now_us()
        self._was_connected = False  # there was a connection before
        self._refused: set[int] = set()  # channels recorded and shown as rejected
        self._tags_changed = asyncio.Event()  # the tags differ from the subscribed ones
        self._missing: dict[int, tuple[int, int]] = {}  # by subscription: the last gap (µs) of a lost notification
        self._lost: dict[tuple[int, int], Intervals] = {}  # by subscription and sequence number of lost notifications

    def configure(
        self, source: OpcuaSource, channel_ids: Mapping[str, int], versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        """Apply another tag list or other intervals, in the current session if there is one.

        The connection settings (address, security, identity) must be unchanged.
        """
        self._source = source
        self._tags = Tags(source, channel_ids, versions)
        self._status.channels = len(self._tags)
        for name in self._status.bad_channels.keys() - {tag.name for tag in source.tags}:
            del self._status.bad_channels[name]
        self._receiver.drop_removed(self._tags, self._subscriptions)
        self._receiver.configure(self._tags)
        self._backfill.configure(self._tags)
        self._events.configure(self._tags)
        self._tags_changed.set()

    @property
    def is_synchronising(self) -> bool:
        """Whether a changed tag list is still to be applied on the server."""
        return self._tags_changed.is_set() or self._subscriptions.lock.locked()

    async def run(self) -> None:
        """Collect until cancelled."""
        try:
            await self._open_downtime_gap()
            await self._connections()
        except asyncio.CancelledError:
            await self._downtime.record_stop(now_us())
            raise

    async def _connections(self) -> None:
        backoff = ConnectionBackoff(self._source.backoff_min, self._source.backoff_max)
        await self._servers.read_levels(self._source)
        nobody_listens = True  # at no address of this round
        while True:
            self._status.state = "connecting"
            address = self._servers.next()
            try:
                await run_to_end(self._connection(address, backoff))
            except* _LOST as lost:
                self._reason = _reason(lost)
                reason = f"{address}: {self._reason}" if self._servers.are_redundant else self._reason
                nobody_listens = nobody_listens and connection_refused(lost)
                await self._gaps.open(self._published_to(), "disconnected", reason)
                await self._set_state("disconnected", reason)
            if self._servers.is_round_over:
                await backoff.pause(nobody_listens, self._servers.all_refuse)
                nobody_listens = True

    async def _connection(self, address: str, backoff: ConnectionBackoff) -> None:
        """Run one session, until an error ends it."""
        try:
            client = await connect(self._source.at(address), self._pki)
        except SourceError as error:
            self._servers.failed(address, str(error))
            raise
        try:
            if self._was_connected:
                self._status.reconnects += 1
                metrics.reconnects.labels(source=self._source.name).inc()
            self._was_connected = True
            started = monotonic()
            try:
                await self._session(client, address)
            except* _LOST as lost:
                if monotonic() - started > self._source.backoff_max:
                    self._servers.session_ended(address, was_cut=lost.split(_CUT)[0] is not None)
                raise
            finally:
                backoff.session_ended(monotonic() - started)
        finally:
            await close(client, self._source.time_out)

    async def _open_downtime_gap(self) -> None:
        """If a process ran before, open a gap since its end, until the server proves that nothing is missing."""
        # It may have ended between recording the end of an outage and saving the subscriptions: none is known then.
        if self._subscriptions.state.subscriptions or self._receiver.times.newest:
            ending = self._downtime.shutdown()
            await self._gaps.open(self._published_to(), ending, f"plantlog was {ending}")
        await self._downtime.begin()

    def _published_to(self) -> int:
        """Time (µs) of the last publication that is on disk: no sample is later."""
        known = [self._receiver.published_to(s) for s in self._subscriptions if not s.event_items]
        return max([self._receiver.times.newest, *known]) or self._since

    async def _session(self, client: Client, address: str) -> None:
        """Transfer or create subscriptions, then publish, until an error ends it."""
        publisher = Publisher(
            client,
            self._source,
            self._subscriptions.state.subscriptions,
            self._spool,
            self._store,
            self._record_missing,
            self._record_late,
            partial(self._rebuild, client),
            self._receiver.published_to,
            self._expect_resent,
            self._receiver.times.begin_of_gap,
            self._subscriptions.note_name,
        )
        await self._recover(client, address, publisher)
        await self._record_refused()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            tasks.create_task(self._retract_outage(client, publisher))
            tasks.create_task(self._retry_refused(client))
            tasks.create_task(self._follow(client))
            tasks.create_task(self._subscriptions.state.structures.follow(client, self._source.time_out))
            tasks.create_task(self._backfill.run(client))
            tasks.create_task(self._watch())
            tasks.create_task(self._servers.watch_own(client, self._source.at(address)))
            tasks.create_task(self._servers.watch_others(self._source))
            tasks.create_task(self._events.run(client, self._subscriptions))

    async def _recover(self, client: Client, address: str, publisher: Publisher) -> None:
        """Continue the subscriptions that the server still has; create the others again.

        This can be interrupted anywhere and repeated on another connection or in another process. Until all exist, new
        subscriptions are not saved: the outage continues, and they are created again.

        A subscription whose items mean something else in this session is deleted, with what it has queued.
        """
        self._lost.clear()
        managed = self._subscriptions
        subscriptions = managed.state.subscriptions
        namespaces = await managed.begin_session(client, self._source)
        self._events.begin_session(namespaces)
        whole_arrays = managed.state.whole_arrays
        server = Server(address, await server_start(client, self._source))
        transferred = {}
        if server.continues(managed.server) and not self._receiver.times.has_restarted(
            await server_time(client, self._source)
        ):
            transferred = await transfer(client, self._source, managed.state)
            for number in transferred:
                await prove_ours(client, self._source, subscriptions[number])
        unfinished = subscriptions.keys() - managed.saved_ids
        for number in unfinished:
            del subscriptions[number]
        if unfinished & transferred.keys():
            await delete(client, self._source, sorted(unfinished & transferred.keys()))
        lost = [
            s
            for s in subscriptions.values()
            if s.id not in transferred or s.changing or not s.fits(namespaces, whole_arrays) or not self._events.fits(s)
        ]
        for subscription in list(subscriptions.values()):
            if subscription not in lost:
                await publisher.recover(subscription, transferred[subscription.id])
        if obsolete := sorted(s.id for s in lost if s.id in transferred):
            await delete(client, self._source, obsolete)
        if lost:
            await self._record_lost(lost)
        await self._start_server(server)
        tags = self._tags
        changes = difference(tags, managed.state)
        if self._versions.not_yet_read(tags.versions):
            self._receiver.times.set_server_clock(await server_time(client, self._source))
            await managed.start_versions(tags, changes)
        await managed.create(client, tags, changes.create)
        await self._events.create(client, managed)
        self._tags_changed.set()  # other differences need a publishing session
        await self._close_outage(await server_time(client, self._source))
        await self._gaps.flush_or_raise()
        await managed.complete()
        self._status.address = address

    async def _rebuild(self, client: Client, lost: Sequence[Subscription], why: str) -> None:
        """Create lost subscriptions again in a session whose others go on. Raises SourceError if that takes too long.

        A change of the tags may wait for values of a lost one. That of events is created by its own task.
        """
        of_channels = [s for s in lost if not s.event_items]
        if len(of_channels) < len(lost):
            self._events.lose(why)
        if not of_channels:
            return
        managed = self._subscriptions
        try:
            await within(self._source.time_out, managed.lock.acquire())
        except TimeoutError:
            raise SourceError(why) from None
        try:
            gone = [s for s in of_channels if managed.state.subscriptions.get(s.id) is s]
            if not gone:
                return
            log.warning("source %s: %s: creating it again", self._source.name, why)
            await delete(client, self._source, [s.id for s in gone])
            await self._record_lost(gone)
            await managed.create(client, self._tags, difference(self._tags, managed.state).create)
            await self._close_outage(await server_time(client, self._source))
            await self._gaps.flush_or_raise()
            await managed.complete()
        finally:
            managed.lock.release()

    async def _follow(self, client: Client) -> None:
        """Apply each change of the tags to the current session. Gaps of tags that were never read end."""
        while True:
            await self._tags_changed.wait()
            async with self._subscriptions.lock:
                self._tags_changed.clear()
                await self._subscriptions.synchronise(client, self._tags)
            await self._gaps.close(now_us(), [c for c in self._gaps.channels() if self._tags.place(c) is None])
            await self._record_refused()

    async def _start_server(self, server: Server) -> None:
        """The source is read from this server from now on; nothing of another one's subscriptions continues here.

        After a restart of the same server, what it rejected is requested again.
        """
        previous, self._subscriptions.server = self._subscriptions.server, server
        if not server.continues(previous):
            self._subscriptions.state.refused.clear()
        before, address = previous.address, server.address
        if before == address:
            return
        self._servers.in_use = address
        self._receiver.times.start_server()
        if before:
            detail = {"before": before, "reason": self._reason}
            event = Event("failover", now_us(), text=address, detail=detail)
            log.info("source %s: failed over from %s to %s: %s", self._source.name, before, address, self._reason)
            await self._receiver.append(EventBatch(self._status.source_id, event.time, (event,)))

    async def _record_lost(self, lost: list[Subscription]) -> None:
        """Record that these subscriptions are lost, before new ones are created, which may get the same ids."""
        self._subscriptions.forget(lost)
        for subscription in lost:
            if subscription.event_items:
                await self._events.record_lost(subscription.sampled_to)
        of_channels = [s for s in lost if not s.event_items]
        if self._subscriptions.saved_ids:  # others continue, so the gap of the whole source is retracted
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

    async def _close_outage(self, server_now: int) -> None:
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
            return
        channels_by_begin: dict[int, list[int]] = {}
        for channel in self._gaps.channels_open_for("subscription_lost"):
            channels_by_begin.setdefault(self._gaps.open_since(channel) or now, []).append(channel)
        for start, channels in channels_by_begin.items():
            await self._gaps.close(now, channels)
            await self._backfill.request(start, now, "subscription_lost", sorted(channels))
            for begin, some in self._gaps.ended(now, channels):
                self._receiver.expect_unchanged(begin, now, some.tolist())

    async def _retract_outage(self, client: Client, publisher: Publisher) -> None:
        """Once all transferred subscriptions publish again: retract the gap of the whole source."""
        if silent := await self._subscriptions.silent(client, self._source, publisher.all_publishing):
            await publisher.replace(silent, "does not publish after its transfer")
        await publisher.all_publishing.wait()
        await self._gaps.retract()

    async def _store(self, body: bytes, notification: Notification, subscription: Subscription, notes: Notes) -> None:
        store = self._events.store if subscription.event_items else self._receiver.store
        await store(body, notification, subscription, notes)

    async def _record_missing(self, subscription: Subscription, sequence: int, since: int, detail: str) -> None:
        """Record that a notification is lost; ``since``: µs, up to where samples were stored when it was missed."""
        if subscription.event_items:
            await self._events.record_unavailable(subscription, detail)
            return
        self._receiver.count_missed()
        only = sum(not s.event_items for s in self._subscriptions) == 1
        channels = None if only else list(subscription.items)
        intervals = self._receiver.missing_intervals(subscription, self._receiver.times.end_of_gap(0), since)
        self._missing[subscription.id] = intervals[0]
        self._lost[subscription.id, sequence] = intervals, channels
        for start, end in intervals:
            await self._record_gap(start, end, "not_available", detail, channels)

    async def _record_late(self, subscription: Subscription, sequence: int) -> None:
        """A lost notification came after all: withdraw its gaps, but for those of others that are still lost."""
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
                await self._gaps.withdraw(start, end, "not_available", channels)
                await self._backfill.withdraw(start, end, channels)

    async def _record_gap(self, start: int, end: int, reason: str, detail: str, channels: list[int] | None) -> None:
        """Record a gap that has ended, and have it read from the history, with the one that it prolongs."""
        await self._gaps.record(start, end, reason, detail, channels)
        for begin, some in self._gaps.ended(end, channels):
            await self._backfill.request(begin, end, reason, None if channels is None else some.tolist())

    def _expect_resent(self, subscription: Subscription) -> None:
        """After a lost notification, the server is asked for the current values of this subscription."""
        if gap := self._missing.pop(subscription.id, None):
            self._receiver.expect_unchanged(*gap, subscription.items, subscription.tracker.awaited)

    async def _record_refused(self) -> None:
        """Show and record rejected tags; set the state to connected."""
        now = now_us()
        bad = {channel: refusal.reason for channel, refusal in self._subscriptions.state.refused.items()}
        before, self._refused = self._refused, set(bad)
        shown = self._status.bad_channels
        for name in [name for channel, name in self._names(before) if channel not in bad]:
            shown.pop(name, None)
        shown |= {name: bad[channel] for channel, name in self._names(bad)}
        events = []
        refused: dict[str, list[int]] = {}
        for channel in sorted(bad.keys() - before):
            reason = bad[channel]
            events.append(Event("channel_state", now, channel, text="bad", detail={"reason": reason}))
            refused.setdefault(reason, []).append(channel)
        for reason, channels in refused.items():
            await self._gaps.open(now, "refused", reason, channels)
        events += [Event("channel_state", now, c, text="good") for c, _ in self._names(sorted(before - bad.keys()))]
        await self._gaps.close(now, [c for c in self._gaps.channels_open_for("refused") if c not in bad])
        if events:
            await self._receiver.append(EventBatch(self._status.source_id, now, events))
        short = sum(i.queue_size == 1 for s in self._subscriptions for i in s.items.values())
        self._status.remarks.pop("queue", None)
        if short:
            remark = f"{short} channels have a server queue of one value, which cannot report lost values"
            self._status.remarks["queue"] = remark
        await self._set_state("degraded" if shown else "connected", "")

    def _names(self, channels: Iterable[int]) -> list[tuple[int, str]]:
        """(channel id, name) of the channels that are currently configured."""
        return [(c, self._tags.tag(c).name) for c in channels if self._tags.place(c) is not None]

    async def _retry_refused(self, client: Client) -> None:
        """Retry rejected tags, with growing intervals."""
        backoff = Backoff(*_RETRY_REFUSED, jitter=0)
        while True:
            await asyncio.sleep(backoff.next())
            before = dict(self._subscriptions.state.refused)
            if not before:
                backoff.reset()
            async with self._subscriptions.lock:
                if again := sorted(channel for channel in before if self._tags.place(channel) is not None):
                    await self._subscriptions.create(client, self._tags, again)
                    await self._subscriptions.complete()
            if self._subscriptions.state.refused != before:
                await self._record_refused()

    async def _watch(self) -> None:
        """Check for stale channels and clock differences."""
        while True:
            await self._receiver.check(await sleep_overrun(_CHECK_SECONDS))

    async def _set_state(self, state: SourceState, reason: str) -> None:
        """Set the state shown; record an event if it has changed, or has another reason."""
        self._status.state, self._status.reason = state, reason
        if (event := self._recorded_state.event(state, reason, now_us)) is None:
            return
        log.info("source %s: %s%s", self._source.name, state, f": {reason}" if reason else "")
        await self._receiver.append(EventBatch(self._status.source_id, event.time, (event,)))


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group as one line."""
    error = first_cause(group)
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}".rstrip(": ")
