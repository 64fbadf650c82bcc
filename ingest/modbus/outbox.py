"""From polls to the spool, in order: gaps are opened before what comes behind them is durable, and closed after it.

Polling does not wait for the disk, unless several polls do already. Since one poll is written after the other, it is
known of each tag how far its durable samples and its gaps reach. There its next gap begins, also where all that
happened is that polls came late: no tag is silent for two periods without a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, Int32s, SampleBatch, now_us
from ingest.clock import Step
from ingest.errors import SpoolError
from ingest.gaps import Gaps
from ingest.heard import Heard
from ingest.modbus.poll import Poll
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS, Versions

_POLLS = 16  # that wait for the disk, at most
_PERIODS = 2  # without a sample, that are a gap
_EVENTS = 1000  # that the disk refused, kept for later, at most


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
        self._open = {i for i, channel in enumerate(ids.tolist()) if self._gaps.opened(channel) is not None}
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
                while self._polls and isinstance(later := self._polls[0], Poll) and not later.failed:
                    self._polls.popleft()
                    poll.follow(later)
                self._taken.set()
                await self._write(poll)
        await self._gaps.say()
        await self._heard.stop(now_us())

    async def _other_tags(self, tags: _Tags) -> None:
        """What is known of channels that stay goes on; a gap of one that is gone ends."""
        new = {channel: i for i, channel in enumerate(tags.ids.tolist())}
        moved = {i: new[channel] for i, channel in enumerate(self._ids.tolist()) if channel in new}
        had_to, patience = np.full(len(tags.ids), tags.at, np.int64), _patience(tags.intervals)
        if moved:
            before, after = list(moved), list(moved.values())
            silent = tags.at - self._had_to[before]
            # Where the interval is shorter from now on, the one that is under way was as long as before.
            begins = (silent > patience[after]) & (silent <= self._patience[before])
            had_to[after] = np.where(begins, tags.at, self._had_to[before])
        gone = [int(self._ids[i]) for i in self._open if i not in moved]
        self._open = {moved[i] for i in self._open if i in moved}
        self._texts = {moved[i]: text for i, text in self._texts.items() if i in moved}
        self._ids, self._had_to, self._patience = tags.ids, had_to, patience
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
        for tags, seconds in poll.paces:
            self._patience[np.asarray(tags)] = int(_PERIODS * seconds * 1e6)
        if poll.lost is not None and self._gaps.opened() is None:
            since = int(self._had_to.max())
            await self._silent(np.arange(len(self._ids)), since)
            self._texts.clear()
            await self._gaps.open(since, "disconnected", poll.lost)
        for failure in poll.failures:
            tags = failure.tags
            if failure.reason == "poll_missed":  # by those that were silent for a period: a gap may have ended just now
                tags = [i for i in tags if poll.at - self._had_to[i] > self._patience[i] / _PERIODS]
            await self._missing(tags, failure.reason, failure.detail)
        refused = await self._samples(poll)
        refused |= await self._events(poll)
        if refused:
            await self._missing(sorted(refused), "spool_full", "the spool did not take it")
        good = [([i for i in tags if i not in refused] if refused else tags, at) for tags, at in poll.good]
        if ends := [at for tags, at in good if len(tags)]:
            await self._over(max(ends))
        for tags, at in good:
            await self._had(tags, at)
        if not refused:
            await self._heard.idle(poll.at)

    async def _set(self, step: Step) -> None:
        """Our clock was set: what was silent until then is on record, and the time from then on is another."""
        if self._gaps.opened() is None:
            await self._silent(np.arange(len(self._ids)), step.before)
        await self._gaps.clock_set(step.before, step.after)
        self._had_to[:] = step.after

    async def _missing(self, tags: Iterable[int], reason: str, detail: str) -> None:
        since: dict[int, list[int]] = {}
        for i in tags:
            if i not in self._open:
                self._texts.pop(i, None)
                self._open.add(i)
                since.setdefault(int(self._had_to[i]), []).append(int(self._ids[i]))
        for at, channels in since.items():
            await self._gaps.open(at, reason, detail, channels)

    async def _over(self, at: int) -> None:
        """The source is read again. Its gap ends with the last block of this poll, so that it is one of them all."""
        if self._gaps.opened() is not None:
            await self._gaps.close(at)
            np.maximum(self._had_to, at, out=self._had_to)

    async def _had(self, tags: Sequence[int], at: int) -> None:
        """Samples of ``tags`` are durable: gaps end there."""
        if not tags:
            return
        which = np.asarray(tags)
        await self._silent(which, at)
        self._had_to[which] = at
        if self._open and (ended := self._open.intersection(tags)):
            self._open -= ended
            await self._gaps.close(at, self._ids[sorted(ended)].tolist())

    async def _silent(self, tags: NDArray[np.intp], at: int) -> None:
        """Record a gap of those of ``tags`` that were silent until ``at`` for too long, and have none open."""
        late = tags[at - self._had_to[tags] > self._patience[tags]]
        since: dict[int, list[int]] = {}
        for i in late.tolist():
            if i not in self._open:
                since.setdefault(int(self._had_to[i]), []).append(int(self._ids[i]))
        for before, channels in since.items():
            await self._gaps.record(before, at, "poll_missed", "polls came late", channels)

    async def _samples(self, poll: Poll) -> set[int]:
        """Append a poll's samples. Returns the tags that were refused."""
        batch = poll.batch(self._status.source_id, self._ids)
        try:
            await self._versions.say()
            if batch is None:
                return set()
            await self._spool.append(batch, self._heard.notes(poll.at))
        except SpoolError:
            if batch is not None:
                self._status.missed += 1
                metrics.missed.labels(source=self._status.name).inc()
            return set(poll.tags())
        self._count(batch)
        return set()

    def _count(self, batch: SampleBatch) -> None:
        self._status.samples += len(batch)
        self._status.had(batch.time)
        metrics.samples.labels(source=self._status.name).inc(len(batch))

    async def _events(self, poll: Poll) -> set[int]:
        """Append a poll's events and the texts that changed. Returns the tags whose texts were refused."""
        texts: dict[int, str] = {}
        changed: list[Event] = []
        for i, at, text in poll.texts:
            if texts.get(i, self._texts.get(i)) != text:
                texts[i] = text
                changed.append(Event("text", at, int(self._ids[i]), 0, text))
        events = (*self._refused, *poll.events, *changed)
        if not events:
            return set()
        try:
            await self._spool.append(EventBatch(self._status.source_id, now_us(), events))
        except SpoolError:
            self._refused.extend(poll.events)
            return set(texts)
        self._refused.clear()
        self._texts.update(texts)
        for event in events:
            metrics.events.labels(source=self._status.name, type=event.type).inc()
        return set()


def _patience(intervals: Sequence[float]) -> NDArray[np.int64]:
    """How long (µs) each tag may be silent without a gap."""
    return np.array([int(_PERIODS * interval * 1e6) for interval in intervals], np.int64)
