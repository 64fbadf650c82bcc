"""Between a collector and its spool: what comes is judged, and what changed is on disk before the source is told.

Changes are spooled as events before the samples that caused them, with the notes that hold the alarms' states, in one
transaction. A process that is killed before has told nobody: what comes again is judged again. One that is killed after
goes on with the notes, behind those samples. Where the spool has no room for samples the events still have: an alarm
is on record though its sample is a gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count

from ingest import metrics
from ingest.alarms import kept
from ingest.alarms.channel import Change, Channel
from ingest.alarms.columns import Columns
from ingest.alarms.limits import PRIORITIES, limits_of
from ingest.alarms.state import INHIBITED, UNACKNOWLEDGED
from ingest.appender import Appender, Notes
from ingest.batch import Batch, Event, EventBatch, SampleBatch, now_us
from ingest.config.model import Source
from ingest.errors import SpoolError

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_STEP_US = 5_000_000  # between two looks at most, on a machine that is busy
_TIDY_LOOKS = 60


class Stage:
    """The alarms of one source; an Appender, as the spool behind it."""

    def __init__(self, source: Source, channel_ids: Mapping[str, int], source_id: int, spool: Appender) -> None:
        self.source = source.name
        self._source_id = source_id
        self._spool = spool
        self._unsaid: list[Event] = []  # that are not on disk yet
        self._unkept: set[Channel] = set()  # channels whose note is not that on disk
        self._looked = now_us()
        self.columns: Columns | None = None
        states = {kept.channel_of(note): text for note, text in spool.notes.items()}
        self._begin(source, channel_ids, {c: states[c] for c in channel_ids.values() if c in states})

    def configure(self, source: Source, channel_ids: Mapping[str, int]) -> None:
        """Go on with other limits or channels; those whose limits are as before go on as they are."""
        before = self.columns
        states = {} if before is None else {c.channel_id: kept.write(c) for c in before.touched()}
        self._unkept = {c for c in self._unkept if c.channel_id in channel_ids.values()}
        self._begin(source, channel_ids, {c: text for c, text in states.items() if text is not None})

    def _begin(self, source: Source, channel_ids: Mapping[str, int], states: Mapping[int, str]) -> None:
        """Judge by these limits from now on. ``states``: the notes of channels in which something happened."""
        self.names = {channel_ids[tag.name]: tag.name for tag in source.tags}
        limits = {channel_ids[tag.name]: limits_of(tag) for tag in source.tags}
        now = now_us()
        before = self.columns
        self.columns = Columns(limits, now, before) if any(limits.values()) else None
        for channel_id, text in states.items():
            of = limits.get(channel_id, ())
            if before is not None and of and before.limits_of(channel_id) == of:
                continue
            channel, ended = kept.read(text, channel_id, of, now)
            if of and self.columns is not None:
                self.columns.put(channel)
            if ended:
                self._unsaid += map(kept.event_of, ended)
            if ended or before is not None:
                self._unkept = {c for c in self._unkept if c.channel_id != channel_id} | {channel}

    @property
    def notes(self) -> Mapping[str, str]:
        """Those of the spool."""
        return self._spool.notes

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """As the spool's; samples are judged first. Raises SpoolFull and SpoolError."""
        if isinstance(batch, SampleBatch) and self.columns is not None:
            self._changed(self.columns.evaluate(batch))
        if not self._unsaid:
            await self._with_notes(lambda kept_notes: self._spool.append(batch, {**(notes or {}), **kept_notes}))
            return
        # Both are handed over before the spool's next commit, so they are in one.
        for error in await asyncio.gather(self._say(), self._spool.append(batch, notes), return_exceptions=True):
            if error is not None:
                raise error

    async def note(self, notes: Notes) -> None:
        """As the spool's."""
        await self._spool.note(notes)

    async def wait_for_room(self) -> None:
        """As the spool's."""
        await self._spool.wait_for_room()

    async def run(self) -> None:
        """Look at the clock until cancelled: delays that are over, silence, shelving that ends."""
        for number in count():
            self.look(now_us())
            if number % _TIDY_LOOKS == 0 and self.columns is not None:
                self._tidy(self.columns)
            if self._unsaid or self._unkept:
                try:
                    await self._say()
                except SpoolError as error:
                    log.error("source %s: alarms are not on disk yet: %s", self.source, error)
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self, now: int) -> None:
        """Our clock says ``now`` (µs), about a second after the last look: :meth:`run` makes durable what that changes.

        Where it is another length of time the clock was set, or this process did not run: that is no silence.
        """
        if self.columns is None:
            return
        step, self._looked = now - self._looked, now
        if not 0 <= step <= _STEP_US:
            log.info("source %s: the clock moved by %.1f s", self.source, step / 1e6)
            self.columns.clock_moved(step - round(_LOOK_SECONDS * 1e6))
        self._changed(self.columns.look(now))

    def _tidy(self, columns: Columns) -> None:
        """Notes that say no more than that all is normal can go."""
        notes = self._spool.notes
        self._unkept |= {c for c in columns.touched() if kept.note_of(c.channel_id) in notes and kept.write(c) is None}

    async def act(self, channel_id: int, what: Callable[[Channel], list[Change]]) -> list[Change]:
        """What somebody does to a channel's alarms; returns when it is on disk.

        Raises OperationError where it can't be done, SpoolError where the disk refuses: it is done all the same.
        """
        if self.columns is None:
            return []
        changes = self.columns.act(channel_id, what)
        self._changed(changes)
        await self._say()
        return changes

    def summary(self) -> dict[str, int]:
        """How many alarms are active, by priority, and how many are unacknowledged and kept quiet."""
        found: Counter[str] = Counter(dict.fromkeys((*PRIORITIES, "unacknowledged", "inhibited"), 0))
        for channel in self.columns.touched() if self.columns is not None else ():
            for watch in channel.watches:
                state = watch.alarm.state
                found[watch.limit.priority] += watch.active and state not in INHIBITED
                found["unacknowledged"] += state in UNACKNOWLEDGED
                found["inhibited"] += state in INHIBITED
        return dict(found)

    def _changed(self, changes: Iterable[Change]) -> None:
        if self.columns is not None:
            self._unkept |= self.columns.altered()
        for change in changes:
            self._unsaid.append(kept.event_of(change))
            metrics.alarm_changes.labels(source=self.source, action=change.action).inc()

    async def _say(self) -> None:
        """Make events and notes durable; what the disk refuses is kept for the next time. Raises SpoolError."""
        said, self._unsaid = self._unsaid, []
        if not said:
            await self._with_notes(self._spool.note)
            return
        batch = EventBatch(self._source_id, now_us(), said)
        try:
            await self._with_notes(lambda notes: self._spool.append(batch, notes))
        except SpoolError:
            self._unsaid = said + self._unsaid
            raise
        metrics.events.labels(source=self.source, type="alarm").inc(len(said))

    async def _with_notes(self, do: Callable[[Notes], Awaitable[None]]) -> None:
        """Do it with the notes of all channels that changed. Raises SpoolError."""
        unkept, self._unkept = self._unkept, set()
        try:
            await do({kept.note_of(channel.channel_id): kept.write(channel) for channel in unkept})
        except SpoolError:
            self._unkept |= unkept
            raise
