"""The publish layer (OPC 10000-4, 5.14.5): requests in flight, acknowledgement after durability, missing messages.

A notification is acknowledged only when ``durable`` has returned for it. Each request in flight is a worker: a worker
that waits for the disk asks for nothing more, so a full spool slows the server down and its queues hold the samples.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from asyncua import Client, ua

from ingest.config.model import OpcuaSource
from ingest.errors import DecodeError, SourceError
from ingest.opcua.items import Subscription
from ingest.opcua.message import Notification, publish_response, republish_response

log = logging.getLogger(__name__)

_LAST_SEQUENCE = 2**32 - 1  # then 1 again
_MOST_MISSING = 1000  # a larger step is a server that restarted its count, not a loss to ask for

Durable = Callable[[bytes, Notification], Awaitable[None]]
Missing = Callable[[int], None]


def following(sequence: int) -> int:
    """The sequence number after ``sequence``."""
    return 1 if sequence >= _LAST_SEQUENCE else sequence + 1


def missing_between(expected: int, found: int) -> list[int]:
    """Sequence numbers from ``expected`` up to before ``found``; none where the step is no plausible loss."""
    distance = (found - expected) % _LAST_SEQUENCE
    if distance > _MOST_MISSING:
        return []
    numbers = [expected]
    for _ in range(distance):
        numbers.append(following(numbers[-1]))
    return numbers[:-1]


class Publisher:
    """Publishes for all subscriptions of one session until something is wrong."""

    def __init__(
        self,
        client: Client,
        source: OpcuaSource,
        subscriptions: dict[int, Subscription],
        durable: Durable,
        missing: Missing,
    ) -> None:
        self._client = client
        self._source = source
        self._subscriptions = subscriptions
        self._durable = durable  # returns when all samples of a notification are on disk
        self._missing = missing  # told how many notifications could not be had
        self._acknowledge: list[tuple[int, int]] = []  # (subscription id, sequence), durable
        self._in_flight = 0
        self._heard = dict.fromkeys(subscriptions, time.monotonic())

    async def run(self) -> None:
        """Publish until cancelled. Raises SourceError, ua.UaError or OSError when the session is no good any more."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            self._in_flight = self._source.publish_requests
            for _ in range(self._in_flight):
                tasks.create_task(self._work())

    async def _watch(self) -> None:
        """A connection can live while its subscription is dead: silence beyond keep-alive is the sign."""
        while True:
            await asyncio.sleep(min(s.keep_alive for s in self._subscriptions.values()) / 4)
            now = time.monotonic()
            for subscription in self._subscriptions.values():
                heard = self._heard.setdefault(subscription.id, now)
                if now - heard > 1.5 * subscription.keep_alive + self._source.time_out:
                    raise SourceError(f"subscription {subscription.id} is silent for {now - heard:.0f} s")

    async def _work(self) -> None:
        while True:
            acknowledge, self._acknowledge = self._acknowledge, []
            try:
                body = await self._publish(acknowledge)
            except ua.uaerrors.BadTooManyPublishRequests:
                self._acknowledge += acknowledge
                if self._in_flight > 1:
                    self._in_flight -= 1
                    log.info("source %s: the server takes %d publish requests", self._source.name, self._in_flight)
                    return
                await asyncio.sleep(min(s.interval for s in self._subscriptions.values()))
                continue
            except ua.uaerrors.BadTimeout:
                self._acknowledge += acknowledge
                continue
            await self._take(body)

    async def _publish(self, acknowledge: Iterable[tuple[int, int]]) -> bytes:
        request = ua.PublishRequest()
        request.Parameters.SubscriptionAcknowledgements = [
            ua.SubscriptionAcknowledgement(SubscriptionId=subscription, SequenceNumber=sequence)
            for subscription, sequence in acknowledge
        ]
        return bytes(await self._client.uaclient.protocol.send_request(request, 0))

    async def _take(self, body: bytes) -> None:
        response = publish_response(body)
        subscription = self._subscriptions.get(response.subscription_id)
        if subscription is None:
            return  # of a session before ours
        self._heard[subscription.id] = time.monotonic()
        notification = response.notification
        if notification.status is not None:
            raise SourceError(f"the server ended subscription {subscription.id}: 0x{notification.status:08X}")
        expected, lost = subscription.next_sequence, []
        if expected is not None and notification.sequence != expected:
            lost = missing_between(expected, notification.sequence)
        subscription.next_sequence = (
            notification.sequence if notification.keep_alive else following(notification.sequence)
        )
        for sequence in lost:
            await self._republish(subscription, sequence)
        if notification.keep_alive:
            return
        await self._durable(body, notification)
        # Some servers list nothing; one that does list holds exactly those (stale ones make it close the connection).
        if not response.available or notification.sequence in response.available:
            self._acknowledge.append((subscription.id, notification.sequence))

    async def _republish(self, subscription: Subscription, sequence: int) -> None:
        """Ask for a message that did not come; one that is gone does not end the asking for the others."""
        request = ua.RepublishRequest()
        request.Parameters.SubscriptionId = subscription.id
        request.Parameters.RetransmitSequenceNumber = sequence
        try:
            async with asyncio.timeout(self._source.time_out):
                body = bytes(await self._client.uaclient.protocol.send_request(request, self._source.time_out))
            await self._durable(body, republish_response(body))
        except (ua.uaerrors.BadMessageNotAvailable, DecodeError) as error:
            log.warning("source %s: notification %d is lost: %s", self._source.name, sequence, error)
            self._missing(1)
        else:
            self._acknowledge.append((subscription.id, sequence))
