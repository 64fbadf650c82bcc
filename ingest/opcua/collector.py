"""Subscribes to one OPC UA server, for ever: what it publishes goes to the spool, then it is acknowledged.

A connection that is lost, a process that is killed, a server that stops answering: the next session takes over the
subscriptions and asks for all that is missing. What can't be had becomes a gap, and is looked for in the history.

Another tag list is applied to the living subscriptions: items are made and deleted, and all others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

from asyncua import Client, ua

from ingest import metrics
from ingest.appender import Appender, Notes
from ingest.batch import Event, EventBatch, now_us
from ingest.cancellation import until_over
from ingest.config.model import OpcuaSource
from ingest.errors import SourceError, SpoolError
from ingest.gaps import Gaps
from ingest.opcua import kept
from ingest.opcua.backfill import Backfill
from ingest.opcua.backoff import Backoff, refused
from ingest.opcua.difference import Difference, difference
from ingest.opcua.history import server_time
from ingest.opcua.items import Subscribed, Subscription, create, mark, modify, remove
from ingest.opcua.publish import Publisher
from ingest.opcua.receive import Receiver
from ingest.opcua.session import close, connect
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
        self._subscribed, self._same_server = kept.read(status.source_id, source.address, spool.notes)
        self._on_record = set(self._subscribed.subscriptions)  # ids of those that are complete, and in our notes
        self._said: SourceState = "starting"  # the last state that became an event
        self._since = now_us()
        self._connected = False  # there was a connection
        self._refused: set[int] = set()  # channels that are known to be refused, on record and on show
        self._edited = asyncio.Event()  # the tags are others than those that were subscribed to
        self._items = asyncio.Lock()  # one at a time makes or deletes items

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
        return self._edited.is_set() or self._items.locked()

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
        if self._subscribed.subscriptions:
            reason = "stopped" if self._stopped in self._spool.notes else "killed"
            await self._gaps.open(self._complete_to(), reason)
        await self._spool.note({self._stopped: None})

    def _complete_to(self) -> int:
        """µs, up to which all that the server published is on disk."""
        known = [s.progress.complete_to - round(s.interval * 1e6) for s in self._subscribed.subscriptions.values()]
        return min((k for k in known if k > 0), default=self._since)

    async def _session(self, client: Client) -> None:
        """Take over or subscribe, and publish; ends by an error."""
        publisher = Publisher(
            client,
            self._source,
            self._subscribed.subscriptions,
            self._spool,
            self._receiver.durable,
            self._missing,
            self._note,
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
        subscriptions = self._subscribed.subscriptions
        had = await transfer(client, self._source, self._subscribed)
        unfinished = subscriptions.keys() - self._on_record
        for number in unfinished:
            del subscriptions[number]
        if unfinished & had.keys():
            await delete(client, self._source, sorted(unfinished & had.keys()))
        lost = [s for s in subscriptions.values() if s.id not in had or s.changing or not self._same_server]
        for subscription in list(subscriptions.values()):
            if subscription not in lost:
                await publisher.recover(subscription, had[subscription.id])
        if useless := sorted(s.id for s in lost if s.id in had):
            await delete(client, self._source, useless)
        if lost:
            await self._lost(lost)
        tags = self._tags
        todo = difference(tags, self._subscribed)
        if self._versions.unsaid(tags.versions):
            self._receiver.clock_of_server(await server_time(client))
            await self._read_by(tags, todo)
        if todo.create:
            async with self._changing():
                await create(client, tags, self._subscribed, todo.create)
        self._edited.set()  # what else differs takes a session that publishes
        await self._recovered()
        await self._gaps.must_say()
        self._same_server = True
        await self._complete()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Items are made or deleted in the block: a process that is killed there leaves what nobody knows."""
        subscriptions = self._subscribed.subscriptions
        for subscription in subscriptions.values():
            subscription.changing = True
        await self._spool.note(self._notes())
        yield
        for subscription in subscriptions.values():
            subscription.changing = False

    async def _synchronise(self, client: Client) -> None:
        """Let the server have items of the tags as they are now, and no others."""
        self._edited.clear()
        tags, subscribed = self._tags, self._subscribed
        for channel in [c for c in subscribed.bad if tags.place(c) is None]:
            del subscribed.bad[channel]
        todo = difference(tags, subscribed)
        await self._read_by(tags, todo)
        if not todo:
            return
        async with self._changing():
            await create(client, tags, subscribed, todo.create)
            await modify(client, tags, subscribed, todo.modify)
            await remove(client, self._source, subscribed, todo.retired)
        await self._complete()
        for number in todo.obsolete:
            await self._published(client, subscribed.subscriptions[number])
        async with self._changing():
            await remove(client, self._source, subscribed, todo.obsolete)
            if not todo.replace:
                await self._without_idle(client)
        await self._complete()
        if todo.replace:
            await self._replace(client, tags, todo)

    async def _replace(self, client: Client, tags: Tags, todo: Difference) -> None:
        """Make items of other nodes, when all is on disk that came of those before, which are gone."""
        for number in todo.obsolete:
            await self._published(client, self._subscribed.subscriptions[number])
        await self._receiver.read_by(_some(tags.versions, todo.replace), another_node=True)
        async with self._changing():
            await create(client, tags, self._subscribed, todo.replace)
            await self._without_idle(client)
        await self._complete()

    async def _read_by(self, tags: Tags, todo: Difference) -> None:
        """All tags are read as they are defined now, but those whose former items are there."""
        living = {channel for s in self._subscribed.subscriptions.values() for channel in s.items}
        stay = _some(tags.versions, living - set(todo.replace))
        await self._receiver.read_by(stay, another_node=False)
        await self._receiver.read_by(_some(tags.versions, tags.versions.keys() - living), another_node=True)

    async def _published(self, client: Client, subscription: Subscription) -> None:
        """Return when all that the subscription's items have queued until now is on disk."""
        marked = self._receiver.marked(subscription)
        number = await mark(client, self._source, subscription)
        if number is None:
            await asyncio.sleep(2 * subscription.interval)
            return
        await marked.wait()
        await remove(client, self._source, self._subscribed, {subscription.id: [number]})

    async def _without_idle(self, client: Client) -> None:
        """Delete subscriptions without items. One stays: its keep-alives tell that the session lives."""
        subscriptions = self._subscribed.subscriptions
        by_size = sorted(subscriptions.values(), key=lambda s: -len(s.items))
        if idle := [s.id for s in by_size[1:] if not s.items]:
            await delete(client, self._source, idle)
            for number in idle:
                del subscriptions[number]

    async def _complete(self) -> None:
        """All subscriptions are as the tags ask for: from now on they are ours, also in the next process."""
        self._on_record = set(self._subscribed.subscriptions)
        await self._spool.note(self._notes())

    async def _follow(self, client: Client) -> None:
        """Apply each change of the tags to the living session. A gap of a tag that is gone ends."""
        while True:
            await self._edited.wait()
            async with self._items:
                await self._synchronise(client)
            await self._gaps.close(now_us(), [c for c in self._gaps.channels() if self._tags.place(c) is None])
            await self._items_changed()

    def _notes(self) -> Notes:
        """What the next process must know: of subscriptions that are complete, no others."""
        complete = {number: s for number, s in self._subscribed.subscriptions.items() if number in self._on_record}
        known = Subscribed(complete, self._subscribed.bad)
        return kept.write(self._status.source_id, self._source.address, known, self._spool.notes)

    async def _lost(self, lost: list[Subscription]) -> None:
        """Put on record that these are gone, before new ones are made, whose numbers may be the same."""
        for subscription in lost:
            del self._subscribed.subscriptions[subscription.id]
        self._on_record -= {s.id for s in lost}
        if self._on_record:  # others go on, so that the gap of the source as a whole will turn out to be none
            for subscription in lost:
                start = subscription.progress.complete_to - round(subscription.interval * 1e6)
                await self._gaps.open(start, "subscription_lost", "", list(subscription.items))
        await self._gaps.must_say()
        await self._spool.note(self._notes())

    async def _recovered(self) -> None:
        """All subscriptions are there: gaps end, which is on disk before anything says that the new ones are ours."""
        now = now_us()
        since, reason = self._gaps.opened(), self._gaps.reason()
        if not self._on_record:
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
        start = subscription.progress.complete_to - round(subscription.interval * 1e6)
        self._receiver.missed()
        channels = list(subscription.items)
        only = len(self._subscribed.subscriptions) == 1
        now = now_us()
        await self._gaps.record(start, now, "not_available", detail, None if only else channels)
        await self._backfill.want(start, now, "not_available", None if only else channels)

    def _note(self, subscription: Subscription) -> str:
        return kept.note_of(self._status.source_id, subscription)

    async def _items_changed(self) -> None:
        """Put refused tags on show and on record; say that the source is connected."""
        now = now_us()
        bad = {channel: refusal.reason for channel, refusal in self._subscribed.bad.items()}
        before, self._refused = self._refused, set(bad)
        shown = self._status.bad_channels
        for name in [name for channel, name in self._names(before) if channel not in bad]:
            shown.pop(name, None)
        shown |= {name: bad[channel] for channel, name in self._names(bad)}
        events = []
        for channel in sorted(bad.keys() - before):
            reason = bad[channel]
            events.append(Event("channel_state", now, channel, text="bad", detail={"reason": reason}))
            await self._gaps.open(now, "refused", reason, [channel])
        events += [Event("channel_state", now, c, text="good") for c, _ in self._names(sorted(before - bad.keys()))]
        await self._gaps.close(now, [c for c in self._gaps.open_for("refused") if c not in bad])
        if events:
            await self._receiver.append(EventBatch(self._status.source_id, now, events))
        short = sum(i.queue_size == 1 for s in self._subscribed.subscriptions.values() for i in s.items.values())
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
            before = dict(self._subscribed.bad)
            wait = min(2 * wait, _RETRY_BAD[1]) if before else _RETRY_BAD[0]
            async with self._items:
                if again := sorted(channel for channel in before if self._tags.place(channel) is not None):
                    async with self._changing():
                        await create(client, self._tags, self._subscribed, again)
                    await self._complete()
            if self._subscribed.bad != before:
                await self._items_changed()

    async def _watch(self) -> None:
        """Channels that are silent for too long, and clocks that differ."""
        while True:
            await asyncio.sleep(_STALE_LOOK)
            await self._receiver.look()

    async def _state(self, state: SourceState, reason: str) -> None:
        """Change the state on show; a change that lasts is an event."""
        self._status.state, self._status.reason = state, reason
        if state == self._said:
            return
        self._said = state
        log.info("source %s: %s %s", self._source.name, state, reason)
        event = Event("source_state", now_us(), text=state, detail={"reason": reason})
        await self._receiver.append(EventBatch(self._status.source_id, event.time, (event,)))


def _some(versions: Mapping[int, int], channels: Iterable[int]) -> dict[int, int]:
    return {channel: versions[channel] for channel in channels if channel in versions}


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group, in one line."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}".rstrip(": ")
