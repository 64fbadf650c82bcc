"""Alarm evaluation between a collector and its spool: changes are on disk before samples are acknowledged.

Changes are spooled as events before the samples that caused them, with notes of the alarm states, in one
transaction. After a kill before the commit, the samples are sent and evaluated again. After a kill behind it, the next
process continues from the notes. A spool that is full for samples still accepts events: an alarm
is recorded even though its sample becomes a gap.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count

from core import metrics
from core.batch import Batch, Event, EventBatch, SampleBatch
from core.config.sources import Source
from core.errors import SpoolError
from core.time_limits import TimeLimits
from core.timestamps import now_us
from ingest.alarms import checkpoint
from ingest.alarms.channel import AlarmChange, AlarmChannel
from ingest.alarms.columns import AlarmColumns
from ingest.alarms.counter_resets import CounterResets
from ingest.alarms.limits import limits_of
from ingest.alarms.state import Alarm, summary
from ingest.appender import Appender, Notes
from ingest.notes import Note

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_MAX_STEP_US = 5_000_000  # between two checks, also on a busy machine
_CLEANUP_CHECKS = 60  # checks between two cleanups of notes
_NOTE_SECONDS = 10.0  # between two notes of counters; readings only grow, so that an older one does as well


class AlarmEvaluator:
    """Evaluates the alarms of one source; an Appender in front of the spool."""

    def __init__(
        self,
        source: Source,
        channel_ids: Mapping[str, int],
        source_id: int,
        spool: Appender,
        stands_by: Callable[[], bool] = lambda: False,
    ) -> None:
        """``stands_by``: returns True while another member of a redundant pair reads the source."""
        self._stands_by = stands_by
        self.source = source.name
        self._source_id = source_id
        self._spool = spool
        self._unwritten: list[Event] = []  # events that are not on disk yet
        self._unsaved: set[AlarmChannel] = set()  # channels whose note on disk is outdated
        self._last_check = now_us()
        self._counters = CounterResets((), {})
        self._counters_note = Note.COUNTERS.of(source_id)
        self._counters_noted = -math.inf  # s, monotonic
        self.columns: AlarmColumns | None = None
        states = {checkpoint.channel_of(note): text for note, text in spool.notes.items()}
        self._set_limits(source, channel_ids, {c: states[c] for c in channel_ids.values() if c in states})
        if self._counters_note in spool.notes:
            self._counters.restore(spool.notes[self._counters_note])

    def configure(self, source: Source, channel_ids: Mapping[str, int]) -> None:
        """Apply new limits or channels. Channels with unchanged limits keep their state."""
        before = self.columns
        states = {} if before is None else {c.channel_id: checkpoint.encode(c) for c in before.touched()}
        self._unsaved = {c for c in self._unsaved if c.channel_id in channel_ids.values()}
        self._set_limits(source, channel_ids, {c: text for c, text in states.items() if text is not None})

    def _set_limits(self, source: Source, channel_ids: Mapping[str, int], states: Mapping[int, str]) -> None:
        """Set the limits. ``states``: notes of channels with recorded state."""
        self.names = {channel_ids[tag.name]: tag.name for tag in source.tags}
        self.units = {channel_ids[tag.name]: tag.unit for tag in source.tags}
        self._counters = CounterResets(source.tags, channel_ids, self._counters)
        limits = {channel_ids[tag.name]: limits_of(tag) for tag in source.tags}
        now = now_us()
        before = self.columns
        self.columns = AlarmColumns(limits, now, before) if any(limits.values()) else None
        for channel_id, text in states.items():
            channel_limits = limits.get(channel_id, ())
            if before is not None and channel_limits and before.limits_of(channel_id) == channel_limits:
                continue
            channel, ended = checkpoint.decode(text, channel_id, channel_limits, now)
            if channel_limits and self.columns is not None:
                self.columns.restore(channel)
            if ended:
                self._unwritten += map(checkpoint.to_event, ended)
            if ended or before is not None:
                self._unsaved = {c for c in self._unsaved if c.channel_id != channel_id} | {channel}

    @property
    def notes(self) -> Mapping[str, str]:
        """Notes of the spool."""
        return self._spool.notes

    @property
    def limits(self) -> TimeLimits:
        """Limits of the spool."""
        return self._spool.limits

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        """Evaluate samples, and look for resets of counters, then append. Raises SpoolFull and SpoolError."""
        if isinstance(batch, SampleBatch):
            inside = self.limits.inside(batch.received_at, batch.samples.time)
            evaluated = batch if inside.all() else batch.part(inside)
            resets = self._counters.events(evaluated.samples)
            self._unwritten += resets
            notes = {**(notes or {}), **self._note_counters(bool(resets))}
            if self.columns is not None:
                self._queue(self.columns.evaluate(evaluated))
        if not self._unwritten:
            await self._save_with(lambda saved: self._spool.append(batch, {**(notes or {}), **saved}, beside))
            return
        # Both are handed over before the spool's next commit, so they are in one.
        for error in await asyncio.gather(
            self._flush(), self._spool.append(batch, notes, beside), return_exceptions=True
        ):
            if error is not None:
                raise error

    def _note_counters(self, has_reset: bool) -> Notes:
        """The note of the last readings, if it is due; after a reset, which a restart must not record again, it is."""
        due = has_reset or time.monotonic() >= self._counters_noted + _NOTE_SECONDS
        if not due or not len(self._counters):
            return {}
        self._counters_noted = time.monotonic()
        return {self._counters_note: self._counters.note()}

    async def note(self, notes: Notes) -> None:
        """Save notes in the spool."""
        await self._spool.note(notes)

    async def wait_for_room(self) -> None:
        """Wait for room in the spool."""
        await self._spool.wait_for_room()

    async def run(self) -> None:
        """Check timers until cancelled: expired delays, stale values, expired shelving."""
        for number in count():
            self.check_clock(now_us())
            if number % _CLEANUP_CHECKS == 0 and self.columns is not None:
                self._drop_normal(self.columns)
            if self._unwritten or self._unsaved:
                try:
                    await self._flush()
                except SpoolError as error:
                    log.error("source %s: cannot write alarms to the spool: %s", self.source, error)
            await asyncio.sleep(_CHECK_SECONDS)

    def check_clock(self, now: int) -> None:
        """Check timers at ``now`` (µs, our clock), about a second after the last check. :meth:`run` writes the changes.

        If much more or less time has passed, the clock was set or this process did not run: that is not silence.
        """
        step, self._last_check = now - self._last_check, now
        if self.columns is None:
            return
        if self._stands_by():  # nothing is read, which is no silence
            self.columns.clock_moved(step)
            return
        if not 0 <= step <= _MAX_STEP_US:
            log.info(
                "source %s: %.1f s passed by the clock between two checks: it was set, or this process did not run",
                self.source,
                step / 1e6,
            )
            self.columns.clock_moved(step - round(_CHECK_SECONDS * 1e6))
        self._queue(self.columns.check_clock(now))

    def _drop_normal(self, columns: AlarmColumns) -> None:
        """Mark notes of normal channels for deletion."""
        notes = self._spool.notes
        self._unsaved |= {
            c for c in columns.touched() if checkpoint.note_name(c.channel_id) in notes and checkpoint.encode(c) is None
        }

    async def apply_command(
        self, channel_id: int, command: Callable[[AlarmChannel], list[AlarmChange]]
    ) -> list[AlarmChange]:
        """Apply an operator command to a channel; return when it is on disk.

        Raises OperationError if it is not allowed, and SpoolError on a disk error; the command then still takes effect.
        """
        if self.columns is None:
            return []
        changes = self.columns.apply_command(channel_id, command)
        self._queue(changes)
        await self._flush()
        return changes

    async def adopt(self, states: Mapping[int, Mapping[str, Alarm]]) -> None:
        """Continue from states by channel id and limit, where they are newer; they are on record. Raises SpoolError."""
        columns = self.columns
        if columns is None:
            return
        for channel_id in states.keys() & set(columns.channels()):
            columns.apply_command(channel_id, partial(_adopt, states[channel_id]))
        self._queue(())
        await self._flush()

    def summary(self) -> dict[str, int]:
        """Summary of the alarms, see :func:`ingest.alarms.state.summary`."""
        touched = () if self.columns is None else self.columns.touched()
        monitors = [monitor for channel in touched for monitor in channel.monitors]
        return summary((monitor.limit.priority, monitor.active, monitor.alarm.state) for monitor in monitors)

    def _queue(self, changes: Iterable[AlarmChange]) -> None:
        if self.columns is not None:
            self._unsaved |= self.columns.take_dirty()
        for change in changes:
            self._unwritten.append(checkpoint.to_event(change))
            metrics.alarm_changes.labels(source=self.source, action=change.action).inc()

    async def _flush(self) -> None:
        """Write events and notes to the spool; keep them for the next time on a disk error. Raises SpoolError."""
        events, self._unwritten = self._unwritten, []
        if not events:
            await self._save_with(self._spool.note)
            return
        batch = EventBatch(self._source_id, now_us(), events)
        try:
            await self._save_with(lambda notes: self._spool.append(batch, notes))
        except SpoolError:
            self._unwritten = events + self._unwritten
            raise
        for kind, number in Counter(event.type for event in events).items():
            metrics.events.labels(source=self.source, type=kind).inc(number)

    async def _save_with(self, write: Callable[[Notes], Awaitable[None]]) -> None:
        """Write with the notes of all changed channels. Raises SpoolError."""
        channels, self._unsaved = self._unsaved, set()
        try:
            await write({checkpoint.note_name(channel.channel_id): checkpoint.encode(channel) for channel in channels})
        except SpoolError:
            self._unsaved |= channels
            raise


def _adopt(alarms: Mapping[str, Alarm], channel: AlarmChannel) -> list[AlarmChange]:
    for monitor in channel.monitors:
        if (alarm := alarms.get(monitor.limit.name)) is not None:
            channel.adopt(monitor, alarm)
    return []
