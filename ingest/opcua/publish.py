"""The publish layer (OPC 10000-4, 5.14.5): requests in flight, acknowledgement after durability, missing messages.

A notification is acknowledged only once it is on disk together with the progress: so a restarted process
never requests what the server was allowed to delete. Each request in flight is a worker: a worker
that waits for the disk sends no requests, so a full spool slows the server down and its queues hold the samples.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

from asyncua import Client, ua

from core.config.sources import OpcuaSource
from core.errors import DecodeError, SourceError, SpoolError
from core.opcua.service import REFUSED, call_server_method, send
from core.timeouts import sleep_overrun
from core.timestamps import now_us
from ingest.appender import Appender, Notes
from ingest.opcua.decode.message import Notification, publish_response, republish_response
from ingest.opcua.events.server_events import ServerEvents
from ingest.opcua.recovery.history import server_time
from ingest.opcua.recovery.losses import Losses
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.sequence import SequenceTracker, distance, following
from ingest.opcua.subscription.subscription_state import Subscription
from ingest.opcua.subscription.subscriptions import Subscriptions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Late:
    """Facts of the moment in which messages were found missing."""

    under_way: set[object]  # publish requests
    until: float  # s, of the event loop: how long their responses are awaited
    stored_to: int  # µs


class Publisher:
    """Publishes for all subscriptions of one session until it fails."""

    def __init__(
        self,
        client: Client,
        source: OpcuaSource,
        subscriptions: Subscriptions,
        receiver: Receiver,
        events: ServerEvents,
        losses: Losses,
        spool: Appender,
        rebuild: Callable[[Sequence[Subscription], str], Awaitable[None]],
    ) -> None:
        """``rebuild``: subscriptions are lost; returns once they exist again."""
        self._client = client
        self._source = source
        self._note_name = subscriptions.note_name
        self._subscriptions = subscriptions.state.subscriptions
        self._receiver = receiver
        self._events = events
        self._losses = losses
        self._spool = spool
        self._rebuild = rebuild
        self._unacknowledged: list[tuple[Subscription, int]] = []  # on disk, to be acknowledged
        self._in_flight = 0
        self._in_turn = asyncio.Lock()  # held by the message that is being stored, where times depend on the order
        self._under_way: set[object] = set()  # publish requests without a response
        self._progress = asyncio.Condition()  # a response came, or a message is on disk, or lost
        self._awaited: set[tuple[int, int]] = set()  # subscription and sequence number of messages that are requested
        self._lost: set[tuple[int, int]] = set()  # recorded as lost
        self._last_heard: dict[int, float] = {}
        self.all_publishing = asyncio.Event()  # set once every subscription publishes in this session, and is ours
        self._can_resend = True  # whether the server may offer ResendData

    async def run(self) -> None:
        """Publish until cancelled. Raises SourceError, ua.UaError or OSError if the session is broken."""
        self._last_heard = dict.fromkeys(self._subscriptions, time.monotonic())
        self._check_all_publishing()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            self._in_flight = self._source.publish_requests
            for _ in range(self._in_flight):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            acknowledge = self._acknowledgements()
            try:
                body = await self._publish(acknowledge)
            except ua.uaerrors.BadTooManyPublishRequests:
                self._unacknowledged += acknowledge
                if self._in_flight > 1:
                    self._in_flight -= 1
                    log.info("source %s: the server limits publish requests to %d", self._source.name, self._in_flight)
                    return
                await asyncio.sleep(min(s.interval for s in self._subscriptions.values()))
                continue
            except ua.uaerrors.BadTimeout:
                self._unacknowledged += acknowledge
                continue
            except REFUSED as error:
                self._unacknowledged += acknowledge
                log.info("source %s: the server refuses a publish request: %s", self._source.name, type(error).__name__)
                await asyncio.sleep(min(s.interval for s in self._subscriptions.values()))
                continue
            await self._handle(body)

    def _acknowledgements(self) -> list[tuple[Subscription, int]]:
        """Acknowledgements of messages that even a restarted process would not request: its note is on disk, too."""
        acknowledge = [(s, n) for s, n in self._unacknowledged if s.tracker.can_be_acknowledged(n)]
        self._unacknowledged = [(s, n) for s, n in self._unacknowledged if not s.tracker.can_be_acknowledged(n)]
        return acknowledge

    async def _publish(self, acknowledge: Iterable[tuple[Subscription, int]]) -> bytes:
        request = ua.PublishRequest()
        request.Parameters.SubscriptionAcknowledgements = [
            ua.SubscriptionAcknowledgement(SubscriptionId=subscription.id, SequenceNumber=sequence)
            for subscription, sequence in acknowledge
        ]
        in_flight = object()
        self._under_way.add(in_flight)
        try:
            return bytes(await self._client.uaclient.protocol.send_request(request, 0))
        finally:
            self._under_way.remove(in_flight)

    async def _handle(self, body: bytes) -> None:
        response = publish_response(body)
        self._awaited.discard((response.subscription_id, response.notification.sequence))
        await self._notify()
        subscription = self._subscriptions.get(response.subscription_id)
        if subscription is None:
            return  # of an earlier session
        self._last_heard[subscription.id] = time.monotonic()
        if subscription.messages is not None:
            subscription.messages += 1
        self._check_all_publishing()
        subscription.lists_available |= bool(response.available)
        notification = response.notification
        if notification.status is not None:
            await self.replace([subscription], f"was closed by the server: 0x{notification.status:08X}")
            return
        missing = subscription.tracker.arrived(notification.sequence, notification.keep_alive)
        if missing is None:
            since, sequence = self._receiver.published_to(subscription), notification.sequence
            skipped = f"the server skipped to sequence number {sequence}"
            await self._losses.record_missing(subscription, sequence, since, skipped)
        elif missing:
            await self._request(subscription, missing)
        if missing != []:
            await self._notify()
        if notification.keep_alive:
            await self._handle_keep_alive(subscription, notification)
            return
        # Some servers list none; others hold exactly the listed ones (and close the connection on stale ones).
        offered = not response.available or notification.sequence in response.available
        await self._store(body, notification, subscription, offered)

    async def _store(self, body: bytes, notification: Notification, subscription: Subscription, offered: bool) -> None:
        """Store a message with its progress, so that a process that is killed does not request it again."""
        tracker, noted_first = subscription.tracker, 0

        def progress(portions: int | None) -> Notes:
            """Note of the progress, to be saved with portions of the message up to this one; None: with all of it."""
            nonlocal noted_first
            if tracker.first != notification.sequence:
                note = tracker.note()
            elif portions is None:
                note = tracker.note_with(notification.sequence, self._completed_by(notification))
            else:
                note = tracker.note(portions)
            noted_first = tracker.noted_first
            return {self._note_name(subscription): note}

        store = self._events.store if subscription.event_items else self._receiver.store
        in_turn = self._turn(tracker, notification.sequence) if self._receiver.times_depend_on_order else nullcontext()
        async with in_turn:
            await store(body, notification, subscription, progress)
            self._check_all_publishing()
            tracker.saved(noted_first)
            tracker.done(notification.sequence, self._completed_by(notification))
        await self._notify()
        if (key := (subscription.id, notification.sequence)) in self._lost:
            self._lost.remove(key)
            await self._losses.record_late(subscription, notification.sequence)
        if offered:
            self._unacknowledged.append((subscription, notification.sequence))

    @asynccontextmanager
    async def _turn(self, tracker: SequenceTracker, sequence: int) -> AsyncIterator[None]:
        """The turn of a message, where times depend on the order: a value that comes again can get another time.

        No message is stored before an earlier one, which may still be requested, and none beside others, whose progress
        includes only what was on disk before.
        """
        async with self._progress:
            await self._progress.wait_for(lambda: tracker.is_next(sequence))
        async with self._in_turn:
            yield

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    def _completed_by(self, notification: Notification) -> int:
        """Time (µs) up to which samples are complete with the message; 0: more of the same time follows."""
        return 0 if notification.more else self._complete_to(notification)

    def _complete_to(self, notification: Notification) -> int:
        return self._receiver.times.begin_of_gap(notification.publish_time or now_us())

    async def _handle_keep_alive(self, subscription: Subscription, notification: Notification) -> None:
        """A quiet moment: save the progress."""
        tracker = subscription.tracker
        subscription.times_before_run = None
        tracker.keep_alive(self._complete_to(notification))
        note, first = tracker.note(), tracker.first
        with suppress(SpoolError):
            await self._spool.note({self._note_name(subscription): note})
            tracker.saved(first)

    async def recover(self, subscription: Subscription, available: Iterable[int]) -> None:
        """Request every message that the server still holds after a transfer and we lack, and those in between."""
        tracker = subscription.tracker
        tracker.restart()
        subscription.messages = 0
        ahead = sorted((distance(tracker.first, s), s) for s in available)
        queued = [s for steps, s in ahead if steps < 2**31]
        subscription.lists_available |= bool(ahead)
        # Some servers number the status Good_SubscriptionTransferred, which is for the old session (OPC 10000-4,
        # 5.14.7), like a message, but do not keep it. All data sent before it is listed.
        subscription.transferred_status = following(queued[-1]) if queued else tracker.first
        self._unacknowledged += [(subscription, s) for steps, s in ahead if steps >= 2**31]  # on disk already
        if queued:
            missing = tracker.arrived(following(queued[-1]), keep_alive=True)
            await self._request(subscription, queued if missing is None else missing)

    async def _request(self, subscription: Subscription, missing: Iterable[int]) -> None:
        """Request missing messages; if some are gone, at least the current values."""
        late = _Late(
            self._under_way.copy(),
            asyncio.get_running_loop().time() + self._source.time_out,
            self._receiver.published_to(subscription),  # others are stored meanwhile
        )
        if [sequence for sequence in missing if not await self._republish(subscription, sequence, late)]:
            await self._resend_data(subscription)

    async def _republish(self, subscription: Subscription, sequence: int, late: _Late) -> bool:
        """Request one missing message. False: it is gone, which is on record.

        It may be in a response that is late, while the server has forgotten it: see :meth:`_comes`.
        """
        self._awaited.add(key := (subscription.id, sequence))
        request = ua.RepublishRequest()
        request.Parameters.SubscriptionId = subscription.id
        request.Parameters.RetransmitSequenceNumber = sequence
        try:
            body = bytes(await send(self._client, request, self._source.time_out))
            notification = republish_response(body)
            if notification.sequence != sequence:
                raise DecodeError(f"republish returned sequence number {notification.sequence}")
            if key not in self._awaited:
                return True  # a response that was late has it, too
        except (ua.uaerrors.BadMessageNotAvailable, DecodeError) as error:
            if self._was_transferred_status(subscription, sequence, error):
                subscription.tracker.done(sequence, 0)
                return True
            if await self._comes(key, late):
                return True
            log.warning("source %s: notification %d is lost: %s", self._source.name, sequence, error)
            self._lost.add(key)
            gone = f"notification {sequence}: {type(error).__name__}"
            await self._losses.record_missing(subscription, sequence, late.stored_to, gone)
            subscription.tracker.done(sequence, 0)
            return False
        finally:
            self._awaited.discard(key)
        await self._store(body, notification, subscription, offered=True)
        return True

    async def _comes(self, key: tuple[int, int], late: _Late) -> bool:
        """Return whether a response to a request that was under way has the message. Waits for them for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(late.until), self._progress:
                await self._progress.wait_for(lambda: key not in self._awaited or not late.under_way & self._under_way)
        return key not in self._awaited

    def _was_transferred_status(self, subscription: Subscription, sequence: int, error: Exception) -> bool:
        """Return whether a missing message had no data: a server that lists messages would have listed it."""
        gone = isinstance(error, ua.uaerrors.BadMessageNotAvailable)
        lists_available = any(s.lists_available for s in self._subscriptions.values())
        return gone and lists_available and sequence == subscription.transferred_status

    async def _resend_data(self, subscription: Subscription) -> None:
        """Call ResendData (OPC 10000-5, 9.2) if available."""
        if not self._can_resend:
            return
        self._losses.expect_resent(subscription)  # another task may handle the values before the call's response
        try:
            method = ua.ObjectIds.Server_ResendData
            result = await call_server_method(self._client, method, subscription.id, self._source.time_out)
            self._can_resend = result.StatusCode.is_good()
        except ua.UaStatusCodeError:
            self._can_resend = False

    def _check_all_publishing(self) -> None:
        if all(s.has_published and s.is_ours for s in self._subscriptions.values()):
            self.all_publishing.set()

    async def _watch(self) -> None:
        """Detect dead subscriptions on a live connection: silence beyond the keep-alive time."""
        while True:
            late = await sleep_overrun(min((s.keep_alive for s in self._subscriptions.values()), default=1.0) / 4)
            self._last_heard = {number: heard + late for number, heard in self._last_heard.items()}
            now = time.monotonic()
            silent: list[Subscription] = []
            for subscription in self._subscriptions.values():
                heard = self._last_heard.setdefault(subscription.id, now)
                if now - heard > 1.5 * subscription.keep_alive + self._source.time_out:
                    silent.append(subscription)
            if silent:
                heard = min(self._last_heard[s.id] for s in silent)
                await self.replace(silent, f"sent no keep-alive for {now - heard:.0f} s")

    async def replace(self, lost: Sequence[Subscription], why: str) -> None:
        """Create lost subscriptions again, while the others go on. Raises SourceError if all are lost.

        A server may answer to publish requests of the session before, whose numbers can be those of requests in this
        one: a transferred subscription has published then, and does so no more. The next session creates it again, as
        another transfer would end alike. (An additional session now would transfer the live ones.)
        """
        why = f"subscription {', '.join(str(s.id) for s in lost)} {why}"
        if len(lost) == len(self._subscriptions):
            left = [s for s in lost if s.messages is not None and s.messages <= self._source.publish_requests]
            if left:
                await server_time(self._client, self._source)  # raises if it is the connection that is dead
            for subscription in left:
                subscription.changing = True
            raise SourceError(why)
        await self._rebuild(lost, why)
        for subscription in lost:
            self._last_heard.pop(subscription.id, None)
        self._check_all_publishing()
