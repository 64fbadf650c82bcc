"""Events of an OPC UA server: from its event items to the spool, and the refresh and acknowledgement of its conditions.

All event items of a source are in one subscription of their own, so that a flood of events delays no samples. It is
transferred, republished and acknowledged like any other. If it is lost, it is created again while the samples go on.
The server's queue is bounded: what does not fit into it is an event ``events_missing``, and so is what a lost
subscription may have had; conditions are then refreshed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from time import monotonic

from asyncua import Client, ua

from core.backoff import Backoff, after_refusal
from core.batch import Event, EventBatch
from core.errors import DecodeError, SourceError
from core.opcua.namespaces import Namespaces
from core.timestamps import now_us
from ingest.alarms.conditions import Conditions
from ingest.alarms.server_event import ServerEvent
from ingest.appender import Appender, Notes, until_durable
from ingest.opcua.decode.message import Notification
from ingest.opcua.events import event_requests
from ingest.opcua.events.event_requests import decode
from ingest.opcua.subscription.items import delete
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.sequence import distance
from ingest.opcua.subscription.subscription_state import Subscription
from ingest.opcua.subscription.subscriptions import Subscriptions
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus

log = logging.getLogger(__name__)

_RETRY_REFRESH = (1.0, 30.0)  # s, while another refresh is in progress
_REFRESH_SECONDS = 120.0
_POLL_SECONDS = 0.05
_BATCH = 1000  # events
# OPC 10000-9, 5.5.7 and 5.11; OPC 10000-4, 7.22.3
_REFRESH_START = f"i={ua.ObjectIds.RefreshStartEventType}"
_REFRESH_END = f"i={ua.ObjectIds.RefreshEndEventType}"
_REFRESH_REQUIRED = f"i={ua.ObjectIds.RefreshRequiredEventType}"
_OVERFLOW = f"i={ua.ObjectIds.EventQueueOverflowEventType}"


class ServerEvents:
    """The events of one source."""

    def __init__(self, tags: Tags, status: SourceStatus, spool: Appender, receiver: Receiver) -> None:
        self._status = status
        self._spool = spool
        self._receiver = receiver
        self._namespaces = Namespaces()
        self._channels: dict[str, int] = {}  # by node
        self._lost = asyncio.Event()  # the subscription is lost in a session that goes on
        self._refresh_requested = asyncio.Event()
        self._refreshed = asyncio.Event()  # the end of the refresh in progress has come for each item
        self._started: set[int] = set()  # client handles whose refresh has begun, but not ended
        self._awaited: set[int] = set()  # client handles whose refresh has not ended
        self._end: tuple[int, int] = (0, 0)  # sequence number and time (µs) of the end of the refresh
        self.conditions = Conditions(status.name, status.source_id, spool.notes)
        self.configure(tags)

    def configure(self, tags: Tags) -> None:
        """Use these tags from now on."""
        self._tags = tags
        self.conditions.configure({channel: tags.tag(channel).name for channel in tags.ids.tolist()})
        self._map_channels()

    def begin_session(self, namespaces: Namespaces) -> None:
        """The server has these namespaces from now on."""
        self._namespaces = namespaces
        self._lost.clear()
        self._map_channels()

    def _map_channels(self) -> None:
        self._channels = {}
        if not self._tags.source.notifiers:
            return
        for channel in reversed(self._tags.ids.tolist()):
            try:
                node = self._namespaces.node_id(self._tags.tag(channel).address)
            except SourceError:
                continue
            self._channels[self._namespaces.address(node)] = channel

    def fits(self, subscription: Subscription) -> bool:
        """Return whether a subscription has the configured notifiers; those of channels have none."""
        return not subscription.event_items or [*subscription.event_items] == [*self._tags.source.notifiers]

    async def create(self, client: Client, subscriptions: Subscriptions) -> None:
        """Create the subscription for events if there are notifiers, and it does not exist yet.

        If the server refuses it, there are none until :meth:`run` has tried again: samples do not depend on it.
        """
        source = self._tags.source
        if not source.notifiers or _of_events(subscriptions):
            return
        try:
            subscription = await event_requests.create_subscription(client, source, self._namespaces)
        except ua.UaStatusCodeError as error:
            self._status.remarks["notifiers"] = f"the server refuses a subscription for events: {type(error).__name__}"
            return
        self._status.remarks.pop("notifiers", None)
        subscriptions.state.subscriptions[subscription.id] = subscription

    def lose(self, why: str) -> None:
        """The subscription is lost: :meth:`run` creates it again."""
        log.warning("source %s: %s: creating it again", self._status.name, why)
        self._lost.set()

    async def record_lost(self, since: int) -> None:
        """The subscription was lost with what it had queued since ``since`` (µs, clock of the server)."""
        if self._tags.source.notifiers:
            await self._record_missing("subscription lost", {"since": since})

    async def record_unavailable(self, subscription: Subscription, why: str) -> None:
        """Record that a notification was lost."""
        self._status.count_missed()
        self._refresh_requested.set()
        await self._record_missing(why, {"since": subscription.sampled_to})

    async def _record_missing(self, why: str, detail: dict[str, int]) -> None:
        await self._append([Event("events_missing", now_us(), text=why, detail=detail)], {})

    async def store(
        self,
        body: bytes,
        notification: Notification,
        subscription: Subscription,
        progress: Callable[[int | None], Notes],
    ) -> None:
        """Record one notification; return once it is on disk, together with ``progress``."""
        arrival = now_us()
        rows: list[Event] = []
        noted: dict[str, str | None] = {}
        for start, end in notification.events:
            try:
                events = decode(body[start:end], self._namespaces)
            except DecodeError as error:
                log.warning("source %s: notification %d: %s", self._status.name, notification.sequence, error)
                self._status.count_undecodable()
                self._status.count_missed()
                self._refresh_requested.set()
                rows.append(Event("events_missing", arrival, text=str(error)))
                continue
            if events and not subscription.is_ours:
                subscription.prove(
                    any(handle ^ subscription.key < len(subscription.event_items) for handle, _ in events)
                )
            for handle, event in events:
                row, more = self._row(handle ^ subscription.key, event, arrival, notification.sequence)
                rows += [] if row is None else [row]
                noted |= more
        await self._append(rows, {**noted, **progress(0)})

    async def _append(self, rows: list[Event], notes: Notes) -> None:
        """Return once both are on disk. The notes are with the last rows."""
        batches = [
            EventBatch(self._status.source_id, now_us(), rows[k : k + _BATCH]) for k in range(0, len(rows), _BATCH)
        ]
        if not batches:
            await until_durable(self._spool, self._status.name, lambda: self._spool.note(notes))
        for batch in batches:
            await self._receiver.append(batch, notes if batch is batches[-1] else None)

    def _row(self, handle: int, event: ServerEvent, arrival: int, sequence: int) -> tuple[Event | None, Notes]:
        """The row of an event, if it has one, and the notes to store with it."""
        oldest, newest = self._spool.limits.bounds(arrival)
        times = (event.time, event.receive_time)
        time = next((time for time in times if time is not None and oldest <= time <= newest), arrival)
        if event.event_type == _REFRESH_START:
            self._started.add(handle)
            return None, {}
        if event.event_type == _REFRESH_END:
            if handle in self._started:
                self._started.remove(handle)
                self._awaited.discard(handle)
            if not self._awaited and not self._refreshed.is_set():
                self._end = sequence, time
                self._refreshed.set()
            return None, {}
        if event.event_type == _REFRESH_REQUIRED:
            self._refresh_requested.set()
        elif event.event_type == _OVERFLOW:
            self._refresh_requested.set()
            return Event("events_missing", time, text="the server's event queue was full", detail=event.detail()), {}
        channel = self._channels.get(event.source_node or "")
        return self.conditions.record(replace(event, time=time), channel, arrival)

    async def run(self, client: Client, subscriptions: Subscriptions) -> None:
        """Refresh the conditions, now and whenever that is needed, and acknowledge them, until the session ends.

        A subscription that is lost meanwhile is created again.
        """
        source = self._tags.source
        if not source.notifiers:
            return
        self.conditions.acknowledge = partial(self._acknowledge, client)
        backoff = Backoff(source.backoff_min, source.backoff_max)
        try:
            while True:
                subscription, began = await self._existing(client, subscriptions), monotonic()
                async with asyncio.TaskGroup() as tasks:
                    following = tasks.create_task(self._follow(client, subscription, subscriptions))
                    await self._lost.wait()
                    following.cancel()
                await self._drop(client, subscription, subscriptions)
                if monotonic() - began > source.backoff_max:
                    backoff.reset()
                await asyncio.sleep(backoff.next())
        finally:
            self.conditions.acknowledge = None

    async def _existing(self, client: Client, subscriptions: Subscriptions) -> Subscription:
        """The subscription for events, once the server has accepted it."""
        backoff = after_refusal()
        while not (existing := _of_events(subscriptions)):
            async with subscriptions.lock:
                await self.create(client, subscriptions)
                await subscriptions.complete()
            if not _of_events(subscriptions):
                await asyncio.sleep(backoff.next())
        return existing[0]

    async def _drop(self, client: Client, subscription: Subscription, subscriptions: Subscriptions) -> None:
        """Record that a subscription is lost, before another is created, which may get the same id."""
        async with subscriptions.lock:
            await delete(client, self._tags.source, [subscription.id])
            subscriptions.forget([subscription])
            await self.record_lost(subscription.sampled_to)
            await subscriptions.note()
            self._lost.clear()

    async def _follow(self, client: Client, subscription: Subscription, subscriptions: Subscriptions) -> None:
        self._refresh_requested.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._refresh_when_requested(client, subscription))
            tasks.create_task(self._retry_refused(client, subscription, subscriptions))

    async def _refresh_when_requested(self, client: Client, subscription: Subscription) -> None:
        backoff = Backoff(*_RETRY_REFRESH)
        while True:
            await self._refresh_requested.wait()
            self._refresh_requested.clear()
            status = await self._refresh(client, subscription)
            if status == "BadRefreshInProgress":
                self._refresh_requested.set()
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()

    async def _refresh(self, client: Client, subscription: Subscription) -> str:
        """Refresh the conditions (OPC 10000-9, 5.5.7). Those that the server does not name have returned.

        Returns the name of the server's status code.
        """
        items = [*subscription.event_items.values()]
        self._started.clear()
        self._awaited = {handle for handle, item in enumerate(items) if item.id is not None}
        self._refreshed.clear()
        self.conditions.begin_refresh()
        complete = False
        try:
            status = await event_requests.refresh(client, subscription.id, self._tags.source.time_out)
            if status == "Good":
                complete = await self._is_refreshed(subscription) and None not in {item.id for item in items}
        finally:
            rows, notes = self.conditions.end_refresh(self._end[1], complete=complete)
        if rows:
            await self._append(rows, notes)
        remark = ""
        if status not in ("Good", "BadRefreshInProgress"):
            remark = f"the server does not refresh its conditions: {status}"
        elif status == "Good" and not complete:
            remark = "the server did not refresh the conditions of all notifiers"
        self._status.remark("conditions", remark)
        return status

    async def _is_refreshed(self, subscription: Subscription) -> bool:
        """Return whether the refresh ends in time, and all that was sent before its end is on disk."""
        try:
            async with asyncio.timeout(_REFRESH_SECONDS):
                await self._refreshed.wait()
                while not 0 < distance(self._end[0], subscription.tracker.first) < 2**31:
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _retry_refused(self, client: Client, subscription: Subscription, subscriptions: Subscriptions) -> None:
        """Retry rejected notifiers, with growing intervals. Those that the server accepts are refreshed."""
        backoff = after_refusal()
        while True:
            refused = [node for node, item in subscription.event_items.items() if item.id is None]
            self._show_refused(refused)
            await asyncio.sleep(backoff.next())
            if not refused:
                continue
            await event_requests.create(client, self._tags.source, self._namespaces, subscription, refused)
            if any(subscription.event_items[node].id is not None for node in refused):
                await subscriptions.note()
                self._refresh_requested.set()

    def _show_refused(self, refused: Iterable[str]) -> None:
        nodes = ", ".join(refused)
        self._status.remark("notifiers", f"the server sends no events of {nodes}" if nodes else "")

    async def _acknowledge(self, client: Client, condition_id: str, event_id: str, comment: str) -> None:
        node, time_out = self._namespaces.node_id(condition_id), self._tags.source.time_out
        await event_requests.acknowledge(client, node, bytes.fromhex(event_id), comment, time_out)


def _of_events(subscriptions: Subscriptions) -> list[Subscription]:
    """The subscription for events, if there is one."""
    return [s for s in subscriptions if s.event_items]
