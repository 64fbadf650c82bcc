"""Reads one Modbus device on schedule, for ever: what it answers goes to the spool, what it does not, on record."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, Float64s, Int32s, Int64s, SampleBatch, UInt32s, now_us
from ingest.config.model import ModbusSource
from ingest.errors import DecodeError, SpoolError, SpoolFull
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import Read, plan, split
from ingest.modbus.schedule import Schedule
from ingest.modbus.transport import (
    BAD_DECODING_ERROR,
    ILLEGAL_DATA_ADDRESS,
    ConnectionLost,
    ExceptionAnswer,
    TcpDevice,
)
from ingest.status import SourceState, SourceStatus

log = logging.getLogger(__name__)

_APPENDS_IN_FLIGHT = 4  # polls that wait for the disk, at most
_RETRY_BAD = (10.0, 600.0)  # s, first and longest wait before a tag with an illegal address is tried again


@dataclass(slots=True)
class _Block:
    """One read of the plan, and whether it is set apart because its only tag has an illegal address."""

    read: Read
    decoder: Decoder
    apart_until: float = 0.0  # monotonic s
    apart_for: float = 0.0  # s


@dataclass(slots=True)
class _Group:
    schedule: Schedule
    blocks: list[_Block]


@dataclass(slots=True)
class _Poll:
    """What one poll gathers."""

    channel_id: list[Int32s] = field(default_factory=list)
    time: list[Int64s] = field(default_factory=list)
    value: list[Float64s] = field(default_factory=list)
    status: list[UInt32s] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, channel_id: Int32s, at: int, value: Float64s, status: int) -> None:
        if len(channel_id):
            self.channel_id.append(channel_id)
            self.time.append(np.full(len(channel_id), at, np.int64))
            self.value.append(value)
            self.status.append(np.full(len(channel_id), status, np.uint32))

    def batch(self, source_id: int) -> SampleBatch | None:
        if not self.channel_id:
            return None
        columns = (np.concatenate(self.channel_id), np.concatenate(self.time), np.concatenate(self.value))
        return SampleBatch(source_id, now_us(), *columns, np.concatenate(self.status))


async def collect(source: ModbusSource, channel_ids: Mapping[str, int], status: SourceStatus, spool: Appender) -> None:
    """Poll the device until cancelled. Bad tags, lost connections and a full spool never end it."""
    await _Collector(source, channel_ids, status, spool).run()


class _Collector:
    def __init__(
        self, source: ModbusSource, channel_ids: Mapping[str, int], status: SourceStatus, spool: Appender
    ) -> None:
        self._source = source
        self._tags = source.tags
        self._ids = np.array([channel_ids[tag.name] for tag in source.tags], np.int32)
        self._status = status
        self._spool = spool
        self._bad: dict[int, str] = {}  # tag index → why it can't be read
        self._texts: dict[int, str] = {}  # tag index → last text
        self._last_us = 0
        self._said: SourceState = "starting"  # the last state that became an event
        self._backoff = source.backoff_min
        self._missed_from: int | None = None  # µs, the first poll missed since polls were last stored
        self._missed_reason = ""
        self._appends: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_APPENDS_IN_FLIGHT)
        now = time.monotonic()
        self._groups = [
            _Group(Schedule(interval, now), self._blocks(indices)) for interval, indices in self._intervals().items()
        ]

    def _intervals(self) -> dict[float, list[int]]:
        intervals: dict[float, list[int]] = {}
        for i, tag in enumerate(self._tags):
            intervals.setdefault(tag.interval or self._source.poll_interval, []).append(i)
        return intervals

    def _blocks(self, indices: list[int]) -> list[_Block]:
        reads = plan(self._tags, indices, self._source.bridge, self._source.max_registers)
        return [_Block(read, Decoder(read, self._tags)) for read in reads]

    async def run(self) -> None:
        connections = 0
        try:
            while True:
                device = TcpDevice(self._source.address, self._source.unit_id, self._source.time_out)
                try:
                    self._state("connecting", self._status.reason)
                    await device.connect()
                    if connections:
                        self._status.reconnects += 1
                        metrics.reconnects.labels(source=self._status.name).inc()
                    connections += 1
                    await self._poll(device)
                except ConnectionLost as lost:
                    self._lost(lost)
                finally:
                    device.close()
                await asyncio.sleep(self._wait() * random.uniform(0.5, 1.0))
        finally:
            if self._appends:
                await asyncio.wait(self._appends)

    def _wait(self) -> float:
        """Seconds before the next attempt: doubling, but a device that comes back is read within a period."""
        period = min(group.schedule.interval for group in self._groups)
        wait = min(self._backoff, max(period, self._source.backoff_min))
        self._backoff = min(2 * self._backoff, self._source.backoff_max)
        return wait

    async def _poll(self, device: TcpDevice) -> None:
        """Poll on schedule until the connection is lost, which ConnectionLost says."""
        while True:
            group = min(self._groups, key=lambda g: g.schedule.due)
            now = time.monotonic()
            if group.schedule.due > now:
                await asyncio.sleep(group.schedule.due - now)
            poll = _Poll()
            for block in list(group.blocks):
                await self._read(device, group, block, poll)
            late = group.schedule.done(time.monotonic())
            if late:
                self._miss(late, "the poll before took longer than the interval", group.schedule.interval)
            self._state("degraded" if self._bad else "connected", "")
            self._backoff = self._source.backoff_min
            await self._store(poll)

    async def _read(self, device: TcpDevice, group: _Group, block: _Block, poll: _Poll) -> None:
        if block.apart_until > time.monotonic():
            return
        started = time.monotonic()
        try:
            raw = await device.read(block.read)
            at = self._arrival()
            values = block.decoder.numbers(raw)
            texts = block.decoder.texts(raw)
        except ExceptionAnswer as answer:
            if answer.code == ILLEGAL_DATA_ADDRESS and len(block.read.tags) > 1:
                halves = [_Block(read, Decoder(read, self._tags)) for read in split(block.read, self._tags)]
                where = group.blocks.index(block)
                group.blocks[where : where + 1] = halves
                for half in halves:
                    await self._read(device, group, half, poll)
                return
            if answer.code == ILLEGAL_DATA_ADDRESS:
                block.apart_for = min(max(_RETRY_BAD[0], 2 * block.apart_for), _RETRY_BAD[1])
                block.apart_until = time.monotonic() + block.apart_for
            self._fail(block, poll, str(answer), answer.status)
            return
        except DecodeError as error:
            self._status.decode_errors += 1
            metrics.decode_errors.labels(source=self._status.name).inc()
            self._fail(block, poll, str(error), BAD_DECODING_ERROR)
            return
        metrics.request_seconds.labels(source=self._status.name).observe(time.monotonic() - started)
        if self._bad:
            self._recovered(block, poll)
        poll.add(self._ids[block.decoder.tags], at, values, 0)
        for tag, text in texts:
            if self._texts.get(tag) != text:
                self._texts[tag] = text
                poll.events.append(Event("text", at, int(self._ids[tag]), 0, text))

    def _arrival(self) -> int:
        """Now, in µs; later than any arrival before, also when the clock is set back."""
        self._last_us = max(now_us(), self._last_us + 1)
        return self._last_us

    def _fail(self, block: _Block, poll: _Poll, reason: str, status: int) -> None:
        """A read that failed: its channels get one Bad sample each, and their names are on show."""
        fresh = [i for i in block.read.tags if i not in self._bad]
        at = self._arrival()
        self._status.missed += 1
        metrics.missed.labels(source=self._status.name).inc()
        for i in fresh:
            self._bad[i] = reason
            self._status.bad_channels[self._tags[i].name] = reason
            self._texts.pop(i, None)
            poll.events.append(Event("channel_state", at, int(self._ids[i]), status, "bad", {"reason": reason}))
        numbers = np.array([i for i in fresh if self._tags[i].type != "string"], np.int32)
        poll.add(self._ids[numbers], at, np.full(len(numbers), np.nan), status)

    def _recovered(self, block: _Block, poll: _Poll) -> None:
        at = self._last_us
        for i in block.read.tags:
            if self._bad.pop(i, None) is not None:
                self._status.bad_channels.pop(self._tags[i].name, None)
                poll.events.append(Event("channel_state", at, int(self._ids[i]), 0, "good"))

    def _lost(self, lost: ConnectionLost) -> None:
        """The device is away: say so once, with one Bad sample for each channel that was good."""
        poll = _Poll()
        if self._said != "disconnected":
            good = [i for i, tag in enumerate(self._tags) if tag.type != "string" and i not in self._bad]
            poll.add(self._ids[good], self._arrival(), np.full(len(good), np.nan), lost.status)
            self._texts.clear()
        for group in self._groups:
            late = group.schedule.done(time.monotonic()) + 1 if group.schedule.due <= time.monotonic() else 0
            if late:
                self._miss(late, str(lost), group.schedule.interval)
        if self._missed_from is None:
            self._missed_from, self._missed_reason = now_us(), str(lost)
        self._state("disconnected", str(lost))
        batch = poll.batch(self._status.source_id)
        if batch is not None:
            self._append(batch)

    def _miss(self, polls: int, reason: str, interval: float) -> None:
        self._status.missed += polls
        metrics.missed.labels(source=self._status.name).inc(polls)
        if self._missed_from is None:
            self._missed_from = now_us() - int(polls * interval * 1e6)
            self._missed_reason = reason

    def _state(self, state: SourceState, reason: str) -> None:
        """Change the state on show; what people ask for later (connected or not) becomes an event."""
        self._status.state, self._status.reason = state, reason
        if state in ("connecting", self._said):
            return
        self._said = state
        log.info("source %s: %s %s", self._status.name, state, reason)
        event = Event("source_state", self._arrival(), text=state, detail={"reason": reason})
        self._append(EventBatch(self._status.source_id, event.time, (event,)))

    async def _store(self, poll: _Poll) -> None:
        """Hand a poll to the spool; the next poll does not wait for the disk, unless several do already."""
        now = now_us()
        if self._missed_from is not None:
            detail = {"from": self._missed_from, "to": now, "reason": self._missed_reason}
            poll.events.append(Event("missed", self._missed_from, detail=detail))
            self._missed_from = None
        batch = poll.batch(self._status.source_id)
        if batch is not None:
            await self._room.acquire()
            self._append(batch, self._room)
        if poll.events:
            self._append(EventBatch(self._status.source_id, now, tuple(poll.events)))

    def _append(self, batch: SampleBatch | EventBatch, room: asyncio.Semaphore | None = None) -> None:
        task = asyncio.create_task(self._durable(batch, room))
        self._appends.add(task)
        task.add_done_callback(self._appends.discard)

    async def _durable(self, batch: SampleBatch | EventBatch, room: asyncio.Semaphore | None) -> None:
        try:
            while True:
                try:
                    await self._spool.append(batch)
                except SpoolFull as full:
                    if isinstance(batch, SampleBatch):
                        self._miss(1, str(full), self._source.poll_interval)
                        return
                    await self._spool.wait_for_room()
                else:
                    break
        except SpoolError as error:
            log.error("source %s: %s", self._status.name, error)
            self._miss(1, str(error), self._source.poll_interval)
            return
        finally:
            if room is not None:
                room.release()
        name = self._status.name
        if isinstance(batch, SampleBatch):
            self._status.samples += len(batch)
            self._status.last_sample_at = int(batch.time.max())
            metrics.samples.labels(source=name).inc(len(batch))
        else:
            for event in batch.events:
                metrics.events.labels(source=name, type=event.type).inc()
