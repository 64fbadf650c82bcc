"""Collector of a Modbus device: responses to polls go to the spool, missing ones are recorded as gaps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core import metrics
from core.backoff import Backoff
from core.batch import ROUNDED_DETAIL, STANDBY, Event, Int32s
from core.clock import ArrivalClock, ReadClocks, boot_seconds, machine_clocks
from core.config.modbus_tls import tls_options
from core.config.sources import ModbusSource
from core.errors import DecodeError
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.downtime import Downtime
from ingest.modbus.blocks import Block, PollGroup, intervals, poll_groups
from ingest.modbus.failures import (
    BAD_DECODING_ERROR,
    BAD_TIMEOUT,
    ConnectionLost,
    ExceptionResponse,
    FramingError,
    RequestTimeout,
)
from ingest.modbus.poll import Failure, Poll
from ingest.modbus.poll_writer import PollWriter
from ingest.modbus.transport import Connections, Device, Response
from ingest.no_data import BAD_NO_DATA
from ingest.status import RecordedState, SourceStatus
from ingest.versions import NO_VERSIONS

log = logging.getLogger(__name__)

_MAX_TIME_OUTS = 2  # consecutive time-outs, without any answer, before the connection is closed
_CLOSES_REMARK = "the device closes the connection after each response: one connection per request"
_STANDBY_TICK = 0.1  # s between two checks whether this member is to poll
_TICK = 1.0  # s between two notes that nothing is missing while no poll is due


@dataclass(slots=True)
class _PollRun:
    """A poll of a group in progress."""

    group: PollGroup
    poll: Poll
    answers: list[tuple[Block, Response]] = field(default_factory=list)
    unanswered: list[tuple[Block, str]] = field(default_factory=list)  # and the reason
    reconnected: bool = False  # the connection was reopened


class Collector:
    """Collector of one device, which polls until cancelled, whatever happens to tags, connection and spool.

    ``connections``: the connections of all sources of the process; ``stands_by``: returns True while another member of
    a redundant pair polls.
    """

    def __init__(
        self,
        source: ModbusSource,
        channel_ids: Mapping[str, int],
        status: SourceStatus,
        spool: Appender,
        connections: Connections,
        read_clocks: ReadClocks = machine_clocks,
        versions: Mapping[int, int] = NO_VERSIONS,
        stands_by: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stands_by = stands_by
        self._source = source
        self._tags = source.tags
        self._ids = _ids(source, channel_ids)
        self._status = status
        interruption = Downtime(status.source_id, spool).interruption()
        self._clock = ArrivalClock(source.skew_limit, interruption[0] if interruption else 0, read_clocks)
        self._poll_writer = PollWriter(status, self._ids, intervals(source), spool, self._clock.now(), versions)
        self._late_answers = metrics.late_answers.labels(source=status.name)
        self._request_seconds = metrics.request_seconds.labels(source=status.name)
        connection, clock = connections.get(source.address, tls_options(source)), self._clock
        late, reconnected = self._late_answers.inc, self._status.count_reconnect
        self._device = Device(connection, source.time_out, clock.now, late, reconnected, source.any_transaction_id)
        self._bad: dict[int, str] = {}  # tag index → reason why it can't be read
        self._holds = np.ones(len(self._ids), np.bool_)  # tags without a Bad sample since they were last read
        self._rounded: set[int] = set()  # channel ids whose rounding was recorded
        self._recorded_state = RecordedState(status)
        self._backoff = Backoff(source.backoff_min, source.backoff_max)
        self._answers = 0  # of the device, with exceptions
        self._time_outs = 0  # time-outs since the last answer
        self._last_time_out = ""  # description of the last time-out
        # Configured since the last poll
        self._new_configuration: tuple[ModbusSource, Mapping[str, int], Mapping[int, int]] | None = None
        self._groups = poll_groups(source, ())

    def configure(
        self, source: ModbusSource, channel_ids: Mapping[str, int], versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        """Read these tags from the next poll on, over the existing connection.

        Address, unit id and timeouts must be unchanged.
        """
        self._new_configuration = source, channel_ids, versions

    def _apply_configuration(self) -> None:
        """Apply a new tag list between two polls."""
        if self._new_configuration is None:
            return
        (source, channel_ids, versions), self._new_configuration = self._new_configuration, None
        bad, ended = {int(self._ids[i]): reason for i, reason in self._bad.items()}, self._ids[~self._holds]
        self._source, self._tags, self._ids = source, source.tags, _ids(source, channel_ids)
        self._holds = ~np.isin(self._ids, ended)
        self._groups = poll_groups(source, self._groups)
        self._poll_writer.configure(self._ids, intervals(source), self._clock.now(), versions)
        paces: list[tuple[Sequence[int], float]] = [(g.indices, g.pace.seconds) for g in self._groups]
        self._poll_writer.add(Poll(self._clock.now(), paces=paces))
        self._status.remarks.clear()
        for group in self._groups:
            self._set_pace_remark(group)
        self._bad = {i: bad[channel] for i, channel in enumerate(self._ids.tolist()) if channel in bad}
        self._status.channels = len(source.tags)
        self._status.bad_channels = {self._tags[i].name: reason for i, reason in self._bad.items()}

    async def run(self) -> None:
        """Poll until cancelled."""
        writing = asyncio.create_task(self._poll_writer.run())
        polling = asyncio.create_task(self._run())
        try:
            await asyncio.wait((writing, polling), return_when=asyncio.FIRST_COMPLETED)
        finally:
            polling.cancel()
            await asyncio.wait((polling,))
            self._poll_writer.stop()
            await writing
        polling.result()

    async def _run(self) -> None:
        """Connect and poll, reconnecting after each failure."""
        connected = False
        while True:
            started = boot_seconds()
            self._check_clock()
            self._apply_configuration()
            if self._stands_by():
                await self._stand_by()
                connected = False
                continue
            try:
                self._status.state = "connecting"
                if await self._device.connect() and connected:
                    self._status.count_reconnect()
                connected = True
                await self._poll()
            except ConnectionLost as lost:
                self._record_outage(lost)
            finally:
                self._device.close()
            await self._poll_writer.wait_for_room()
            await asyncio.sleep(self._wait(boot_seconds() - started))

    async def _stand_by(self) -> None:
        """Wait until this member of the pair is to poll."""
        self._recorded_state.forget()  # the state of the member that polls counts
        self._status.state, self._status.reason = "standby", "the other member polls"
        self._status.due_at = 0
        log.info("source %s: standing by", self._status.name)
        self._poll_writer.add(Poll(self._clock.now(), lost=self._status.reason, lost_reason=STANDBY))
        noted = boot_seconds()
        while self._stands_by():
            await asyncio.sleep(_STANDBY_TICK)
            self._check_clock()
            self._apply_configuration()
            if boot_seconds() - noted > _TICK:
                noted = boot_seconds()
                await self._poll_writer.wait_for_room()
                self._poll_writer.add(Poll(self._clock.now()))

    def _wait(self, elapsed: float) -> float:
        """Seconds before the next attempt: exponential backoff, limited so that a returning device is read soon."""
        period = min(group.schedule.interval for group in self._groups)
        wait = self._backoff.next(max(period, self._source.backoff_min))
        return max(wait - elapsed, self._source.backoff_min / 2)

    async def _poll(self) -> None:
        """Poll on schedule until this member stands by. Raises ConnectionLost."""
        self._time_outs = 0
        for group in self._groups:
            self._status.count_missed(group.schedule.skip(boot_seconds()))  # the outage's own gap has them
            group.pace.interrupted()
        while True:
            self._apply_configuration()
            group = min(self._groups, key=lambda g: g.schedule.due)
            self._status.due_at = now_us() + round((group.schedule.due - boot_seconds()) * 1e6)
            await self._sleep_until(group.schedule.due)
            if self._stands_by():
                return
            if self._new_configuration is not None:
                continue
            await self._poll_writer.wait_for_room()
            self._check_clock()
            run = _PollRun(group, Poll(self._clock.now()))
            missed = group.schedule.skip(boot_seconds())
            self._status.count_missed(missed)
            self._update_pace(group, run.poll)
            try:
                answered = await self._read_blocks(run)
                group.schedule.poll_done()
                self._status.remark("master", self._device.connection.other_master)
                self._status.remark("connection", _CLOSES_REMARK if self._device.connection.closes_after_answer else "")
                if answered or not group.is_waiting:
                    self._backoff.reset()
                    run.poll.events += self._recorded_state.change(
                        "degraded" if self._bad else "connected", "", self._clock.now
                    )
            finally:
                run.poll.at = self._clock.last
                self._poll_writer.add(run.poll)

    def _update_pace(self, group: PollGroup, poll: Poll) -> None:
        """Record, at the start of a poll, a change of the pace and its bottleneck."""
        pace = group.pace
        changed = pace.poll_started(boot_seconds(), self._device.connection.waited_seconds)
        if changed or pace.stretched:
            self._set_pace_remark(group)
        if changed:
            text = "stretched" if pace.stretched else "good"
            poll.paces.append((group.indices, pace.seconds))
            poll.events.append(Event("poll_stretched", poll.at, text=text, detail=pace.figures()))
            log.info("source %s: %s", self._status.name, pace)

    def _set_pace_remark(self, group: PollGroup) -> None:
        self._status.remark(f"polls of {group.schedule.interval:g} s", str(group.pace) if group.pace.stretched else "")
        self._status.pace_seconds = max((g.pace.seconds for g in self._groups if g.pace.stretched), default=0.0)

    async def _sleep_until(self, due: float) -> None:
        """Sleep until a poll is due; record meanwhile that nothing is missing."""
        while (remaining := due - boot_seconds()) > 0 and self._new_configuration is None:
            await asyncio.sleep(min(remaining, _TICK))
            if remaining > _TICK:
                self._check_clock()
                self._poll_writer.add(Poll(self._clock.now()))

    async def _read_blocks(self, run: _PollRun) -> bool:
        """Read the blocks of a poll, as far as time permits; return whether one was answered. Raises ConnectionLost."""
        before = self._answers
        remaining = run.group.due_blocks(boot_seconds())
        try:
            while remaining:
                late = bool(run.unanswered) and boot_seconds() >= run.group.schedule.next
                if self._time_outs >= _MAX_TIME_OUTS or (late and self._answers != before):
                    break  # the next poll begins with the blocks that are left
                n_read = await self._read(run, remaining[:1] if run.unanswered else remaining)
                remaining = remaining[n_read:]
        finally:
            self._decode(run)
        run.group.incomplete = bool(remaining)
        self._status.count_missed(len(remaining))
        if self._answers != before:
            self._time_outs = 0
        elif self._time_outs >= _MAX_TIME_OUTS:
            raise ConnectionLost(self._last_time_out, BAD_TIMEOUT)
        for block, reason in run.unanswered:
            self._record_failure(run, block, reason, BAD_TIMEOUT)
        return self._answers != before

    async def _read(self, run: _PollRun, blocks: Sequence[Block]) -> int:
        """Read blocks up to the first failure; return how many were read. Raises ConnectionLost."""
        started, failed = boot_seconds(), None
        answers: list[Response] = []
        try:
            await self._device.read([block.read for block in blocks], answers)
        except (RequestTimeout, ExceptionResponse, DecodeError) as error:
            failed = error
        finally:
            for block in blocks[: len(answers) + 1]:
                block.requested_at = started
            for block, answer in zip(blocks, answers, strict=False):
                run.answers.append((block, answer))
                self._count_answer(block)
                self._request_seconds.observe(answer.took)
        if failed is None:
            return len(answers)
        block = blocks[len(answers)]
        if isinstance(failed, RequestTimeout):
            self._time_outs += 1
            self._last_time_out = f"{block.read}: {failed}"
            if failed.unreadable:
                self._status.count_undecodable()
            block.timed_out(self._answers, boot_seconds(), self._source.time_out)
            run.unanswered.append((block, self._last_time_out))
        else:
            self._count_answer(block)
            if isinstance(failed, ExceptionResponse):
                await self._handle_exception(run, block, failed)
            else:
                await self._handle_undecodable(run, block, failed)
        return len(answers) + 1

    def _decode(self, run: _PollRun) -> None:
        """Decode all responses of a poll at once."""
        if not run.answers:
            return
        poll, blocks = run.poll, [block for block, _ in run.answers]
        decoder = run.group.decoder(blocks)
        raw = np.concatenate([answer.registers for _, answer in run.answers])
        at = np.array([answer.at for _, answer in run.answers], np.int64)
        self._holds[decoder.covered] = True
        poll.read(decoder.covered, at[decoder.covered_by])
        values = decoder.numbers(raw)
        status = np.isnan(values) * np.uint32(BAD_NO_DATA)
        poll.add(decoder.tags, at[decoder.read], values, status)
        poll.texts += [(i, int(at[read]), text) for i, read, text in decoder.texts(raw)]
        self._record_rounded(poll, [(int(self._ids[i]), int(at[read])) for i, read in decoder.rounded(raw)])
        if self._bad:
            for block, answer in run.answers:
                self._record_recovery(block, poll, answer.at)
        for block in blocks:
            if block.refused:
                run.group.accept(block)

    async def _handle_exception(self, run: _PollRun, block: Block, answer: ExceptionResponse) -> None:
        if not answer.refused:
            self._record_failure(run, block, f"{block.read}: {answer}", answer.status)
        elif len(block.read.tags) == 1:
            run.group.refuse(block, boot_seconds())
            self._record_failure(run, block, f"{block.read}: {answer}", answer.status, "refused")
        else:
            for half in run.group.split(block):
                await self._read(run, (half,))

    async def _handle_undecodable(self, run: _PollRun, block: Block, error: DecodeError) -> None:
        self._status.count_undecodable()
        reason = f"{block.read}: {error}"
        self._record_failure(run, block, reason, BAD_DECODING_ERROR)
        if isinstance(error, FramingError):
            if run.reconnected:
                raise ConnectionLost(reason, BAD_DECODING_ERROR)
            run.reconnected = True
            if await self._device.connect():
                self._status.count_reconnect()

    def _count_answer(self, block: Block) -> None:
        block.answered()
        self._answers += 1
        self._time_outs = 0

    def _check_clock(self) -> None:
        """Detect and record a step of the wall clock, between two polls."""
        step = self._clock.detect_step()
        if step is not None:
            log.warning("source %s: the clock was set by %+.1f s", self._status.name, step.seconds)
            self._poll_writer.add(Poll(step.after, step=step, events=[step.event()]))

    def _record_failure(
        self, run: _PollRun, block: Block, detail: str, status: int, reason: str = "poll_failed"
    ) -> None:
        """Record a failed read: a gap and one Bad sample for each channel, which is listed as bad."""
        poll, at = run.poll, self._clock.now()
        self._status.count_missed(1)
        poll.failures.append(Failure(block.read.tags, reason, detail))
        new = [i for i in block.read.tags if i not in self._bad]
        for i in block.read.tags:
            self._bad[i] = detail
            self._status.bad_channels[self._tags[i].name] = detail
        for i in new:
            poll.events.append(Event("channel_state", at, int(self._ids[i]), status, "bad", {"reason": detail}))
        self._end_values(poll, new, at, status)

    def _end_values(self, poll: Poll, tags: Sequence[int], at: int, status: int) -> None:
        """Add a Bad sample for each of the tags that was read since it had one."""
        numbers = np.array([i for i in tags if self._holds[i] and self._tags[i].kind != "text"], np.int32)
        self._holds[numbers] = False
        poll.add(numbers, at, np.full(len(numbers), np.nan), status)

    def _record_rounded(self, poll: Poll, channels: Sequence[tuple[int, int]]) -> None:
        """Record once for each channel (with time, µs) that its integers exceed the precision of a float64."""
        for channel, at in channels:
            if channel not in self._rounded:
                self._rounded.add(channel)
                poll.events.append(Event("rounded", at, channel, detail=ROUNDED_DETAIL))

    def _record_recovery(self, block: Block, poll: Poll, at: int) -> None:
        for i in block.read.tags:
            if self._bad.pop(i, None) is not None:
                self._status.bad_channels.pop(self._tags[i].name, None)
                poll.events.append(Event("channel_state", at, int(self._ids[i]), 0, "good"))

    def _record_outage(self, lost: ConnectionLost) -> None:
        """Record an outage: a gap, and one Bad sample for each channel that was read before it."""
        poll = Poll(self._clock.now(), lost=str(lost))
        self._end_values(poll, np.flatnonzero(self._holds).tolist(), poll.at, lost.status)
        poll.events += self._recorded_state.change("disconnected", str(lost), self._clock.now)
        self._poll_writer.add(poll)


def _ids(source: ModbusSource, channel_ids: Mapping[str, int]) -> Int32s:
    """Channel ids by tag index."""
    return np.array([channel_ids[tag.name] for tag in source.tags], np.int32)
