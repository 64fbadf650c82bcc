"""Reads one Modbus device on schedule, for ever: what it answers goes to the spool, what it does not, on record."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import ROUNDED, Event, Int32s, now_us
from ingest.clock import ArrivalClock, Look, machine, steady
from ingest.config.model import ModbusSource
from ingest.errors import DecodeError
from ingest.heard import Heard
from ingest.modbus.blocks import Block, Group
from ingest.modbus.failures import (
    BAD_DECODING_ERROR,
    BAD_TIMEOUT,
    ConnectionLost,
    ExceptionAnswer,
    Garbled,
    TimedOut,
)
from ingest.modbus.outbox import Outbox
from ingest.modbus.poll import Failure, Poll
from ingest.modbus.schedule import Schedule
from ingest.modbus.transport import Answer, Device, Lines
from ingest.status import SourceState, SourceStatus
from ingest.versions import NO_VERSIONS

log = logging.getLogger(__name__)

_SILENT = 2  # time-outs one after another, without any answer, before the connection is given up
_CLOSES = "the device closes the connection after each answer: one connection a request"
_TICK = 1.0  # s, how often it is noted that nothing is missing while no poll is due


@dataclass(slots=True)
class _Turn:
    """One poll of one group, while it is made."""

    group: Group
    poll: Poll
    answered: list[tuple[Block, Answer]] = field(default_factory=list)
    unanswered: list[Block] = field(default_factory=list)
    garbled: bool = False  # the connection had to be made anew


class Collector:
    """Polls one device. Bad tags, lost connections and a full spool never end it.

    ``lines`` are those of all sources of the process.
    """

    def __init__(
        self,
        source: ModbusSource,
        channel_ids: Mapping[str, int],
        status: SourceStatus,
        spool: Appender,
        lines: Lines,
        look: Look = machine,
        versions: Mapping[int, int] = NO_VERSIONS,
    ) -> None:
        self._source = source
        self._tags = source.tags
        self._ids = _ids(source, channel_ids)
        self._status = status
        interruption = Heard(status.source_id, spool).interruption()
        self._clock = ArrivalClock(source.skew_limit, interruption[0] if interruption else 0, look)
        self._outbox = Outbox(status, self._ids, _intervals(source), spool, self._clock.now(), versions)
        self._late = metrics.late_answers.labels(source=status.name)
        self._took = metrics.request_seconds.labels(source=status.name)
        line, clock = lines.to(source.address), self._clock
        self._device = Device(line, source.time_out, clock.now, self._late.inc, self._reconnected)
        self._bad: dict[int, str] = {}  # tag index → why it can't be read
        self._rounded: set[int] = set()  # channel ids of which it was said that their integers are
        self._said: SourceState = "starting"  # the last state that became an event
        self._backoff = source.backoff_min
        self._answers = 0  # of the device, exceptions counted
        self._silent = 0  # time-outs since the last answer
        # What is configured since the last poll.
        self._edited: tuple[ModbusSource, Mapping[str, int], Mapping[int, int]] | None = None
        self._groups = _groups(source, ())

    def configure(
        self, source: ModbusSource, channel_ids: Mapping[str, int], versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        """Read these tags from the next poll on, over the same connection.

        What that depends on (address, unit id, time-outs) must be as before.
        """
        self._edited = source, channel_ids, versions

    def _edit(self) -> None:
        """Between two polls: plan anew where the tags are others now."""
        if self._edited is None:
            return
        (source, channel_ids, versions), self._edited = self._edited, None
        bad = {int(self._ids[i]): why for i, why in self._bad.items()}
        self._source, self._tags, self._ids = source, source.tags, _ids(source, channel_ids)
        self._groups = _groups(source, self._groups)
        self._outbox.configure(self._ids, _intervals(source), self._clock.now(), versions)
        paces: list[tuple[Sequence[int], float]] = [(g.indices, g.pace.seconds) for g in self._groups]
        self._outbox.add(Poll(self._clock.now(), paces=paces))
        self._status.remarks.clear()
        for group in self._groups:
            self._remark_pace(group)
        self._bad = {i: bad[channel] for i, channel in enumerate(self._ids.tolist()) if channel in bad}
        self._status.channels = len(source.tags)
        self._status.bad_channels = {self._tags[i].name: why for i, why in self._bad.items()}

    async def run(self) -> None:
        """Poll until cancelled."""
        writing = asyncio.create_task(self._outbox.run())
        polling = asyncio.create_task(self._run())
        try:
            await asyncio.wait((writing, polling), return_when=asyncio.FIRST_COMPLETED)
        finally:
            polling.cancel()
            await asyncio.wait((polling,))
            self._outbox.stop()
            await writing
        polling.result()

    async def _run(self) -> None:
        """Connect and poll, again and again."""
        connected = False
        while True:
            began = steady()
            self._follow()
            self._edit()
            try:
                self._status.state = "connecting"
                if await self._device.connect() and connected:
                    self._reconnected()
                connected = True
                await self._poll()
            except ConnectionLost as lost:
                self._lost(lost)
            finally:
                self._device.close()
            await self._outbox.room()
            await asyncio.sleep(self._wait(steady() - began))

    def _reconnected(self) -> None:
        self._status.reconnects += 1
        metrics.reconnects.labels(source=self._status.name).inc()

    def _wait(self, took: float) -> float:
        """Seconds before the next attempt: doubling, but a device that comes back is read within a period."""
        period = min(group.schedule.interval for group in self._groups)
        wait = min(self._backoff, max(period, self._source.backoff_min)) * random.uniform(0.5, 1.0)
        self._backoff = min(2 * self._backoff, self._source.backoff_max)
        return max(wait - took, self._source.backoff_min / 2)

    async def _poll(self) -> None:
        """Poll on schedule until the connection is lost, which ConnectionLost says."""
        self._silent = 0
        for group in self._groups:
            self._missed(group.schedule.skip(steady()))  # the outage's own gap has them
            group.pace.interrupted()
        while True:
            self._edit()
            group = min(self._groups, key=lambda g: g.schedule.due)
            self._status.due_at = now_us() + round((group.schedule.due - steady()) * 1e6)
            await self._until(group.schedule.due)
            if self._edited is not None:
                continue
            await self._outbox.room()
            self._follow()
            turn = _Turn(group, Poll(self._clock.now()))
            missed = group.schedule.skip(steady())
            self._missed(missed)
            self._paced(group, turn.poll)
            try:
                await self._make(turn)
                group.schedule.made()
                self._backoff = self._source.backoff_min
                self._remark("connection", _CLOSES if self._device.line.closes else "")
                self._state("degraded" if self._bad else "connected", "", turn.poll)
            finally:
                turn.poll.at = self._clock.last
                self._outbox.add(turn.poll)

    def _paced(self, group: Group, poll: Poll) -> None:
        """A poll begins; where polls take longer than the interval now, or no longer, that is said, and who is slow."""
        pace = group.pace
        changed = pace.polls(steady(), self._device.line.waited)
        if changed or pace.stretched:
            self._remark_pace(group)
        if changed:
            text = "stretched" if pace.stretched else "good"
            poll.paces.append((group.indices, pace.seconds))
            poll.events.append(Event("poll_stretched", poll.at, text=text, detail=pace.figures()))
            log.info("source %s: %s", self._status.name, pace)

    def _remark_pace(self, group: Group) -> None:
        self._remark(f"polls of {group.schedule.interval:g} s", str(group.pace) if group.pace.stretched else "")
        self._status.pace_seconds = max((g.pace.seconds for g in self._groups if g.pace.stretched), default=0.0)

    async def _until(self, due: float) -> None:
        """Sleep until a poll is due; while that takes long it is noted that nothing is missing."""
        while (left := due - steady()) > 0 and self._edited is None:
            await asyncio.sleep(min(left, _TICK))
            if left > _TICK:
                self._follow()
                self._outbox.add(Poll(self._clock.now()))

    async def _make(self, turn: _Turn) -> None:
        """Make the reads of one poll, or those that there is time for. Raises ConnectionLost."""
        before = self._answers
        left = turn.group.turn(steady())
        try:
            while left:
                late = bool(turn.unanswered) and steady() >= turn.group.schedule.next
                if self._silent >= _SILENT or (late and self._answers != before):
                    break  # the next poll begins with what is left
                made = await self._read(turn, left[:1] if turn.unanswered else left)
                left = left[made:]
        finally:
            self._decode(turn)
        turn.group.left_out = bool(left)
        self._missed(len(left))
        silence = f"no answer within {self._source.time_out:g} s"
        if self._answers != before:
            self._silent = 0
        elif self._silent >= _SILENT:
            raise ConnectionLost(silence, BAD_TIMEOUT)
        for block in turn.unanswered:
            self._fail(turn, block, silence, BAD_TIMEOUT)

    async def _read(self, turn: _Turn, blocks: Sequence[Block]) -> int:
        """Make these reads up to the first that fails; returns how many that were. Raises ConnectionLost."""
        started, failed = steady(), None
        answers: list[Answer] = []
        try:
            await self._device.read([block.read for block in blocks], answers)
        except (TimedOut, ExceptionAnswer, DecodeError) as error:
            failed = error
        finally:
            for block in blocks[: len(answers) + 1]:
                block.asked_at = started
            for block, answer in zip(blocks, answers, strict=False):
                turn.answered.append((block, answer))
                self._answered(block)
                self._took.observe(answer.took)
        if failed is None:
            return len(answers)
        block = blocks[len(answers)]
        if isinstance(failed, TimedOut):
            self._silent += 1
            block.timed_out(self._answers, steady(), self._source.time_out)
            turn.unanswered.append(block)
        else:
            self._answered(block)
            if isinstance(failed, ExceptionAnswer):
                await self._excepted(turn, block, failed)
            else:
                await self._undecodable(turn, block, failed)
        return len(answers) + 1

    def _decode(self, turn: _Turn) -> None:
        """All answers of a poll at once."""
        if not turn.answered:
            return
        poll, blocks = turn.poll, [block for block, _ in turn.answered]
        decoder = turn.group.decoder(blocks)
        raw = np.concatenate([answer.registers for _, answer in turn.answered])
        at = np.array([answer.at for _, answer in turn.answered], np.int64)
        poll.read(decoder.covered, at[decoder.covered_by])
        poll.add(decoder.tags, at[decoder.read], decoder.numbers(raw), 0)
        poll.texts += [(i, int(at[read]), text) for i, read, text in decoder.texts(raw)]
        self._are_rounded(poll, [(int(self._ids[i]), int(at[read])) for i, read in decoder.rounded(raw)])
        if self._bad:
            for block, answer in turn.answered:
                self._recovered(block, poll, answer.at)
        for block in blocks:
            if block.refused:
                turn.group.accept(block)

    async def _excepted(self, turn: _Turn, block: Block, answer: ExceptionAnswer) -> None:
        if not answer.refused:
            self._fail(turn, block, str(answer), answer.status)
        elif len(block.read.tags) == 1:
            turn.group.refuse(block, steady())
            self._fail(turn, block, str(answer), answer.status, "refused")
        else:
            for half in turn.group.split(block):
                await self._read(turn, (half,))

    async def _undecodable(self, turn: _Turn, block: Block, error: DecodeError) -> None:
        self._status.decode_errors += 1
        metrics.decode_errors.labels(source=self._status.name).inc()
        self._fail(turn, block, str(error), BAD_DECODING_ERROR)
        if isinstance(error, Garbled):
            if turn.garbled:
                raise ConnectionLost(str(error), BAD_DECODING_ERROR)
            turn.garbled = True
            if await self._device.connect():
                self._reconnected()

    def _answered(self, block: Block) -> None:
        block.answered()
        self._answers += 1
        self._silent = 0

    def _follow(self) -> None:
        """Between two polls: where the wall clock was set, times begin anew there, and that is on record."""
        step = self._clock.follow()
        if step is not None:
            log.warning("source %s: the clock was set by %+.1f s", self._status.name, step.seconds)
            self._outbox.add(Poll(step.after, step=step, events=[step.event()]))

    def _fail(self, turn: _Turn, block: Block, detail: str, status: int, reason: str = "poll_failed") -> None:
        """A read that failed: a gap of its channels, one Bad sample each, and their names are on show."""
        poll, at = turn.poll, self._clock.now()
        self._missed(1)
        poll.failures.append(Failure(block.read.tags, reason, detail))
        fresh = [i for i in block.read.tags if i not in self._bad]
        for i in block.read.tags:
            self._bad[i] = detail
            self._status.bad_channels[self._tags[i].name] = detail
        for i in fresh:
            poll.events.append(Event("channel_state", at, int(self._ids[i]), status, "bad", {"reason": detail}))
        self._bad_samples(poll, fresh, at, status)

    def _bad_samples(self, poll: Poll, tags: Sequence[int], at: int, status: int) -> None:
        numbers = np.array([i for i in tags if self._tags[i].kind != "text"], np.int32)
        poll.add(numbers, at, np.full(len(numbers), np.nan), status)

    def _are_rounded(self, poll: Poll, channels: Sequence[tuple[int, int]]) -> None:
        """An event for each channel (and time, µs) whose integers are too large for a sample, once."""
        for channel, at in channels:
            if channel not in self._rounded:
                self._rounded.add(channel)
                poll.events.append(Event("rounded", at, channel, detail=ROUNDED))

    def _recovered(self, block: Block, poll: Poll, at: int) -> None:
        for i in block.read.tags:
            if self._bad.pop(i, None) is not None:
                self._status.bad_channels.pop(self._tags[i].name, None)
                poll.events.append(Event("channel_state", at, int(self._ids[i]), 0, "good"))

    def _lost(self, lost: ConnectionLost) -> None:
        """The device is away: a gap, said once, with one Bad sample for each channel that was good."""
        poll = Poll(self._clock.now(), lost=str(lost))
        if self._said != "disconnected":
            self._bad_samples(poll, [i for i in range(len(self._tags)) if i not in self._bad], poll.at, lost.status)
        self._state("disconnected", str(lost), poll)
        self._outbox.add(poll)

    def _remark(self, subject: str, text: str) -> None:
        """What ``status`` shows besides the state; nothing where ``text`` is empty."""
        if text:
            self._status.remarks[subject] = text
        else:
            self._status.remarks.pop(subject, None)

    def _missed(self, polls: int) -> None:
        if polls:
            self._status.missed += polls
            metrics.missed.labels(source=self._status.name).inc(polls)

    def _state(self, state: SourceState, reason: str, poll: Poll) -> None:
        """Change the state on show; what people ask for later (connected or not) becomes an event."""
        self._status.state, self._status.reason = state, reason
        if state == self._said:
            return
        self._said = state
        log.info("source %s: %s %s", self._status.name, state, reason)
        poll.events.append(Event("source_state", self._clock.now(), text=state, detail={"reason": reason}))


def _ids(source: ModbusSource, channel_ids: Mapping[str, int]) -> Int32s:
    """Channel ids by tag index."""
    return np.array([channel_ids[tag.name] for tag in source.tags], np.int32)


def _intervals(source: ModbusSource) -> list[float]:
    """Poll intervals (s) by tag index."""
    return [tag.interval or source.poll_interval for tag in source.tags]


def _groups(source: ModbusSource, before: Sequence[Group]) -> list[Group]:
    """The tags by poll interval. Where there was a group of that interval, its polls stay due when they were."""
    intervals = _intervals(source)
    old = {group.schedule.interval: group for group in before}
    now, groups = steady(), []
    for interval in dict.fromkeys(intervals):
        schedule = old[interval].schedule if interval in old else Schedule(interval, now)
        group = Group(schedule, [i for i, of in enumerate(intervals) if of == interval], source.tags, source)
        if interval in old:
            group.pace = old[interval].pace
        groups.append(group)
    return groups
