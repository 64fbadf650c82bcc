"""Subscribes to one OPC UA server, for ever: what it publishes goes to the spool, then it is acknowledged."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Mapping
from pathlib import Path
from time import monotonic

import numpy as np
from asyncua import Client, ua

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Batch, Event, EventBatch, SampleBatch, now_us
from ingest.config.model import OpcuaSource
from ingest.errors import DecodeError, SourceError, SpoolFull
from ingest.opcua.data_change import DataChange, Text, data_change
from ingest.opcua.items import Subscribed, add, subscribe
from ingest.opcua.message import Notification
from ingest.opcua.publish import Publisher
from ingest.opcua.session import close, connect
from ingest.status import SourceState, SourceStatus

log = logging.getLogger(__name__)

_RETRY_BAD = (10.0, 600.0)  # s, first and longest wait before refused tags are tried again
_LOST = (SourceError, ua.UaError, OSError, TimeoutError)


async def collect(
    source: OpcuaSource, channel_ids: Mapping[str, int], status: SourceStatus, spool: Appender, pki: Path
) -> None:
    """Collect until cancelled. Bad tags, lost connections and a full spool never end it."""
    await _Collector(source, channel_ids, status, spool, pki).run()


class _Collector:
    """The one owner of this source's connection."""

    def __init__(
        self, source: OpcuaSource, channel_ids: Mapping[str, int], status: SourceStatus, spool: Appender, pki: Path
    ) -> None:
        self._source = source
        self._ids = np.array([channel_ids[tag.name] for tag in source.tags], np.int32)  # by client handle
        self._is_text = np.array([tag.kind == "text" for tag in source.tags], bool)
        self._status = status
        self._spool = spool
        self._pki = pki
        self._said: SourceState = "starting"  # the last state that became an event

    async def run(self) -> None:
        backoff = self._source.backoff_min
        connections = 0
        while True:
            self._status.state = "connecting"
            started = monotonic()
            try:
                client = await connect(self._source, self._pki)
                try:
                    if connections:
                        self._status.reconnects += 1
                        metrics.reconnects.labels(source=self._source.name).inc()
                    connections += 1
                    await self._session(client)
                finally:
                    await close(client, self._source.time_out)
            except* _LOST as lost:
                await self._state("disconnected", _reason(lost))
            if monotonic() - started > self._source.backoff_max:
                backoff = self._source.backoff_min  # it had worked
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
            backoff = min(2 * backoff, self._source.backoff_max)

    async def _session(self, client: Client) -> None:
        """Subscribe and publish; ends by an error."""
        subscribed = await subscribe(client, self._source)
        await self._items_changed(subscribed)
        publisher = Publisher(client, self._source, subscribed.subscriptions, self._durable, self._miss)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            tasks.create_task(self._retry_bad(client, subscribed))

    async def _items_changed(self, subscribed: Subscribed) -> None:
        """Put refused tags on show and on record; say that the source is connected."""
        tags, now = self._source.tags, now_us()
        before = self._status.bad_channels
        self._status.bad_channels = {tags[i].name: reason for i, reason in subscribed.bad.items()}
        index = {tag.name: i for i, tag in enumerate(tags)}
        events = [
            Event("channel_state", now, int(self._ids[index[name]]), text="bad", detail={"reason": reason})
            for name, reason in self._status.bad_channels.items()
            if name not in before
        ]
        events += [
            Event("channel_state", now, int(self._ids[index[name]]), text="good")
            for name in before
            if name not in self._status.bad_channels
        ]
        if events:
            await self._append(EventBatch(self._status.source_id, now, events))
        await self._state("degraded" if subscribed.bad else "connected", "")

    async def _retry_bad(self, client: Client, subscribed: Subscribed) -> None:
        wait = _RETRY_BAD[0]
        while subscribed.bad:
            await asyncio.sleep(wait)
            wait = min(2 * wait, _RETRY_BAD[1])
            await add(client, self._source, subscribed, sorted(subscribed.bad))
            await self._items_changed(subscribed)

    async def _durable(self, body: bytes, notification: Notification) -> None:
        """Decode one notification and return when all of it is on disk."""
        arrival = now_us()
        appends: list[Awaitable[None]] = []
        for start, end in notification.data_changes:
            try:
                change = data_change(body, start, end, arrival)
            except DecodeError as error:
                self._status.decode_errors += 1
                metrics.decode_errors.labels(source=self._source.name).inc()
                log.warning("source %s: notification %d: %s", self._source.name, notification.sequence, error)
                self._miss(1)
                continue
            samples = self._samples(change, arrival)
            events = self._texts(change.texts, arrival)
            appends += [self._append(batch) for batch in (samples, events) if batch is not None]
        await asyncio.gather(*appends)

    def _samples(self, change: DataChange, arrival: int) -> SampleBatch | None:
        for item, what in change.unsupported:
            self._status.decode_errors += 1
            metrics.decode_errors.labels(source=self._source.name).inc()
            if item < len(self._ids):
                self._status.bad_channels[self._source.tags[item].name] = what
        if not change.handle:
            return None
        handle = np.concatenate(change.handle)
        time, value, status = np.concatenate(change.time), np.concatenate(change.value), np.concatenate(change.status)
        ours = handle < np.uint32(len(self._ids))  # a server may make up handles
        ours[ours] = ~self._is_text[handle[ours]]
        if not ours.all():
            handle, time, value, status = handle[ours], time[ours], value[ours], status[ours]
        if not len(handle):
            return None
        return SampleBatch(self._status.source_id, arrival, self._ids[handle], time, value, status)

    def _texts(self, texts: list[Text], arrival: int) -> EventBatch | None:
        events = [
            Event("text", text.time, int(self._ids[text.handle]), text.status, text.text)
            for text in texts
            if text.handle < len(self._ids)
        ]
        return EventBatch(self._status.source_id, arrival, events) if events else None

    def _miss(self, notifications: int) -> None:
        self._status.missed += notifications
        metrics.missed.labels(source=self._source.name).inc(notifications)

    async def _state(self, state: SourceState, reason: str) -> None:
        """Change the state on show; a change that lasts is an event."""
        self._status.state, self._status.reason = state, reason
        if state == self._said:
            return
        self._said = state
        log.info("source %s: %s %s", self._source.name, state, reason)
        event = Event("source_state", now_us(), text=state, detail={"reason": reason})
        await self._append(EventBatch(self._status.source_id, event.time, (event,)))

    async def _append(self, batch: Batch) -> None:
        """Return when ``batch`` is on disk, however long the spool is full."""
        while True:
            try:
                await self._spool.append(batch)
            except SpoolFull:
                await self._spool.wait_for_room()
            else:
                break
        if isinstance(batch, SampleBatch):
            self._status.samples += len(batch)
            self._status.last_sample_at = int(batch.time.max())
            metrics.samples.labels(source=self._source.name).inc(len(batch))
        elif isinstance(batch, EventBatch):
            for event in batch.events:
                metrics.events.labels(source=self._source.name, type=event.type).inc()


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group, in one line."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}".rstrip(": ")
