"""From polls to the spool, in order: gaps are opened before what comes behind them is durable, and closed after it.

Polling does not wait for the disk, unless several polls do already. Since one poll is written after the other, it is
known of each tag how far its durable samples and its gaps reach. There its next gap begins, also where all that
happened is that polls came late: no tag is silent for two periods without a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, Int32s, Int64s, SampleBatch, now_us
from ingest.by_channel import groups
from ingest.clock import Step
from ingest.errors import SpoolError
from ingest.gaps import Gaps
from ingest.heard import Heard
from ingest.modbus.late import PERIODS, Late, Reach
from ingest.modbus.poll import Poll
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS, Versions

_POLLS = 16  # that wait for the disk, at most
_EVENTS = 1000  # that the disk refused, kept for later, at most
_NONE = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class _Tags:
    """From here on indices mean these tags."""

    ids: Int32s  # channel ids
    intervals: Sequence[float]  # s
    at: int  # µs
    versions: Mapping[int, int]  # channel id → version


class Outbox:
    """What one source's polls gathered, on its way to the spool.

    Tags are indices into ``ids`` and ``intervals`` (poll intervals in s). ``began`` (µs) is the time of the start.
    """

    def __init__(
        self,
        status: SourceStatus,
        ids: Int32s,
        intervals: Sequence[float],
        spool: Appender,
        began: int,
        versions: Mapping[int, int] = NO_VERSIONS,
    ) -> None:
        self._status = status
        self._ids = ids
        self._spool = spool
        self._gaps = Gaps(status, spool)
        self._heard = Heard(status.source_id, spool)
        self._versions = Versions(status.name, status.source_id, spool)
        self._read_by(versions, began)
        self._had_to = np.full(len(ids), began, np.int64)  # µs, of each tag: samples or gaps reach to there
        self._patience = _patience(intervals)
        self._open = np.isin(ids, self._gaps.channels())  # tags that have a gap of their own open
        self._texts: dict[int, str] = {}  # tag → last durable text
        self._refused: deque[Event] = deque(maxlen=_EVENTS)  # events that are not durable yet
        self._polls: deque[Poll | _Tags] = deque()
        self._changed = asyncio.Event()  # a poll was added, or no more will be
        self._taken = asyncio.Event()
        self._stopping = False

    def configure(
        self, ids: Int32s, intervals: Sequence[float], at: int, versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        """The polls that are added from now (``at``, µs) on are of these tags."""
        self._polls.append(_Tags(ids, intervals, at, versions))
        self._changed.set()

    def add(self, poll: Poll) -> None:
        """Hand over a poll. Does not wait; see :meth:`room`."""
        self._polls.append(poll)
        self._changed.set()

    async def room(self) -> None:
        """Return when another poll may be made."""
        while len(self._polls) >= _POLLS:
            self._taken.clear()
            await self._taken.wait()

    def stop(self) -> None:
        """Nothing is added any more: :meth:`run` ends when all is durable."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Make durable what is added, until :meth:`stop`."""
        interruption = self._heard.interruption()
        if interruption is not None:
            since, ending = interruption
            await self._gaps.open(since, ending, f"plantlog was {ending}")
        while self._polls or not self._stopping:
            await self._changed.wait()
            self._changed.clear()
            while self._polls:
                poll = self._polls.popleft()
                if isinstance(poll, _Tags):
                    await self._other_tags(poll)
                    continue
                while (later := self._joining(poll)) is not None:
                    self._polls.popleft()
                    poll.follow(later)
                self._taken.set()
                await self._write(poll)
        await self._gaps.say()
        await self._heard.stop(now_us())

    def _joining(self, poll: Poll) -> Poll | None:
        """What waits next, if it can be written with ``poll``: no gap of the source and no pace begins or ends."""
        later = self._polls[0] if self._polls else None
        if not isinstance(later, Poll) or later.failed or later.paces or poll.paces:
            return None
        return later if poll.lost is None and self._gaps.opened() is None else None

    async def _other_tags(self, tags: _Tags) -> None:
        """What is known of channels that stay goes on; a gap of one that is gone ends."""
        new = {channel: i for i, channel in enumerate(tags.ids.tolist())}
        moved = {i: new[channel] for i, channel in enumerate(self._ids.tolist()) if channel in new}
        had_to, patience = np.full(len(tags.ids), tags.at, np.int64), _patience(tags.intervals)
        before, after = np.array(list(moved), np.intp), np.array(list(moved.values()), np.intp)
        silent = tags.at - self._had_to[before]
        # Where the interval is shorter from now on, the one that is under way was as long as before.
        begins = (silent > patience[after]) & (silent <= self._patience[before])
        had_to[after] = np.where(begins, tags.at, self._had_to[before])
        open_ = np.zeros(len(tags.ids), np.bool_)
        open_[after] = self._open[before]
        self._open[before] = False
        gone = self._ids[self._open]
        self._texts = {moved[i]: text for i, text in self._texts.items() if i in moved}
        self._ids, self._open, self._had_to, self._patience = tags.ids, open_, had_to, patience
        self._read_by(tags.versions, tags.at)
        await self._gaps.close(tags.at, gone)

    def _read_by(self, versions: Mapping[int, int], since: int) -> None:
        """What comes from ``since`` (µs) on was read by these versions of channels."""
        for channel, version in self._versions.unsaid(versions).items():
            self._versions.begin(channel, version, since)

    async def _write(self, poll: Poll) -> None:
        await self._gaps.say()  # what the disk refused before goes first
        if poll.step is not None:
            await self._set(poll.step)
        if poll.lost is not None and self._gaps.opened() is None:
            since = int(self._had_to.max())
            await self._silent_until(since)
            self._texts.clear()
            await self._gaps.open(since, "disconnected", poll.lost)
        for failure in poll.failures:
            await self._missing(failure.tags, failure.reason, failure.detail)
        rounds = [each.columns() for each in poll.rounds]
        patience = self._patience.copy()
        for paced, seconds in poll.paces:
            patience[np.asarray(paced)] = int(PERIODS * seconds * 1e6)
        # A pace excuses no silence that began before it was known, or that ends when it is over.
        reach = Reach(self._had_to, np.minimum(patience, self._patience), ~self._open)
        if self._gaps.opened() is None:
            await self._late([gap for tags, at in rounds for gap in reach.had(tags, at)])
        self._patience = patience
        refused = await self._samples(poll)
        refused = np.union1d(refused, await self._events(poll))
        if len(refused):
            await self._missing(refused, "spool_full", "the spool did not take it")
            reach.to[refused] = self._had_to[refused]
            rounds = [(tags[had], at[had]) for tags, at in rounds for had in (~np.isin(tags, refused),) if had.any()]
        self._had_to = reach.to
        if rounds:
            await self._over(max(int(at.max()) for _, at in rounds))
        for tags, at in rounds:
            await self._had(tags, at)
        if not len(refused):
            await self._heard.idle(poll.at)

    async def _set(self, step: Step) -> None:
        """Our clock was set: what was silent until then is on record, and the time from then on is another."""
        if self._gaps.opened() is None:
            await self._silent_until(step.before)
        await self._gaps.clock_set(step.before, step.after)
        self._had_to[:] = step.after

    async def _missing(self, tags: ArrayLike, reason: str, detail: str) -> None:
        """From now on something is missing of those of ``tags`` that have no gap open."""
        which = np.asarray(tags, np.intp)
        which = which[~self._open[which]]
        for i in which.tolist() if self._texts else ():
            self._texts.pop(i, None)
        self._open[which] = True
        since = groups(self._had_to[which])
        await self._gaps.open_each([(self._ids[which[of]], at) for at, of in since], reason, detail)

    async def _over(self, at: int) -> None:
        """The source is read again. Its gap ends with the last block of this poll, so that it is one of them all."""
        if self._gaps.opened() is not None:
            await self._gaps.close(at)
            np.maximum(self._had_to, at, out=self._had_to)

    async def _had(self, tags: Int32s, at: Int64s) -> None:
        """Samples of ``tags`` are durable: gaps end there."""
        ended = self._open[tags]
        if ended.any():
            tags, at = tags[ended], at[ended]
            self._open[tags] = False
            await self._gaps.close_each([(self._ids[tags[of]], end) for end, of in groups(at)])

    async def _silent_until(self, at: int) -> None:
        """Something else begins then (µs): what was silent for too long is on record before."""
        reach = Reach(self._had_to, self._patience, ~self._open)
        await self._late(reach.silent(np.arange(len(self._ids)), np.full(len(self._ids), at)))
        self._had_to = reach.to

    async def _late(self, gaps: Sequence[Late]) -> None:
        spans = [(None if gap.tags is None else self._ids[gap.tags], gap.begin, gap.end) for gap in gaps]
        if spans:
            await self._gaps.record_each(spans, "poll_missed", "polls came late")

    async def _samples(self, poll: Poll) -> Int32s:
        """Append a poll's samples. Returns the tags that were refused."""
        batch = poll.batch(self._status.source_id, self._ids)
        try:
            await self._versions.say()
            if batch is None:
                return _NONE
            await self._spool.append(batch, self._heard.notes(poll.at))
        except SpoolError:
            if batch is not None:
                self._status.missed += 1
                metrics.missed.labels(source=self._status.name).inc()
            return poll.tags()
        self._count(batch)
        return _NONE

    def _count(self, batch: SampleBatch) -> None:
        self._status.samples += len(batch)
        self._status.had(batch.time)
        metrics.samples.labels(source=self._status.name).inc(len(batch))

    async def _events(self, poll: Poll) -> Int32s:
        """Append a poll's events and the texts that changed. Returns the tags whose texts were refused."""
        texts: dict[int, str] = {}
        changed: list[Event] = []
        for i, at, text in poll.texts:
            if texts.get(i, self._texts.get(i)) != text:
                texts[i] = text
                changed.append(Event("text", at, int(self._ids[i]), 0, text))
        events = (*self._refused, *poll.events, *changed)
        if not events:
            return _NONE
        try:
            await self._spool.append(EventBatch(self._status.source_id, now_us(), events))
        except SpoolError:
            self._refused.extend(poll.events)
            return np.array(list(texts), np.int32)
        self._refused.clear()
        self._texts.update(texts)
        for event in events:
            metrics.events.labels(source=self._status.name, type=event.type).inc()
        return _NONE


def _patience(intervals: Sequence[float]) -> NDArray[np.int64]:
    """How long (µs) each tag may be silent without a gap."""
    return np.array([int(PERIODS * interval * 1e6) for interval in intervals], np.int64)
