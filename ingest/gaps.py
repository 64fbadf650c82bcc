"""The gaps of one source: opened, closed and merged only here, and preserved across restarts.

A gap is stored once for all channels that share it, so that its cost does not grow with their number. Open gaps are
kept as a note in the spool, so that a process continues with them after a kill. What cannot be written because of a
disk error is kept in memory and written with the next record.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from core import metrics
from core.batch import Gap, GapBatch, Int32s
from core.errors import SpoolError
from core.timestamps import now_us
from ingest.appender import Appender, Notes
from ingest.channel_map import ChannelMap, from_ranges, group_indices, to_ranges
from ingest.notes import Note
from ingest.status import SourceStatus

log = logging.getLogger(__name__)

Channels: TypeAlias = Iterable[int] | None  # None: the source as a whole

_SOURCE = -1  # channel id that stands for the whole source
_NO_CHANNELS = np.empty(0, np.int32)
_MANY_GAPS = 500  # open gaps: more are encoded in a thread, not on the event loop


@dataclass(frozen=True, slots=True)
class _OpenGap:
    """An open gap of some channels, or of the whole source."""

    from_time: int  # µs
    reason: str
    detail: str
    certain_to: int | None = None  # µs: end of the closed gap that it continues; missing for certain up to there

    def fields(self) -> tuple[int, str, str, int | None]:
        """Fields of the gap, as notes have them."""
        return self.from_time, self.reason, self.detail, self.certain_to


@dataclass(frozen=True, slots=True)
class _ClosedGap:
    """A closed gap."""

    gap: _OpenGap
    end: int  # µs


class Gaps:
    """The gaps of one source. Channels ``None`` means the source as a whole."""

    def __init__(self, status: SourceStatus, spool: Appender) -> None:
        self._status = status
        self._spool = spool
        self._open_note = Note.OPEN_GAPS.of(status.source_id)
        self._open: ChannelMap[_OpenGap] = ChannelMap()
        self._open.update(_decode(spool.notes.get(self._open_note, "[]")))
        self._closed: ChannelMap[_ClosedGap] = ChannelMap()  # the last one of each channel
        self._closed_note = Note.CLOSED_GAP.of(status.source_id)  # that of the source as a whole
        if self._closed_note in spool.notes:
            end, *gap = json.loads(spool.notes[self._closed_note])
            self._closed.update([(_ClosedGap(_OpenGap(*gap), end), _ids(None))])
        self._repeated_note = Note.REPEATED_TIMES.of(status.source_id)
        # Times (from, to) that come a second time
        self._repeated: list[int] | None = json.loads(spool.notes.get(self._repeated_note, "null"))
        self._revision_note = Note.GAP_REVISION.of(status.source_id)
        self._revision = int(spool.notes.get(self._revision_note, 0))  # µs: the next record gets a later revision
        self._unwritten: list[Gap] = []
        self.opened = 0  # how many gaps were opened or recorded by this process
        self._writing = asyncio.Lock()
        self._update_status()

    def open_since(self, channel: int | None = None) -> int | None:
        """Start (µs) of the open gap of the channel or source; None: no open gap."""
        gap = self._gap(channel)
        return None if gap is None else gap.from_time

    @property
    def are_written(self) -> bool:
        """Return whether all are on disk."""
        return not self._unwritten

    def channels_open_for(self, reason: str) -> list[int]:
        """The channels whose open gap has this reason."""
        return [
            c for gap, channels in self._open.items() if gap.reason == reason for c in channels.tolist() if c != _SOURCE
        ]

    def channels(self) -> list[int]:
        """The channels that have an open gap of their own."""
        return [channel for channel in self._open.channels.tolist() if channel != _SOURCE]

    def detail(self, channel: int | None = None) -> str:
        """Text of the open gap; empty where there is none."""
        gap = self._gap(channel)
        return "" if gap is None else gap.detail

    def reason(self, channel: int | None = None) -> str:
        """Reason of the open gap; empty where there is none."""
        gap = self._gap(channel)
        return "" if gap is None else gap.reason

    def ended(self, at: int, channels: Channels = None) -> Iterator[tuple[int, Int32s]]:
        """Begins (µs) of the last gaps of channels, or of the source, if they ended at this time (µs)."""
        ids = _ids(channels)
        for closed, indices in self._closed.by_value(ids):
            if closed is not None and closed.end == at:
                yield closed.gap.from_time, ids[indices]

    def ends_with(self, time: int) -> bool:
        """Return whether a sample of ``time`` (µs) ends a gap: not if it is so far ahead that it is quarantined."""
        return time <= self._spool.limits.bounds(now_us())[1]

    def _gap(self, channel: int | None) -> _OpenGap | None:
        return self._open.get(_SOURCE if channel is None else channel)

    async def open(self, from_time: int, reason: str, detail: str = "", channels: Channels = None) -> None:
        """Samples are missing from ``from_time`` on. A gap that is already open stays as it is.

        A gap that begins within a closed one continues from its end: no gap replaces another. One that begins before it
        is another one: the source's clock was set back.
        """
        await self.open_each([(channels, from_time)], reason, detail)

    async def open_each(self, begins: Iterable[tuple[Channels, int]], reason: str, detail: str = "") -> None:
        """Samples of channels are missing from the given times on. Each channel at most once."""
        fresh: dict[_OpenGap, list[Int32s]] = {}
        spans = [(c, (at if self.ends_with(at) else now_us(),)) for c, at in begins]
        for begin, before, channels in self._with_last_closed(spans):
            gap = _OpenGap(begin[0], reason, detail)
            if before is not None and before.gap.from_time <= gap.from_time <= before.end:
                same, end = before.gap.reason == reason, before.end
                gap = replace(gap, from_time=before.gap.from_time if same else end, certain_to=end if same else None)
            if len(channels := channels[~self._open.has(channels)]):
                fresh.setdefault(gap, []).append(channels)
        if fresh:
            self._count(reason, len(fresh))
            opened = [(gap, np.concatenate(parts)) for gap, parts in fresh.items()]
            self._open.update(opened)
            for gap, channels in opened:
                self._queue(gap, None, channels)
            await self.flush()

    async def add_detail(self, text: str) -> None:
        """Add a text to the detail of the source's open gap."""
        for gap, channels in self._open.pop(_ids(None)):
            amended = replace(gap, detail=f"{gap.detail}; {text}")
            self._open.update([(amended, channels)])
            self._queue(amended, None, channels)
        await self.flush()

    async def close(self, to_time: int, channels: Channels = None) -> None:
        """Close the gap: the first sample after it has ``to_time``."""
        await self.close_each([(channels, to_time)])

    async def close_all(self, to_time: int) -> None:
        """Close the gaps of the source and of all its channels: it is not read any more."""
        await self.close_each([(None, to_time), (self.channels(), to_time)])

    async def close_each(self, ends: Iterable[tuple[Channels, int]]) -> None:
        """Close gaps of channels, each at the time of the first sample after it."""
        ended: dict[_ClosedGap, list[Int32s]] = {}
        for gap_channels, to_time in ends:
            for gap, channels in self._open.pop(_ids(gap_channels)) if self.ends_with(to_time) else ():
                end = max(to_time, gap.certain_to or gap.from_time)
                ended.setdefault(_ClosedGap(replace(gap, certain_to=None), end), []).append(channels)
        if ended:
            self._add_closed(ended)
            await self.flush()

    async def record(
        self, from_time: int, to_time: int, reason: str, detail: str = "", channels: Channels = None
    ) -> None:
        """Record a gap that has already ended."""
        await self.record_each([(channels, from_time, to_time)], reason, detail)

    async def record_each(self, spans: Iterable[tuple[Channels, int, int]], reason: str, detail: str = "") -> None:
        """Record gaps that have already ended: (channels, from, to) each."""
        times = [(channels, (start, end if self.ends_with(end) else now_us())) for channels, start, end in spans]
        named = np.concatenate([_NO_CHANNELS, *(_ids(channels) for channels, _ in times)])
        if len(np.unique(named)) == len(named):
            self._record(times, reason, detail)
        else:  # one after another: each continues with the result of the previous one
            for span in times:
                self._record([span], reason, detail)
        await self.flush()

    def _record(self, spans: Sequence[tuple[Channels, tuple[int, ...]]], reason: str, detail: str) -> None:
        closed: dict[_ClosedGap, list[Int32s]] = {}
        for (from_time, to_time), before, channels in self._with_last_closed(spans):
            gap = _ClosedGap(_OpenGap(from_time, reason, detail), max(to_time, from_time))
            if before is not None and before.gap.reason == reason and before.gap.from_time <= from_time <= before.end:
                gap = _ClosedGap(before.gap, max(gap.end, before.end))
            closed.setdefault(gap, []).append(channels)
        self._count(reason, len(closed))
        self._add_closed(closed)

    async def end_without_loss(self, channels: Channels = None) -> None:
        """End a gap in which nothing was lost after all: it ends where it began, or where the previous one ended."""
        for gap, ids in self._open.pop(_ids(channels)):
            detail = gap.detail if gap.certain_to else "no samples were lost"
            self._queue(replace(gap, detail=detail), gap.certain_to or gap.from_time, ids)
        await self.flush()

    async def withdraw_recorded(self, from_time: int, to_time: int, reason: str, channels: Channels = None) -> None:
        """Withdraw a recorded loss whose samples came after all; gaps that were joined with it stay."""
        ids = _ids(channels)
        for closed, indices in self._closed.by_value(ids):
            same, gap = ids[indices], _OpenGap(from_time, reason, "no samples were lost")
            remaining: list[tuple[int, int]] = []
            if closed is not None and closed.gap.from_time <= from_time and to_time <= closed.end:
                self._closed.pop(same)
                remaining = [(closed.gap.from_time, from_time), (to_time, closed.end)]
            if closed is None or not remaining or closed.gap.from_time == from_time:
                self._queue(gap, from_time, same)
            for start, end in remaining:
                if closed is not None and start < end:
                    self._add_closed({_ClosedGap(replace(closed.gap, from_time=start), end): [same]})
        await self.flush()

    async def remove(self, at: int, channels: Iterable[int], since: int | None = None) -> None:
        """Channels are not read from ``at`` (µs) on: their gaps end, and the last value of the others holds no longer.

        ``since``: µs, earlier than ``at``, where values from then on were no longer stored.

        What follows, until a channel is configured again, is in its ``retirements``.
        """
        ids = _ids(channels)
        if not len(ids):
            return
        missing = self._open.has(ids)
        await self.close(at, ids[missing])
        begin = at if since is None else min(since, at)
        await self.record(begin, at + 1, "removed", "removed from the configuration", ids[~missing])

    def _with_last_closed(
        self, spans: Sequence[tuple[Channels, tuple[int, ...]]]
    ) -> Iterator[tuple[tuple[int, ...], _ClosedGap | None, Int32s]]:
        """Times, the last gap that ended, and the channels that have both in common."""
        parts, times_of = [_ids(of_span) for of_span, _ in spans], [times for _, times in spans]
        index_of = {times: index for index, times in enumerate(times_of)}
        channels = np.concatenate([_NO_CHANNELS, *parts])
        time_indices = np.repeat(
            np.array([index_of[times] for times in times_of], np.int64), [len(ids) for ids in parts]
        )
        for before, at in self._closed.by_value(channels):
            for index, among in group_indices(time_indices[at]):
                yield times_of[index], before, channels[at[among]]

    def _add_closed(self, ended: dict[_ClosedGap, list[Int32s]]) -> None:
        closed = [(gap, np.concatenate(parts)) for gap, parts in ended.items()]
        self._closed.update(closed)
        for closed_gap, channels in closed:
            self._queue(closed_gap.gap, closed_gap.end, channels)

    def _queue(self, gap: _OpenGap, end: int | None, channels: Int32s, *, backfilled: bool = False) -> None:
        without_source = channels[channels != _SOURCE]
        if len(without_source) < len(channels):
            self._unwritten.append(Gap(gap.from_time, end, gap.reason, None, gap.detail, backfilled))
        if len(without_source):
            named = tuple(np.sort(without_source).tolist())
            self._unwritten.append(Gap(gap.from_time, end, gap.reason, named, gap.detail, backfilled))

    async def clock_set(self, before: int, after: int, polled: bool = True) -> None:
        """The local clock, from which the source's timestamps are, was set from ``before`` to ``after`` (µs).

        If it was set back, timestamps repeat up to the latest one used. If it was set forward, none lie between, which
        is a gap of a source that is ``polled``.
        """
        reached, by = before, abs(after - before) / 1e6
        if self._repeated is not None and before < self._repeated[1]:  # it had not caught up
            since, reached = self._repeated
            self._unwritten.append(
                Gap(since, before, "clock_set", None, "timestamps before and after a clock step overlap")
            )
        self._repeated = [after, reached] if after < reached else None
        if after < before:
            self._split(before, after)
        if after < reached:
            detail = (
                f"the local clock was set {'back' if after < before else 'forward'} by {by:g} s: timestamps overlap"
            )
            self._unwritten.append(Gap(after, reached, "clock_set", None, detail))
        elif polled:
            self._unwritten.append(
                Gap(reached, after, "clock_set", None, f"the local clock was set forward by {by:g} s")
            )
        self._count("clock_set", 1)
        await self.flush()

    def _split(self, before: int, after: int) -> None:
        """Split gaps that start in a time that will repeat: end them in the old times, reopen them in the new."""
        for gap, channels in self._open.items():
            if gap.from_time < after:
                continue
            fresh = _OpenGap(after + 1, gap.reason, gap.detail)  # not the beginning of the gap of the clock
            self._queue(gap, max(before, gap.from_time, gap.certain_to or 0), channels)
            self._queue(fresh, None, channels)
            self._open.update([(fresh, channels)])
        self._closed.retain([over for over, _ in self._closed.items() if over.end < after])

    async def backfilled(self, from_time: int, to_time: int, reason: str, detail: str, channels: Channels) -> None:
        """A gap was filled from the source's history. What was joined with it stays missing."""
        ids = _ids(channels)
        for closed, indices in self._closed.by_value(ids):
            if closed is None:
                continue
            if closed.gap.from_time <= from_time and to_time <= closed.end:
                for start, end in ((closed.gap.from_time, from_time), (to_time, closed.end)):
                    if start < end:
                        self._add_closed({_ClosedGap(replace(closed.gap, from_time=start), end): [ids[indices]]})
            elif from_time <= closed.gap.from_time < closed.end <= to_time:
                over = ids[indices][~self._open.has(ids[indices])]
                self._queue(replace(closed.gap, detail=detail), closed.end, over, backfilled=True)
        for open_gap, indices in self._open.by_value(ids):  # after what it continues
            if open_gap is not None and open_gap.from_time <= from_time and to_time <= (open_gap.certain_to or 0):
                self._queue(open_gap, from_time, ids[indices])
                remaining = replace(open_gap, from_time=to_time)
                self._open.update([(remaining, ids[indices])])
                self._queue(remaining, None, ids[indices])
        self._queue(_OpenGap(from_time, reason, detail), to_time, ids, backfilled=True)
        await self.flush()

    async def flush_or_raise(self) -> None:
        """Write pending records before other data depends on them. Raises SpoolError on a disk error."""
        await self.flush()
        if self._unwritten:
            raise SpoolError(f"cannot record gaps of source {self._status.name}")

    async def flush(self) -> None:
        """Write pending records. On a disk error they are kept for the next call."""
        self._update_status()
        async with self._writing:  # written in order, each with its notes
            if not self._unwritten:
                return
            gaps, self._unwritten = self._unwritten, []
            at = max(now_us(), self._revision)  # the latest revision wins, even if the clock was set back
            self._revision = at + len(gaps)
            open_gaps, notes = self._open.items(), self._small_notes()
            try:
                open_note = (
                    _encode(open_gaps) if len(open_gaps) <= _MANY_GAPS else await asyncio.to_thread(_encode, open_gaps)
                )
                await self._spool.append(
                    GapBatch(self._status.source_id, at, tuple(gaps)), {self._open_note: open_note, **notes}
                )
            except BaseException as error:
                self._unwritten = gaps + self._unwritten
                if not isinstance(error, SpoolError):
                    raise

    def _small_notes(self) -> Notes:
        notes = {
            self._revision_note: str(self._revision),
            self._repeated_note: None if self._repeated is None else json.dumps(self._repeated),
        }
        closed = self._closed.get(_SOURCE)
        note = None if closed is None else json.dumps((closed.end, *closed.gap.fields()))
        return {**notes, self._closed_note: note}

    def _count(self, reason: str, gaps: int) -> None:
        self.opened += gaps
        metrics.gaps.labels(source=self._status.name, reason=reason).inc(gaps)

    def _update_status(self) -> None:
        self._status.open_gaps = len(self._open)
        metrics.open_gaps.labels(source=self._status.name).set(len(self._open))


async def end_source(status: SourceStatus, spool: Appender) -> None:
    """The source was removed from the configuration: close its gaps, and forget its metrics."""
    log.info("source %s: removed from the configuration", status.name)
    await Gaps(status, spool).close_all(now_us())
    metrics.remove_source(status.name)


def _ids(channels: Channels) -> Int32s:
    """Unique channel ids; the placeholder of the source for None."""
    if channels is None:
        return np.array([_SOURCE], np.int32)
    return np.unique(channels if isinstance(channels, np.ndarray) else np.fromiter(channels, np.int32)).astype(np.int32)


def _encode(gaps: Iterable[tuple[_OpenGap, Int32s]]) -> str | None:
    """The note of open gaps: (ranges of channels, from, reason, detail, certain to) each; None: there are none."""
    rows = [(to_ranges(channels), *gap.fields()) for gap, channels in gaps]
    return json.dumps(rows) if rows else None


def open_gaps_note(gaps: Iterable[tuple[int | None, int, str, str]]) -> str:
    """The note of a source's open gaps: (channel, None for the source; from, µs; reason; detail) each."""
    by_gap: dict[_OpenGap, list[int]] = {}
    for channel, since, reason, detail in gaps:
        by_gap.setdefault(_OpenGap(since, reason, detail), []).append(_SOURCE if channel is None else channel)
    return _encode((gap, _ids(channels)) for gap, channels in by_gap.items()) or "[]"


def _decode(note: str) -> list[tuple[_OpenGap, Int32s]]:
    """The inverse of :func:`_encode`."""
    return [(_OpenGap(*gap), from_ranges(ranges).astype(np.int32)) for ranges, *gap in json.loads(note)]
