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

from asyncua import Client, ua

from core.backoff import after_refusal
from core.batch import Event, EventBatch
from core.config.sources import OpcuaSource
from core.errors import SourceError, SpoolError, first_cause
from core.opcua.session import close, connect
from core.source_states import SourceState
from core.timeouts import run_to_end, sleep_overrun, within
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.downtime import DETAILS, Downtime
from ingest.gaps import Gaps
from ingest.opcua.events.server_events import ServerEvents
from ingest.opcua.publish import Publisher
from ingest.opcua.recovery.backfill import Backfill
from ingest.opcua.recovery.history import server_start, server_time
from ingest.opcua.recovery.losses import Losses
from ingest.opcua.servers import ConnectionBackoff, Servers, connection_refused
from ingest.opcua.subscription.items import delete, prove_ours, transfer
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.subscription_state import Server, Subscription
from ingest.opcua.subscription.subscriptions import Subscriptions, difference
from ingest.opcua.subscription.tags import Tags
from ingest.status import RecordedState, SourceStatus
from ingest.versions import NO_VERSIONS, ChannelVersions

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0  # s
_CUT = (ConnectionError, ua.uaerrors.BadConnectionClosed)
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
        self._losses = Losses(status, self._subscriptions, self._receiver, self._events, self._gaps, self._backfill)
        self._receiver.drop_removed(self._tags, self._subscriptions)
        self._servers = Servers(source, pki, status, self._subscriptions.server.address)
        self._reason = ""  # of the last loss of a session
        self._recorded_state = RecordedState(status)
        self._was_connected = False  # there was a connection before
        self._refused: set[int] = set()  # channels recorded and shown as rejected
        self._tags_changed = asyncio.Event()  # the tags differ from the subscribed ones

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
        """Return whether a changed tag list is still to be applied on the server."""
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
                await self._losses.open_outage("disconnected", reason)
                await self._set_state("disconnected", reason)
            if self._servers.is_round_over:
                await backoff.pause(nobody_listens, partial(self._servers.all_refuse, self._source))
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
                self._status.count_reconnect()
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
        """Open a gap since the end of the process before, until the server proves that nothing is missing."""
        # It may have ended between recording the end of an outage and saving the subscriptions: none is known then.
        if self._subscriptions.state.subscriptions or self._receiver.times.newest:
            ending = self._downtime.shutdown()
            await self._losses.open_outage(ending, DETAILS[ending])
        await self._downtime.begin()

    async def _session(self, client: Client, address: str) -> None:
        """Transfer or create subscriptions, then publish, until an error ends it."""
        publisher = Publisher(
            client,
            self._source,
            self._subscriptions,
            self._receiver,
            self._events,
            self._losses,
            self._spool,
            partial(self._rebuild, client),
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
            tasks.create_task(self._servers.watch_server_in_use(client, self._source.at(address)))
            tasks.create_task(self._servers.watch_others(self._source))
            tasks.create_task(self._events.run(client, self._subscriptions))

    async def _recover(self, client: Client, address: str, publisher: Publisher) -> None:
        """Continue the subscriptions that the server still has; create the others again.

        This can be interrupted anywhere and repeated on another connection or in another process. Until all exist, new
        subscriptions are not saved: the outage continues, and they are created again.

        A subscription whose items mean something else in this session is deleted, with what it has queued.
        """
        self._losses.begin_session()
        managed = self._subscriptions
        subscriptions = managed.state.subscriptions
        namespaces = await managed.begin_session(client, self._source)
        self._events.begin_session(namespaces)
        whole_arrays = managed.state.whole_arrays
        server = Server(address, await server_start(client, self._source))
        began = await server_time(client, self._source)
        self._receiver.clocks.begin_session(began)
        transferred = {}
        if server.continues(managed.server) and not self._receiver.clocks.fell_behind(began):
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
            await self._losses.record_lost(lost)
        await self._start_server(server)
        tags = self._tags
        changes = difference(tags, managed.state)
        if self._versions.not_yet_read(tags.versions):
            self._receiver.clocks.set_server_clock(await server_time(client, self._source))
            await managed.start_versions(tags, changes)
        await managed.create(client, tags, changes.create)
        await self._events.create(client, managed)
        self._tags_changed.set()  # other differences need a publishing session
        await self._losses.close_outage(await server_time(client, self._source))
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
            lost_channels = [s for s in of_channels if managed.state.subscriptions.get(s.id) is s]
            if not lost_channels:
                return
            log.warning("source %s: %s: creating it again", self._source.name, why)
            await delete(client, self._source, [s.id for s in lost_channels])
            await self._losses.record_lost(lost_channels)
            await managed.create(client, self._tags, difference(self._tags, managed.state).create)
            await self._losses.close_outage(await server_time(client, self._source))
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
            await self._gaps.close(now_us(), [c for c in self._gaps.channels() if self._tags.position(c) is None])
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
        self._receiver.clocks.start_server()
        if before:
            detail = {"before": before, "reason": self._reason}
            event = Event("failover", now_us(), text=address, detail=detail)
            log.info("source %s: failed over from %s to %s: %s", self._source.name, before, address, self._reason)
            await self._receiver.append(EventBatch(self._status.source_id, event.time, (event,)))

    async def _retract_outage(self, client: Client, publisher: Publisher) -> None:
        """Once all transferred subscriptions publish again: end the gap of the whole source without loss."""
        if silent := await self._subscriptions.silent(client, self._source, publisher.all_publishing):
            await publisher.replace(silent, "does not publish after its transfer")
        await publisher.all_publishing.wait()
        await self._gaps.end_without_loss()

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
        remark = f"{short} channels have a server queue of one value, which cannot report lost values"
        self._status.remark("queue", remark if short else "")
        await self._set_state("degraded" if shown else "connected", "")

    def _names(self, channels: Iterable[int]) -> list[tuple[int, str]]:
        """(channel id, name) of the channels that are currently configured."""
        return [(c, self._tags.tag(c).name) for c in channels if self._tags.position(c) is not None]

    async def _retry_refused(self, client: Client) -> None:
        """Retry rejected tags, with growing intervals."""
        backoff = after_refusal()
        while True:
            await asyncio.sleep(backoff.next())
            before = dict(self._subscriptions.state.refused)
            if not before:
                backoff.reset()
            async with self._subscriptions.lock:
                if again := sorted(channel for channel in before if self._tags.position(channel) is not None):
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
        if events := self._recorded_state.change(state, reason, now_us):
            await self._receiver.append(EventBatch(self._status.source_id, events[0].time, events))


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group as one line."""
    error = first_cause(group)
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}".rstrip(": ")
