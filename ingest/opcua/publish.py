"""The publish layer (OPC 10000-4, 5.14.5): requests in flight, acknowledgement after durability, missing messages.

A notification is acknowledged only when it is on disk, and with it how far we have come: then a process that starts
anew asks for nothing that the server was allowed to forget. Each request in flight is a worker: a worker
that waits for the disk asks for nothing more, so a full spool slows the server down and its queues hold the samples.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from asyncua import Client, ua

from ingest.appender import Appender, Notes
from ingest.awake import slept
from ingest.batch import now_us
from ingest.config.model import OpcuaSource
from ingest.errors import DecodeError, SourceError, SpoolError
from ingest.opcua.items import Subscription, call
from ingest.opcua.message import Notification, publish_response, republish_response
from ingest.opcua.progress import distance, following

log = logging.getLogger(__name__)

Durable = Callable[[bytes, Notification, Subscription, Notes], Awaitable[None]]
Missing = Callable[[Subscription, str], Awaitable[None]]


class Publisher:
    """Publishes for all subscriptions of one session until something is wrong."""

    def __init__(
        self,
        client: Client,
        source: OpcuaSource,
        subscriptions: dict[int, Subscription],
        spool: Appender,
        durable: Durable,
        missing: Missing,
        note: Callable[[Subscription], str],
    ) -> None:
        self._client = client
        self._source = source
        self._subscriptions = subscriptions
        self._spool = spool
        self._durable = durable  # returns when all samples of a notification, and the notes, are on disk
        self._missing = missing  # returns when it is on record that a notification could not be had
        self._note = note  # the name of a subscription's note
        self._held: list[tuple[Subscription, int]] = []  # on disk, and to be acknowledged
        self._in_flight = 0
        self._heard: dict[int, float] = {}
        self.all_heard = asyncio.Event()  # every subscription publishes in this session
        self._resend = True  # whether the server may offer ResendData

    async def run(self) -> None:
        """Publish until cancelled. Raises SourceError, ua.UaError or OSError when the session is no good any more."""
        self._heard = dict.fromkeys(self._subscriptions, time.monotonic())
        self._look_for_all()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            self._in_flight = self._source.publish_requests
            for _ in range(self._in_flight):
                tasks.create_task(self._work())

    async def recover(self, subscription: Subscription, available: Iterable[int]) -> None:
        """After a transfer: have every message again that the server still holds and we don't, and those in between."""
        progress = subscription.progress
        progress.again()
        subscription.heard = False
        ahead = sorted((distance(progress.first, s), s) for s in available)
        held = [s for steps, s in ahead if steps < 2**31]
        subscription.lists |= bool(ahead)
        # Some servers number the status Good_SubscriptionTransferred, which the session before ours gets (OPC 10000-4,
        # 5.14.7), among the messages, and keep it for nobody. All data that was sent before it is listed.
        subscription.farewell = following(held[-1]) if held else progress.first
        self._held += [(subscription, s) for steps, s in ahead if steps >= 2**31]  # on disk since long
        if held:
            missing = progress.arrived(following(held[-1]), keep_alive=True)
            for sequence in held if missing is None else missing:
                await self._republish(subscription, sequence)

    def _look_for_all(self) -> None:
        if all(s.heard for s in self._subscriptions.values()):
            self.all_heard.set()

    async def _watch(self) -> None:
        """A connection can live while its subscription is dead: silence beyond keep-alive is the sign."""
        while True:
            late = await slept(min(s.keep_alive for s in self._subscriptions.values()) / 4)
            self._heard = {number: heard + late for number, heard in self._heard.items()}
            now = time.monotonic()
            for subscription in self._subscriptions.values():
                heard = self._heard.setdefault(subscription.id, now)
                if now - heard > 1.5 * subscription.keep_alive + self._source.time_out:
                    # Handed over, and dead: some servers go on publishing to the session before. All such are made
                    # anew at once: each session more would hand the living ones over.
                    for other in self._subscriptions.values():
                        other.changing |= not other.heard
                    raise SourceError(f"subscription {subscription.id} is silent for {now - heard:.0f} s")

    async def _work(self) -> None:
        while True:
            acknowledge = self._acknowledgements()
            try:
                body = await self._publish(acknowledge)
            except ua.uaerrors.BadTooManyPublishRequests:
                self._held += acknowledge
                if self._in_flight > 1:
                    self._in_flight -= 1
                    log.info("source %s: the server takes %d publish requests", self._source.name, self._in_flight)
                    return
                await asyncio.sleep(min(s.interval for s in self._subscriptions.values()))
                continue
            except ua.uaerrors.BadTimeout:
                self._held += acknowledge
                continue
            await self._take(body)

    def _acknowledgements(self) -> list[tuple[Subscription, int]]:
        """Those that not even a process that starts anew would ask for: our note is on disk as well."""
        acknowledge = [(s, n) for s, n in self._held if s.progress.may_be_forgotten(n)]
        self._held = [(s, n) for s, n in self._held if not s.progress.may_be_forgotten(n)]
        return acknowledge

    async def _publish(self, acknowledge: Iterable[tuple[Subscription, int]]) -> bytes:
        request = ua.PublishRequest()
        request.Parameters.SubscriptionAcknowledgements = [
            ua.SubscriptionAcknowledgement(SubscriptionId=subscription.id, SequenceNumber=sequence)
            for subscription, sequence in acknowledge
        ]
        return bytes(await self._client.uaclient.protocol.send_request(request, 0))

    async def _take(self, body: bytes) -> None:
        response = publish_response(body)
        subscription = self._subscriptions.get(response.subscription_id)
        if subscription is None:
            return  # of a session before ours
        self._heard[subscription.id] = time.monotonic()
        if not subscription.heard:
            subscription.heard = True
            self._look_for_all()
        subscription.lists |= bool(response.available)
        notification = response.notification
        if notification.status is not None:
            raise SourceError(f"the server ended subscription {subscription.id}: 0x{notification.status:08X}")
        missing = subscription.progress.arrived(notification.sequence, notification.keep_alive)
        if missing is None:
            await self._missing(subscription, f"the server went on with number {notification.sequence}")
        for sequence in missing or ():
            await self._republish(subscription, sequence)
        if notification.keep_alive:
            await self._quiet(subscription, notification)
            return
        # Some servers list nothing; one that does list holds exactly those (stale ones make it close the connection).
        offered = not response.available or notification.sequence in response.available
        await self._keep(body, notification, subscription, offered)

    async def _keep(self, body: bytes, notification: Notification, subscription: Subscription, offered: bool) -> None:
        progress = subscription.progress
        first = progress.first
        await self._durable(body, notification, subscription, {self._note(subscription): progress.note()})
        if distance(progress.noted, first) < 2**31:
            progress.noted = first
        progress.done(notification.sequence, 0 if notification.more else _published(notification))
        if offered:
            self._held.append((subscription, notification.sequence))

    async def _quiet(self, subscription: Subscription, notification: Notification) -> None:
        """Nothing came for a while: time to write down how far we are."""
        progress = subscription.progress
        subscription.before = None
        progress.quiet(_published(notification))
        first = progress.first
        with suppress(SpoolError):
            await self._spool.note({self._note(subscription): progress.note()})
            progress.noted = first

    async def _republish(self, subscription: Subscription, sequence: int) -> None:
        """Ask for a message that did not come; one that is gone does not end the asking for the others."""
        request = ua.RepublishRequest()
        request.Parameters.SubscriptionId = subscription.id
        request.Parameters.RetransmitSequenceNumber = sequence
        try:
            body = bytes(await self._client.uaclient.protocol.send_request(request, self._source.time_out))
            notification = republish_response(body)
            if notification.sequence != sequence:
                raise DecodeError(f"asked for it, got {notification.sequence}")
        except (ua.uaerrors.BadMessageNotAvailable, DecodeError) as error:
            if _was_farewell(subscription, sequence, error):
                subscription.progress.done(sequence, 0)
                return
            log.warning("source %s: notification %d is lost: %s", self._source.name, sequence, error)
            await self._missing(subscription, f"notification {sequence}: {type(error).__name__}")
            subscription.progress.done(sequence, 0)
            await self._send_again(subscription)
        else:
            await self._keep(body, notification, subscription, offered=True)

    async def _send_again(self, subscription: Subscription) -> None:
        """ResendData (OPC 10000-5, 9.2), where offered: at least what holds now is known again."""
        if not self._resend:
            return
        request = ua.CallRequest()
        request.Parameters.MethodsToCall = [
            ua.CallMethodRequest(
                ObjectId=ua.NodeId(ua.ObjectIds.Server),
                MethodId=ua.NodeId(ua.ObjectIds.Server_ResendData),
                InputArguments=[ua.Variant(subscription.id, ua.VariantType.UInt32)],
            )
        ]
        try:
            answer = await call(self._client, request, ua.CallResponse, self._source.time_out)
            self._resend = answer.Results[0].StatusCode.is_good()
        except ua.UaStatusCodeError:
            self._resend = False


def _was_farewell(subscription: Subscription, sequence: int, error: Exception) -> bool:
    """Whether a message that can't be had was no data: a server that lists what it holds would have listed that."""
    gone = isinstance(error, ua.uaerrors.BadMessageNotAvailable)
    return gone and subscription.lists and sequence == subscription.farewell


def _published(notification: Notification) -> int:
    """µs: when the server sent it; never later than now, whatever its clock says."""
    now = now_us()
    return min(notification.publish_time or now, now)
