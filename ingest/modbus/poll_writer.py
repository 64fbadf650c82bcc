"""Writer of polls to the spool, in order: a gap is opened before later data are durable, and closed after that.

Polling does not wait for the disk until several polls are queued. As polls are written one by one, the writer knows for
each tag up to which time its samples and gaps are recorded. There its next gap begins, even if the only reason is that
polls were late: no tag is silent for two intervals without a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core import metrics
from core.batch import Event, EventBatch, Int32s, Int64s
from core.clock import ClockStep
from core.errors import SpoolError
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.channel_map import group_indices
from ingest.downtime import DETAILS, Downtime
from ingest.gaps import Gaps
from ingest.modbus.decode import UNDECODABLE
from ingest.modbus.failures import UNCERTAIN
from ingest.modbus.late_polls import GAP_PERIODS, Coverage, LateGap
from ingest.modbus.poll import Failure, Poll
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS, ChannelVersions

_MAX_POLLS = 16  # that wait for the disk
_MAX_EVENTS = 1000  # kept in memory after disk errors
_OUTAGES = ("disconnected", "stopped", "killed")  # not STANDBY: the other member reads
_NO_TAGS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class _TagChange:
    """A new tag list, queued between polls."""

    ids: Int32s  # channel ids
    intervals: Sequence[float]  # s
    at: int  # µs
    versions: Mapping[int, int]  # channel id → version


class PollWriter:
    """Queue of one source's polls on their way to the spool.

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
        self._downtime = Downtime(status.source_id, spool)
        self._versions = ChannelVersions(status.name, status.source_id, spool)
        self._start_versions(versions, began)
        self._covered_to = np.full(
            len(ids), began, np.int64
        )  # µs, up to which samples or gaps of each tag are recorded
        self._max_silence = _max_silence(intervals)
        self._open = np.isin(ids, self._gaps.channels())  # tags that have a gap of their own open
        self._texts: dict[int, str] = {}  # tag → last durable text
        self._retry_events: deque[Event] = deque(maxlen=_MAX_EVENTS)  # events that are not durable yet
        self._polls: deque[Poll | _TagChange] = deque()
        self._changed = asyncio.Event()  # a poll was added, or stopping began
        self._has_room = asyncio.Event()
        self._stopping = False

    def configure(
        self, ids: Int32s, intervals: Sequence[float], at: int, versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        """Set the tags of polls that are added from ``at`` (µs) on."""
        self._polls.append(_TagChange(ids, intervals, at, versions))
        self._changed.set()

    def add(self, poll: Poll) -> None:
        """Queue a poll without waiting; see :meth:`wait_for_room`."""
        self._polls.append(poll)
        self._changed.set()

    async def wait_for_room(self) -> None:
        """Return when the queue has room for another poll."""
        while len(self._polls) >= _MAX_POLLS:
            self._has_room.clear()
            await self._has_room.wait()

    def stop(self) -> None:
        """Stop: :meth:`run` returns when all queued polls are durable."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Write queued polls until :meth:`stop`."""
        interruption = self._downtime.interruption()
        if interruption is not None:
            since, ending = interruption
            await self._gaps.open(since, ending, DETAILS[ending])
        await self._gaps.close(now_us(), np.setdiff1d(self._gaps.channels(), self._ids))  # removed meanwhile
        while self._polls or not self._stopping:
            await self._changed.wait()
            self._changed.clear()
            while self._polls:
                poll = self._polls.popleft()
                if isinstance(poll, _TagChange):
                    await self._change_tags(poll)
                    continue
                while (later := self._next_mergeable(poll)) is not None:
                    self._polls.popleft()
                    poll.merge(later)
                self._has_room.set()
                await self._write(poll)
        await self._gaps.flush()
        await self._downtime.record_stop(now_us())

    def _next_mergeable(self, poll: Poll) -> Poll | None:
        """The next poll, if it can be merged with ``poll``: no gap of the source and no pace starts or ends."""
        later = self._polls[0] if self._polls else None
        if not isinstance(later, Poll) or later.opens_gap or later.paces or poll.paces:
            return None
        return later if poll.lost is None and self._gaps.open_since() is None else None

    async def _change_tags(self, tags: _TagChange) -> None:
        """Switch to a new tag list: keep the state of remaining channels, close the gaps of removed ones."""
        new = {channel: i for i, channel in enumerate(tags.ids.tolist())}
        moved = {i: new[channel] for i, channel in enumerate(self._ids.tolist()) if channel in new}
        covered_to, max_silence = np.full(len(tags.ids), tags.at, np.int64), _max_silence(tags.intervals)
        before, after = np.array(list(moved), np.intp), np.array(list(moved.values()), np.intp)
        silent = tags.at - self._covered_to[before]
        # If the interval becomes shorter, the current one is as long as before.
        begins = (silent > max_silence[after]) & (silent <= self._max_silence[before])
        covered_to[after] = np.where(begins, tags.at, self._covered_to[before])
        open_ = np.zeros(len(tags.ids), np.bool_)
        open_[after] = self._open[before]
        removed = np.setdiff1d(self._ids, tags.ids)
        self._texts = {moved[i]: text for i, text in self._texts.items() if i in moved}
        self._ids, self._open, self._covered_to, self._max_silence = tags.ids, open_, covered_to, max_silence
        self._start_versions(tags.versions, tags.at)
        await self._gaps.remove(tags.at, removed)

    def _start_versions(self, versions: Mapping[int, int], since: int) -> None:
        """Record the versions of channels that apply from ``since`` (µs) on."""
        for channel, version in self._versions.not_yet_read(versions).items():
            self._versions.start(channel, version, since)

    async def _write(self, poll: Poll) -> None:
        await self._gaps.flush()  # first those that failed before
        if poll.step is not None:
            await self._record_clock_step(poll.step)
        if poll.lost is not None:
            await self._open_source_gap(poll.at, poll.lost_reason, poll.lost)
        if self._gaps.open_since() is None:
            await self._open_failures(poll.failures)
        rounds = [poll_round.columns() for poll_round in poll.rounds]
        max_silence = self._max_silence.copy()
        for paced, seconds in poll.paces:
            max_silence[np.asarray(paced)] = int(GAP_PERIODS * seconds * 1e6)
        # A pace applies only to silence that began after it was known and ends before it is over.
        coverage = Coverage(self._covered_to, np.minimum(max_silence, self._max_silence), ~self._open)
        if self._gaps.open_since() is None:
            await self._record_late([gap for tags, at in rounds for gap in coverage.add_samples(tags, at)])
        self._max_silence = max_silence
        refused = await self._samples(poll)
        refused = np.union1d(refused, await self._events(poll))
        if len(refused):
            await self._open_gaps(refused, "spool_full", "the spool rejected the samples")
            coverage.to[refused] = self._covered_to[refused]
            rounds = [
                (tags[kept], at[kept]) for tags, at in rounds for kept in (~np.isin(tags, refused),) if kept.any()
            ]
        self._covered_to = coverage.to
        refuses = poll.lost is None and any(failure.reason == "refused" for failure in poll.failures)
        if (rounds or refuses) and self._gaps.open_since() is not None:  # a device that refuses does respond
            ended = max((int(at.max()) for _, at in rounds), default=poll.at)
            await self._continue_outage(poll.failures, np.concatenate([_NO_TAGS, *(tags for tags, _ in rounds)]), ended)
            await self._close_source_gap(ended)
        for tags, at in rounds:
            await self._close_gaps(tags, at)
        if not len(refused):
            await self._downtime.touch(poll.at)

    async def _open_source_gap(self, at: int, reason: str, detail: str) -> None:
        """Open a gap of the whole source at ``at`` (µs), unless one is open for this reason.

        It ends the gap of a downtime, at the start of this process, and that of a standby.
        """
        reason_before = self._gaps.reason()
        if reason_before == reason:
            return
        if reason_before:
            await self._close_source_gap(int(self._covered_to.max()) if reason_before in DETAILS else at)
        since = int(self._covered_to.max())
        await self._record_silence(since)
        self._texts.clear()
        await self._gaps.open(since, reason, detail)

    async def _record_clock_step(self, step: ClockStep) -> None:
        """Record a clock step, after the silence before it."""
        if self._gaps.open_since() is None:
            await self._record_silence(step.before)
        await self._gaps.clock_set(step.before, step.after)
        self._covered_to[:] = step.after

    async def _open_gaps(self, tags: ArrayLike, reason: str, detail: str) -> None:
        """Open gaps for those of ``tags`` that have none."""
        closed = np.asarray(tags, np.intp)
        closed = closed[~self._open[closed]]
        for i in closed.tolist() if self._texts else ():
            self._texts.pop(i, None)
        self._open[closed] = True
        since = group_indices(self._covered_to[closed])
        await self._gaps.open_each([(self._ids[closed[positions]], at) for at, positions in since], reason, detail)

    async def _close_source_gap(self, at: int) -> None:
        """Close the source's gap, at the last block of this poll, so that it covers all tags."""
        await self._gaps.close(at)
        np.maximum(self._covered_to, at, out=self._covered_to)

    async def _continue_outage(self, failures: Sequence[Failure], read: Int32s, at: int) -> None:
        """Continue the source's gap, which ends with ``read``, for other tags that were due, until they are read.

        A device that comes back answers block by block. Tags that it refuses or does not answer get their own reason.
        """
        due = at - self._covered_to > self._max_silence / GAP_PERIODS
        due[read] = False
        due[[tag for failure in failures for tag in failure.tags]] = True
        self._covered_to[due] = at
        await self._open_failures(failures)
        if (reason := self._gaps.reason()) in _OUTAGES:
            await self._open_gaps(np.flatnonzero(due), reason, self._gaps.detail())

    async def _open_failures(self, failures: Sequence[Failure]) -> None:
        """Open gaps of tags that can't be read, in place of gaps that they have from an outage of the source."""
        for failure in failures:
            tags = np.asarray(failure.tags, np.intp)
            channels = [channel for reason in _OUTAGES for channel in self._gaps.channels_open_for(reason)]
            if len(unread := tags[np.isin(self._ids[tags], channels)]):
                self._covered_to[unread] = self._covered_to.max()
                self._open[unread] = False
                await self._gaps.close(int(self._covered_to.max()), self._ids[unread])
            await self._open_gaps(tags, failure.reason, failure.detail)

    async def _close_gaps(self, tags: Int32s, at: Int64s) -> None:
        """Close the gaps of ``tags``, whose samples are durable."""
        ended = self._open[tags]
        if ended.any():
            tags, at = tags[ended], at[ended]
            self._open[tags] = False
            await self._gaps.close_each([(self._ids[tags[positions]], end) for end, positions in group_indices(at)])

    async def _record_silence(self, at: int) -> None:
        """Record tags that were silent too long before ``at`` (µs)."""
        coverage = Coverage(self._covered_to, self._max_silence, ~self._open)
        await self._record_late(coverage.find_gaps(np.arange(len(self._ids)), np.full(len(self._ids), at)))
        self._covered_to = coverage.to

    async def _record_late(self, gaps: Sequence[LateGap]) -> None:
        spans = [(None if gap.tags is None else self._ids[gap.tags], gap.begin, gap.end) for gap in gaps]
        if spans:
            await self._gaps.record_each(spans, "poll_missed", "polls came late")

    async def _samples(self, poll: Poll) -> Int32s:
        """Append a poll's samples; return the tags whose samples were rejected."""
        batch = poll.batch(self._status.source_id, self._ids)
        try:
            await self._versions.flush()
            if batch is None:
                return _NO_TAGS
            await self._spool.append(batch, self._downtime.notes(poll.at))
        except SpoolError:
            if batch is not None:
                self._status.count_missed()
            return poll.tags()
        self._status.count_samples(len(batch))
        self._status.record_samples(batch.samples.time)
        return _NO_TAGS

    async def _events(self, poll: Poll) -> Int32s:
        """Append a poll's events and changed texts; return the tags whose texts were rejected."""
        texts: dict[int, str] = {}
        changed: list[Event] = []
        for i, at, text in poll.texts:
            if texts.get(i, self._texts.get(i)) != text:
                texts[i] = text
                status = UNCERTAIN if UNDECODABLE in text else 0
                changed.append(Event("text", at, int(self._ids[i]), status, text))
        events = (*self._retry_events, *poll.events, *changed)
        if not events:
            return _NO_TAGS
        try:
            await self._spool.append(EventBatch(self._status.source_id, now_us(), events))
        except SpoolError:
            self._retry_events.extend(poll.events)
            return np.array(list(texts), np.int32)
        self._retry_events.clear()
        self._texts.update(texts)
        for event in events:
            metrics.events.labels(source=self._status.name, type=event.type).inc()
        return _NO_TAGS


def _max_silence(intervals: Sequence[float]) -> NDArray[np.int64]:
    """Allowed silence (µs) of each tag."""
    return np.array([int(GAP_PERIODS * interval * 1e6) for interval in intervals], np.int64)
