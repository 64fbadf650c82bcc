"""Subscribes to one OPC UA server, for ever: what it publishes goes to the spool, then it is acknowledged.

A connection that is lost, a process that is killed, a server that stops answering: the next session takes over the
subscriptions and asks for all that is missing. What can't be had becomes a gap, and is looked for in the history.

Another tag list is applied to the living subscriptions: items are made and deleted, and all others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

from asyncua import Client, ua

from ingest import metrics
from ingest.appender import Appender
from ingest.awake import slept
from ingest.batch import Event, EventBatch, now_us
from ingest.cancellation import until_over
from ingest.config.model import OpcuaSource
from ingest.errors import SourceError, SpoolError
from ingest.gaps import Gaps
from ingest.opcua.backfill import Backfill
from ingest.opcua.backoff import Backoff, refused
from ingest.opcua.difference import difference
from ingest.opcua.history import server_time
from ingest.opcua.items import Subscription
from ingest.opcua.publish import Publisher
from ingest.opcua.receive import Receiver
from ingest.opcua.session import close, connect
from ingest.opcua.subscriptions import Subscriptions
from ingest.opcua.tags import Tags
from ingest.opcua.transfer import delete, transfer
from ingest.status import SourceState, SourceStatus
from ingest.versions import NO_VERSIONS, Versions

log = logging.getLogger(__name__)

_RETRY_BAD = (10.0, 600.0)  # s, first and longest wait before refused tags are tried again
_STALE_LOOK = 1.0  # s
_LOST = (SourceError, SpoolError, ua.UaError, OSError, TimeoutError)


class Collector:
    """The one owner of a source's connection.

    Bad tags, lost connections and a full spool never end it. ``backfill`` takes what is read from the server's history.
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
    ) -> None:
        self._source = source
        self._tags = Tags(source, channel_ids, versions)
        self._status = status
        self._spool = spool
        self._pki = pki
        self._gaps = Gaps(status, spool)
        self._versions = Versions(source.name, status.source_id, spool)
        self._receiver = Receiver(self._tags, status, spool, self._gaps, self._versions)
        self._backfill = Backfill(self._tags, status, spool, backfill, self._gaps, self._versions)
        self._subscriptions = Subscriptions(status.source_id, source.address, self._receiver, spool)
        self._said: SourceState = "starting"  # the last state that became an event
        self._since = now_us()
        self._connected = False  # there was a connection
        self._refused: set[int] = set()  # channels that are known to be refused, on record and on show
        self._edited = asyncio.Event()  # the tags are others than those that were subscribed to

    def configure(
        self, source: OpcuaSource, channel_ids: Mapping[str, int], versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        """Go on with another tag list or other intervals, in the living session where there is one.

        What a connection depends on (address, security, identity) must be as before.
        """
        self._source = source
        self._tags = Tags(source, channel_ids, versions)
        self._status.channels = len(self._tags)
        for name in self._status.bad_channels.keys() - {tag.name for tag in source.tags}:
            del self._status.bad_channels[name]
        self._receiver.configure(self._tags)
        self._backfill.configure(self._tags)
        self._edited.set()

    @property
    def edited(self) -> bool:
        """Whether the server has still to be told of another tag list."""
        return self._edited.is_set() or self._subscriptions.making.locked()

    async def run(self) -> None:
        """Collect until cancelled."""
        try:
            await self._begin()
            await self._connections()
        except asyncio.CancelledError:
            with suppress(SpoolError):
                await self._spool.note({self._stopped: str(now_us())})
            raise

    async def _connections(self) -> None:
        backoff = Backoff(self._source.backoff_min, self._source.backoff_max)
        while True:
            self._status.state = "connecting"
            nobody_listens = False
            try:
                await until_over(self._connection(backoff))
            except* _LOST as lost:
                reason, nobody_listens = _reason(lost), refused(lost)
                await self._gaps.open(self._complete_to(), "disconnected", reason)
                await self._state("disconnected", reason)
            await asyncio.sleep(backoff.wait(monotonic(), nobody_listens))

    async def _connection(self, backoff: Backoff) -> None:
        """One session; ends by an error."""
        client = await connect(self._source, self._pki)
        try:
            if self._connected:
                self._status.reconnects += 1
                metrics.reconnects.labels(source=self._source.name).inc()
            self._connected = True
            started = monotonic()
            try:
                await self._session(client)
            finally:
                backoff.had_session(monotonic() - started)
        finally:
            await close(client, self._source.time_out)

    @property
    def _stopped(self) -> str:
        """The note of an orderly stop."""
        return f"stopped:{self._status.source_id}"

    async def _begin(self) -> None:
        """Was there a process before us? Then it ended, and until the server says otherwise something is missing."""
        if self._subscriptions.known.subscriptions:
            reason = "stopped" if self._stopped in self._spool.notes else "killed"
            await self._gaps.open(self._complete_to(), reason)
        await self._spool.note({self._stopped: None})

    def _complete_to(self) -> int:
        """µs, up to which all that the server published is on disk."""
        known = [s.sampled_to for s in self._subscriptions]
        return min((k for k in known if k > 0), default=self._since)

    async def _session(self, client: Client) -> None:
        """Take over or subscribe, and publish; ends by an error."""
        publisher = Publisher(
            client,
            self._source,
            self._subscriptions.known.subscriptions,
            self._spool,
            self._receiver.durable,
            self._missing,
            self._subscriptions.note_of,
        )
        await self._recover(client, publisher)
        await self._items_changed()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            tasks.create_task(self._nothing_missing(publisher))
            tasks.create_task(self._retry_bad(client))
            tasks.create_task(self._follow(client))
            tasks.create_task(self._backfill.run(client))
            tasks.create_task(self._watch())

    async def _recover(self, client: Client, publisher: Publisher) -> None:
        """Go on with the subscriptions that the server still has; make anew those that it has not.

        This may break off anywhere, and begin again on another connection or in another process. Until all are made,
        those that are new count for nothing: what was lost before them stays lost, and they are made again.
        """
        ours = self._subscriptions
        subscriptions = ours.known.subscriptions
        had = await transfer(client, self._source, ours.known)
        unfinished = subscriptions.keys() - ours.on_record
        for number in unfinished:
            del subscriptions[number]
        if unfinished & had.keys():
            await delete(client, self._source, sorted(unfinished & had.keys()))
        lost = [s for s in subscriptions.values() if s.id not in had or s.changing or not ours.same_server]
        for subscription in list(subscriptions.values()):
            if subscription not in lost:
                await publisher.recover(subscription, had[subscription.id])
        if useless := sorted(s.id for s in lost if s.id in had):
            await delete(client, self._source, useless)
        if lost:
            await self._lost(lost)
        tags = self._tags
        todo = difference(tags, ours.known)
        if self._versions.unsaid(tags.versions):
            self._receiver.clock_of_server(await server_time(client))
            await ours.read_by(tags, todo)
        await ours.create(client, tags, todo.create)
        self._edited.set()  # what else differs takes a session that publishes
        await self._recovered()
        await self._gaps.must_say()
        ours.same_server = True
        await ours.complete()

    async def _follow(self, client: Client) -> None:
        """Apply each change of the tags to the living session. A gap of a tag that is gone ends."""
        while True:
            await self._edited.wait()
            async with self._subscriptions.making:
                self._edited.clear()
                await self._subscriptions.synchronise(client, self._tags)
            await self._gaps.close(now_us(), [c for c in self._gaps.channels() if self._tags.place(c) is None])
            await self._items_changed()

    async def _lost(self, lost: list[Subscription]) -> None:
        """Put on record that these are gone, before new ones are made, whose numbers may be the same."""
        self._subscriptions.forget(lost)
        if self._subscriptions.on_record:  # others go on, so that the gap of the source as a whole turns out to be none
            for subscription in lost:
                start = subscription.sampled_to
                await self._gaps.open(start, "subscription_lost", "", list(subscription.items))
        await self._gaps.must_say()
        await self._subscriptions.note()

    async def _recovered(self) -> None:
        """All subscriptions are there: gaps end, which is on disk before anything says that the new ones are ours."""
        now = now_us()
        since, reason = self._gaps.opened(), self._gaps.reason()
        if not self._subscriptions.on_record:
            await self._gaps.close(now)
            if since is not None:
                await self._backfill.want(since, now, reason, None)
            return
        holes: dict[int, list[int]] = {}
        for channel in self._gaps.open_for("subscription_lost"):
            holes.setdefault(self._gaps.opened(channel) or now, []).append(channel)
        for start, channels in holes.items():
            await self._gaps.close(now, channels)
            await self._backfill.want(start, now, "subscription_lost", channels)

    async def _nothing_missing(self, publisher: Publisher) -> None:
        """All that was handed over publishes again, so the gap of the source as a whole turns out to be none."""
        await publisher.all_heard.wait()
        await self._gaps.forget()

    async def _missing(self, subscription: Subscription, detail: str) -> None:
        """A notification could not be had: put it on record."""
        start = subscription.sampled_to
        self._receiver.missed()
        channels = list(subscription.items)
        only = len(self._subscriptions.known.subscriptions) == 1
        now = now_us()
        await self._gaps.record(start, now, "not_available", detail, None if only else channels)
        await self._backfill.want(start, now, "not_available", None if only else channels)

    async def _items_changed(self) -> None:
        """Put refused tags on show and on record; say that the source is connected."""
        now = now_us()
        bad = {channel: refusal.reason for channel, refusal in self._subscriptions.known.bad.items()}
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
        await self._gaps.close(now, [c for c in self._gaps.open_for("refused") if c not in bad])
        if events:
            await self._receiver.append(EventBatch(self._status.source_id, now, events))
        short = sum(i.queue_size == 1 for s in self._subscriptions for i in s.items.values())
        self._status.remarks.pop("queue", None)
        if short:
            said = f"the server gives {short} channels a queue of one value, which does not tell what it lost"
            self._status.remarks["queue"] = said
        await self._state("degraded" if shown else "connected", "")

    def _names(self, channels: Iterable[int]) -> list[tuple[int, str]]:
        """(channel id, name) of those that are tags of ours now."""
        return [(c, self._tags.tag(c).name) for c in channels if self._tags.place(c) is not None]

    async def _retry_bad(self, client: Client) -> None:
        """Ask for refused tags again, more and more seldom."""
        wait = _RETRY_BAD[0]
        while True:
            await asyncio.sleep(wait)
            before = dict(self._subscriptions.known.bad)
            wait = min(2 * wait, _RETRY_BAD[1]) if before else _RETRY_BAD[0]
            async with self._subscriptions.making:
                if again := sorted(channel for channel in before if self._tags.place(channel) is not None):
                    await self._subscriptions.create(client, self._tags, again)
                    await self._subscriptions.complete()
            if self._subscriptions.known.bad != before:
                await self._items_changed()

    async def _watch(self) -> None:
        """Channels that are silent for too long, and clocks that differ."""
        while True:
            await self._receiver.look(await slept(_STALE_LOOK))

    async def _state(self, state: SourceState, reason: str) -> None:
        """Change the state on show; a change that lasts is an event."""
        self._status.state, self._status.reason = state, reason
        if state == self._said:
            return
        self._said = state
        log.info("source %s: %s %s", self._source.name, state, reason)
        event = Event("source_state", now_us(), text=state, detail={"reason": reason})
        await self._receiver.append(EventBatch(self._status.source_id, event.time, (event,)))


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group, in one line."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}".rstrip(": ")
